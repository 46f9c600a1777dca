/* SPDX-License-Identifier: MIT
 *
 * stable.h - the names of PyTorch's stable C interface that the shim uses, found in the process when the shim is loaded, so that
 * nothing of PyTorch is needed to build it and one build serves every version from 2.10 on.
 *
 * The rows are declarations of PyTorch 2.13.0, torch/csrc/inductor/aoti_torch/c/shim.h (aoti_...) and torch/csrc/stable/c/shim.h
 * (torch_...); python/tests/test_torch_shim.py compares them with the headers of the installed version.  A new row needs no other
 * change than its use.
 */
#ifndef ATTN_PYTHON_TORCH_STABLE_H
#define ATTN_PYTHON_TORCH_STABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct AtenTensorOpaque *AtenTensorHandle;
typedef struct TorchLibraryOpaque *TorchLibraryHandle;
typedef int32_t AOTITorchError; /* 0: none */
/* An argument or a result of an operator: an integer, the bits of a double, a bool in the low byte, a tensor that the receiver
 * owns; an optional one is NULL or the address of such a word on the heap. */
typedef uint64_t StableIValue;
typedef void (*ParallelFunc)(int64_t begin, int64_t end, void *ctx);
typedef void (*BoxedKernel)(StableIValue *, uint64_t, uint64_t);

/* F(result, name, parameters): needed. */
#define STABLE_NAMES(F)                                                                                                            \
    F(int32_t, aoti_torch_device_type_cpu, (void))                                                                                 \
    F(int32_t, aoti_torch_dtype_bfloat16, (void))                                                                                  \
    F(int32_t, aoti_torch_dtype_float16, (void))                                                                                   \
    F(int32_t, aoti_torch_dtype_float32, (void))                                                                                   \
    F(int32_t, aoti_torch_dtype_float64, (void))                                                                                   \
    F(int32_t, aoti_torch_dtype_uint8, (void))                                                                                     \
    F(int32_t, aoti_torch_dtype_int8, (void))                                                                                      \
    F(int32_t, aoti_torch_dtype_int32, (void))                                                                                     \
    F(int32_t, aoti_torch_dtype_int64, (void))                                                                                     \
    F(int32_t, aoti_torch_dtype_bool, (void))                                                                                      \
    F(AOTITorchError, aoti_torch_delete_tensor_object, (AtenTensorHandle tensor))                                                  \
    F(AOTITorchError, aoti_torch_get_data_ptr, (AtenTensorHandle tensor, void **ret_data_ptr))                                     \
    F(AOTITorchError, aoti_torch_get_dim, (AtenTensorHandle tensor, int64_t * ret_dim))                                            \
    F(AOTITorchError, aoti_torch_get_sizes, (AtenTensorHandle tensor, int64_t * *ret_sizes))                                       \
    F(AOTITorchError, aoti_torch_get_strides, (AtenTensorHandle tensor, int64_t * *ret_strides))                                   \
    F(AOTITorchError, aoti_torch_get_dtype, (AtenTensorHandle tensor, int32_t * ret_dtype))                                        \
    F(AOTITorchError, aoti_torch_get_device_type, (AtenTensorHandle tensor, int32_t * ret_device_type))                            \
    F(AOTITorchError, aoti_torch_is_defined, (AtenTensorHandle tensor, bool *ret_is_defined))                                      \
    F(AOTITorchError, aoti_torch_empty_strided,                                                                                    \
      (int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, int32_t dtype, int32_t device_type,                     \
       int32_t device_index, AtenTensorHandle *ret_new_tensor))                                                                    \
    F(AOTITorchError, aoti_torch_copy_, (AtenTensorHandle self, AtenTensorHandle src, int32_t non_blocking))                       \
    F(AOTITorchError, aoti_torch_library_init_impl,                                                                                \
      (const char *ns, const char *k, const char *file, uint32_t line, TorchLibraryHandle *ret_new_torch_lib))                     \
    F(AOTITorchError, aoti_torch_library_init_def,                                                                                 \
      (const char *ns, const char *file, uint32_t line, TorchLibraryHandle *ret_new_torch_lib))                                    \
    F(AOTITorchError, aoti_torch_library_def, (TorchLibraryHandle self, const char *schema))                                       \
    F(AOTITorchError, aoti_torch_library_impl, (TorchLibraryHandle self, const char *name, BoxedKernel fn))                        \
    F(AOTITorchError, aoti_torch_delete_library_object, (TorchLibraryHandle tlh))                                                  \
    F(AOTITorchError, torch_parallel_for, (int64_t begin, int64_t end, int64_t grain_size, ParallelFunc func, void *ctx))          \
    F(AOTITorchError, torch_get_num_threads, (uint32_t * out_num_threads))

/* NULL where the version is older: from 2.13 on. */
#define STABLE_NEW_NAMES(F) F(AOTITorchError, torch_delete_stable_ivalue, (StableIValue * value))

typedef struct stable_interface {
#define FIELD(result, name, parameters) result(*name) parameters;
    STABLE_NAMES(FIELD)
    STABLE_NEW_NAMES(FIELD)
#undef FIELD
} stable_interface;

extern stable_interface torch;

/* Finds the names in this library, which is in the process already.  Returns NULL, or the name that is missing. */
const char *stable_load(const char *libtorch);

/* Frees the word of an optional argument. */
void stable_free_word(StableIValue *word);

/* Leaves a kernel with a RuntimeError: a C++ exception, made by the functions of the C++ runtime that PyTorch has loaded.  Does
 * not return. */
_Noreturn void stable_throw(const char *message);

#endif
