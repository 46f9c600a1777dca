/* SPDX-License-Identifier: MIT
 * xla_layout.c - python/xla/ffi.h against the header that jaxlib ships: compiles only if they agree. */
#include "xla/ffi.h"

#include <xla/ffi/api/c_api.h>

#define SAME(ours, field, theirs, name)                                                                                                    \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, name) && sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->name),          \
                   #ours "." #field)
#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

typedef struct XLA_FFI_Api api;
typedef struct XLA_FFI_CallFrame call_frame;

VALUE(XLA_API_MAJOR, XLA_FFI_API_MAJOR);
_Static_assert(XLA_API_MINOR <= XLA_FFI_API_MINOR, "the version that is asked for");
VALUE(XLA_EXTENSION_METADATA, XLA_FFI_Extension_Metadata);
VALUE(XLA_STAGE_EXECUTE, XLA_FFI_ExecutionStage_EXECUTE);
VALUE(XLA_ERROR_INVALID_ARGUMENT, XLA_FFI_Error_Code_INVALID_ARGUMENT);
VALUE(XLA_ERROR_RESOURCE_EXHAUSTED, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
VALUE(XLA_ERROR_UNIMPLEMENTED, XLA_FFI_Error_Code_UNIMPLEMENTED);
VALUE(XLA_ERROR_INTERNAL, XLA_FFI_Error_Code_INTERNAL);
VALUE(XLA_ATTRIBUTE_ARRAY, XLA_FFI_AttrType_ARRAY);

SIZE(xla_extension, XLA_FFI_Extension_Base);
SAME(xla_extension, type, XLA_FFI_Extension_Base, type);
SAME(xla_extension, next, XLA_FFI_Extension_Base, next);
SIZE(xla_version, XLA_FFI_Api_Version);
SAME(xla_version, minor_version, XLA_FFI_Api_Version, minor_version);
SAME(xla_metadata, api_version, XLA_FFI_Metadata, api_version);
SAME(xla_metadata, traits, XLA_FFI_Metadata, traits);
SAME(xla_metadata_extension, metadata, XLA_FFI_Metadata_Extension, metadata);
SIZE(xla_buffer, XLA_FFI_Buffer);
SAME(xla_buffer, dtype, XLA_FFI_Buffer, dtype);
SAME(xla_buffer, data, XLA_FFI_Buffer, data);
SAME(xla_buffer, dims, XLA_FFI_Buffer, dims);
SIZE(xla_span, XLA_FFI_ByteSpan);
SAME(xla_span, length, XLA_FFI_ByteSpan, len);
SIZE(xla_array, XLA_FFI_Array);
SAME(xla_array, size, XLA_FFI_Array, size);
SAME(xla_array, data, XLA_FFI_Array, data);
SIZE(xla_values, XLA_FFI_Args);
SAME(xla_values, types, XLA_FFI_Args, types);
SAME(xla_values, values, XLA_FFI_Args, args);
SIZE(xla_values, XLA_FFI_Rets);
SAME(xla_values, values, XLA_FFI_Rets, rets);
SIZE(xla_attributes, XLA_FFI_Attrs);
SAME(xla_attributes, names, XLA_FFI_Attrs, names);
SAME(xla_attributes, values, XLA_FFI_Attrs, attrs);
SIZE(xla_error_create, XLA_FFI_Error_Create_Args);
SAME(xla_error_create, code, XLA_FFI_Error_Create_Args, errc);
SIZE(xla_error_destroy, XLA_FFI_Error_Destroy_Args);
SAME(xla_error_destroy, error, XLA_FFI_Error_Destroy_Args, error);
SIZE(xla_schedule, XLA_FFI_ThreadPool_Schedule_Args);
SAME(xla_schedule, task, XLA_FFI_ThreadPool_Schedule_Args, task);
SAME(xla_schedule, data, XLA_FFI_ThreadPool_Schedule_Args, data);
SIZE(xla_count_threads, XLA_FFI_ThreadPool_NumThreads_Args);
SAME(xla_count_threads, threads, XLA_FFI_ThreadPool_NumThreads_Args, num_threads);
SAME(xla_api, error_create, api, XLA_FFI_Error_Create);
SAME(xla_api, error_destroy, api, XLA_FFI_Error_Destroy);
SAME(xla_api, schedule, api, XLA_FFI_ThreadPool_Schedule);
SAME(xla_api, count_threads, api, XLA_FFI_ThreadPool_NumThreads);
SAME(xla_call_frame, api, call_frame, api);
SAME(xla_call_frame, context, call_frame, ctx);
SAME(xla_call_frame, stage, call_frame, stage);
SAME(xla_call_frame, arguments, call_frame, args);
SAME(xla_call_frame, results, call_frame, rets);
SAME(xla_call_frame, attributes, call_frame, attrs);
