/* SPDX-License-Identifier: MIT
 * call.c - the inputs of a check case. */
#include "call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fill.h"
#include "masks.h"
#include "pages.h"
#include "testing/memory/element.h"
#include "testing/random/random.h"
#include "testing/text/failure.h"

/* ---- lengths and offsets ---- */

/* Of a list, whose elements follow each other. */
static void write_index(tensor *array, int64_t n, int64_t value)
{
    element_write_index(array->layout.dtype, (char *)array->base + (size_t)n * attn_dtype_size(array->layout.dtype), value);
}

/* One entry in four is the lowest or the highest. */
static int64_t draw_between(const check_case *c, int64_t low, int64_t high, random_state *random)
{
    const int64_t pick = random_below(random, 8);
    const int log = c->spec.spread == SPEC_SPREAD_LOG && low == 0 && high > 0;
    return pick == 0 ? low : pick == 1 ? high : log ? random_spread(random, 1, high) : random_between(random, low, high);
}

/* Lengths and offsets of each entry; no sequence is shorter than what all share. */
static void draw_index(check_call *call, const check_case *c, int t, random_state *random)
{
    const attn_shape *s = &call->problem.shape;
    const int of_q = t == TENSOR(lengths_q), each = c->spec.offset_kind == SPEC_OFFSET_EACH;
    int64_t low = of_q ? 0 : c->spec.prefix, high = of_q ? s->len_q : s->len_kv;
    if (t == TENSOR(offset_q)) low = each ? -s->len_q - 1 : c->spec.offset, high = each ? s->len_kv + 1 : c->spec.offset;
    for (int64_t b = 0; b < s->batch; b++) write_index(&call->in[t], b, draw_between(c, low, high, random));
}

/* Draws the offsets of packed sequences; returns their total number of tokens.  The first has the full length of the shape. */
static int64_t draw_begins(check_call *call, const check_case *c, int t, random_state *random)
{
    const attn_shape *s = &call->problem.shape;
    const int64_t longest = t == TENSOR(cu_seqlens_q) ? s->len_q : s->len_kv;
    const int mixed = c->spec.ragged == SPEC_RAGGED_MIXED;
    int64_t total = 0;
    write_index(&call->in[t], 0, 0);
    for (int64_t b = 0; b < s->batch; b++) {
        total += !b ? longest : mixed ? longest > 0 : draw_between(c, 0, longest, random);
        write_index(&call->in[t], b + 1, total);
    }
    return total;
}

static int is_index(int t) { return !(tensors_about(t)->types & ~(1u << ATTN_I32 | 1u << ATTN_I64)); }
static int is_of_masks(int t) { return t == TENSOR(ranges) || t == TENSOR(block_starts) || t == TENSOR(block_index); }

/* Index arrays first, since they determine the number of tokens of packed tensors. */
static int create_inputs(check_call *call, const check_case *c, random_state *random)
{
    const attn_op op = call->problem.op;
    int64_t tokens[2] = {-1, -1};
    int ok = 1;
    for (int t = 0; t < TENSORS && ok; t++) {
        if (!is_index(t) || is_of_masks(t) || !tensors_reads(&call->tensors, op, t)) continue;
        ok = place_tensor(&call->in[t], call, t, c, -1);
        if (ok && (t == TENSOR(cu_seqlens_q) || t == TENSOR(cu_seqlens_kv)))
            tokens[t == TENSOR(cu_seqlens_kv)] = draw_begins(call, c, t, random);
        else if (ok) draw_index(call, c, t, random);
    }
    for (int t = 0; t < TENSORS && ok; t++)
        if (!is_index(t) && tensors_reads(&call->tensors, op, t))
            ok = place_tensor(&call->in[t], call, t, c, tokens[tensors_of_keys(t)]);
    return ok;
}

/* ---- numbers ---- */

/* Half the width of a uniform distribution that gives scores of about 2. */
static double spread_of_matrix(const attn_problem *p, const int64_t size[4])
{
    if (p->score.kind == ATTN_SCORE_ADDITIVE || size[2] * size[3] == 0) return 1;
    if (p->score.kind == ATTN_SCORE_GENERAL) return 2 * sqrt(3 / (double)(size[2] * size[3]));
    return sqrt(6 / ((double)size[3] * sqrt((double)size[2])));
}

/* Slopes as in trained models, sinks about as large as scores, scales near the usual one.  Some bias tables drop keys (-infinity).
 */
static void draw_array(check_call *call, int t, uint64_t seed, random_state *random)
{
    const tensor *array = &call->in[t];
    const attn_dtype dtype = array->layout.dtype;
    const size_t bytes = attn_dtype_size(dtype);
    const double half = t == TENSOR(score_matrix) ? spread_of_matrix(&call->problem, array->size) : 1;
    double range = 2 * half, least = -half;
    if (t == TENSOR(alibi_slopes)) range = 0.6, least = -0.1;
    if (t == TENSOR(sink)) range = 8, least = -4;
    if (t == TENSOR(scale)) range = 0.5, least = -0.2;
    if (t == TENSOR(bias_table)) range = 4, least = -2;
    for (size_t at = 0; at < array->block.bytes; at += bytes)
        element_write(dtype, array->block.data + at, least + range * random_unit(random));
    for (size_t at = 0; t == TENSOR(bias_table) && seed % 3 == 0 && at < array->block.bytes; at += bytes)
        if (random_below(random, 12) == 0) element_write(dtype, array->block.data + at, -INFINITY);
}

static void draw_numbers(check_call *call, const check_case *c, random_state *random)
{
    static const int of_heads[] = {TENSOR(alibi_slopes),    TENSOR(sink),       TENSOR(scale),
                                   TENSOR(score_matrix),    TENSOR(bias_table), TENSOR(relative_keys),
                                   TENSOR(relative_values), TENSOR(relative_u), TENSOR(relative_v)};
    for (size_t k = 0; k < sizeof of_heads / sizeof *of_heads; k++)
        if (call->in[of_heads[k]].base) draw_array(call, of_heads[k], c->spec.seed, random);
    fill_tensors(call, c, random);
    if (call->tensors.mask.data) fill_mask(&call->in[TENSOR(mask)], c->spec.mask ? c->spec.mask_drop : 0, random);
    if (call->tensors.block_mask.data) fill_mask(&call->in[TENSOR(block_mask)], c->spec.block_drop, random);
    if (call->tensors.tree.data) fill_tree(call, c, random);
    if (call->tensors.bias.data) fill_bias(&call->in[TENSOR(bias)], c, random);
    fill_plant(call, c, random);
    fill_prefix(call, c);
}

/* ---- the call ---- */

/* Sets the types chosen by the case's words. */
static void set_types(attn_tensors *all, const check_case *c)
{
    const attn_dtype index = c->index32 ? ATTN_I32 : ATTN_I64;
    if (c->o_dtype) all->o.dtype = c->o_dtype;
    if (c->bias_dtype && all->bias.data) all->bias.dtype = c->bias_dtype;
    for (int t = 0; t < TENSORS; t++)
        if (is_index(t) && tensors_has(all, t)) tensors_slot(all, t)->dtype = index;
}

/* Rejects invalid sizes, inconsistent options and what the library lacks with its own message, since the reference checks nothing,
 * and tensors of such a problem may not even have a place. */
static attn_status check_sense(const check_call *call, attn_error *error)
{
    attn_plan *plan;
    const attn_status status = attn_plan_create(&plan, &call->problem, &call->tensors, NULL, error);
    attn_plan_destroy(plan);
    return status;
}

attn_status check_inputs_create(check_call *call, const check_case *c, random_state *random, attn_error *error)
{
    *call = (check_call){.call.struct_size = sizeof call->call};
    attn_status status = problem_build(&c->spec, &call->problem, &call->tensors, error);
    if (status != ATTN_OK) return status;
    if (call->problem.op != ATTN_FORWARD && c->plant)
        return failure(error, ATTN_ERR_ARGUMENT, "plant is only for fwd, where the check knows which outputs a NaN must reach");

    *random = random_from(c->spec.seed * 2 + 1);
    call->tensors.call = &call->call;
    call->call.dropout_seed = c->spec.seed;
    set_types(&call->tensors, c);
    status = check_sense(call, error);
    if (status != ATTN_OK) return status;
    call->paging = call->problem.paging;
    call->problem.paging = (attn_paging){0};
    call->tensors.page_table = (attn_input){0};
    if (!create_inputs(call, c, random)) {
        check_call_destroy(call);
        return failure(error, ATTN_ERR_MEMORY, "cannot allocate the tensors of the problem");
    }
    draw_numbers(call, c, random);
    return ATTN_OK;
}

attn_status check_call_create(check_call *call, const check_case *c, attn_error *error)
{
    random_state random;
    sparse_mask mask;
    attn_status status = check_inputs_create(call, c, &random, error);
    if (status == ATTN_OK) status = sparse_make(&mask, &c->spec, error);
    if (status != ATTN_OK) {
        check_call_destroy(call);
        return status;
    }
    const int ok = masks_place(call, c, &mask) && masks_expect(call, c) &&
                   flows_create(&call->flows, &call->expected, &call->problem, &call->tensors);
    if (ok) masks_hide(call, &mask);
    sparse_free(&mask);
    if (!ok) {
        check_call_destroy(call);
        return failure(error, ATTN_ERR_MEMORY, "cannot allocate the tensors of a check");
    }
    fill_poison(call, c);
    if (call->paging.page_size && !pages_lay(call, c, &call->paging, &random)) {
        check_call_destroy(call);
        return failure(error, ATTN_ERR_MEMORY, "cannot allocate the pages of a check");
    }
    for (int t = 0; t < TENSORS; t++)
        if (call->in[t].block.map) guarded_freeze(&call->in[t].block);
    return ATTN_OK;
}

void check_call_destroy(check_call *call)
{
    for (int t = 0; t < TENSORS; t++) tensor_destroy(&call->in[t]);
    flows_destroy(&call->flows);
    expectation_destroy(&call->expected);
    *call = (check_call){0};
}
