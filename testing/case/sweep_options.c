/* SPDX-License-Identifier: MIT
 * sweep_options.c - the options and operations of the sweep's cases. */
#include "sweep_options.h"

#include <stdio.h>

/* Options that drop keys or change scores, with lengths, windows and offsets of every kind. */
typedef enum option {
    PLAIN,
    CAUSAL,
    CAUSAL_BOTTOM_RIGHT,
    CAUSAL_OFFSET,
    WINDOW,
    WINDOW_LEFT,
    WINDOW_RIGHT,
    WINDOW_BOTTOM_RIGHT,
    WINDOW_CAUSAL,
    WINDOW_OFFSET,
    WINDOW_WIDE,
    LENGTHS,
    LENGTHS_CAUSAL,
    MASK,
    MASK_OF_KEYS,
    MASK_OF_QUERIES,
    MASK_ALL,
    BIAS,
    BIAS_OF_HEADS,
    BIAS_OF_KEYS,
    BIAS_AND_MASK,
    EVERYTHING,
    TEMPERATURE,
    SOFTCAP,
    SCALE_OF_HEADS,
    ALIBI,
    ALIBI_OF_BATCH,
    SINK,
    CHUNK,
    CHUNK_CAUSAL,
    BLOCK,
    BLOCK_OF_KEYS,
    NAMED,
    NAMED_AND_MORE,
    PACKED,
    PACKED_CAUSAL,
    PAGES,
    PAGES_RAGGED,
    DRAFTS,
    DRAFTS_RAGGED,
    DROPOUT,
    UNIFORM,
    COSINE,
    DISTANCE,
    ADDITIVE,
    ADDITIVE_CAUSAL,
    GENERAL,
    METRIC,
    NORMALISER,
    TABLE,
    RELATIVE,
    RELATIVE_CAUSAL,
    ALL_SCORES, /* many options that change scores, together */
    OPTIONS
} option;

const int sweep_options = OPTIONS;

/* A mask by name, with numbers that make a difference for these lengths. */
static int draw_name(const problem_spec *s, random_state *r, char *text, size_t size)
{
    const int most = (int)(s->shape.len_q < s->shape.len_kv ? s->shape.len_q : s->shape.len_kv), a = (int)random_between(r, 1, 40),
              b = (int)random_between(r, 1, 6);
    switch (random_below(r, 12)) {
    case 0:
        return snprintf(text, size, "bigbird/%d/%d/%d/%d", a, b, (int)random_below(r, 3), (int)random_below(r, 3));
    case 1:
        return snprintf(text, size, "longformer/%d/%d", a, b);
    case 2:
        return snprintf(text, size, "strided/%d", random_below(r, 2) ? a : b);
    case 3:
        return snprintf(text, size, "documents/%d/%d", most / 3, most / 2);
    case 4:
        return snprintf(text, size, "fixed/%d/%d", a, a / b);
    case 5:
        return snprintf(text, size, "columns/%d", b);
    case 6:
        return snprintf(text, size, "prefix/%d", a);
    case 7:
        return snprintf(text, size, "lengths/%d/%d", 2 * a, 2 * a + b);
    case 8:
        return snprintf(text, size, "dilated/%d/%d", a, b);
    case 9:
        return snprintf(text, size, "diagonal/%d", a);
    case 10:
        return snprintf(text, size, "sliding/%d", a);
    default:
        return snprintf(text, size, "window/%d/%d", a, b);
    }
}

static void draw_relative(problem_spec *s, random_state *r)
{
    const int kind = (int)random_below(r, 4), most = (int)random_between(r, 1, 70);
    if (kind < 2) snprintf(s->rel, sizeof s->rel, kind ? "shaw-values/%d" : "shaw/%d", most);
    else snprintf(s->rel, sizeof s->rel, kind == 2 ? "full" : "xl");
    s->shared = random_below(r, 3) ? SPEC_SHARED_NONE : SPEC_SHARED_REL;
}

void sweep_set_option(check_case *c, int64_t which, random_state *r)
{
    problem_spec *s = &c->spec;
    const int64_t most = s->shape.len_kv > 0 ? s->shape.len_kv : 1;
    if (which >= WINDOW && which <= WINDOW_WIDE) {
        s->window = 1;
        s->window_left = which == WINDOW_RIGHT ? -1 : random_below(r, most);
        s->window_right = which == WINDOW_LEFT ? -1 : random_below(r, most);
    }
    switch ((option)which) {
    case CAUSAL:
        s->causal = SPEC_CAUSAL_TOP_LEFT;
        break;
    case CAUSAL_BOTTOM_RIGHT:
        s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        break;
    case CAUSAL_OFFSET:
        s->causal = SPEC_CAUSAL_TOP_LEFT;
        s->offset_kind = SPEC_OFFSET_EACH;
        break;
    case WINDOW_BOTTOM_RIGHT:
        s->align = SPEC_ALIGN_BOTTOM_RIGHT;
        break;
    case WINDOW_CAUSAL:
        s->causal = random_below(r, 2) ? SPEC_CAUSAL_TOP_LEFT : SPEC_CAUSAL_BOTTOM_RIGHT;
        break;
    case WINDOW_OFFSET:
        s->offset_kind = SPEC_OFFSET_EACH;
        break;
    case WINDOW_WIDE:
        s->window_left += s->shape.len_kv + s->shape.len_q;
        s->window_right += s->shape.len_kv + s->shape.len_q;
        break;
    case LENGTHS:
        s->lengths = (int)random_between(r, SPEC_LENGTHS_BOTH, SPEC_LENGTHS_KV);
        break;
    case LENGTHS_CAUSAL:
        s->lengths = (int)random_between(r, SPEC_LENGTHS_BOTH, SPEC_LENGTHS_KV);
        s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        break;
    case MASK:
        s->mask = 1, s->mask_drop = 0.4;
        break;
    case MASK_OF_KEYS:
        s->mask = 1, s->mask_drop = 0.4, s->mask_one = SPEC_ONE_H | SPEC_ONE_Q;
        break;
    case MASK_OF_QUERIES:
        s->mask = 1, s->mask_drop = 0.3, s->mask_one = SPEC_ONE_B | SPEC_ONE_K;
        break;
    case MASK_ALL:
        s->mask = 1, s->mask_drop = 1;
        break;
    case BIAS:
        s->bias = 1;
        break;
    case BIAS_OF_HEADS:
        s->bias = 1, s->bias_one = SPEC_ONE_B | SPEC_ONE_Q;
        break;
    case BIAS_OF_KEYS:
        s->bias = 1, s->bias_one = SPEC_ONE_B | SPEC_ONE_H | SPEC_ONE_Q;
        break;
    case BIAS_AND_MASK:
        s->bias = 1, s->mask = 1, s->mask_drop = 0.2, s->mask_one = SPEC_ONE_B;
        break;
    case EVERYTHING:
        s->bias = 1, s->mask = 1, s->mask_drop = 0.2, s->lengths = SPEC_LENGTHS_BOTH, s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        s->window = 1, s->window_left = most / 2 + 1, s->window_right = 0;
        break;
    case TEMPERATURE:
        s->temperature = 0.25 + 3 * random_unit(r);
        break;
    case SOFTCAP:
        s->softcap = 0.5 + 30 * random_unit(r);
        break;
    case SCALE_OF_HEADS:
        s->scale_heads = 1;
        break;
    case ALIBI:
        s->alibi = SPEC_ALIBI_HEAD;
        break;
    case ALIBI_OF_BATCH:
        s->alibi = SPEC_ALIBI_BATCH_HEAD;
        s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        break;
    case SINK:
        s->sink = 1;
        s->causal = random_below(r, 2) ? SPEC_CAUSAL_BOTTOM_RIGHT : SPEC_CAUSAL_NONE;
        break;
    case CHUNK:
        s->chunk = random_between(r, 1, most);
        break;
    case CHUNK_CAUSAL:
        s->chunk = random_between(r, 1, 20);
        s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        break;
    case BLOCK:
        s->block = 1, s->block_drop = 0.4;
        s->block_q = random_between(r, 1, 40);
        s->block_kv = random_between(r, 1, 80);
        break;
    case BLOCK_OF_KEYS:
        s->block = 1, s->block_drop = 0.5, s->block_one = SPEC_ONE_B | SPEC_ONE_H | SPEC_ONE_Q;
        s->block_q = s->shape.len_q > 0 ? s->shape.len_q : 1;
        s->block_kv = random_between(r, 1, 80);
        break;
    case NAMED:
        (void)draw_name(s, r, s->sparse, sizeof s->sparse);
        s->causal = (int)random_below(r, 3);
        break;
    case NAMED_AND_MORE: { /* a second one, which may need a matrix, and other masks */
        const size_t used = (size_t)draw_name(s, r, s->sparse, sizeof s->sparse);
        s->sparse[used] = '+';
        (void)draw_name(s, r, s->sparse + used + 1, sizeof s->sparse - used - 1);
        s->causal = (int)random_below(r, 2) ? SPEC_CAUSAL_TOP_LEFT : SPEC_CAUSAL_NONE;
        s->mask = (int)random_below(r, 2), s->mask_drop = s->mask ? 0.2 : 0;
        s->packed = (int)random_below(r, 2);
        break;
    }
    case PACKED:
        s->packed = 1;
        break;
    case PACKED_CAUSAL:
        s->packed = 1;
        s->causal = random_below(r, 2) ? SPEC_CAUSAL_TOP_LEFT : SPEC_CAUSAL_BOTTOM_RIGHT;
        break;
    case PAGES:
    case PAGES_RAGGED:
        s->page = random_below(r, 4) ? random_between(r, 1, 40) : (int64_t)1 << random_below(r, 9);
        s->lengths = (int)random_below(r, 3) ? SPEC_LENGTHS_KV : SPEC_LENGTHS_NONE;
        s->spread = s->lengths ? (int)random_below(r, 2) : SPEC_SPREAD_EVEN;
        s->causal = (int)random_below(r, 3);
        if (which == PAGES_RAGGED) s->ragged = (int)random_between(r, SPEC_RAGGED_RANDOM, SPEC_RAGGED_MIXED);
        if (random_below(r, 2)) s->prefix = s->page * random_below(r, s->shape.len_kv / s->page + 1);
        break;
    case DRAFTS:
    case DRAFTS_RAGGED:
        s->tree = random_below(r, 2) ? s->shape.len_q : random_between(r, 1, 150);
        s->causal = (int)random_below(r, 2) ? SPEC_CAUSAL_BOTTOM_RIGHT : SPEC_CAUSAL_NONE;
        s->lengths = (int)random_below(r, 2) ? SPEC_LENGTHS_KV : SPEC_LENGTHS_NONE;
        if (which == DRAFTS_RAGGED) s->ragged = (int)random_between(r, SPEC_RAGGED_RANDOM, SPEC_RAGGED_MIXED);
        break;
    case DROPOUT:
        s->dropout = (double)random_between(r, 1, 10) / 10;
        break;
    case UNIFORM:
        s->empty = SPEC_EMPTY_UNIFORM;
        s->mask = 1, s->mask_drop = 0.8;
        s->packed = (int)random_below(r, 2);
        break;
    case COSINE:
    case DISTANCE:
        snprintf(s->score, sizeof s->score, "%s", which == COSINE ? "cosine" : "distance");
        s->has_scale = which == DISTANCE; /* squares of d channels: scores as large as those of dot products */
        s->scale = 1 / (double)(s->shape.dim_qk > 0 ? s->shape.dim_qk : 1);
        s->softcap = (double)random_below(r, 2) * 3, s->alibi = (int)random_below(r, 2), s->sink = (int)random_below(r, 2);
        break;
    case ADDITIVE:
    case ADDITIVE_CAUSAL:
        snprintf(s->score, sizeof s->score, "additive");
        if (which == ADDITIVE) break;
        s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        s->lengths = (int)random_below(r, 2) ? SPEC_LENGTHS_BOTH : SPEC_LENGTHS_NONE;
        break;
    case GENERAL:
    case METRIC:
        snprintf(s->score, sizeof s->score, random_below(r, 3) ? "%s/%d" : "%s", which == GENERAL ? "general" : "metric",
                 (int)random_between(r, 1, 40));
        s->w = (int)random_below(r, 2);
        s->softcap = (double)random_below(r, 2) * 3, s->causal = (int)random_below(r, 3);
        break;
    case NORMALISER:
        s->normaliser = (int)random_between(r, ATTN_NORMALISER_SOFTMAX_ONE, ATTN_NORMALISER_RELU);
        if (s->normaliser == ATTN_NORMALISER_SIGMOID && random_below(r, 2)) s->shift = -2.5;
        s->alibi = (int)random_below(r, 2), s->dropout = (double)random_below(r, 2) * 0.25, s->causal = (int)random_below(r, 3);
        break;
    case TABLE:
        if (random_below(r, 2)) s->clipped = random_between(r, 1, 80);
        else s->t5 = (int)random_between(r, SPEC_T5_BOTH, SPEC_T5_CAUSAL);
        if (s->t5 && random_below(r, 2)) s->t5_buckets = 2 * random_between(r, 2, 20), s->t5_distance = 50;
        s->shared = random_below(r, 3) ? SPEC_SHARED_NONE : SPEC_SHARED_TABLE;
        s->causal = (int)random_below(r, 3);
        break;
    case RELATIVE:
    case RELATIVE_CAUSAL:
        draw_relative(s, r);
        if (which == RELATIVE) break;
        s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        s->lengths = (int)random_below(r, 2) ? SPEC_LENGTHS_BOTH : SPEC_LENGTHS_NONE;
        break;
    case ALL_SCORES:
        s->softcap = 3, s->temperature = 1.5, s->alibi = SPEC_ALIBI_HEAD, s->sink = 1, s->bias = 1, s->dropout = 0.3;
        s->scale_heads = (int)random_below(r, 2);
        s->packed = (int)random_below(r, 2);
        s->causal = SPEC_CAUSAL_BOTTOM_RIGHT;
        break;
    default:
        break;
    }
}

void sweep_set_operation(check_case *c, int op, random_state *r)
{
    problem_spec *s = &c->spec;
    s->op = op;
    s->weights = s->lse = 0;
    s->page = s->prefix = s->tree = s->ragged = 0; /* forward only */
    c->plant = PLANT_NONE;
    if (op == SPEC_BACKWARD || op == SPEC_DOUBLE_BACKWARD) s->dlse = (int)random_below(r, 2);
    if (op != SPEC_BACKWARD) return;
    s->dbias = s->bias && random_below(r, 4);
    s->dslopes = s->alibi != SPEC_ALIBI_NONE;
    s->dsink = s->sink;
    s->dscale = s->scale_heads;
    s->dtable = (s->t5 || s->clipped) && random_below(r, 4);
    s->drel = s->rel[0] && random_below(r, 4);
    if (s->normaliser >= ATTN_NORMALISER_SIGMOID) s->dlse = 0; /* lse has a gradient only with a softmax */
}
