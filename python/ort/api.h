/* SPDX-License-Identifier: MIT
 *
 * api.h - what libattn uses of ONNX Runtime's C interface, version 24: the layout of its tables, under names of our own.
 *
 * Nothing of ONNX Runtime is needed to build or to load this: the runtime passes its tables of functions.  Order and types are
 * those of onnxruntime_c_api.h and onnxruntime_ep_c_api.h of ONNX Runtime 1.24, which later versions only append to; a runtime
 * reads no field behind those that the number `version` had.  The tests call every function that is declared here.
 */
#ifndef ATTN_PYTHON_ORT_API_H
#define ATTN_PYTHON_ORT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORT_VERSION = 24 };

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum { ORT_CPU = 0 }; /* the type of a device */

/* Types of elements; the numbers are ONNX's too. */
enum { ORT_FLOAT = 1, ORT_INT32 = 6, ORT_INT64 = 7, ORT_BOOL = 9, ORT_FLOAT16 = 10, ORT_DOUBLE = 11, ORT_BFLOAT16 = 16 };

enum { ORT_ATTRIBUTE_INT = 1, ORT_ATTRIBUTE_FLOAT = 3, ORT_ATTRIBUTE_STRING = 5 };

typedef struct ort_status ort_status; /* NULL: success */
typedef struct ort_value ort_value;
typedef struct ort_tensor_info ort_tensor_info;
typedef struct ort_type_info ort_type_info;
typedef struct ort_value_info ort_value_info;
typedef struct ort_node ort_node;
typedef struct ort_attribute ort_attribute;
typedef struct ort_graph ort_graph;
typedef struct ort_kernel_info ort_kernel_info;
typedef struct ort_context ort_context; /* of one run of a kernel */
typedef struct ort_session_options ort_session_options;
typedef struct ort_logger ort_logger;
typedef struct ort_pairs ort_pairs;
typedef struct ort_hardware ort_hardware;
typedef struct ort_device ort_device; /* hardware with a provider for it */
typedef struct ort_memory_info ort_memory_info;
typedef struct ort_allocator ort_allocator;
typedef struct ort_support ort_support; /* what a provider takes of a graph */
typedef struct ort_registry ort_registry;
typedef struct ort_builder ort_builder; /* of a definition */
typedef struct ort_definition ort_definition;
typedef struct ort_data_type ort_data_type;
typedef struct ort_provider ort_provider;
typedef struct ort_factory ort_factory;
typedef struct ort_kernel ort_kernel;
typedef struct ort_ep_api ort_ep_api;

typedef void ort_work(void *context, size_t i);

/* The functions of the runtime up to the last one that is used; the others stand as their places. */
typedef struct ort_api {
    ort_status *(*create_status)(int code, const char *message);
    void *places_1[50];
    ort_status *(*tensor_data)(ort_value *value, void **data); /* 51 */
    void *places_52[3];
    ort_status *(*tensor_info_of_type)(const ort_type_info *info, const ort_tensor_info **tensor); /* 55 */
    void *places_56[4];
    ort_status *(*element_type)(const ort_tensor_info *info, int *type); /* 60 */
    ort_status *(*rank)(const ort_tensor_info *info, size_t *rank);
    void *places_62[23];
    ort_status *(*kernel_float)(const ort_kernel_info *info, const char *name, float *number); /* 85 */
    ort_status *(*kernel_int)(const ort_kernel_info *info, const char *name, int64_t *number);
    ort_status *(*kernel_string)(const ort_kernel_info *info, const char *name, char *text, size_t *size);
    ort_status *(*input_count)(const ort_context *context, size_t *count);
    ort_status *(*output_count)(const ort_context *context, size_t *count);
    ort_status *(*input)(const ort_context *context, size_t index, const ort_value **value);
    ort_status *(*output)(ort_context *context, size_t index, const int64_t *sizes, size_t rank, ort_value **value);
    void *place_92;
    void (*release_status)(ort_status *status); /* 93 */
    void *places_94[143];
    ort_status *(*has_config)(const ort_session_options *options, const char *key, int *present); /* 237 */
    ort_status *(*config)(const ort_session_options *options, const char *key, char *value, size_t *size);
    void *places_239[33];
    ort_status *(*read_attribute)(const ort_attribute *attribute, int type, void *data, size_t size, size_t *needed); /* 272 */
    void *place_273;
    ort_status *(*parallel_for)(const ort_context *context, ort_work *work, size_t total, size_t batches, void *data); /* 274 */
    void *places_275[15];
    ort_status *(*type_of_value)(const ort_value_info *value, const ort_type_info **type); /* 290 */
    void *places_291[16];
    int (*hardware_type)(const ort_hardware *hardware); /* 307 */
    void *places_308[9];
    const ort_ep_api *(*ep_api)(void); /* 317 */
    void *places_318[26];
    ort_status *(*node_count)(const ort_graph *graph, size_t *count); /* 344 */
    ort_status *(*nodes)(const ort_graph *graph, const ort_node **nodes, size_t count);
    void *places_346[4];
    ort_status *(*node_operator)(const ort_node *node, const char **name); /* 350 */
    ort_status *(*node_domain)(const ort_node *node, const char **domain);
    void *place_352;
    ort_status *(*node_input_count)(const ort_node *node, size_t *count); /* 353 */
    ort_status *(*node_inputs)(const ort_node *node, const ort_value_info **inputs, size_t count);
    ort_status *(*node_output_count)(const ort_node *node, size_t *count);
    ort_status *(*node_outputs)(const ort_node *node, const ort_value_info **outputs, size_t count);
    void *places_357[4];
    ort_status *(*node_attribute)(const ort_node *node, const char *name, const ort_attribute **attribute); /* 361 */
    void *places_362[28];
    bool (*has_shape)(const ort_tensor_info *info); /* 390 */
    void *places_391[23];
    /* The runtime's own sizes, with nothing allocated; new in 24. */
    ort_status *(*type_and_sizes)(const ort_value *value, int *type, const int64_t **sizes, size_t *rank); /* 414 */
} ort_api;

_Static_assert(offsetof(ort_api, tensor_data) == 51 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, kernel_float) == 85 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, release_status) == 93 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, config) == 238 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, parallel_for) == 274 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, ep_api) == 317 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, has_shape) == 390 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, type_and_sizes) == 414 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_api, node_attribute) == 361 * sizeof(void *), "place of a function");

typedef struct ort_base {
    const ort_api *(*get)(uint32_t version); /* NULL: the runtime is older */
    const char *(*version)(void);
} ort_base;

typedef ort_status *ort_create_kernel(void *state, const ort_kernel_info *info, ort_kernel **kernel);

/* The functions for providers, likewise. */
struct ort_ep_api {
    ort_status *(*create_device)(ort_factory *factory, const ort_hardware *hardware, const ort_pairs *metadata,
                                 const ort_pairs *options, ort_device **device);
    void *places_1[2];
    ort_status *(*take_node)(ort_support *support, const ort_node *node); /* 3 */
    void *places_4[14];
    ort_status *(*create_registry)(ort_registry **registry); /* 18 */
    void (*release_registry)(ort_registry *registry);
    ort_status *(*add_kernel)(ort_registry *registry, const ort_definition *definition, ort_create_kernel *create, void *state);
    ort_status *(*create_builder)(ort_builder **builder);
    void (*release_builder)(ort_builder *builder);
    ort_status *(*set_operator)(ort_builder *builder, const char *name);
    ort_status *(*set_domain)(ort_builder *builder, const char *domain);
    ort_status *(*set_versions)(ort_builder *builder, int first, int last);
    ort_status *(*set_provider)(ort_builder *builder, const char *name);
    void *places_27[2];
    ort_status *(*add_types)(ort_builder *builder, const char *name, const ort_data_type *const *types, size_t count); /* 29 */
    void *places_30[2];
    ort_status *(*build)(ort_builder *builder, ort_definition **definition); /* 32 */
    void (*release_definition)(ort_definition *definition);
    void *places_34[6];
    ort_status *(*data_type)(int element, const ort_data_type **type); /* 40 */
    ort_status *(*find_kernel)(ort_support *support, const ort_node *node, const ort_definition **definition);
};

_Static_assert(offsetof(ort_ep_api, create_registry) == 18 * sizeof(void *), "place of a function");
_Static_assert(offsetof(ort_ep_api, find_kernel) == 41 * sizeof(void *), "place of a function");

/* ---- what the runtime calls; NULL where a function is optional ---------------------------------------------------- */

struct ort_kernel {
    uint32_t version;
    uint32_t flags;
    ort_status *(*compute)(ort_kernel *kernel, ort_context *context);
    void (*release)(ort_kernel *kernel);
    void *pre_pack, *set_shared_pre_packed;
};

struct ort_provider {
    uint32_t version;
    const char *(*name)(const ort_provider *provider);
    ort_status *(*capability)(ort_provider *provider, const ort_graph *graph, ort_support *support);
    void *compile, *release_computations, *preferred_layout, *converts_layout, *set_dynamic_options, *on_run_start, *on_run_end,
        *create_allocator, *create_stream, *compatibility;
    ort_status *(*registry)(ort_provider *provider, const ort_registry **registry);
    void *concurrent_runs;
    void *later[8];
};

struct ort_factory {
    uint32_t version;
    const char *(*name)(const ort_factory *factory);
    const char *(*vendor)(const ort_factory *factory);
    ort_status *(*devices)(ort_factory *factory, const ort_hardware *const *hardware, size_t count, ort_device **devices,
                           size_t most, size_t *made);
    ort_status *(*create)(ort_factory *factory, const ort_hardware *const *hardware, const ort_pairs *const *metadata, size_t count,
                          const ort_session_options *options, const ort_logger *logger, ort_provider **provider);
    void (*release)(ort_factory *factory, ort_provider *provider);
    uint32_t (*vendor_id)(const ort_factory *factory);
    const char *(*provider_version)(const ort_factory *factory);
    void *validate;
    /* The runtime calls these four without a look. */
    ort_status *(*create_allocator)(ort_factory *factory, const ort_memory_info *memory, const ort_pairs *options,
                                    ort_allocator **allocator);
    void (*release_allocator)(ort_factory *factory, ort_allocator *allocator);
    ort_status *(*create_transfer)(ort_factory *factory, void **transfer);
    bool (*is_stream_aware)(const ort_factory *factory);
    void *create_stream, *incompatibility, *create_importer, *count_domains, *domains;
    void *later[8];
};

#endif
