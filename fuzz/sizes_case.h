/* SPDX-License-Identifier: MIT
 * sizes_case.h - shared by the files of fuzz_sizes.c: the drawn sizes, and memory of which there is little. */
#ifndef ATTN_FUZZ_SIZES_CASE_H
#define ATTN_FUZZ_SIZES_CASE_H

#include "target.h"

enum { SIZES_PLAN, SIZES_LINEAR, SIZES_KINDS = 20, MAX_SIZES = 10 };

typedef struct sizes_case {
    int kind;
    int64_t values[MAX_SIZES];
} sizes_case;

extern sizes_case sizes; /* the running case */

/* An allocator that refuses blocks above 16 MiB. */
void *sizes_allocate(void *context, size_t bytes);
void sizes_release(void *context, void *memory);

/* Counts a call, and checks that its error fits its status. */
void sizes_judge(attn_status status, const attn_error *error);

#define CALL(call)                                                                                                                 \
    do {                                                                                                                           \
        attn_error error;                                                                                                          \
        memset(&error, 0x55, sizeof error);                                                                                        \
        const attn_status status_ = (call);                                                                                        \
        sizes_judge(status_, &error);                                                                                              \
    } while (0)

/* An input whose axes but the last broadcast from a few zeros: it has elements, however many. */
attn_input sizes_shared(void);

/* ---- sizes_plans.c: plans of attention and of linear attention, executed if nothing is to be computed ---- */
void sizes_plan(draws *d);
void sizes_linear(draws *d);
void sizes_print_plan(void);

/* ---- sizes_layers.c: layers, latent attention and sequence-to-sequence modules, and their decoding ---- */
void sizes_counts(draws *d);
void sizes_packed_layer(draws *d);
void sizes_modules(draws *d);
void sizes_decoding(draws *d);

#endif
