/* SPDX-License-Identifier: MIT
 * choose.c - which row of kernels.def runs a problem: the first that fits, unless the caller or ATTN_ISA restricts it. */
#include <stdlib.h>
#include <string.h>

#include "../../common/text.h"
#include "../base/cpu.h"
#include "../base/error.h"
#include "../base/inference.h"
#include "../base/names.h"
#include "../kernels/registry.h"
#include "plan.h"

static attn_status isa_from_environment(attn_isa *cap, attn_error *error)
{
    const char *text = getenv("ATTN_ISA");
    *cap = ATTN_ISA_DEFAULT;
    if (!text || !*text) return ATTN_OK;
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++)
        if (strcmp(text, attn_isa_text((attn_isa)isa)) == 0) *cap = (attn_isa)isa;
    CHECK(*cap, ATTN_ERR_ARGUMENT, "the environment variable ATTN_ISA is '%s'; known: scalar, avx2, avx512, neon, wasm128", text);
    return ATTN_OK;
}

/* 1 if ATTN_ISA excludes the instruction set of a row: a better one, or one of another architecture. */
static int is_above(attn_isa isa, attn_isa cap)
{
    if (isa == ATTN_ISA_SCALAR) return 0;
    return isa > ATTN_ISA_AVX512 || cap > ATTN_ISA_AVX512 ? isa != cap : isa > cap;
}

/* 1 if scores, and in backward the products of dO and V, can be computed from bf16 as stored: nothing transforms queries and keys
 * first, and there are no relative terms, which need them in the compute type. */
static int has_bf16_scores(const attn_resolved *p)
{
    if (p->reproducible) return 0; /* not every instruction set has bf16 products */
    if (p->score.kind != ATTN_SCORE_DOT || p->has.relative_keys || p->has.relative_values) return 0;
    if (p->at.q.dtype != ATTN_BF16 || p->at.k.dtype != ATTN_BF16) return 0;
    return p->op == ATTN_FORWARD || (p->op == ATTN_BACKWARD && p->at.v.dtype == ATTN_BF16 && p->at.grad_o.dtype == ATTN_BF16);
}

/* A search: its criteria and its results. */
typedef struct search {
    attn_op op;
    attn_dtype compute;
    int decode, bf16;
    int ends; /* 1: stops at the first row, without counting the rest */
    const attn_kernel_row *first;
    int usable;
    attn_isa cap; /* ATTN_ISA, if it excluded a row */
} search;

static attn_status find(search *s, const attn_options *options, attn_error *error)
{
    const uint32_t features = attn_cpu_features();
    attn_isa cap = ATTN_ISA_DEFAULT;
    int built = 0, count;
    const attn_kernel_row *const rows = attn_kernel_rows(&count);
    if (!options->isa) TRY(isa_from_environment(&cap, error));
    for (const attn_kernel_row *r = rows; r < rows + count; r++) {
        if (r->op != s->op || r->compute != s->compute || r->decode != s->decode) continue;
        if (r->pairs && !s->bf16) continue;
        if (options->isa && r->isa != options->isa) continue;
        built = 1;
        if (r->needs & ~features) continue;
        if (cap && is_above(r->isa, cap)) {
            s->cap = cap;
            continue;
        }
        s->usable++;
        if (!s->first) s->first = r;
        if (s->ends) break;
    }
    CHECK(s->first || built, ATTN_ERR_UNSUPPORTED, "this build has no kernel for %s on %s" ATTN_LEFT_OUT,
          attn_dtype_text(s->compute), attn_isa_text(options->isa));
    CHECK(s->first, ATTN_ERR_UNSUPPORTED, "this CPU cannot run the kernel for %s on %s", attn_dtype_text(s->compute),
          attn_isa_text(options->isa));
    return ATTN_OK;
}

static attn_status check_reproducible(const attn_options *options, const attn_kernel_row *row, attn_error *error)
{
    const int rounds_products = row->isa == ATTN_ISA_SCALAR || row->isa == ATTN_ISA_WASM128; /* before they are added */
    CHECK(!options->reproducible || !rounds_products, ATTN_ERR_UNSUPPORTED,
          "options.reproducible is set and the instruction set is %s; it needs avx2, avx512 or neon", attn_isa_text(row->isa));
    return ATTN_OK;
}

attn_status attn_kernel_best(attn_op op, attn_dtype compute, const attn_options *options, const attn_kernel_row **row,
                             attn_error *error)
{
    search s = {.op = op, .compute = compute, .ends = 1};
    TRY(find(&s, options, error));
    TRY(check_reproducible(options, s.first, error));
    *row = s.first;
    return ATTN_OK;
}

attn_status attn_kernel_choose(const attn_resolved *problem, const attn_options *options, int decode, const attn_kernel_row **row,
                               char *why, size_t why_size, attn_error *error)
{
    search s = {.op = problem->op, .compute = attn_resolved_compute(problem), .decode = decode, .bf16 = has_bf16_scores(problem)};

    TRY(find(&s, options, error));
    TRY(check_reproducible(options, s.first, error));
    *row = s.first;
    *why = '\0';
    if (options->isa) {
        text_add(why, why_size, "requested by options.isa");
    } else if (s.cap) {
        text_add(why, why_size, "capped by ATTN_ISA=");
        text_add(why, why_size, attn_isa_text(s.cap));
    } else {
        text_add(why, why_size, "best of ");
        text_add_number(why, why_size, s.usable);
        text_add(why, why_size, " usable on this CPU");
    }
    if (s.first->pairs) text_add(why, why_size, "; scores are products of bf16");
    return ATTN_OK;
}
