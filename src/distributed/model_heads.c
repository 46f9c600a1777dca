/* SPDX-License-Identifier: MIT
 * model_heads.c - see model_heads.h. */
#include "model_heads.h"

int attn_model_classes(const attn_shape *s, int members, attn_model_class classes[2])
{
    const int more = (int)(s->heads_kv % members), ends[] = {more, members};
    int count = 0;
    for (int n = 0, first = 0; n < 2; first = ends[n++])
        if (first < ends[n]) classes[count++] = (attn_model_class){first, ends[n], attn_slice_of(s, members, first)};
    return count;
}

/* The bytes of a message in each direction, for the heads of each class. */
typedef struct sizes {
    attn_swap_rows rows;
    double bytes[2][2];
} sizes;

static void measure(const attn_cells *c, const attn_model_class *classes, int count, attn_swap_rows rows, sizes *x)
{
    if (x->rows.q == rows.q && x->rows.kv == rows.kv) return; /* as of the rank before */
    x->rows = rows;
    for (int way = 0; way < 2; way++)
        for (int n = 0; n < count; n++) x->bytes[way][n] = (double)attn_swap_bytes(c, (attn_swap)way, rows, &classes[n].slice);
}

static void send(attn_model_rank *r, double bytes, double times)
{
    if (bytes > 0) r->messages += times, r->bytes += times * bytes;
}

/* The ranks of a group, of which classes[n] has first .. end - 1. */
static void count_group(const attn_cells *c, const attn_model_class *classes, int count, int members, attn_model_rank *each)
{
    sizes x = {.rows = {-1, -1}};
    attn_model_rank back[2] = {{.messages = 0}, {.messages = 0}}; /* of a rank of each class, to all members */
    for (int m = 0; m < members; m++) {
        measure(c, classes, count, each[m].rows, &x);
        for (int n = 0; n < count; n++) {
            const int mine = m >= classes[n].first && m < classes[n].end;
            send(&each[m], x.bytes[ATTN_SWAP_TO_HEADS][n], classes[n].end - classes[n].first - mine);
            send(&back[n], x.bytes[ATTN_SWAP_TO_TOKENS][n], 1);
        }
    }
    for (int m = 0; m < members; m++) {
        const int n = m >= classes[0].end;
        measure(c, classes, count, each[m].rows, &x);
        each[m].messages += back[n].messages, each[m].bytes += back[n].bytes;
        send(&each[m], x.bytes[ATTN_SWAP_TO_TOKENS][n], -1); /* its own */
    }
}

void attn_model_swaps(const attn_cells *c, int ranks, int members, attn_model_rank *each)
{
    attn_model_class classes[2];
    const int count = attn_model_classes(&c->problem.shape, members, classes);
    for (int r = 0; r < ranks; r++) each[r] = (attn_model_rank){.messages = 0};
    for (int64_t n = 0; n < c->grid.q.count; n++) each[c->grid.q.owner[n]].rows.q += attn_part_size(&c->grid.q, n);
    for (int64_t n = 0; n < c->grid.kv.count; n++) each[c->grid.kv.owner[n]].rows.kv += attn_part_size(&c->grid.kv, n);
    for (int r = 0; r < ranks && members > 1; r += members) count_group(c, classes, count, members, each + r);
}
