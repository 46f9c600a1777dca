/* SPDX-License-Identifier: MIT
 * cut_run.c - running a random attention problem, and parts of it. */
#include "cut.h"

const cut_result cut_results[CUT_RESULTS] = {
    [CUT_O] = {"o", ATTN_FORWARD, 0, CUT_DIM_V},
    [CUT_LSE] = {"lse", ATTN_FORWARD, 0, CUT_ONE},
    [CUT_KEEP] = {"dropout_keep", ATTN_FORWARD, 0, CUT_KEYS},
    [CUT_GRAD_Q] = {"grad_q", ATTN_BACKWARD, 0, CUT_DIM_QK},
    [CUT_GRAD_K] = {"grad_k", ATTN_BACKWARD, 1, CUT_DIM_QK},
    [CUT_GRAD_V] = {"grad_v", ATTN_BACKWARD, 1, CUT_DIM_V},
    [CUT_TAN_O] = {"tan_o", ATTN_JVP, 0, CUT_DIM_V},
    [CUT_TAN_LSE] = {"tan_lse", ATTN_JVP, 0, CUT_ONE},
    [CUT_SECOND_GRAD_O] = {"second_grad_o", ATTN_DOUBLE_BACKWARD, 0, CUT_DIM_V},
    [CUT_SECOND_GRAD_LSE] = {"second_grad_lse", ATTN_DOUBLE_BACKWARD, 0, CUT_ONE},
    [CUT_SECOND_Q] = {"second_q", ATTN_DOUBLE_BACKWARD, 0, CUT_DIM_QK},
    [CUT_SECOND_K] = {"second_k", ATTN_DOUBLE_BACKWARD, 1, CUT_DIM_QK},
    [CUT_SECOND_V] = {"second_v", ATTN_DOUBLE_BACKWARD, 1, CUT_DIM_V},
};

int whole_has(const whole *w, attn_op op)
{
    if (op == ATTN_FORWARD || op == ATTN_BACKWARD) return 1;
    if (w->problem.score.kind != ATTN_SCORE_DOT || w->relative_keys.data) return 0;
    return op == ATTN_JVP || !w->call.modify_scores;
}

static int64_t larger(int64_t x) { return x > 1 ? x : 1; }

int64_t whole_step_q(const whole *w) { return larger(w->problem.mask.block_q); }
int64_t whole_step_kv(const whole *w) { return w->page_size ? w->page_size : larger(w->problem.mask.block_kv); }

results results_make(const whole *w, const part *p)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t dims[] = {[CUT_ONE] = 1, [CUT_DIM_QK] = s->dim_qk, [CUT_DIM_V] = s->dim_v, [CUT_KEYS] = p->keys};
    results r;
    for (int n = 0; n < CUT_RESULTS; n++) {
        const cut_result *is = &cut_results[n];
        r.of[n] =
            array_make(n == CUT_KEEP ? ATTN_BOOL : w->dtype, p->entries, p->heads * (is->of_keys ? 1 : s->heads_q / s->heads_kv),
                       is->of_keys ? p->keys : p->queries, dims[is->dim]);
    }
    return r;
}

void results_free(results *r)
{
    for (int n = 0; n < CUT_RESULTS; n++) free(r->of[n].data);
}

/* ---- tensors ---- */

static attn_input input_at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    attn_input slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    if (!a->data) return slot;
    slot = attn_in(array_place(a, b, h, i, c));
    slot.dtype = a->dtype;
    memcpy(slot.stride, a->stride, sizeof slot.stride);
    return slot;
}

static attn_output output_of(const array *a)
{
    attn_output slot = attn_out(a->data);
    slot.dtype = a->dtype;
    memcpy(slot.stride, a->stride, sizeof slot.stride);
    return slot;
}

static attn_output saved_of(const attn_input slot)
{
    attn_output saved = attn_saved(slot.data);
    saved.dtype = slot.dtype;
    memcpy(saved.stride, slot.stride, sizeof saved.stride);
    return saved;
}

/* A tensor with a row for each query: the part's own, or the whole's at the part's position. */
static attn_input flow_at(const array *own, const array *all, const part *p, int64_t h)
{
    return own ? input_at(own, 0, 0, 0, 0) : input_at(all, p->batch, h, p->q, 0);
}

static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/* One call, and the memory allocated for it. */
typedef struct call {
    attn_problem problem;
    attn_call call;
    attn_tensors t;
    int64_t lengths_q[8], lengths_kv[8], *starts, *index;
} call;

static void place_options(call *x, const whole *w, const part *p, int64_t h)
{
    attn_tensors *t = &x->t;
    const attn_mask *m = &w->problem.mask;
    t->mask = input_at(&w->mask, p->batch, h, p->q, p->kv), t->bias = input_at(&w->bias, p->batch, h, p->q, p->kv);
    if (w->block_mask.data) t->block_mask = input_at(&w->block_mask, p->batch, h, p->q / m->block_q, p->kv / m->block_kv);
    t->ranges = input_at(&w->ranges, p->batch, h, p->q, 0);
    t->alibi_slopes = input_at(&w->slopes, p->batch, h, 0, 0);
    t->bias_table = input_at(&w->table, 0, h, 0, 0);
    t->relative_keys = input_at(&w->relative_keys, 0, h, 0, 0), t->relative_values = input_at(&w->relative_values, 0, h, 0, 0);
    t->relative_u = input_at(&w->relative_u, 0, h, 0, 0), t->relative_v = input_at(&w->relative_v, 0, h, 0, 0);
    t->scale = input_at(&w->scale, 0, h, 0, 0);
    for (int64_t b = 0; b < p->entries; b++) {
        x->lengths_q[b] = clamp(w->lengths_q[p->batch + b] - p->q, p->queries);
        x->lengths_kv[b] = clamp(w->lengths_kv[p->batch + b] - p->kv, p->keys);
    }
    if (w->has_lengths) t->lengths_q = attn_in(x->lengths_q), t->lengths_kv = attn_in(x->lengths_kv);
}

/* The block lists of the part, with indices that count its own key blocks. */
static void place_lists(call *x, const whole *w, const part *p)
{
    attn_mask *m = &x->problem.mask;
    if (!w->lists.data) return;
    const int64_t lists = (p->queries + m->block_q - 1) / m->block_q, blocks = (p->keys + m->block_kv - 1) / m->block_kv;
    x->starts = calloc((size_t)lists + 1, sizeof *x->starts), x->index = calloc((size_t)(lists * blocks) + 1, sizeof *x->index);
    assert_true(x->starts && x->index);
    for (int64_t n = 0; n < lists; n++) {
        for (int64_t k = 0; k < blocks; k++)
            if (array_at(&w->lists, 0, 0, p->q / m->block_q + n, p->kv / m->block_kv + k) != 0) x->index[m->block_entries++] = k;
        x->starts[n + 1] = m->block_entries;
    }
    x->t.block_starts = attn_in(x->starts), x->t.block_index = attn_in(x->index);
}

static void place_pages(call *x, const whole *w, const part *p)
{
    if (!w->page_size) return;
    x->problem.paging = (attn_paging){.page_size = w->page_size, .pages = w->k_pages.shape[0]};
    x->t.k = input_at(&w->k_pages, 0, p->head, 0, 0), x->t.v = input_at(&w->v_pages, 0, p->head, 0, 0);
    x->t.page_table = input_at(&w->page_table, p->batch, 0, 0, p->kv / w->page_size);
}

static void place_results(call *x, const whole *w, attn_op op, const results *r)
{
    attn_tensors *t = &x->t;
    attn_output *const slots[CUT_RESULTS] = {
        [CUT_O] = &t->o,
        [CUT_LSE] = &t->lse,
        [CUT_KEEP] = w->problem.dropout.probability > 0 ? &t->dropout_keep : NULL,
        [CUT_GRAD_Q] = &t->grad_q,
        [CUT_GRAD_K] = &t->grad_k,
        [CUT_GRAD_V] = &t->grad_v,
        [CUT_TAN_O] = &t->tan_o,
        [CUT_TAN_LSE] = &t->tan_lse,
        [CUT_SECOND_GRAD_O] = &t->second_grad_o,
        [CUT_SECOND_GRAD_LSE] = &t->second_grad_lse,
        [CUT_SECOND_Q] = &t->second_q,
        [CUT_SECOND_K] = &t->second_k,
        [CUT_SECOND_V] = &t->second_v,
    };
    for (int n = 0; n < CUT_RESULTS; n++)
        if (cut_results[n].op == op && slots[n]) *slots[n] = output_of(&r->of[n]);
}

static void place_flows(call *x, const whole *w, const part *p, attn_op op, int64_t h, flows f)
{
    attn_tensors *t = &x->t;
    t->o = saved_of(flow_at(f.o, &w->is.of[CUT_O], p, h)), t->lse = saved_of(flow_at(f.lse, &w->is.of[CUT_LSE], p, h));
    if (op != ATTN_JVP) {
        t->grad_o = flow_at(f.grad_o, &w->grad_o, p, h);
        t->grad_lse = flow_at(f.grad_lse, &w->grad_lse, p, h);
    }
    if (op == ATTN_BACKWARD) return;
    t->tan_q = input_at(&w->tan_q, p->batch, h, p->q, 0), t->tan_bias = input_at(&w->tan_bias, p->batch, h, p->q, p->kv);
    t->tan_k = input_at(&w->tan_k, p->batch, p->head, p->kv, 0), t->tan_v = input_at(&w->tan_v, p->batch, p->head, p->kv, 0);
}

static void execute(const call *x, const whole *w)
{
    const attn_options options = {.struct_size = sizeof options, .invariant = w->invariant && x->problem.op == ATTN_FORWARD};
    attn_error error;
    attn_plan *plan;
    if (attn_plan_create(&plan, &x->problem, &x->t, &options, &error) != ATTN_OK) fail_msg("%s: %s", w->text, error.message);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    assert_non_null(workspace);
    memset(workspace, 0xff, size);
    if (attn_execute(plan, &x->t, workspace, size, &error) != ATTN_OK) fail_msg("%s: %s", w->text, error.message);
    free(workspace);
    attn_plan_destroy(plan);
}

static void run(const whole *w, const part *p, const attn_origin *origin, attn_op op, const results *r, flows f)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t group = s->heads_q / s->heads_kv, h = p->head * group;
    call x = {.problem = w->problem, .call = w->call, .t = {.struct_size = sizeof x.t}};
    x.problem.op = op;
    x.problem.shape = (attn_shape){p->entries, p->heads * group, p->heads, p->queries, p->keys, s->dim_qk, s->dim_v};
    x.call.origin = origin;
    if (x.call.modify_scores && op != ATTN_FORWARD) x.call.modify_slopes = cut_slopes;
    x.t.call = &x.call;
    x.t.q = input_at(&w->q, p->batch, h, p->q, 0);
    x.t.k = input_at(&w->k, p->batch, p->head, p->kv, 0), x.t.v = input_at(&w->v, p->batch, p->head, p->kv, 0);
    place_options(&x, w, p, h);
    place_lists(&x, w, p);
    if (w->has_offset && (origin || !w->bottom_right)) x.t.offset_q = attn_in(w->offset_q + p->batch);
    if (w->bottom_right && !origin) x.problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (op == ATTN_FORWARD) place_pages(&x, w, p);
    else place_flows(&x, w, p, op, h, f);
    place_results(&x, w, op, r);
    execute(&x, w);
    free(x.starts), free(x.index);
}

void whole_run(whole *w, attn_op op)
{
    const attn_shape *s = &w->problem.shape;
    const part all = {0, s->batch, 0, s->heads_kv, 0, s->len_q, 0, s->len_kv};
    run(w, &all, NULL, op, &w->is, (flows){NULL, NULL, NULL, NULL});
}

void part_run(const whole *w, const part *p, attn_op op, results *r, flows f)
{
    const attn_shape *s = &w->problem.shape;
    const attn_origin origin = {
        .batch = p->batch, .head = p->head * (s->heads_q / s->heads_kv), .heads = s->heads_q, .q = p->q, .kv = p->kv};
    run(w, p, &origin, op, r, f);
}
