/* SPDX-License-Identifier: MIT
 *
 * decode.inc.c - the decode kernel, written once.  An instantiation (<isa>/dec_<type>.c) defines REAL_BITS, includes the SIMD layer
 * of its instruction set and then this file, and defines its part as ATTN_DECODE_PART, and in f32 another as ATTN_CHANNELS_PART.
 */
#ifdef VF_LANES

/* Some steps of forward are only building blocks here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "decode_keys_step.inc.c"
#include "decode_prefetch_step.inc.c"
#include "decode_step.inc.c"

#if REAL_BITS == 32
#include "channels_step.inc.c"
#endif

#include "decode_order_step.inc.c"

static int64_t step_block_of_rows(int64_t dim_qk, int64_t dim_v)
{
    (void)dim_qk, (void)dim_v;
    return 512;
}

#define ATTN_CHANNELS_PART                                                                                                         \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE, .load = step_load_channels, .dots = step_channel_dots,                                           \
    }

#define ATTN_DECODE_PART                                                                                                           \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE, .block_kv = step_block_of_rows, .pack_rows = step_pack_rows, .gather_rows = step_gather_rows,    \
        .dots = step_dots, .scale_row = step_scale_row, .drop_outside = step_drop_outside, .keep_row = step_keep_row,              \
        .bias_row = step_bias_row, .softcap_row = step_softcap_row, .alibi_row = step_alibi_row,                                   \
        .exponentiate_row = step_exponentiate_row, .add_values = step_decode_values,                                               \
        .add_values_nan_safe = step_decode_values_nan_safe, .row_not_finite = step_row_not_finite, .finish_row = step_finish_row,  \
        .order = ATTN_DECODE_ORDER,                                                                                                \
    }

#endif
