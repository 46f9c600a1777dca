/* SPDX-License-Identifier: MIT
 * names.c - the table of element types and the names of instruction sets. */
#include "names.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [ATTN_DTYPE_DEFAULT] = {"default", 0},
    [ATTN_F32] = {"f32", 4},
    [ATTN_F64] = {"f64", 8},
    [ATTN_F16] = {"f16", 2},
    [ATTN_BF16] = {"bf16", 2},
    [ATTN_BOOL] = {"bool", 1},
    [ATTN_I8] = {"i8", 1},
    [ATTN_U8] = {"u8", 1},
    [ATTN_I16] = {"i16", 2},
    [ATTN_U16] = {"u16", 2},
    [ATTN_I32] = {"i32", 4},
    [ATTN_U32] = {"u32", 4},
    [ATTN_I64] = {"i64", 8},
    [ATTN_U64] = {"u64", 8},
    [ATTN_F8_E4M3] = {"f8_e4m3", 1},
    [ATTN_F8_E5M2] = {"f8_e5m2", 1},
    [ATTN_Q8_0] = {"q8_0", 34},
    [ATTN_Q4_0] = {"q4_0", 18},
    [ATTN_Q4_1] = {"q4_1", 20},
    [ATTN_Q4_1C] = {"q4_1c", 20},
};

static const char *const isas[] = {"default", "scalar", "avx2", "avx512", "neon", "wasm128"};

size_t attn_dtype_bytes(attn_dtype dtype) { return (unsigned)dtype < sizeof dtypes / sizeof *dtypes ? dtypes[dtype].bytes : 0; }

const char *attn_dtype_text(attn_dtype dtype)
{
    return (unsigned)dtype < sizeof dtypes / sizeof *dtypes ? dtypes[dtype].name : "unknown";
}

const char *attn_isa_text(attn_isa isa) { return (unsigned)isa < sizeof isas / sizeof *isas ? isas[isa] : "unknown"; }
