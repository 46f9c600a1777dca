/* SPDX-License-Identifier: MIT
 * draw.c - random problems of cut.h with further options. */
#include "spread.h"

static int64_t part_of(whole *w)
{
    const attn_mask *m = &w->problem.mask;
    int64_t step = m->block_q > 0 ? m->block_q : 1;
    if (m->block_kv > 0)
        while (step % m->block_kv) step += m->block_q;
    const int64_t most = w->problem.shape.len_kv / step + 1;
    return step * (1 + random_below(&w->random, most < 12 ? most : 12) * (1 + random_below(&w->random, 6)));
}

static spread_more more_of(whole *w)
{
    static const char *const names[] = {"", " softmax-one", " sigmoid", " relu", " sink"};
    const int kind = random_below(&w->random, 3) ? 0 : 1 + (int)random_below(&w->random, 4);
    spread_more more = {.normaliser = kind < 4 ? (attn_normaliser)kind : ATTN_NORMALISER_SOFTMAX};
    strcat(w->text, names[kind]);
    if (kind == 4) {
        more.sink = array_make(w->dtype, 1, w->problem.shape.heads_q, 1, 1);
        for (int64_t h = 0; h < w->problem.shape.heads_q; h++) array_put(&more.sink, 0, h, 0, 0, random_signed(&w->random));
    }
    return more;
}

static void draw_starts(whole *w, int64_t tokens, int64_t count, int64_t *starts)
{
    for (int64_t b = 1; b < count; b++) starts[b] = random_below(&w->random, tokens + 1);
    starts[count] = tokens;
    for (int64_t a = 1; a < count; a++)
        for (int64_t b = a; b > 1 && starts[b - 1] > starts[b]; b--) {
            const int64_t x = starts[b];
            starts[b] = starts[b - 1], starts[b - 1] = x;
        }
}

static int64_t longest(const int64_t *starts, int64_t count)
{
    int64_t most = 0;
    for (int64_t b = 0; b < count; b++)
        if (starts[b + 1] - starts[b] > most) most = starts[b + 1] - starts[b];
    return most;
}

/* The same numbers over and over, for each sequence. */
static array refit(const array *from, int64_t entries, int64_t rows, int64_t columns)
{
    const array to = array_make(from->dtype, entries, from->shape[1], rows, columns);
    const size_t size = attn_dtype_size(from->dtype),
                 count = (size_t)(from->shape[0] * from->shape[1] * from->shape[2] * from->shape[3]),
                 all = (size_t)(entries * from->shape[1] * rows * columns);
    for (size_t n = 0; n < all; n++) memcpy(to.data + n * size, from->data + n % count * size, size);
    return to;
}

/* Packed sequences, where that is supported.  Returns 0 if it is not. */
static int pack(whole *w, spread_more *more)
{
    if (w->block_mask.data || w->has_lengths) return 0;
    const int64_t count = more->documents = 1 + random_below(&w->random, 8);
    draw_starts(w, w->problem.shape.len_q, count, more->starts_q);
    draw_starts(w, w->problem.shape.len_kv, count, more->starts_kv);
    const int64_t rows = longest(more->starts_q, count), columns = longest(more->starts_kv, count);
    if (w->mask.data) more->mask = refit(&w->mask, count, rows, columns);
    if (w->ranges.data) more->ranges = refit(&w->ranges, count, rows, 2);
    if (w->bias.data) more->bias = refit(&w->bias, count, rows, columns);
    if (w->tan_bias.data) more->tan_bias = refit(&w->tan_bias, count, rows, columns);
    if (w->slopes.data && random_below(&w->random, 2)) more->slopes = refit(&w->slopes, count, 1, 1);
    strcat(w->text, more->slopes.data ? " packed, slopes" : " packed");
    return 1;
}

/* Less of the same numbers. */
static void empty(whole *w, const spread_more *more)
{
    static const char *const names[] = {" batch 0", " heads 0", " dim_qk 0", " dim_v 0"};
    attn_shape *s = &w->problem.shape;
    const int kind = more->documents ? 1 + (int)random_below(&w->random, 3) : (int)random_below(&w->random, 4);
    if (kind == 0) s->batch = 0;
    if (kind == 1) s->heads_q = s->heads_kv = 0;
    if (kind == 2) s->dim_qk = 0;
    if (kind == 3) s->dim_v = 0;
    strcat(w->text, names[kind]);
}

/* Types of the large tensors, if they are f32: by name, so that forward and backward have the same. */
static void mix(whole *w, spread_more *more)
{
    static const char *const names[] = {"q",      "k",      "v",      "o",    "weights", "scores", "grad_o",
                                        "grad_q", "grad_k", "grad_v", "bias", "tan_q",   "tan_v"};
    static const attn_dtype types[] = {ATTN_DTYPE_DEFAULT, ATTN_F16, ATTN_BF16};
    attn_dtype drawn[sizeof names / sizeof *names];
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) drawn[n] = types[random_below(&w->random, 3)];
    attn_tensor_description d = {.struct_size = sizeof d};
    for (int t = 0; attn_tensor_describe(ATTN_FAMILY_ATTENTION, t, &d, NULL) == ATTN_OK; t++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (!strcmp(d.name, names[n])) more->types[t] = drawn[n];
    strcat(w->text, " mixed");
}

static void give(whole *w, spread_more *more)
{
    attn_shape packed = w->problem.shape, *s = &packed;
    if (more->documents) {
        s->batch = more->documents, s->len_q = longest(more->starts_q, more->documents);
        s->len_kv = longest(more->starts_kv, more->documents);
    }
    if (w->problem.dropout.probability == 0 || random_below(&w->random, 2)) return;
    more->given = array_make(ATTN_BOOL, s->batch, s->heads_q, s->len_q, s->len_kv);
    for (int64_t n = 0; n < s->batch * s->heads_q * s->len_q * s->len_kv; n++)
        more->given.data[n] = random_below(&w->random, 3) != 0;
    strcat(w->text, " given");
}

/* One bias for all queries, all keys, or both; sometimes for all entries and heads, too. */
static void share(whole *w, spread_more *more)
{
    const array all_of = more->bias, *from = all_of.data ? &all_of : &w->bias;
    const int64_t *all = from->shape;
    const int of = 1 + (int)random_below(&w->random, 3), further = (int)random_below(&w->random, 4);
    const int shares[4] = {further & 1, further >> 1, of & 1, of >> 1};
    int64_t shape[4];
    for (int axis = 0; axis < 4; axis++) {
        more->shares[axis] = shares[axis] && all[axis] > 1;
        shape[axis] = more->shares[axis] ? 1 : all[axis];
    }
    more->bias = array_make(w->dtype, shape[0], shape[1], shape[2], shape[3]);
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < shape[2]; i++)
                for (int64_t j = 0; j < shape[3]; j++) array_put(&more->bias, b, h, i, j, array_at(from, b, h, i, j));
    free(all_of.data);
    strcat(w->text, " shared");
}

const char *const spread_outputs[SPREAD_EXTRAS] = {"row_max", "entropy",    "effective_keys", "topk_index",  "topk_weight",
                                                   "weights", "column_sum", "scores",         "dropout_keep"};

/* What makes sense for a softmax alone; a number for each pair; the last, with which all cells exist, is rarer. */
enum { OF_ROWS = 0x1f, OF_PAIRS = 0x1a0, OF_TOP = 0x18, KEEP = 0x100 };

static void want(whole *w, spread_more *more, int kinds)
{
    const int elementwise = more->normaliser == ATTN_NORMALISER_SIGMOID || more->normaliser == ATTN_NORMALISER_RELU;
    more->outputs = (int)random_below(&w->random, 1 << SPREAD_EXTRAS);
    if (random_below(&w->random, 2)) more->outputs &= ~KEEP;
    if (elementwise) more->outputs = (more->outputs & ~OF_ROWS) | 1;
    if (more->documents || kinds & SPREAD_COLUMNS) more->outputs &= ~OF_PAIRS;
    more->how = (attn_outputs){.after_dropout = random_below(&w->random, 2) != 0,
                               .scores_stage = (attn_stage)random_below(&w->random, 4),
                               .column_heads = (attn_columns)random_below(&w->random, 3),
                               .column_queries = random_below(&w->random, 2) ? random_below(&w->random, 30) : 0,
                               .topk = more->outputs & OF_TOP ? 1 + random_below(&w->random, 12) : 0};
    strcat(w->text, " outputs");
}

int64_t spread_draw(whole *w, spread_more *more, uint64_t seed, attn_dtype dtype, int kinds)
{
    whole_draw(w, seed, dtype);
    *more = more_of(w);
    const int64_t size = part_of(w);
    if (w->lists.data || w->page_size || (kinds & SPREAD_PACKED && !pack(w, more))) return 0;
    if (kinds & SPREAD_SHARED && !w->bias.data) return 0;
    if (kinds & SPREAD_SHARED) share(w, more);
    if (kinds & SPREAD_OUTPUTS) want(w, more, kinds);
    if (kinds & SPREAD_UNIFORM) {
        if (more->normaliser != ATTN_NORMALISER_SOFTMAX || more->sink.data) return 0;
        more->empty = ATTN_EMPTY_UNIFORM;
        if (seed % 2) w->problem.mask.causal = 1, w->problem.mask.least_distance = 2; /* the first queries see none */
        strcat(w->text, " uniform");
    }
    give(w, more);
    if (kinds & SPREAD_MIXED && dtype == ATTN_F32) mix(w, more);
    if (kinds & SPREAD_EMPTY) empty(w, more);
    return size;
}

void spread_more_free(spread_more *more)
{
    free(more->sink.data), free(more->given.data), free(more->bias.data);
    free(more->mask.data), free(more->ranges.data), free(more->slopes.data), free(more->tan_bias.data);
}

int spread_sums_heads(const spread_more *more, attn_op op)
{
    if (op == ATTN_FORWARD) return spread_wants(more, "column_sum") && more->how.column_heads == ATTN_COLUMNS_ALL;
    return (op == ATTN_BACKWARD || op == ATTN_DOUBLE_BACKWARD) && more->shares[1];
}
