/* SPDX-License-Identifier: MIT
 * library.c - what Python calls, by ctypes. */
#include "shim.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static TorchLibraryHandle definitions, kernels, overrides;

static int add(TorchLibraryHandle library, const operator_row *rows)
{
    for (; rows->name; rows++)
        if (torch.aoti_torch_library_impl(library, rows->name, rows->kernel)) return -1;
    return 0;
}

/* Defines the operators.  NULL, or what is missing. */
EXPORT const char *attn_torch_load(const char *libtorch)
{
    static const char name[] = "libattn";
    if (kernels) return NULL;
    const char *missing = stable_load(libtorch);
    if (missing) return missing;
    view_types();
    if (torch.aoti_torch_library_init_def(name, __FILE__, __LINE__, &definitions)) return "a library of operators named libattn";
    for (const char *const *schema = attention_schemas; *schema; schema++)
        if (torch.aoti_torch_library_def(definitions, *schema)) return *schema;
    if (torch.aoti_torch_library_init_impl(name, "CPU", __FILE__, __LINE__, &kernels) || add(kernels, attention_operators))
        return "kernels of libattn";
    return NULL;
}

/* Puts libattn's kernels in the place of PyTorch's; 0, or -1. */
EXPORT int attn_torch_enable(void)
{
    if (overrides) return 0;
    return torch.aoti_torch_library_init_impl("aten", "CPU", __FILE__, __LINE__, &overrides) || add(overrides, aten_operators) ? -1
                                                                                                                               : 0;
}

/* PyTorch's kernels return. */
EXPORT void attn_torch_disable(void)
{
    if (overrides) torch.aoti_torch_delete_library_object(overrides);
    overrides = NULL;
}

EXPORT int64_t attn_torch_calls(int backward) { return __atomic_load_n(&aten_calls[backward], __ATOMIC_RELAXED); }

/* The status of this thread's last failure, if `message` begins with its sentence; else 0. */
EXPORT int attn_torch_status(const char *message)
{
    const size_t size = strlen(boxed_error.message);
    return size && !strncmp(message, boxed_error.message, size) ? (int)boxed_error.status : 0;
}
