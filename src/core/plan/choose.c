/* SPDX-License-Identifier: MIT
 * choose.c - which row of kernels.def runs a problem: the first one that fits, unless the caller or ATTN_ISA says otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/cpu.h"
#include "../base/error.h"
#include "../base/names.h"
#include "plan.h"

static attn_status isa_from_environment(attn_isa *cap, attn_error *error)
{
    const char *text = getenv("ATTN_ISA");
    *cap = ATTN_ISA_DEFAULT;
    if (!text || !*text) return ATTN_OK;
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_AVX512; isa++)
        if (strcmp(text, attn_isa_text((attn_isa)isa)) == 0) *cap = (attn_isa)isa;
    CHECK(*cap, ATTN_ERR_ARGUMENT, "the environment variable ATTN_ISA is '%s'; known: scalar, avx2, avx512", text);
    return ATTN_OK;
}

/* 1 if scores, and in backward products of dO and V, can be computed of bf16 as it is stored: nothing changes queries and keys
 * before, nor are there relative terms, which take them in the compute type. */
static int has_bf16_scores(const attn_problem *p)
{
    if (p->score.kind != ATTN_SCORE_DOT || p->relative.keys || p->relative.values) return 0;
    if (p->q.dtype != ATTN_BF16 || p->k.dtype != ATTN_BF16) return 0;
    return p->op == ATTN_FORWARD || (p->op == ATTN_BACKWARD && p->v.dtype == ATTN_BF16 && p->gradients.grad_o.dtype == ATTN_BF16);
}

attn_status attn_kernel_choose(const attn_problem *problem, const attn_options *options, const attn_kernel_row **row, char *why,
                               size_t why_size, attn_error *error)
{
    attn_dtype compute = attn_problem_compute(problem);
    uint32_t features = attn_cpu_features();
    const attn_kernel_row *first = NULL, *r;
    attn_isa cap;
    int usable = 0, capped = 0, built = 0, length;
    const int few = attn_has_few_queries(problem);
    const char *refusal = few ? attn_decode_refusal(problem) : NULL;
    const int decode = few && !refusal, bf16 = has_bf16_scores(problem);

    TRY(isa_from_environment(&cap, error));
    for (int i = 0; (r = attn_kernel_at(i)); i++) {
        if (r->op != problem->op || r->compute != compute || !r->decode != !decode) continue;
        if (r->forward->bf16 && !bf16) continue;
        if (options->isa && r->isa != options->isa) continue;
        built = 1;
        if (r->needs & ~features) continue;
        if (!options->isa && cap && r->isa > cap) {
            capped = 1;
            continue;
        }
        usable++;
        if (!first) first = r;
    }
    CHECK(first || built, ATTN_ERR_UNSUPPORTED, "this build has no kernel for %s on %s", attn_dtype_text(compute),
          attn_isa_text(options->isa));
    CHECK(first, ATTN_ERR_UNSUPPORTED, "this CPU cannot run the kernel for %s on %s", attn_dtype_text(compute),
          attn_isa_text(options->isa));
    *row = first;
    if (options->isa) {
        length = snprintf(why, why_size, "asked for by options.isa");
    } else if (capped) {
        length = snprintf(why, why_size, "capped by ATTN_ISA=%s", attn_isa_text(cap));
    } else {
        length = snprintf(why, why_size, "best of %d usable on this CPU", usable);
    }
    if (first->forward->bf16) length += snprintf(why + length, why_size - (size_t)length, "; scores are products of bf16");
    if (decode) (void)snprintf(why + length, why_size - (size_t)length, "; decode, since a key head has few queries");
    if (refusal) (void)snprintf(why + length, why_size - (size_t)length, "; tiles, since %s", refusal);
    return ATTN_OK;
}
