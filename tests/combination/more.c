/* SPDX-License-Identifier: MIT
 * more.c - options that problem strings have no words for. */
#include "test.h"

#include "combination.h"

static int once_in(random_state *r, int64_t n) { return random_below(r, n) == 0; }

static int64_t *array(int64_t n)
{
    int64_t *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static void draw_sparse(combination *c, random_state *r)
{
    attn_mask *mask = &c->problem.mask;
    if (once_in(r, 8)) mask->dilation = c->ref.dilation = random_below(r, once_in(r, 2) ? 150 : 5), combination_say(c, "dilation");
    if (once_in(r, 5)) mask->global_q = c->ref.global_q = random_below(r, 20), combination_say(c, "global-q");
    if (once_in(r, 5)) mask->global_kv = c->ref.global_kv = random_below(r, 90), combination_say(c, "global-kv");
}

void combination_ranges(combination *c, random_state *r)
{
    int64_t stride[4] = {0, 0, 0, 1};
    const int64_t size[3] = {c->ref.B, c->ref.Hq, c->ref.Sq}, Skv = c->ref.Skv;
    int64_t count = 2, at = 0;
    for (int axis = 2; axis >= 0; axis--) {
        int one = once_in(r, 3);
        stride[axis] = one ? ATTN_BROADCAST : count;
        count *= one ? 1 : size[axis];
    }
    c->ranges = array(count);
    for (int64_t n = 0; n < count; n += 2) {
        c->ranges[n] = random_below(r, Skv + 9) - random_below(r, Skv + 9);
        c->ranges[n + 1] = c->ranges[n] + random_below(r, Skv + 9) - 3;
    }
    c->ranges_of_ref = array(2 * size[0] * size[1] * size[2]);
    for (int64_t b = 0; b < size[0]; b++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t i = 0; i < size[2]; i++, at++) {
                const int64_t index[3] = {b, h, i};
                int64_t from = 0;
                for (int axis = 0; axis < 3; axis++)
                    if (stride[axis] != ATTN_BROADCAST) from += index[axis] * stride[axis];
                memcpy(c->ranges_of_ref + 2 * at, c->ranges + from, 2 * sizeof(int64_t));
            }
    c->tensors.ranges = (attn_input){c->ranges, ATTN_I64, {stride[0], stride[1], stride[2], 1}};
    c->ref.ranges = c->ranges_of_ref;
}

void combination_block_lists(combination *c, random_state *r)
{
    attn_mask *m = &c->problem.mask;
    m->block_q = 1 + random_below(r, 40);
    m->block_kv = 1 + random_below(r, 80);
    while (c->origin.q % m->block_q) m->block_q--; /* the origin is at a block boundary */
    while (c->origin.kv % m->block_kv) m->block_kv--;
    const int64_t lists = problem_blocks(c->ref.Sq, m->block_q), blocks = problem_blocks(c->ref.Skv, m->block_kv);
    const int64_t shape[4] = {1, 1, lists, blocks};
    tensor *mask = &c->of[TENSOR(block_mask)]; /* for ref/ only */
    *mask = tensor_make(ATTN_BOOL, shape, BY_HEAD, 1 | 2, NULL);
    c->block_starts = array(lists + 1);
    c->block_index = array(lists * blocks);
    for (int64_t n = 0; n < lists; n++) {
        for (int64_t k = 0; k < blocks; k++) {
            if (once_in(r, 2)) continue;
            tensor_set(mask, n * blocks + k, 1);
            c->block_index[m->block_entries++] = k;
        }
        c->block_starts[n + 1] = m->block_entries;
    }
    c->tensors.block_starts = attn_in(c->block_starts), c->tensors.block_index = attn_in(c->block_index);
    combination_apply_mask(c, mask, m->block_q, m->block_kv);
}

/* Lists of each key head; one for all queries, or for blocks of them. */
void combination_head_lists(combination *c, int one_each, random_state *r)
{
    attn_mask *m = &c->problem.mask;
    m->block_heads = 1;
    m->block_q = one_each ? c->ref.Sq + random_below(r, 3) : 1 + random_below(r, c->ref.Sq - 1);
    m->block_kv = 1 + random_below(r, random_below(r, 2) ? 3 : 24);
    const int64_t each = problem_blocks(c->ref.Sq, m->block_q), blocks = problem_blocks(c->ref.Skv, m->block_kv),
                  lists = c->ref.B * c->ref.Hkv * each, group = c->ref.Hq / c->ref.Hkv;
    const int64_t shape[4] = {c->ref.B, c->ref.Hq, each, blocks};
    tensor *mask = &c->of[TENSOR(block_mask)]; /* for ref/ only */
    *mask = tensor_make(ATTN_BOOL, shape, BY_HEAD, 0, NULL);
    c->block_starts = array(lists + 1);
    c->block_index = array(lists * blocks);
    for (int64_t n = 0; n < lists; n++) {
        const int64_t b = n / each / c->ref.Hkv, g = n / each % c->ref.Hkv;
        for (int64_t k = 0; k < blocks; k++) {
            if (once_in(r, 3)) continue;
            for (int64_t h = g * group; h < (g + 1) * group; h++) tensor_set(mask, tensor_at(mask, b, h, n % each, k), 1);
            c->block_index[m->block_entries++] = k;
        }
        c->block_starts[n + 1] = m->block_entries;
    }
    c->tensors.block_starts = attn_in(c->block_starts), c->tensors.block_index = attn_in(c->block_index);
    combination_apply_mask(c, mask, m->block_q, m->block_kv);
}

/* A tree over some of the last keys, or more than there are; packed like q, with a gap between the rows. */
void combination_tree(combination *c, random_state *r)
{
    const ref_problem *p = &c->ref;
    const int packed = c->tensors.cu_seqlens_q.data != NULL;
    c->problem.mask.tree_keys = c->ref.tree_keys = 1 + random_below(r, p->Skv + 70);
    const int64_t words = problem_blocks(p->tree_keys, 64), gap = random_below(r, 3), step = words + gap,
                  rows = packed ? c->start_q[p->B] : p->B * p->Sq;
    c->tree = calloc((size_t)(rows * step) + 1, sizeof *c->tree);
    c->tree_of_ref = calloc((size_t)(p->B * p->Sq * words) + 1, sizeof *c->tree_of_ref);
    assert_true(c->tree && c->tree_of_ref);
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t i = 0; i < (packed ? c->length_q[b] : p->Sq); i++)
            for (int64_t k = 0; k < words; k++) {
                const uint64_t word = once_in(r, 6) ? ~UINT64_C(0) : random_bits(r) | random_bits(r);
                c->tree_of_ref[(b * p->Sq + i) * words + k] = word;
                c->tree[((packed ? c->start_q[b] : b * p->Sq) + i) * step + k] = word;
            }
    c->tensors.tree = (attn_input){c->tree, once_in(r, 2) ? ATTN_I64 : ATTN_U64, {packed ? 0 : p->Sq * step, step, step, 1}};
    c->ref.tree = c->tree_of_ref;
}

void combination_given(combination *c, random_state *r)
{
    const int64_t shape[4] = {c->ref.B, c->ref.Hq, c->ref.Sq, c->ref.Skv};
    const double p = c->problem.dropout.probability;
    unsigned one = 0;
    for (int axis = 0; axis < 4; axis++) one |= (unsigned)once_in(r, 3) << axis;
    tensor *given = &c->of[TENSOR(dropout_given)];
    *given = tensor_make(ATTN_BOOL, shape, BY_HEAD, one, NULL);
    for (int64_t i = 0; i < given->count; i++) tensor_set(given, i, (double)random_below(r, 3));
    tensor_read(given);
    combination_give(c, TENSOR(dropout_given));
    for (int64_t at = 0; at < shape[0] * shape[1] * shape[2] * shape[3]; at++)
        c->Z[at] = given->value[at] != 0 && p < 1 ? 1 / (1 - p) : 0;
}

static int says(combination *c, int does, const char *name)
{
    if (does) combination_say(c, name);
    return does;
}

void combination_more(combination *c, random_state *random)
{
    draw_sparse(c, random);
    if (says(c, once_in(random, 6), "ranges")) combination_ranges(c, random);
    if (says(c, !c->tensors.block_mask.data && once_in(random, 6), "block-lists")) combination_block_lists(c, random);
    if (says(c, c->problem.dropout.probability != 0 && once_in(random, 3), "given")) combination_given(c, random);
}
