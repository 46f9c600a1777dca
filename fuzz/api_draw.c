/* SPDX-License-Identifier: MIT
 * api_draw.c - random problems, mostly valid: a rejected one is repaired as its error indicates. */
#include "api_case.h"
#include "testing/memory/format.h"

#include <string.h>

#define LENGTH(a)  ((int64_t)(sizeof(a) / sizeof *(a)))
#define PICK(d, a) ((a)[draw_below(d, LENGTH(a))])

/* ---- tensors by name ---- */

attn_output *case_slot(attn_tensors *tensors, const api_case *c, int t) { return (void *)((char *)tensors + c->about[t].offset); }

int case_find(const api_case *c, const char *name)
{
    for (int t = 0; t < c->count; t++)
        if (!strcmp(c->about[t].name, name)) return t;
    return -1;
}

int case_has(const api_case *c, const char *name)
{
    api_case *open = (api_case *)(uintptr_t)c;
    return case_slot(&open->tensors, c, case_find(c, name))->data != NULL;
}

/* Whether the tensor's sequences are concatenated along the tokens if sequences are packed. */
int case_packs(const api_case *c, int t)
{
    const attn_axis *axes = c->about[t].axes;
    return (axes[2] == ATTN_AXIS_QUERY || axes[2] == ATTN_AXIS_KEY) && axes[3] != ATTN_AXIS_KEY && axes[3] != ATTN_AXIS_LIST;
}

int case_is_packed(const api_case *c, int t)
{
    return case_packs(c, t) && case_has(c, c->about[t].axes[2] == ATTN_AXIS_KEY ? "cu_seqlens_kv" : "cu_seqlens_q");
}

static void give(api_case *c, const char *name)
{
    const int t = case_find(c, name);
    if (c->about[t].role[c->problem.op] == ATTN_ROLE_INPUT) case_slot(&c->tensors, c, t)->data = ATTN_LATER;
}

static void drop(api_case *c, const char *name) { memset(case_slot(&c->tensors, c, case_find(c, name)), 0, sizeof(attn_output)); }

/* ---- the problem ---- */

int64_t case_most_pages(const api_case *c)
{
    const int64_t size = c->problem.paging.page_size;
    return size > 0 ? c->problem.shape.len_kv / size + (c->problem.shape.len_kv % size != 0) : 0;
}

static void draw_shape(draws *d, attn_shape *s)
{
    static const int64_t lengths[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,   13,  15,  16, 17,
                                      24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 129, 200};
    static const int64_t longs[] = {256, 257, 511, 513, 1000, 1500, 3000, 4097};
    static const int64_t dims[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,  15,  16,  17,  24,  31,
                                   32, 33, 40, 48, 64, 65, 72, 80, 96, 128, 129, 160, 256, 257};
    s->batch = draw_one_in(d, 40) ? 0 : 1 + draw_below(d, 3);
    s->heads_kv = draw_one_in(d, 60) ? 0 : 1 + draw_below(d, 2);
    s->heads_q = s->heads_kv * (draw_one_in(d, 60) ? 0 : 1 + draw_below(d, 4));
    s->len_q = draw_one_in(d, 4) ? draw_below(d, 4) : PICK(d, lengths);
    s->len_kv = draw_one_in(d, 5) ? PICK(d, longs) : PICK(d, lengths);
    s->dim_qk = dims[draw_below(d, draw_one_in(d, 4) ? LENGTH(dims) : 19)];
    s->dim_v = draw_one_in(d, 2) ? s->dim_qk : dims[draw_below(d, draw_one_in(d, 6) ? LENGTH(dims) : 19)];
    if (s->len_kv > 255) s->batch = s->batch > 1, s->len_q %= 40, s->dim_qk %= 70, s->dim_v %= 70;
    if (s->len_q * s->len_kv > 10000) s->dim_qk %= 40, s->dim_v %= 40;
}

static void draw_score(api_case *c)
{
    static const double shrinks[] = {1, 2, 0.5, 30, 50, 1e-30, 1e30, 1e-3}, scales[] = {0, 1, -1, 0.125, 2, 1e30, 1e-30, 1e300};
    draws *d = &c->from;
    attn_score *s = &c->problem.score;
    if (c->problem.op <= ATTN_BACKWARD && draw_one_in(d, 4)) s->kind = (attn_score_kind)draw_below(d, 6);
    if (draw_one_in(d, 4)) s->scale_kind = ATTN_SCALE_VALUE, s->scale = scales[draw_below(d, draw_one_in(d, 6) ? 8 : 5)];
    if (draw_one_in(d, 8)) s->temperature = shrinks[draw_below(d, draw_one_in(d, 6) ? 8 : 3)];
    if (draw_one_in(d, 5)) s->softcap = shrinks[draw_below(d, draw_one_in(d, 6) ? 8 : 5)];
    if (c->problem.op <= ATTN_BACKWARD && draw_one_in(d, 6)) s->normaliser = (attn_normaliser)draw_below(d, 4);
    if (s->normaliser == ATTN_NORMALISER_SIGMOID) s->shift = (double)draw_below(d, 5) - 2;
    if (s->kind == ATTN_SCORE_GENERAL && draw_one_in(d, 2)) s->dim_k = 1 + draw_below(d, 40);
    if (s->kind == ATTN_SCORE_METRIC && draw_one_in(d, 2)) s->dim_metric = 1 + draw_below(d, 40);
    if (s->kind == ATTN_SCORE_ADDITIVE) s->additive_bias = draw_one_in(d, 2);
    if (s->kind == ATTN_SCORE_GENERAL || s->kind == ATTN_SCORE_METRIC || s->kind == ATTN_SCORE_ADDITIVE) give(c, "score_matrix");
}

/* For one in n forward cases, by their sizes and not by a draw, after which the numbers of all cases would be others. */
static int picks(const api_case *c, int n)
{
    const attn_shape *s = &c->problem.shape;
    const uint64_t sizes = (uint64_t)(s->len_q * 31 + s->len_kv * 17 + s->dim_qk * 7 + s->batch) * UINT64_C(0x9e3779b97f4a7c15);
    return !c->everywhere && c->problem.op == ATTN_FORWARD && (sizes >> 40) % (uint64_t)n == 0;
}

static void draw_mask(api_case *c)
{
    draws *d = &c->from;
    attn_mask *m = &c->problem.mask;
    m->causal = draw_one_in(d, 3);
    m->align = draw_one_in(d, 4) ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    if (draw_one_in(d, 4)) {
        m->window = 1;
        m->window_left = draw_one_in(d, 9) ? INT64_MAX - draw_below(d, 3) : draw_below(d, 40) - 1;
        m->window_right = draw_one_in(d, 9) ? INT64_MAX - draw_below(d, 3) : draw_below(d, 40) - 1;
    }
    if (draw_one_in(d, 9)) m->chunk = draw_one_in(d, 9) ? INT64_MAX : 1 + draw_below(d, 50);
    if (draw_one_in(d, 9)) m->least_distance = draw_one_in(d, 9) ? INT64_MAX : draw_below(d, 5);
    if (draw_one_in(d, 9)) m->dilation = draw_one_in(d, 9) ? INT64_MAX : draw_below(d, 9);
    if (draw_one_in(d, 9)) m->global_q = draw_one_in(d, 9) ? INT64_MAX : draw_below(d, 9);
    if (draw_one_in(d, 9)) m->global_kv = draw_one_in(d, 9) ? INT64_MAX : draw_below(d, 9);
    if (draw_one_in(d, 9)) m->empty = ATTN_EMPTY_UNIFORM;
    if (draw_one_in(d, 6)) {
        give(c, "cu_seqlens_q");
        if (c->problem.op != ATTN_FORWARD || !draw_one_in(d, 3)) give(c, "cu_seqlens_kv");
        else if (draw_one_in(d, 2)) give(c, "lengths_kv");
    } else {
        if (draw_one_in(d, 5)) give(c, "lengths_q");
        if (draw_one_in(d, 4)) give(c, "lengths_kv");
    }
    if (m->align == ATTN_ALIGN_TOP_LEFT && draw_one_in(d, 4)) give(c, "offset_q");
    if (draw_one_in(d, 6)) give(c, "mask");
    if (draw_one_in(d, 6)) give(c, "bias");
    if (draw_one_in(d, 9)) give(c, "ranges");
    if (draw_one_in(d, 9)) give(c, "block_mask");
    else if (draw_one_in(d, 9)) give(c, "block_starts"), give(c, "block_index");
    if (case_has(c, "block_mask") || case_has(c, "block_starts"))
        m->block_q = 1 + draw_below(d, 20), m->block_kv = 1 + draw_below(d, 40);
    if (case_has(c, "block_index") && m->block_q > 0) { /* case_listed */
        const attn_shape *s = &c->problem.shape;
        if (picks(c, 2)) m->block_heads = 1;
        if (m->block_heads && picks(c, 3)) m->block_q = s->len_q + 1; /* one list for all queries */
        const int64_t rows = case_lists(c), columns = (s->len_kv + m->block_kv - 1) / m->block_kv;
        c->whole_lists = m->block_heads && picks(c, 4);
        for (int64_t r = 0; r < rows; r++) m->block_entries += case_listed(c, r, columns);
    }
    if (picks(c, 5)) give(c, "tree"), m->tree_keys = 1 + (c->problem.shape.len_kv * 3 + c->problem.shape.len_q) % 150;
}

/* Lists of blocks. */
int64_t case_lists(const api_case *c)
{
    const attn_shape *s = &c->problem.shape;
    const attn_mask *m = &c->problem.mask;
    return (s->len_q + m->block_q - 1) / m->block_q * (m->block_heads ? s->batch * s->heads_kv : 1);
}

static void draw_rest(api_case *c)
{
    static const double drops[] = {0.1, 0.5, 1, 0.25, 1e-10, 0.999999999};
    draws *d = &c->from;
    attn_problem *p = &c->problem;
    if (draw_one_in(d, 5)) p->dropout.probability = PICK(d, drops);
    if (p->dropout.probability > 0 && draw_one_in(d, 3)) give(c, "dropout_given");
    if (draw_one_in(d, 6)) give(c, "alibi_slopes");
    if (draw_one_in(d, 8)) give(c, "sink");
    if (draw_one_in(d, 8)) give(c, "scale");
    if (p->op == ATTN_FORWARD && !case_has(c, "cu_seqlens_kv") && draw_one_in(d, 6)) {
        p->paging.page_size = 1 + draw_below(d, 40);
        p->paging.pages = 1 + draw_below(d, 2 * (p->shape.len_kv / p->paging.page_size) + 3);
        if (draw_one_in(d, 2)) {
            give(c, "page_starts"), give(c, "page_index");
            p->paging.page_entries = p->shape.batch * case_most_pages(c);
            if (!case_has(c, "lengths_kv") && draw_one_in(d, 2)) give(c, "lengths_last_page");
        } else give(c, "page_table");
    }
    if (draw_one_in(d, 8)) {
        give(c, "bias_table");
        p->bias_table.kind = draw_one_in(d, 2) ? ATTN_DISTANCE_CLIPPED : ATTN_DISTANCE_T5;
        p->bias_table.max_distance = 1 + (draw_one_in(d, 6) ? draw_below(d, 4000) : draw_below(d, 40));
        if (p->bias_table.kind == ATTN_DISTANCE_T5)
            p->bias_table.buckets = 2 * draw_below(d, 20), p->bias_table.causal = draw_one_in(d, 3);
    }
    if (p->op <= ATTN_BACKWARD && p->score.kind == ATTN_SCORE_DOT && draw_one_in(d, 8)) {
        if (draw_one_in(d, 2)) give(c, "relative_values");
        else give(c, "relative_keys");
        if (draw_one_in(d, 2)) give(c, "relative_keys");
        if (case_has(c, "relative_keys") && draw_one_in(d, 2)) give(c, "relative_u");
        if (case_has(c, "relative_keys") && draw_one_in(d, 2)) give(c, "relative_v");
        p->relative.first = draw_one_in(d, 9) ? ((int64_t)1 << 40) * (draw_below(d, 3) - 1) : draw_below(d, 60) - 40;
        p->relative.rows = 1 + draw_below(d, 80);
    }
}

static void draw_results(api_case *c)
{
    draws *d = &c->from;
    attn_outputs *o = &c->problem.outputs;
    const attn_op op = c->problem.op;
    for (int t = 0; t < c->count; t++) {
        const attn_tensor_description *a = &c->about[t];
        attn_output *slot = case_slot(&c->tensors, c, t);
        if (a->need[op] == ATTN_NEED_ALWAYS) slot->data = ATTN_LATER;
        if (a->role[op] == ATTN_ROLE_NONE) memset(slot, 0, sizeof *slot);
        if (a->need[op] != ATTN_NEED_OPTIONAL) continue;
        if (a->role[op] == ATTN_ROLE_OUTPUT && draw_one_in(d, op == ATTN_FORWARD ? 5 : 2)) slot->data = ATTN_LATER;
        if (a->role[op] == ATTN_ROLE_INPUT && (!strncmp(a->name, "tan_", 4) || !strcmp(a->name, "grad_lse")) && !draw_one_in(d, 3))
            slot->data = ATTN_LATER;
        /* no gradient of an absent tensor, mostly */
        if (a->gradient_of >= 0 && !case_slot(&c->tensors, c, a->gradient_of)->data && !draw_one_in(d, 30)) slot->data = NULL;
    }
    if (op == ATTN_DOUBLE_BACKWARD) { /* it has the tangents of o and lse from here, or computes them */
        static const char *const given[] = {"tan_o", "tan_lse"}, *const computed[] = {"second_grad_o", "second_grad_lse"};
        const int gives = draw_one_in(d, 4);
        if (gives) give(c, given[0]), give(c, given[1]);
        else give(c, computed[0]);
        for (int n = 0; n < 2; n++) drop(c, gives ? computed[n] : given[n]);
    }
    if (op != ATTN_FORWARD) return;
    o->after_dropout = draw_one_in(d, 6);
    if (case_has(c, "scores")) o->scores_stage = (attn_stage)draw_below(d, 4);
    if (case_has(c, "column_sum")) o->column_heads = (attn_columns)draw_below(d, 3), o->column_queries = draw_below(d, 5);
    if (case_has(c, "topk_index") || case_has(c, "topk_weight"))
        o->topk = 1 + (draw_one_in(d, 4) ? draw_below(d, 300) : draw_below(d, 9));
}

/* ---- types and strides ---- */

static int is_float(attn_dtype t) { return t == ATTN_F32 || t == ATTN_F64 || t == ATTN_F16 || t == ATTN_BF16; }

/* f8 or blocks, of whole ones, for some k or v (`which`), by their sizes (see picks), and scales of i8 and of some f8. */
static void draw_format(api_case *c, attn_input *slot, int64_t *dim, int64_t which, const char *scale)
{
    static const attn_dtype formats[] = {ATTN_Q8_0, ATTN_Q4_0, ATTN_F8_E4M3, ATTN_Q4_1, ATTN_F8_E5M2, ATTN_Q4_1C};
    attn_paging *g = &c->problem.paging;
    const attn_shape *s = &c->problem.shape;
    const int64_t sizes = s->len_q + 3 * s->len_kv + s->heads_q + 5 * which;
    if (slot->dtype != ATTN_I8 && c->tensors.q.dtype != ATTN_F64 && picks(c, 2) && sizes % 4 && !c->no_blocks)
        slot->dtype = formats[sizes % (which ? 5 : 6)];
    const int by_channel = slot->dtype == ATTN_Q4_1C, blocks = by_channel || format_is_blocks(slot->dtype);
    if (by_channel) give(c, "k_tail");
    if (by_channel && g->page_size > 0) g->page_size = (g->page_size + ATTN_BLOCK - 1) / ATTN_BLOCK * ATTN_BLOCK;
    if (by_channel && g->page_entries > 0) g->page_entries = s->batch * case_most_pages(c);
    if (blocks && *dim % ATTN_BLOCK) *dim = *dim % 96 / ATTN_BLOCK * ATTN_BLOCK + ATTN_BLOCK;
    if (slot->dtype == ATTN_I8 || (format_is_f8(slot->dtype) && sizes % 2)) give(c, scale);
}

static void draw_types(api_case *c)
{
    static const attn_dtype queries[] = {ATTN_DTYPE_DEFAULT, ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64};
    draws *d = &c->from;
    attn_shape *s = &c->problem.shape;
    const attn_dtype q = c->tensors.q.dtype = PICK(d, queries);
    for (int t = 0; t < c->count; t++) {
        attn_output *slot = case_slot(&c->tensors, c, t);
        if (!slot->data || t == case_find(c, "q") || !draw_one_in(d, 3)) continue;
        attn_dtype type = (attn_dtype)draw_below(d, ATTN_U64 + 1);
        if (!(c->about[t].types & 1u << type)) continue;
        if (is_float(type) && (type == ATTN_F64) != (q == ATTN_F64)) continue;
        slot->dtype = type;
    }
    draw_format(c, &c->tensors.k, &s->dim_qk, 0, "k_scale");
    draw_format(c, &c->tensors.v, &s->dim_v, 1, "v_scale");
}

/* The plan's dense strides with permuted axes, gaps, negative strides or broadcast axes. */
static void draw_strides(api_case *c, int t, const attn_tensor_plan *plan)
{
    draws *d = &c->from;
    attn_output *slot = case_slot(&c->tensors, c, t);
    const int packed = case_is_packed(c, t), output = plan->role == ATTN_ROLE_OUTPUT;
    int order[4] = {0, 1, 2, 3};
    for (int i = draw_one_in(d, 12) ? 3 : 2; i > 0; i--) {
        const int j = (int)draw_below(d, i + 1), swap = order[i];
        order[i] = order[j], order[j] = swap;
    }
    int64_t run = 1;
    for (int i = 3; i >= 0; i--) {
        const int axis = order[i];
        int64_t size = plan->shape[axis];
        if (packed && axis == 2) size *= c->problem.shape.batch;
        slot->stride[axis] = run;
        run *= size > 0 ? size : 1;
        if (draw_one_in(d, 3)) run += draw_below(d, 5);
        if (run > MAX_BLOCK_BYTES) break;
    }
    for (int axis = 0; axis < 4; axis++) {
        if (axis < 3 && draw_one_in(d, 7)) slot->stride[axis] = -slot->stride[axis];
        if (!output && axis < 3 && draw_one_in(d, 6)) slot->stride[axis] = 0;
        if (plan->shape[axis] == 1 && draw_one_in(d, 4)) slot->stride[axis] = draw_hostile(d);
        if (slot->stride[axis] == 0 && draw_one_in(d, 2)) slot->stride[axis] = ATTN_BROADCAST;
    }
    if (draw_one_in(d, 150)) {
        const int64_t axis = draw_below(d, 4);
        slot->stride[axis] = draw_hostile(d);
    }
}

/* ---- plans ---- */

attn_plan *case_plan(const api_case *c, const attn_options *options)
{
    attn_plan *plan = NULL;
    attn_error error;
    memset(&error, 0x55, sizeof error);
    const attn_status status = attn_plan_create(&plan, &c->problem, &c->tensors, options, &error);
    check_error(status, &error);
    if ((status == ATTN_OK) != (plan != NULL)) finding("status %d with plan %p", status, (void *)plan);
    return plan;
}

/* Plans, and repairs what the error rejects. */
static attn_plan *plan_repaired(api_case *c)
{
    for (int round = 0; round < 24; round++) {
        attn_plan *plan = NULL;
        attn_error error;
        memset(&error, 0x55, sizeof error);
        const attn_status status = attn_plan_create(&plan, &c->problem, &c->tensors, &c->options, &error);
        check_error(status, &error);
        if ((status == ATTN_OK) != (plan != NULL)) finding("status %d with plan %p", status, (void *)plan);
        if (plan || c->hostile) return plan;
        const int t = error.tensor;
        attn_problem *p = &c->problem;
        if (t >= c->count || t < -1 || error.other >= c->count || error.other < -1) finding("error names tensor %d", t);
        /* A field without its tensor, which the message names but does not miss. */
        if (t < 0 || (!case_slot(&c->tensors, c, t)->data && !strstr(error.message, "is missing"))) {
            if (strstr(error.message, "mask.empty")) p->mask.empty = ATTN_EMPTY_ZERO;
            else if (strstr(error.message, "block_heads")) p->mask.block_heads = 0;
            else if (strstr(error.message, "tree_keys")) p->mask.tree_keys = 0;
            else if (strstr(error.message, "normaliser")) p->score.normaliser = ATTN_NORMALISER_SOFTMAX, p->score.shift = 0;
            else if (strstr(error.message, "temperature")) p->score.temperature = 0;
            else if (strstr(error.message, "score.scale is")) p->score.scale = 1;
            else if (strstr(error.message, "score.softcap")) p->score.softcap = 0;
            else if (strstr(error.message, "origin")) c->call.origin = NULL, p->mask.align = ATTN_ALIGN_TOP_LEFT;
            else if (strstr(error.message, "outputs.topk")) p->outputs.topk = 0;
            else if (strstr(error.message, "after_dropout")) p->outputs.after_dropout = 0;
            else if (strstr(error.message, "bias_table")) memset(&p->bias_table, 0, sizeof p->bias_table);
            else if (strstr(error.message, "relative.")) memset(&p->relative, 0, sizeof p->relative);
            else if (strstr(error.message, "workspace_limit")) c->options.workspace_limit = 0;
            else return NULL;
            continue;
        }
        attn_output *slot = case_slot(&c->tensors, c, t);
        if (status == ATTN_ERR_STRIDE || slot->stride[0] || slot->stride[1] || slot->stride[2] || slot->stride[3]) {
            memset(slot->stride, 0, sizeof slot->stride);
            if (status == ATTN_ERR_STRIDE) continue;
        }
        if (slot->data && c->about[t].need[p->op] != ATTN_NEED_ALWAYS) drop(c, c->about[t].name);
        else if (slot->data) slot->dtype = ATTN_DTYPE_DEFAULT;
        else slot->data = ATTN_LATER;
        if (!case_has(c, "page_table") && !case_has(c, "page_index")) memset(&p->paging, 0, sizeof p->paging);
        if (!case_has(c, "page_index")) p->paging.page_entries = 0;
        if (!case_has(c, "block_mask") && !case_has(c, "block_index"))
            p->mask.block_q = p->mask.block_kv = p->mask.block_entries = p->mask.block_heads = 0;
    }
    return NULL;
}

static void modify(void *context, const attn_score_tile *tile)
{
    (void)context;
    for (int64_t j = 0; j < tile->keys; j++)
        for (int64_t i = 0; i < tile->queries; i++) {
            const double add = (double)((tile->first_q + i + tile->first_kv + j) % 5) * 0.01;
            if (tile->dtype == ATTN_F64)
                ((double *)tile->scores)[j * tile->stride + i] = 0.5 * ((double *)tile->scores)[j * tile->stride + i] + add;
            else ((float *)tile->scores)[j * tile->stride + i] = 0.5f * ((float *)tile->scores)[j * tile->stride + i] + (float)add;
        }
}

static void slopes(void *context, const attn_score_tile *tile)
{
    (void)context;
    for (int64_t j = 0; j < tile->keys; j++)
        for (int64_t i = 0; i < tile->queries; i++) {
            if (tile->dtype == ATTN_F64) ((double *)tile->slopes)[j * tile->stride + i] = 0.5;
            else ((float *)tile->slopes)[j * tile->stride + i] = 0.5f;
        }
}

/* Reads everything it may. */
static void visit(void *context, const attn_rows *rows)
{
    volatile double last;
    (void)context;
    for (int64_t i = 0; i < rows->count; i++)
        for (int64_t j = 0; j < rows->len_kv; j++) {
            const size_t at = attn_dtype_size(rows->dtype) * (size_t)(i * rows->stride + j);
            last = number_get((const char *)rows->values + at, rows->dtype);
        }
    (void)last;
}

static void draw_options(api_case *c)
{
    draws *d = &c->from;
    attn_call *call = &c->call;
    c->options.struct_size = sizeof c->options;
    c->options.threads = 1 + (int)draw_below(d, 4);
    c->options.isa = (attn_isa)draw_below(d, 4);
    c->options.invariant = draw_one_in(d, 4);
    c->options.reproducible = draw_one_in(d, 8);
    if (c->everywhere) c->options.isa = ATTN_ISA_DEFAULT, c->options.reproducible = 1;
    call->struct_size = sizeof *call;
    call->dropout_seed = draw_word(d);
    call->dropout_offset = (uint32_t)draw_word(d);
    if (c->problem.op != ATTN_DOUBLE_BACKWARD && draw_one_in(d, 10)) {
        call->modify_scores = modify;
        if (c->problem.op != ATTN_FORWARD) call->modify_slopes = slopes;
    }
    if (c->problem.op == ATTN_FORWARD && draw_one_in(d, 10))
        call->visit_rows = visit, c->problem.outputs.rows_stage = (attn_stage)draw_below(d, 4);
    if (draw_one_in(d, 6)) {
        const int64_t block_q = c->problem.mask.block_q ? c->problem.mask.block_q : 1,
                      block_kv = c->problem.mask.block_kv ? c->problem.mask.block_kv : 1;
        c->origin = (attn_origin){.batch = draw_below(d, 5)};
        c->origin.head = draw_below(d, 3);
        c->origin.q = draw_below(d, 50) * block_q, c->origin.kv = draw_below(d, 50) * block_kv;
        c->origin.heads = c->origin.head + c->problem.shape.heads_q + draw_below(d, 3);
        call->origin = &c->origin;
    }
    c->tensors.call = call;
}

static void make_hostile(api_case *c)
{
    draws *d = &c->from;
    c->hostile = 1;
    switch (draw_below(d, 12)) {
    case 0:
        (&c->problem.shape.batch)[draw_below(d, 7)] = draw_hostile(d);
        if (draw_one_in(d, 2)) return;
        c->plan_only = 1;
        draw_vast_fields(d, &c->problem.shape.batch, 7);
        if (draw_one_in(d, 2)) c->problem.shape.heads_kv = c->problem.shape.heads_q;
        return;
    case 1:
        (&c->problem.mask.window_left)[draw_below(d, 9)] = draw_hostile(d);
        return;
    case 2:
        c->problem.struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return;
    case 3:
        c->tensors.struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return;
    case 4:
        c->call.struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return;
    case 5:
        c->options.workspace_limit = (size_t)draw_hostile(d);
        return;
    case 6:
        (&c->origin.batch)[draw_below(d, 5)] = draw_hostile(d);
        return;
    case 7:
        c->problem.paging.page_size = draw_hostile(d);
        return;
    case 8:
        c->problem.relative.first = draw_hostile(d), c->problem.relative.rows = draw_hostile(d);
        return;
    case 9:
        c->problem.bias_table.buckets = draw_hostile(d), c->problem.bias_table.max_distance = draw_hostile(d);
        return;
    case 10:
        c->problem.outputs.topk = draw_hostile(d);
        return;
    default:
        c->problem.score.dim_k = c->problem.score.dim_metric = draw_hostile(d);
        return;
    }
}

attn_plan *case_draw(api_case *c)
{
    draws *d = &c->from;
    for (c->count = 0; c->count < MAX_TENSORS; c->count++) {
        c->about[c->count].struct_size = sizeof *c->about;
        if (attn_tensor_describe(ATTN_FAMILY_ATTENTION, c->count, &c->about[c->count], NULL)) break;
    }
    c->problem.struct_size = sizeof c->problem;
    c->tensors.struct_size = sizeof c->tensors;
    c->problem.op = (attn_op)(draw_one_in(d, 2) ? 0 : draw_below(d, 4));
    c->special = draw_one_in(d, 8);
    draw_shape(d, &c->problem.shape);
    draw_score(c);
    draw_mask(c);
    draw_rest(c);
    draw_results(c);
    draw_types(c);
    draw_options(c);
    if (draw_one_in(d, 25)) make_hostile(c);
    attn_plan *plan = plan_repaired(c);
    if (!plan || c->hostile) return plan;
    for (int outputs = 0; outputs < 2; outputs++) { /* the shape of a gradient depends on the strides of its tensor */
        for (int t = 0; t < c->count; t++) {
            attn_tensor_plan about = {.struct_size = sizeof about};
            if (attn_plan_tensor(plan, t, &about, NULL)) finding("attn_plan_tensor(%d) rejects", t);
            if (about.role != (outputs ? ATTN_ROLE_OUTPUT : ATTN_ROLE_INPUT) || draw_below(d, 2)) continue;
            draw_strides(c, t, &about);
        }
        attn_plan_destroy(plan);
        plan = plan_repaired(c);
        if (!plan) return NULL;
    }
    return plan;
}
