/* SPDX-License-Identifier: MIT
 * slice.c - see slice.h. */
#include "slice.h"

#include "../common/sizes.h"
#include "../common/slots.h"

#define MODULE "distributed"

attn_slice attn_slice_of(const attn_shape *s, int members, int n)
{
    const int64_t each = s->heads_kv / members, more = s->heads_kv % members,
                  ratio = s->heads_kv > 0 ? s->heads_q / s->heads_kv : 0;
    attn_slice x = {.first_kv = n * each + attn_min(n, more), .count_kv = each + (n < more)};
    x.first_q = x.first_kv * ratio, x.count_q = x.count_kv * ratio;
    return x;
}

/* ---- tensors ---- */

static int has_pairs(const attn_bound *b) { return b->spread == ATTN_SPREAD_PAIRS || b->spread == ATTN_SPREAD_BLOCKS; }

static attn_status check_sums(const attn_bounds *bounds, const attn_problem *p, attn_error *error)
{
    for (const attn_bound *b = bounds->all; b < bounds->all + bounds->count; b++) {
        const int is_sum =
            b->role == ATTN_ROLE_OUTPUT && (b->spread == ATTN_SPREAD_SAME || b->spread == ATTN_SPREAD_PAIRS || b->in_ranges);
        CHECK(!is_sum || b->shape[1] == p->shape.heads_q, ATTN_ERR_UNSUPPORTED,
              MODULE ": %s is set, of a tensor that all heads share; where heads are computed apart, that sum is not there yet",
              b->name);
        CHECK(b->offset != offsetof(attn_tensors, column_sum) || p->outputs.column_heads != ATTN_COLUMNS_ALL, ATTN_ERR_UNSUPPORTED,
              MODULE ": column_sum is set and outputs.column_heads is %d (all); where heads are computed apart, that sum is not "
                     "there yet",
              (int)ATTN_COLUMNS_ALL);
    }
    return ATTN_OK;
}

static attn_status check_sizes(const attn_bounds *bounds, const attn_problem *p, attn_range tokens, attn_error *error)
{
    for (const attn_bound *b = bounds->all; b < bounds->all + bounds->count; b++) {
        const int64_t sizes[] = {b->shape[0], p->shape.heads_q, attn_max(tokens.first, tokens.end), b->width};
        CHECK(attn_bound_is_same(b) || b->spread == ATTN_SPREAD_INDEX || sizes_fit(8 * ATTN_BOUND, sizes, 4), ATTN_ERR_SHAPE,
              MODULE ": %s of all tokens is too large: its bytes overflow 64 bits", b->name);
    }
    return ATTN_OK;
}

attn_status attn_slices_divide(const attn_bounds *bounds, const attn_problem *p, attn_range tokens, const attn_split *split,
                               int *divided, attn_error *error)
{
    attn_error undivided;
    attn_status status = check_sums(bounds, p, &undivided);
    int rejected = attn_split_heads_apart(split) && status != ATTN_OK;
    if (status == ATTN_OK) {
        status = check_sizes(bounds, p, tokens, &undivided);
        rejected = attn_split_has_heads(split) && status != ATTN_OK;
    }
    *divided = status == ATTN_OK;
    if (rejected && error) *error = undivided;
    return rejected ? status : ATTN_OK;
}

/* ---- masks and biases that broadcast ---- */

enum { BITS_OF_AXIS = 2, BITS_OF_TENSOR = 2 * BITS_OF_AXIS, SHARED = 1, APART = 2 }; /* of a rank that has rows */

uint64_t attn_slices_shared(const attn_cells *c)
{
    uint64_t bits = 0;
    int at = 0;
    for (const attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++) {
        const attn_input slot = attn_bound_slot(b, &c->planned);
        if (!has_pairs(b) || b->role != ATTN_ROLE_INPUT) continue;
        for (int axis = 0; axis < 2 && b->shape[2] > 0; axis++) {
            const int shared = !slot_is_dense(&slot) && b->stride[axis] == 0 && b->shape[axis] != 1;
            bits |= (uint64_t)(shared ? SHARED : APART) << (at + axis * BITS_OF_AXIS);
        }
        at += BITS_OF_TENSOR;
    }
    return bits;
}

static attn_bound *gradient_of(attn_bounds *bounds, const attn_bound *b)
{
    attn_tensor_description d = {.struct_size = sizeof d};
    for (attn_bound *g = bounds->all; g < bounds->all + bounds->count; g++)
        if (g->role == ATTN_ROLE_OUTPUT && g->index >= 0 &&
            attn_tensor_describe(ATTN_FAMILY_ATTENTION, g->index, &d, NULL) == ATTN_OK && d.gradient_of == b->index)
            return g;
    return NULL;
}

attn_status attn_slices_share(attn_cells *c, uint64_t bits, attn_error *error)
{
    for (attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++) {
        if (!has_pairs(b) || b->role != ATTN_ROLE_INPUT) continue;
        attn_bound *gradient = gradient_of(&c->bounds, b);
        for (int axis = 0; axis < 2; axis++, bits >>= BITS_OF_AXIS) {
            const int is = (int)(bits & (SHARED | APART));
            CHECK(is != (SHARED | APART) || !gradient, ATTN_ERR_ARGUMENT,
                  MODULE ": ranks disagree about whether %s broadcasts along axis %d; its gradient has other sizes then", b->name,
                  axis);
            if (is == SHARED) b->shares |= 1 << axis;
        }
        if (!gradient) continue;
        gradient->shares = b->shares;
        if (gradient->in_ranges && gradient->spread == ATTN_SPREAD_SAME) b->shares |= 4; /* on all ranks: it is agreed about */
        if (gradient->in_ranges && gradient->shape[3] == 1) b->shares |= 8;
        if (b->shares & 1) gradient->shape[0] = 1; /* a rank without rows does not know */
    }
    return ATTN_OK;
}

/* ---- the heads of a rank ---- */

/* Token after token, so that the rows of a part lie together. */
static void make_dense(attn_bound *b)
{
    /* Of no entries, heads or keys as of one: a stride of 0 would say that elements are shared. */
    const int64_t width = attn_max(b->shares & 8 ? 1 : b->shape[3], 1), heads = attn_max(b->shares & 2 ? 1 : b->shape[1], 1),
                  entries = attn_max(b->shares & 1 ? 1 : b->shape[0], 1), sizes[] = {entries, heads, width};
    const int fits = sizes_fit(1, sizes, 3); /* if not, there are no elements, whose strides may be any */
    b->stride[3] = b->shares & 8 ? 0 : 1;
    b->stride[1] = b->shares & 2 ? 0 : width;
    b->stride[0] = b->shares & 1 ? 0 : fits ? heads * width : 1;
    b->stride[2] = b->shares & 4 ? 0 : fits ? entries * heads * width : 1;
}

void attn_slice_take(attn_cells *c, const attn_slice *slice, int64_t queries, int64_t keys)
{
    attn_shape *s = &c->problem.shape;
    c->idle = slice->count_kv == 0;
    if (!c->origin.heads) c->origin.heads = s->heads_q;
    c->origin.head += slice->first_q;
    s->heads_q = slice->count_q, s->heads_kv = slice->count_kv;
    for (attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++) {
        const int64_t block = c->problem.mask.block_q;
        if (b->spread == ATTN_SPREAD_INDEX) continue;
        const int had = b->has_elements, hidden = b->index < 0;
        b->shape[1] = b->of_heads_kv ? slice->count_kv : slice->count_q;
        if (b->spread == ATTN_SPREAD_QUERIES || b->spread == ATTN_SPREAD_PAIRS) b->shape[2] = queries;
        if (b->spread == ATTN_SPREAD_KEYS) b->shape[2] = keys;
        if (b->spread == ATTN_SPREAD_BLOCKS) b->shape[2] = queries / block + (queries % block != 0);
        b->has_elements = b->shape[0] > 0 && b->shape[1] > 0 && b->shape[2] > 0 && b->shape[3] > 0 && !hidden;
        if (attn_bound_is_same(b)) b->has_elements = b->has_elements && had;
        else make_dense(b);
    }
}
