/* SPDX-License-Identifier: MIT
 * describe.c - names, versions, and the features of the CPU and this build. */
#include "../base/cpu.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../plan/plan.h"

#include <string.h>

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

const char *attn_version(void) { return STRING(ATTN_VERSION_MAJOR) "." STRING(ATTN_VERSION_MINOR) "." STRING(ATTN_VERSION_PATCH); }

const char *attn_status_string(attn_status status)
{
    static const char *const texts[] = {
        [ATTN_OK] = "ok",
        [ATTN_ERR_ARGUMENT] = "bad argument",
        [ATTN_ERR_SHAPE] = "shapes do not fit",
        [ATTN_ERR_STRIDE] = "bad strides",
        [ATTN_ERR_UNSUPPORTED] = "not supported",
        [ATTN_ERR_MEMORY] = "out of memory",
        [ATTN_ERR_IO] = "input or output failed",
        [ATTN_ERR_FORMAT] = "bad file format",
    };
    if ((unsigned)status >= sizeof texts / sizeof *texts) return "unknown status";
    return texts[status];
}

size_t attn_dtype_size(attn_dtype dtype) { return attn_dtype_bytes(dtype); }
const char *attn_dtype_name(attn_dtype dtype) { return attn_dtype_text(dtype); }
const char *attn_isa_name(attn_isa isa) { return attn_isa_text(isa); }

attn_status attn_cpu_describe(attn_cpu_description *description, attn_error *error)
{
    attn_cpu_description d = {0};
    const attn_kernel_row *row;
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    TRY(attn_struct_check(description->struct_size, sizeof d, "attn_cpu_description", error));
    attn_cpu_name(d.name, sizeof d.name);
    attn_cpu_feature_names(attn_cpu_features(), d.features, sizeof d.features);
    for (int i = 0; (row = attn_kernel_at(i)); i++)
        if (!(row->needs & ~attn_cpu_features()) && row->isa > d.isa) d.isa = row->isa;
    TRY(attn_threads_choose(0, &d.threads, error));
    attn_cpu_caches(&d.cache_l1d, &d.cache_l2, &d.cache_l3);
    attn_struct_write(description, &d, sizeof d);
    return attn_succeed(error);
}

attn_status attn_kernel_describe(int index, attn_kernel_description *description, attn_error *error)
{
    attn_kernel_description d = {0};
    int count = 0;
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    TRY(attn_struct_check(description->struct_size, sizeof d, "attn_kernel_description", error));
    while (attn_kernel_at(count)) count++;
    CHECK(index >= 0 && index < count, ATTN_ERR_ARGUMENT, "kernel %d does not exist; this build has %d", index, count);
    const attn_kernel_row *row = attn_kernel_at(index);
    d.name = row->name;
    attn_cpu_feature_names(row->needs, d.needs, sizeof d.needs);
    d.op = row->op;
    d.isa = row->isa;
    d.compute = row->compute;
    d.usable = !(row->needs & ~attn_cpu_features());
    d.decode = row->decode;
    attn_struct_write(description, &d, sizeof d);
    return attn_succeed(error);
}
