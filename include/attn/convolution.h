/* SPDX-License-Identifier: MIT
 *
 * convolution.h - the short causal convolution of hybrid models (Mamba, GatedDeltaNet, Kimi Delta Attention), between projections
 * and linear attention: each channel is filtered along the tokens, with 2 to 4 weights of its own.  Conventions of attn.h hold:
 * statuses, errors, slots, ownership, threads, options.
 *
 *      y[t] = f(bias + sum_i weight[i] x[t - (width-1) + i])       f the identity, or silu: f(s) = s / (1 + exp(-s))
 *
 * The width-1 tokens before the first one are the state of a sequence, the oldest first, or 0.
 *
 * One call serves every batch: prompts, sequences that decode one token each (in some libraries `update`), and both together.  A
 * sequence has the same bits in any batch, place, slot and number of threads, and however it is cut.
 */
#ifndef ATTN_CONVOLUTION_H
#define ATTN_CONVOLUTION_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_convolution_problem {
    size_t struct_size; /* sizeof(attn_convolution_problem) */
    attn_op op;         /* ATTN_FORWARD or ATTN_BACKWARD */
    int width;          /* weights of a channel, 2 to 4 */
    int silu;           /* 1: f is silu */
    int64_t batch;      /* sequences */
    int64_t len;        /* tokens of each; ragged: at most */
    int64_t channels;
    int64_t pool;        /* as in attn_linear_problem */
    int64_t snapshots;   /* likewise */
    int64_t reserved[4]; /* must be 0 */
} attn_convolution_problem;

/*
 * B batch, S len, W width, C channels.  x is f32, f16, bf16 or f64, by default f32, and y, the states, and the gradients of x, y
 * and of the states have its type; the others may have any float type, by default the compute type (f32, or f64 if x is).  Sums are
 * of the compute type.  The last stride of each is 1.
 *
 * cu_seqlens, initial_slots, final_slots and snapshots are those of attn_linear_tensors: with cu_seqlens x is
 * [1, 1, tokens, C], with slots a state is [pool, 1, W-1, C], and the same lists serve a layer's convolution and its linear
 * attention.  A final state may be written over the initial one; it holds inputs, exactly as they were.  A state of other libraries
 * that is [rows, C, W-1] with dense channels is this one transposed, by its strides.
 */
typedef struct attn_convolution_tensors {
    size_t struct_size;    /* sizeof(attn_convolution_tensors) */
    const attn_call *call; /* must be NULL */

    attn_input x;             /* [B, 1, S, C] */
    attn_output y;            /* [B, 1, S, C]: forward */
    attn_input weight;        /* [1, 1, W, C]: weight[W-1] is that of the token itself */
    attn_input bias;          /* [1, 1, 1, C]; absent: 0 */
    attn_input initial_state; /* [B, 1, W-1, C]; absent: 0 */
    attn_output final_state;  /* [B, 1, W-1, C]: forward; may be the initial state */
    attn_input cu_seqlens;    /* [B + 1], dense, i64 or i32 */
    attn_input initial_slots; /* [B], dense, i64 or i32: forward */
    attn_input final_slots;   /* [B, 1, 1, snapshots or 1], likewise */

    /* ATTN_BACKWARD: grad_y, grad_x and grad_weight must be present, and grad_bias with a bias. */
    attn_input grad_y;
    attn_input grad_final_state; /* absent: 0 */
    attn_output grad_x;
    attn_output grad_weight;
    attn_output grad_bias;
    attn_output grad_initial_state; /* with initial_state */
} attn_convolution_tensors;

/*
 * Forward or backward, with memory of its own from options->allocator: about 100 KB for each thread.  options may be NULL. Returns,
 * with outputs untouched and the tensor in error->tensor, counted from x = 0:
 *
 *      ATTN_ERR_ARGUMENT     a tensor that is missing or has no use; lists with rows that do not exist, or twice; invalid options
 *      ATTN_ERR_SHAPE        sizes that are negative or too large
 *      ATTN_ERR_STRIDE       strides that are not those above, or outputs that overlap other tensors
 *      ATTN_ERR_UNSUPPORTED  types that are not those above; a width that is not 2 to 4; options.reproducible
 *      ATTN_ERR_MEMORY       memory, or options.workspace_limit, does not suffice
 */
ATTN_API attn_status attn_convolution(const attn_convolution_problem *problem, const attn_convolution_tensors *tensors,
                                      const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
