/* SPDX-License-Identifier: MIT
 *
 * fuzz_api.c - fuzzes attn_plan_create and attn_execute (target.h) with random problems, tensors and options (api_case.h). */
#include "api_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const target_cases = "problems";

static api_case drawn;

void target_print(void)
{
    api_case *const c = &drawn;
    const attn_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const attn_mask *m = &p->mask;
    const attn_options *o = &c->options;
    fprintf(stderr,
            "op %d  B %" PRId64 " Hq %" PRId64 " Hkv %" PRId64 " Sq %" PRId64 " Skv %" PRId64 " D %" PRId64 " Dv %" PRId64 "\n",
            (int)p->op, s->batch, s->heads_q, s->heads_kv, s->len_q, s->len_kv, s->dim_qk, s->dim_v);
    fprintf(stderr,
            "score kind %d scale %d %g temperature %g softcap %g dim_k %" PRId64 " dim_metric %" PRId64
            " additive_bias %d normaliser %d shift %g dropout %g\n",
            (int)p->score.kind, (int)p->score.scale_kind, p->score.scale, p->score.temperature, p->score.softcap, p->score.dim_k,
            p->score.dim_metric, p->score.additive_bias, (int)p->score.normaliser, p->score.shift, p->dropout.probability);
    fprintf(stderr,
            "mask causal %d align %d window %d %" PRId64 " %" PRId64 " empty %d chunk %" PRId64 " dilation %" PRId64
            " global %" PRId64 " %" PRId64 " block %" PRId64 " %" PRId64 " entries %" PRId64 " heads %" PRId64 " tree %" PRId64
            "\n",
            m->causal, (int)m->align, m->window, m->window_left, m->window_right, (int)m->empty, m->chunk, m->dilation, m->global_q,
            m->global_kv, m->block_q, m->block_kv, m->block_entries, m->block_heads, m->tree_keys);
    fprintf(stderr,
            "outputs after_dropout %d stages %d %d columns %d %" PRId64 " topk %" PRId64 "  pages %" PRId64 " of %" PRId64 "\n",
            p->outputs.after_dropout, (int)p->outputs.scores_stage, (int)p->outputs.rows_stage, (int)p->outputs.column_heads,
            p->outputs.column_queries, p->outputs.topk, p->paging.pages, p->paging.page_size);
    fprintf(stderr,
            "bias_table kind %d buckets %" PRId64 " max %" PRId64 " causal %d  relative first %" PRId64 " rows %" PRId64 "\n",
            (int)p->bias_table.kind, p->bias_table.buckets, p->bias_table.max_distance, p->bias_table.causal, p->relative.first,
            p->relative.rows);
    fprintf(stderr, "options threads %d isa %d invariant %d reproducible %d limit %zu  call%s%s%s", o->threads, (int)o->isa,
            o->invariant, o->reproducible, o->workspace_limit, c->call.modify_scores ? " modifier" : "",
            c->call.visit_rows ? " rows" : "", c->call.origin ? " origin" : "");
    if (c->call.origin)
        fprintf(stderr, " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, c->origin.batch, c->origin.head,
                c->origin.heads, c->origin.q, c->origin.kv);
    fprintf(stderr, "  special %d hostile %d\n", c->special, c->hostile);
    for (int t = 0; t < c->count; t++) {
        const block *b = &c->blocks[t];
        const attn_output *slot = case_slot(&c->tensors, c, t);
        if (!slot->data) continue;
        fprintf(stderr,
                "  %-16s %-4s [%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "] strides %" PRId64 " %" PRId64 " %" PRId64
                " %" PRId64 " (given %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 ") %zu bytes at %p",
                c->about[t].name, attn_dtype_name(b->dtype), b->shape[0], b->shape[1], b->shape[2], b->shape[3], b->stride[0],
                b->stride[1], b->stride[2], b->stride[3], slot->stride[0], slot->stride[1], slot->stride[2], slot->stride[3],
                b->bytes, (void *)b->memory);
        for (int64_t i = 0; (b->dtype == ATTN_I64 || b->dtype == ATTN_I32) && b->memory && !b->output && i < 8 &&
                            i * (int64_t)b->element < (int64_t)b->bytes - b->first;
             i++)
            fprintf(stderr, " %" PRId64, get_index(b, i));
        fputc('\n', stderr);
    }
}

void target_run(draws *from)
{
    api_case *const c = &drawn;
    memset(c, 0, sizeof *c);
    c->from = *from;
    attn_plan *plan = case_draw(c);
    if (!plan) {
        target_rejected++;
        return;
    }
    const int fits = !c->plan_only && case_allocate(c, plan);
    target_drawn();
    if (fits) target_ran += case_judge(c, plan);
    attn_plan_destroy(plan);
    blocks_free(c->blocks, c->count);
}
