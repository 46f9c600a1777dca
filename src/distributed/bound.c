/* SPDX-License-Identifier: MIT
 * bound.c - see bound.h. */
#include "bound.h"

#include "../common/places.h"
#include "../common/sizes.h"
#include "../common/slots.h"

#define MODULE "distributed"

static attn_spread spread_of(const attn_tensor_description *d)
{
    static const size_t index[] = {
        offsetof(attn_tensors, lengths_q),     offsetof(attn_tensors, lengths_kv),       offsetof(attn_tensors, cu_seqlens_q),
        offsetof(attn_tensors, cu_seqlens_kv), offsetof(attn_tensors, offset_q),         offsetof(attn_tensors, block_starts),
        offsetof(attn_tensors, block_index),   offsetof(attn_tensors, page_table),       offsetof(attn_tensors, page_starts),
        offsetof(attn_tensors, page_index),    offsetof(attn_tensors, lengths_last_page)};
    for (size_t n = 0; n < sizeof index / sizeof *index; n++)
        if (d->offset == index[n]) return ATTN_SPREAD_INDEX;
    if (d->axes[2] == ATTN_AXIS_BLOCK_Q) return ATTN_SPREAD_BLOCKS;
    if (d->axes[2] == ATTN_AXIS_QUERY) return d->axes[3] == ATTN_AXIS_KEY ? ATTN_SPREAD_PAIRS : ATTN_SPREAD_QUERIES;
    return d->axes[2] == ATTN_AXIS_KEY ? ATTN_SPREAD_KEYS : ATTN_SPREAD_SAME;
}

/* Whether elements along an axis are one and the same; no elements are, too, since a gradient still has the one.  `size`: of the
 * whole, so that a rank with one row, or none, tells by its strides, as all others do: also where there is one query, whose row
 * belongs to one rank unless all say that they share it. */
static int broadcasts(const attn_input *slot, int axis, int64_t size)
{
    if (slot_is_dense(slot)) return 0;
    return slot->stride[axis] == ATTN_BROADCAST ? size != 1 || axis == 2 : size != 1 && slot->stride[axis] == 0;
}

static int bias_is_shared(const attn_problem *p, const attn_tensors *t, int axis)
{
    const int64_t sizes[4] = {p->shape.batch, p->shape.heads_q, p->shape.len_q, p->shape.len_kv};
    return broadcasts(&t->bias, axis, sizes[axis]);
}

static int is_packed(const attn_tensors *t) { return t->cu_seqlens_q.data != NULL; }

static int is_bias_gradient(const attn_tensor_description *d)
{
    return d->offset == offsetof(attn_tensors, grad_bias) || d->offset == offsetof(attn_tensors, second_bias);
}

/* A bias has a gradient for each pair, unless all queries or all keys share it, or all ranks have it. */
static attn_spread spread_in(const attn_tensor_description *d, const attn_problem *p, const attn_tensors *t)
{
    const attn_spread spread = spread_of(d);
    if (is_packed(t) && (spread == ATTN_SPREAD_PAIRS || d->offset == offsetof(attn_tensors, ranges)))
        return is_bias_gradient(d) ? ATTN_SPREAD_SAME : ATTN_SPREAD_ENTRIES;
    if (!is_bias_gradient(d)) return spread;
    return bias_is_shared(p, t, 2) ? ATTN_SPREAD_SAME : bias_is_shared(p, t, 3) ? ATTN_SPREAD_QUERIES : ATTN_SPREAD_PAIRS;
}

/* Slopes, and their gradient, of which each packed sequence has its own. */
static int is_of_entry(const attn_tensor_description *d, const attn_tensors *t)
{
    const int64_t stride = t->alibi_slopes.stride[0];
    return is_packed(t) &&
           (d->offset == offsetof(attn_tensors, alibi_slopes) || d->offset == offsetof(attn_tensors, grad_alibi_slopes)) &&
           stride != 0 && stride != ATTN_BROADCAST;
}

/* The results that parts have. */
static attn_status check_result(const attn_problem *p, const attn_tensors *t, const attn_tensor_description *d, attn_error *error)
{
    static const size_t combined[] = {offsetof(attn_tensors, o),
                                      offsetof(attn_tensors, lse),
                                      offsetof(attn_tensors, weights),
                                      offsetof(attn_tensors, scores),
                                      offsetof(attn_tensors, dropout_keep),
                                      offsetof(attn_tensors, column_sum),
                                      offsetof(attn_tensors, row_max),
                                      offsetof(attn_tensors, entropy),
                                      offsetof(attn_tensors, effective_keys),
                                      offsetof(attn_tensors, topk_index),
                                      offsetof(attn_tensors, topk_weight),
                                      offsetof(attn_tensors, grad_q),
                                      offsetof(attn_tensors, grad_k),
                                      offsetof(attn_tensors, grad_v),
                                      offsetof(attn_tensors, grad_bias),
                                      offsetof(attn_tensors, tan_o),
                                      offsetof(attn_tensors, tan_lse),
                                      offsetof(attn_tensors, grad_scale),
                                      offsetof(attn_tensors, grad_score_matrix),
                                      offsetof(attn_tensors, grad_sink),
                                      offsetof(attn_tensors, grad_alibi_slopes),
                                      offsetof(attn_tensors, grad_bias_table),
                                      offsetof(attn_tensors, grad_relative_keys),
                                      offsetof(attn_tensors, grad_relative_values),
                                      offsetof(attn_tensors, grad_relative_u),
                                      offsetof(attn_tensors, grad_relative_v),
                                      offsetof(attn_tensors, second_grad_o),
                                      offsetof(attn_tensors, second_grad_lse),
                                      offsetof(attn_tensors, second_q),
                                      offsetof(attn_tensors, second_k),
                                      offsetof(attn_tensors, second_v),
                                      offsetof(attn_tensors, second_bias)};
    if (d->role[p->op] != ATTN_ROLE_OUTPUT) return ATTN_OK;
    CHECK(!is_packed(t) || spread_of(d) != ATTN_SPREAD_PAIRS || is_bias_gradient(d), ATTN_ERR_UNSUPPORTED,
          MODULE ": %s is set with cu_seqlens_q, which is not there yet", d->name);
    for (size_t n = 0; n < sizeof combined / sizeof *combined; n++)
        if (d->offset == combined[n]) return ATTN_OK;
    return fail(error, ATTN_ERR_UNSUPPORTED, MODULE ": %s is set, which is not there yet", d->name);
}

/* The shape of a tensor of the rank. */
static void shape_of(attn_bound *b, const attn_tensor_plan *cell, int64_t queries, int64_t keys, const attn_problem *p,
                     const attn_tensors *t, int of_entry)
{
    const int64_t width = cell->shape[3];
    memcpy(b->shape, cell->shape, sizeof b->shape);
    if (b->spread == ATTN_SPREAD_QUERIES) b->shape[2] = queries;
    if (b->spread == ATTN_SPREAD_KEYS) b->shape[2] = keys;
    if (b->spread == ATTN_SPREAD_INDEX) b->shape[0] = p->shape.batch; /* of packed sequences, a cell has one */
    if (b->spread == ATTN_SPREAD_PAIRS) {
        b->shape[2] = queries;
        b->shape[3] = p->shape.len_kv;
    }
    if (b->spread == ATTN_SPREAD_BLOCKS) {
        b->shape[2] = queries / p->mask.block_q + (queries % p->mask.block_q != 0);
        b->shape[3] = p->shape.len_kv / p->mask.block_kv + (p->shape.len_kv % p->mask.block_kv != 0);
    }
    if (b->spread == ATTN_SPREAD_ENTRIES || of_entry) b->shape[0] = p->shape.batch;
    if (b->spread == ATTN_SPREAD_ENTRIES) {
        b->shape[2] = p->shape.len_q;
        b->shape[3] = b->offset == offsetof(attn_tensors, ranges) ? width : p->shape.len_kv;
    }
    if (b->in_ranges && !of_entry) {
        if (is_packed(t)) b->shape[0] = bias_is_shared(p, t, 0) ? 1 : p->shape.batch;
        b->shape[2] = b->spread == ATTN_SPREAD_QUERIES ? queries : bias_is_shared(p, t, 2) ? 1 : p->shape.len_q;
        b->shape[3] = bias_is_shared(p, t, 3) ? 1 : p->shape.len_kv;
    }
}

static int has_elements(const int64_t shape[4]) { return shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0; }

/* Returns 0 if it has too many elements. */
static int make_dense(attn_bound *b, int packed)
{
    int64_t sizes[4];
    for (int axis = 0; axis < 4; axis++) sizes[axis] = attn_max(b->shape[axis], 1);
    if (!sizes_fit((int64_t)attn_dtype_size(b->dtype), sizes, 4)) {
        for (int axis = 0; axis < 4; axis++) b->stride[axis] = 1; /* any, without elements */
        return !has_elements(b->shape);
    }
    if (packed && (b->spread == ATTN_SPREAD_QUERIES || b->spread == ATTN_SPREAD_KEYS)) { /* token, head, channel */
        b->stride[3] = 1;
        b->stride[1] = b->shape[3];
        b->stride[2] = b->shape[1] * b->shape[3];
        b->stride[0] = 0;
        return 1;
    }
    b->stride[3] = 1;
    for (int axis = 3; axis > 0; axis--) b->stride[axis - 1] = b->stride[axis] * sizes[axis];
    return 1;
}

static attn_status bind(attn_bound *b, const attn_problem *p, const attn_tensors *tensors, const attn_tensor_description *d,
                        const attn_tensor_plan *cell, int64_t queries, int64_t keys, attn_error *error)
{
    int64_t span;
    *b = (attn_bound){.index = -1,
                      .offset = d->offset,
                      .role = cell->role,
                      .spread = spread_in(d, p, tensors),
                      .dtype = cell->dtype,
                      .name = d->name};
    const int of_entry = is_of_entry(d, tensors);
    b->in_ranges = b->role == ATTN_ROLE_OUTPUT && (b->spread != spread_of(d) || of_entry);
    const attn_input slot = attn_bound_slot(b, tensors);
    TRY(check_result(p, tensors, d, error));
    b->of_heads_kv = d->axes[1] == ATTN_AXIS_HEAD_KV ||
                     (d->offset == offsetof(attn_tensors, column_sum) && p->outputs.column_heads == ATTN_COLUMNS_GROUP);
    shape_of(b, cell, queries, keys, p, tensors, of_entry);
    if (b->spread == ATTN_SPREAD_SAME && !b->in_ranges)
        memcpy(b->stride, cell->stride, sizeof b->stride); /* some broadcast by default */
    else if (slot_is_dense(&slot))
        CHECK(make_dense(b, is_packed(tensors)), ATTN_ERR_SHAPE, MODULE ": %s is too large: its bytes overflow 64 bits", d->name);
    else
        for (int axis = 0; axis < 4; axis++) b->stride[axis] = slot.stride[axis] == ATTN_BROADCAST ? 0 : slot.stride[axis];
    if (of_entry && !b->in_ranges) b->stride[0] = slot.stride[0];
    const int beyond = strides_beyond((int64_t)attn_dtype_size(b->dtype), b->shape, b->stride);
    CHECK(beyond < 0, ATTN_ERR_SHAPE,
          MODULE ": %s.stride[%d] (%" PRId64 ") times its size (%" PRId64 ") overflows 64-bit addresses", d->name, beyond,
          b->stride[beyond < 0 ? 0 : beyond], b->shape[beyond < 0 ? 0 : beyond]);
    const int no_entries = p->shape.batch == 0 && d->axes[0] == ATTN_AXIS_BATCH && b->role == ATTN_ROLE_INPUT;
    const int some = has_elements(b->shape) && !no_entries;
    const int axis = some && b->role == ATTN_ROLE_OUTPUT ? elements_self_overlap(b->shape, b->stride, &span) : -1;
    CHECK(axis < 0, ATTN_ERR_STRIDE,
          MODULE ": %s overlaps itself: stride[%d] is %" PRId64 " and the axes with smaller strides span %" PRId64 " elements",
          d->name, axis, b->stride[axis < 0 ? 0 : axis], span);
    b->has_elements = some;
    b->width = b->shape[3];
    return ATTN_OK;
}

/* What a cell cannot do for a whole. */
static attn_status check_problem(const attn_problem *p, const attn_tensors *t, int64_t part, attn_error *error)
{
    const struct {
        const attn_input *slot;
        const char *name;
    } missing[] = {{&t->page_table, "page_table"},
                   {&t->page_starts, "page_starts"},
                   {&t->page_index, "page_index"},
                   {&t->lengths_last_page, "lengths_last_page"},
                   {&t->block_starts, "block_starts"},
                   {&t->block_index, "block_index"},
                   {&t->tree, "tree"}};
    for (size_t n = 0; n < sizeof missing / sizeof *missing; n++)
        CHECK(slot_is_absent(missing[n].slot), ATTN_ERR_UNSUPPORTED, MODULE ": %s is set, which is not there yet", missing[n].name);
    CHECK(!is_packed(t) || slot_is_absent(&t->block_mask), ATTN_ERR_UNSUPPORTED,
          MODULE ": block_mask is set with cu_seqlens_q, which is not there yet");
    const int is_one = part >= p->shape.len_q && part >= p->shape.len_kv;
    CHECK(slot_is_absent(&t->block_mask) || is_one || p->mask.block_q < 1 || p->mask.block_kv < 1 ||
              (part % p->mask.block_q == 0 && part % p->mask.block_kv == 0),
          ATTN_ERR_UNSUPPORTED,
          MODULE ": split.part is %" PRId64 "; with a block mask it must be a multiple of mask.block_q (%" PRId64
                 ") and mask.block_kv (%" PRId64 ")",
          part, p->mask.block_q, p->mask.block_kv);
    CHECK(p->shape.len_kv <= INT32_MAX || t->topk_index.dtype != ATTN_I32, ATTN_ERR_UNSUPPORTED,
          "topk_index.dtype is i32 and len_kv (%" PRId64 ") does not fit in it", p->shape.len_kv);
    return ATTN_OK;
}

/* Of what has no elements here they may be any; but a bias that is shared is shared on all ranks, which decides the shape of its
 * gradient. */
static void drop_strides(attn_input *slot, const attn_problem *p, int is_bias)
{
    const attn_input given = *slot;
    const int64_t sizes[4] = {p->shape.batch, p->shape.heads_q, p->shape.len_q, p->shape.len_kv};
    int shared[4], some = 0;
    for (int axis = 0; axis < 4; axis++) some |= shared[axis] = is_bias && broadcasts(&given, axis, sizes[axis]);
    for (int axis = 0; axis < 4; axis++) slot->stride[axis] = shared[axis] ? ATTN_BROADCAST : some;
}

/* Results that cells have although the caller does not want them: others are combined with their help. */
static void add_hidden(attn_bounds *bounds, const attn_problem *p, const attn_tensors *t)
{
#define SLOT(name) #name, offsetof(attn_tensors, name), !t->name.data
    const int entropy = t->entropy.data || t->effective_keys.data || p->mask.empty == ATTN_EMPTY_UNIFORM,
              top = t->topk_index.data || t->topk_weight.data;
    const struct {
        const char *name;
        size_t offset;
        int absent, needed;
        int64_t width;
    } all[] = {{SLOT(lse), 1, 1},
               {SLOT(entropy), entropy, 1},
               {SLOT(effective_keys), entropy, 1},
               {SLOT(topk_index), top, p->outputs.topk},
               {SLOT(topk_weight), top, p->outputs.topk}};
#undef SLOT
    attn_bound like = {.width = 0};
    for (int n = 0; n < bounds->count; n++)
        if (bounds->all[n].offset == offsetof(attn_tensors, o)) like = bounds->all[n];
    for (size_t n = 0; n < sizeof all / sizeof *all && p->op == ATTN_FORWARD; n++) {
        if (!all[n].absent || !all[n].needed) continue;
        attn_bound *b = &bounds->all[bounds->count++];
        *b = (attn_bound){.index = -1, .offset = all[n].offset, .role = ATTN_ROLE_OUTPUT, .spread = ATTN_SPREAD_QUERIES};
        b->dtype = bounds->compute, b->name = all[n].name, b->width = all[n].width;
        memcpy(b->shape, like.shape, sizeof b->shape);
        b->shape[3] = b->width;
    }
}

attn_status attn_bounds_fill(attn_bounds *bounds, const attn_problem *problem, const attn_tensors *tensors, int64_t part,
                             int64_t queries, int64_t keys, const attn_options *options, attn_error *error)
{
    attn_problem cell = *problem;
    attn_tensors t = *tensors;
    attn_plan *plan;
    TRY(check_problem(problem, tensors, part, error));
    /* Strides may have no space for more: of packed sequences, than the longest has. */
    cell.shape.len_q = attn_min(attn_min(part, cell.shape.len_q), queries > 0 ? queries : part);
    cell.shape.len_kv = attn_min(attn_min(part, cell.shape.len_kv), keys > 0 ? keys : part);
    if (t.cu_seqlens_q.data) cell.shape.batch = 1; /* a cell has one sequence at a time */
    t.cu_seqlens_q = t.cu_seqlens_kv = (attn_input){.data = NULL};
    for (int index = 0;; index++) { /* without memory; the strides of what has no elements may be any */
        attn_tensor_description d = {.struct_size = sizeof d};
        if (attn_tensor_describe(ATTN_FAMILY_ATTENTION, index, &d, NULL) != ATTN_OK) break;
        attn_input *slot = (attn_input *)(void *)((char *)&t + d.offset);
        const attn_spread spread = spread_in(&d, problem, tensors);
        const int64_t rows = spread == ATTN_SPREAD_KEYS ? keys
                             : spread == ATTN_SPREAD_QUERIES || spread == ATTN_SPREAD_PAIRS || spread == ATTN_SPREAD_BLOCKS
                                 ? queries
                                 : 1;
        if (slot->data && slot->data != ATTN_MISSING) slot->data = ATTN_LATER;
        if (rows == 0) drop_strides(slot, problem, d.offset == offsetof(attn_tensors, bias));
    }
    TRY(attn_plan_create(&plan, &cell, &t, options, error));
    bounds->count = 0;
    bounds->starts = is_packed(tensors) ? problem->shape.batch + 1 : 0;
    bounds->compute = ATTN_F32;
    attn_status status = ATTN_OK;
    for (int index = 0; status == ATTN_OK; index++) {
        attn_tensor_description d = {.struct_size = sizeof d};
        attn_tensor_plan planned = {.struct_size = sizeof planned};
        if (attn_tensor_describe(ATTN_FAMILY_ATTENTION, index, &d, NULL) != ATTN_OK) break;
        status = attn_plan_tensor(plan, index, &planned, error);
        if (status != ATTN_OK || planned.role == ATTN_ROLE_NONE) continue;
        if (attn_is_blocks(planned.dtype)) {
            status = fail(error, ATTN_ERR_UNSUPPORTED, MODULE ": %s is %s; keys and values of blocks are not there yet", d.name,
                          attn_dtype_name(planned.dtype));
            break;
        }
        attn_bound *b = &bounds->all[bounds->count++];
        status = bind(b, problem, tensors, &d, &planned, queries, keys, error);
        b->index = index;
        if (d.offset == offsetof(attn_tensors, q) && planned.dtype == ATTN_F64) bounds->compute = ATTN_F64;
    }
    attn_plan_destroy(plan);
    add_hidden(bounds, problem, tensors);
    return status;
}

attn_status attn_bounds_read_call(attn_call *copy, const attn_tensors *tensors, attn_error *error)
{
    *copy = (attn_call){.struct_size = sizeof *copy};
    if (tensors->call) TRY(struct_read(copy, sizeof *copy, sizeof *copy, tensors->call, "attn_call", error));
    CHECK(!copy->visit_rows, ATTN_ERR_UNSUPPORTED, MODULE ": call.visit_rows is set; there are no whole rows over parts");
    return ATTN_OK;
}

attn_status attn_bounds_check_call(const attn_call *planned, const attn_call *call, attn_op op, attn_error *error)
{
    CHECK(call->reserved == 0, ATTN_ERR_ARGUMENT, "call.reserved is %" PRIu32 "; it must be 0", call->reserved);
    CHECK(!call->modify_scores || op == ATTN_FORWARD || call->modify_slopes, ATTN_ERR_ARGUMENT,
          "call.modify_scores is set and call.modify_slopes is NULL; the derivatives need it");
    CHECK(call->modify_scores || !call->modify_slopes, ATTN_ERR_ARGUMENT,
          "call.modify_slopes is set and call.modify_scores is NULL");
    const char *differs = !planned->modify_scores != !call->modify_scores   ? "modify_scores"
                          : !planned->modify_slopes != !call->modify_slopes ? "modify_slopes"
                                                                            : NULL;
    CHECK(!differs, ATTN_ERR_ARGUMENT, MODULE ": call.%s is set in the plan or in its execution, and not in both", differs);
    return ATTN_OK;
}

/* Where packed sequences begin is known since the plan was made; but no output may lie there. */
static void add_starts(places *p, int64_t count, const attn_tensors *t)
{
    const int64_t shape[4] = {count, 1, 1, 1}, stride[4] = {1, 0, 0, 0};
    const struct {
        const attn_input *slot;
        const char *name;
    } both[] = {{&t->cu_seqlens_q, "cu_seqlens_q"}, {&t->cu_seqlens_kv, "cu_seqlens_kv"}};
    for (int n = 0; n < 2 && count > 0; n++) {
        p->size = both[n].slot->dtype == ATTN_I32 ? 4 : 8;
        if (slot_is_address(both[n].slot)) places_add(p, "", both[n].name, both[n].slot->data, shape, stride, 0);
    }
}

static attn_status check_workspace(const places *p, attn_scratch workspace, attn_error *error)
{
    const int64_t shape[4] = {1, 1, 1, (int64_t)workspace.bytes}, stride[4] = {0, 0, 0, 1};
    const attn_elements bytes = {workspace.data, shape, stride, 1};
    for (const place *x = p->all; x < p->all + p->count; x++) {
        const attn_elements elements = {x->data, x->shape, x->stride, x->size};
        CHECK(elements_meet(&elements, &bytes) == 0, ATTN_ERR_ARGUMENT,
              MODULE ": %s and the workspace overlap, or its strides make it impossible to tell", x->name);
    }
    return ATTN_OK;
}

attn_status attn_bounds_check(const attn_bounds *bounds, const attn_tensors *planned, const attn_tensors *tensors,
                              attn_scratch workspace, attn_error *error)
{
    for (int index = 0;; index++) {
        attn_tensor_description d = {.struct_size = sizeof d};
        if (attn_tensor_describe(ATTN_FAMILY_ATTENTION, index, &d, NULL) != ATTN_OK) break;
        const attn_bound here = {.offset = d.offset};
        const attn_input then = attn_bound_slot(&here, planned), now = attn_bound_slot(&here, tensors);
        CHECK(!then.data == !now.data, ATTN_ERR_ARGUMENT, MODULE ": %s is %s", d.name,
              then.data ? "missing; the plan was made with it" : "set; the plan was made without it");
    }
    places p = {.count = 0};
    for (int n = 0; n < bounds->count; n++) {
        const attn_bound *b = &bounds->all[n];
        const attn_input then = attn_bound_slot(b, planned), now = attn_bound_slot(b, tensors);
        TRY(slot_check(&now, b->name, b->has_elements, error));
        TRY(slot_aligned(&now, b->name, attn_dtype_size(b->dtype), error));
        const int same_type = now.dtype == then.dtype || now.dtype == b->dtype;
        const int same_strides =
            memcmp(now.stride, then.stride, sizeof now.stride) == 0 || memcmp(now.stride, b->stride, sizeof now.stride) == 0;
        CHECK(same_type, ATTN_ERR_ARGUMENT, MODULE ": %s is %s; the plan was made with %s", b->name, attn_dtype_name(now.dtype),
              attn_dtype_name(b->dtype));
        CHECK(same_strides, ATTN_ERR_STRIDE, MODULE ": the strides of %s differ from those of the plan", b->name);
        if (!b->has_elements) continue;
        p.size = attn_dtype_size(b->dtype);
        places_add(&p, "", b->name, now.data, b->shape, b->stride, b->role == ATTN_ROLE_OUTPUT);
    }
    add_starts(&p, bounds->starts, tensors);
    TRY(check_workspace(&p, workspace, error));
    return places_check(&p, MODULE, error);
}
