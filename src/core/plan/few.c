/* SPDX-License-Identifier: MIT
 * few.c - which problems are decoded (sched/decode.c): few queries, and nothing asked for that only tiles do. */
#include "../sched/task.h"
#include "plan.h"

/* Tiles hold queries of one head in their lanes and pay for a whole vector of them, so decode is ahead while a head has few; tiles
 * are where many rows meet each key (lab/decode/README.md). */
enum { MOST_QUERIES = 4 };

int attn_has_few_queries(const attn_problem *p)
{
    const attn_shape *s = &p->shape;
    if (p->op != ATTN_FORWARD || s->batch == 0 || s->heads_q == 0 || s->len_q == 0) return 0;
    return s->len_q <= MOST_QUERIES && s->heads_q / s->heads_kv <= ATTN_MOST_DECODE_ROWS / s->len_q;
}

const char *attn_decode_refusal(const attn_problem *p)
{
    const attn_want *want = &p->want;
    const struct {
        int asked;
        const char *name;
    } reasons[] = {
        {p->score.kind == ATTN_SCORE_ADDITIVE, "scores are additive"},
        {p->score.kind != ATTN_SCORE_DOT, "scores are of prepared rows"},
        {p->relative.keys || p->relative.values, "terms are relative"},
        {p->modifier.used, "the caller modifies scores"},
        {attn_weighs_alone(p), "weights are no softmax"},
        {attn_drops_weights(p), "dropout is asked for"},
        {p->mask.block || p->mask.block_lists, "a block mask is given"},
        {p->mask.dilation > 1, "keys are dilated"},
        {p->mask.global_q > 0 || p->mask.global_kv > 0, "tokens are global"},
        {p->mask.empty != ATTN_EMPTY_ZERO, "empty rows are uniform"},
        {want->weights || want->scores || want->rows, "weights or scores are wanted"},
        {want->dropout_keep || want->row_max || want->entropy || want->effective_keys || want->column_sum || want->topk > 0,
         "more than O and lse is wanted"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].asked) return reasons[i].name;
    return NULL;
}
