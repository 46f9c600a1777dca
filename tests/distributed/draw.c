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

/* Packed sequences, where that is supported.  Returns 0 if it is not. */
static int pack(whole *w, spread_more *more)
{
    if (w->mask.data || w->bias.data || w->block_mask.data || w->ranges.data || w->has_lengths) return 0;
    more->documents = 1 + random_below(&w->random, 8);
    draw_starts(w, w->problem.shape.len_q, more->documents, more->starts_q);
    draw_starts(w, w->problem.shape.len_kv, more->documents, more->starts_kv);
    strcat(w->text, " packed");
    return 1;
}

int64_t spread_draw(whole *w, spread_more *more, uint64_t seed, attn_dtype dtype, int packed)
{
    whole_draw(w, seed, dtype);
    *more = more_of(w);
    const int64_t size = part_of(w);
    return !w->lists.data && !w->page_size && (!packed || pack(w, more)) ? size : 0;
}
