/* SPDX-License-Identifier: MIT
 *
 * test_embedded.c - a sequence has the same bits wherever it lies: alone, in tensors that are longer, padded beside others, packed
 * between others, in pages, on any number of threads; in all four operations, with what changes scores, masks and weights.
 *
 * A plan takes each sequence of a batch to the walk that suits its own length, so sequences of few and of many queries lie beside
 * each other here, and short ones beside long ones.  It is long since the table of ways to lie and that of options are used
 * together.
 */
#include "test.h"

#include "attn/attn.h"

#include <math.h>

enum { MOST_HEADS = 32, D = 16, DV = 20, ROWS = 41, PAGE = 7, MOST_BATCH = 5 };

/* ---- tensors ---- */

typedef struct memory_layout {
    attn_dtype dtype;
    int64_t stride[4];
} memory_layout;

typedef enum tensor {
    Q,
    K,
    V,
    O,
    LSE,
    GRAD_O,
    GRAD_LSE,
    GRAD_Q,
    GRAD_K,
    GRAD_V,
    TAN_Q,
    TAN_K,
    TAN_V,
    TAN_O,
    TAN_LSE,
    SECOND_GRAD_O,
    SECOND_GRAD_LSE,
    SECOND_Q,
    SECOND_K,
    SECOND_V,
    TENSORS
} tensor;

/* Of keys or of queries; channels. */
static const struct {
    int keys, dim, read;
} kinds[TENSORS] = {
    [Q] = {0, D, 1},
    [K] = {1, D, 1},
    [V] = {1, DV, 1},
    [O] = {0, DV, 0},
    [LSE] = {0, 1, 0},
    [GRAD_O] = {0, DV, 1},
    [GRAD_LSE] = {0, 1, 1},
    [GRAD_Q] = {0, D, 0},
    [GRAD_K] = {1, D, 0},
    [GRAD_V] = {1, DV, 0},
    [TAN_Q] = {0, D, 1},
    [TAN_K] = {1, D, 1},
    [TAN_V] = {1, DV, 1},
    [TAN_O] = {0, DV, 0},
    [TAN_LSE] = {0, 1, 0},
    [SECOND_GRAD_O] = {0, DV, 0},
    [SECOND_GRAD_LSE] = {0, 1, 0},
    [SECOND_Q] = {0, D, 0},
    [SECOND_K] = {1, D, 0},
    [SECOND_V] = {1, DV, 0},
};

/* What each operation writes. */
static const tensor written[4][6] = {{O, LSE, TENSORS},
                                     {GRAD_Q, GRAD_K, GRAD_V, TENSORS},
                                     {TAN_O, TAN_LSE, TENSORS},
                                     {SECOND_GRAD_O, SECOND_GRAD_LSE, SECOND_Q, SECOND_K, SECOND_V, TENSORS}};

/* ---- places ---- */

typedef enum place { EXACT, PLAIN, LONGER, PADDED, PACKED, PAGED, PLACES } place;
static const char *const place_names[PLACES] = {"exact", "plain", "longer", "padded", "packed", "paged"};

/* The one sequence, and what it lies among. */
typedef struct sizes {
    int64_t len_q, len_kv, heads_q, heads_kv, dim_v;
    uint64_t mixed; /* 0: beside others of about its lengths; else the number of a draw of any lengths */
} sizes;

/* What changes scores beside numbers in the problem. */
enum { BIAS = 1, SLOPES = 2, SINK = 4, MATRIX = 8, TABLE = 16, RELATIVE = 32, RELATIVE_QUERIES = 64, SHARED = 128 };

/* An attention of some sequences, of which number `own` is the one. */
typedef struct embedded {
    attn_problem problem;
    attn_tensors tensors;
    place where;
    attn_dtype dtype;
    sizes of;
    int uses;
    int64_t batch, own, len_q[MOST_BATCH], len_kv[MOST_BATCH], cu_q[MOST_BATCH + 1], cu_kv[MOST_BATCH + 1], long_q, long_kv;
    int32_t narrow_q[MOST_BATCH], narrow_kv[MOST_BATCH], *pages; /* pages have narrow indices */
    char *data[TENSORS];
    float *bias, *grad_bias, *tan_bias, *second_bias;
    float slopes[MOST_HEADS], sink[MOST_HEADS], w[2 * D * D], table[MOST_HEADS * ROWS], u[MOST_HEADS * D], v[MOST_HEADS * D];
    float relative_keys[MOST_HEADS * ROWS * D], relative_values[MOST_HEADS * ROWS * DV];
    struct { /* of a whole batch: the same only where that is one sequence */
        float slopes[MOST_HEADS], sink[MOST_HEADS], scale[MOST_HEADS], w[2 * D * D], table[MOST_HEADS * ROWS], u[MOST_HEADS * D],
            v[MOST_HEADS * D];
        float relative_keys[MOST_HEADS * ROWS * D], relative_values[MOST_HEADS * ROWS * DV];
    } grad;
} embedded;

/* From -1 to 1, of these numbers alone. */
static float drawn(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    uint64_t x = ((((a * 1000003 + b) * 1000003 + c) * 1000003 + d) * 1000003 + e) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (float)(int32_t)(x >> 32) / 2147483648.f;
}

static void draw_all(float *to, int count, uint64_t number)
{
    for (int n = 0; n < count; n++) to[n] = drawn(number, 7, 7, 7, (uint64_t)n);
}

static attn_dtype type_of(const embedded *e, int t)
{
    if (e->dtype == ATTN_F64) return ATTN_F64;
    return kinds[t].dim == 1 ? ATTN_F32 : e->dtype;
}

static int dim_of(const embedded *e, int t) { return kinds[t].dim == DV ? (int)e->of.dim_v : kinds[t].dim; }
static int64_t heads_of(const embedded *e, int t) { return kinds[t].keys ? e->of.heads_kv : e->of.heads_q; }
static const int64_t *lengths_of(const embedded *e, int t) { return kinds[t].keys ? e->len_kv : e->len_q; }

static memory_layout layout_of(const embedded *e, int t)
{
    const int64_t dim = dim_of(e, t), heads = heads_of(e, t);
    const int keys = kinds[t].keys;
    const int64_t rows = keys ? e->long_kv : e->long_q, all = keys ? e->cu_kv[e->batch] : e->cu_q[e->batch];
    if (e->where == PACKED) return (memory_layout){type_of(e, t), {0, all * dim, dim, 1}};
    if (e->where == PAGED && keys) return (memory_layout){type_of(e, t), {heads * PAGE * dim, PAGE * dim, dim, 1}};
    return (memory_layout){type_of(e, t), {heads * rows * dim, rows * dim, dim, 1}};
}

static attn_output slot_of(const embedded *e, int t)
{
    const memory_layout layout = layout_of(e, t);
    attn_output slot = {e->data[t], layout.dtype, {0}};
    memcpy(slot.stride, layout.stride, sizeof slot.stride);
    return slot;
}

static attn_input input_of(const embedded *e, int t)
{
    const attn_output slot = slot_of(e, t);
    attn_input input = {slot.data, slot.dtype, {0}};
    memcpy(input.stride, slot.stride, sizeof input.stride);
    return input;
}

static int64_t pages_of(const embedded *e) { return (e->long_kv + PAGE - 1) / PAGE; }

static char *row_at(const embedded *e, int t, int64_t b, int64_t h, int64_t i)
{
    const memory_layout layout = layout_of(e, t);
    const int64_t *s = layout.stride, first = kinds[t].keys ? e->cu_kv[b] : e->cu_q[b];
    int64_t at = b * s[0] + h * s[1] + i * s[2];
    if (e->where == PACKED) at = h * s[1] + (first + i) * s[2];
    if (e->where == PAGED && kinds[t].keys) at = e->pages[b * pages_of(e) + i / PAGE] * s[0] + h * s[1] + i % PAGE * s[2];
    return e->data[t] + at * (int64_t)attn_dtype_size(layout.dtype);
}

static int64_t elements(const embedded *e, int t)
{
    return e->batch * ((kinds[t].keys ? e->long_kv : e->long_q) + PAGE) * heads_of(e, t) * dim_of(e, t);
}

/* Numbers where sequences are, NaN elsewhere. */
static void fill(embedded *e, int t)
{
    const int64_t count = elements(e, t), size = (int64_t)attn_dtype_size(type_of(e, t));
    e->data[t] = malloc((size_t)(count * size));
    assert_non_null(e->data[t]);
    const float nan = NAN;
    for (int64_t n = 0; n < count; n++) attn_convert(e->data[t] + n * size, type_of(e, t), &nan, ATTN_F32, 1);
    for (int64_t b = 0; b < e->batch && kinds[t].read; b++)
        for (int64_t h = 0; h < heads_of(e, t); h++)
            for (int64_t i = 0; i < lengths_of(e, t)[b]; i++) {
                float row[DV];
                for (int c = 0; c < dim_of(e, t); c++)
                    row[c] = drawn((uint64_t)t, b == e->own ? 99 : (uint64_t)b, (uint64_t)h, (uint64_t)i, (uint64_t)c);
                attn_convert(row_at(e, t, b, h, i), type_of(e, t), row, ATTN_F32, dim_of(e, t));
            }
}

static float *pairs(const embedded *e, int64_t number)
{
    const size_t count = (size_t)(e->batch * e->long_q * e->long_kv);
    float *bias = malloc(count * sizeof *bias);
    assert_non_null(bias);
    for (size_t n = 0; n < count; n++) bias[n] = NAN;
    for (int64_t b = 0; b < e->batch && number; b++)
        for (int64_t i = 0; i < e->len_q[b]; i++)
            for (int64_t j = 0; j < e->len_kv[b]; j++)
                bias[(b * e->long_q + i) * e->long_kv + j] =
                    drawn((uint64_t)number, b == e->own ? 99 : 0, 0, (uint64_t)i, (uint64_t)j);
    return bias;
}

static int64_t any_of(const int64_t *list, int count, uint64_t number, int64_t b)
{
    return list[(int)((drawn(number, 8, 8, 8, (uint64_t)b) + 1) / 2 * (float)count) % count];
}

static void lay_out(embedded *e, place where, attn_dtype dtype, const sizes *of)
{
    static const int64_t more_q[] = {-1, 0, 61}, more_kv[] = {-40, 0, 700};
    static const int64_t any_q[] = {0, 1, 2, 4, 5, 8, 16, 31, 63, 64, 65, 80, 200, 300};
    static const int64_t any_kv[] = {0, 1, 30, 64, 100, 129, 200, 256, 400, 1100};
    const int beside = where == PADDED || where == PACKED || where == PAGED;
    e->where = where;
    e->dtype = dtype;
    e->of = *of;
    e->batch = !beside ? 1 : of->mixed ? MOST_BATCH : where == PAGED ? 2 : 3;
    e->own = e->batch == 1 ? 0 : of->mixed ? (int64_t)(of->mixed % MOST_BATCH) : 1;
    for (int64_t b = 0; b < e->batch; b++) {
        const int64_t kind = e->batch == 1 ? 1 : b;
        const int drawn_ones = of->mixed && b != e->own;
        e->len_q[b] = drawn_ones ? any_of(any_q, 14, of->mixed, b) : of->len_q + (of->mixed ? 0 : more_q[kind]);
        e->len_kv[b] = drawn_ones ? any_of(any_kv, 10, of->mixed + 1000, b) : of->len_kv + (of->mixed ? 0 : more_kv[kind]);
        e->narrow_q[b] = (int32_t)e->len_q[b];
        e->narrow_kv[b] = (int32_t)e->len_kv[b];
        e->cu_q[b + 1] = e->cu_q[b] + e->len_q[b];
        e->cu_kv[b + 1] = e->cu_kv[b] + e->len_kv[b];
        e->long_q = e->len_q[b] > e->long_q ? e->len_q[b] : e->long_q;
        e->long_kv = e->len_kv[b] > e->long_kv ? e->len_kv[b] : e->long_kv;
    }
    if (where == LONGER || (where == PAGED && !of->mixed)) e->long_q = of->len_q + 61, e->long_kv = of->len_kv + 700;
    const int64_t pages = e->batch * pages_of(e);
    e->pages = malloc((size_t)(pages + 1) * sizeof *e->pages);
    assert_non_null(e->pages);
    for (int64_t n = 0; where == PAGED && n < pages; n++) e->pages[n] = (int32_t)(n % 2 ? n : pages - 1 - (pages - 1) % 2 - n);
}

static embedded *embed(place where, attn_dtype dtype, const sizes *of)
{
    embedded *e = calloc(1, sizeof *e);
    assert_non_null(e);
    lay_out(e, where, dtype, of);
    for (int t = 0; t < TENSORS; t++) fill(e, t);
    e->bias = pairs(e, 50);
    e->tan_bias = pairs(e, 51);
    e->grad_bias = pairs(e, 0);
    e->second_bias = pairs(e, 0);
    draw_all(e->slopes, MOST_HEADS, 60);
    draw_all(e->sink, MOST_HEADS, 61);
    draw_all(e->w, 2 * D * D, 62);
    draw_all(e->table, MOST_HEADS * ROWS, 63);
    draw_all(e->u, MOST_HEADS * D, 64);
    draw_all(e->v, MOST_HEADS * D, 65);
    draw_all(e->relative_keys, MOST_HEADS * ROWS * D, 66);
    draw_all(e->relative_values, MOST_HEADS * ROWS * DV, 67);
    attn_problem *p = &e->problem;
    p->struct_size = sizeof *p;
    p->shape = (attn_shape){e->batch, of->heads_q, of->heads_kv, e->long_q, e->long_kv, D, of->dim_v};
    if (where == PAGED) p->paging = (attn_paging){.page_size = PAGE, .pages = e->batch * pages_of(e)};
    return e;
}

static void destroy(embedded *e)
{
    for (int t = 0; t < TENSORS; t++) free(e->data[t]);
    free(e->bias);
    free(e->grad_bias);
    free(e->tan_bias);
    free(e->second_bias);
    free(e->pages);
    free(e);
}

/* ---- running ---- */

static void point_at_sequences(const embedded *e, attn_tensors *t)
{
    if (e->where == PACKED) {
        t->cu_seqlens_q = attn_in(e->cu_q);
        t->cu_seqlens_kv = attn_in(e->cu_kv);
    } else if (e->where == PAGED) {
        t->lengths_q = (attn_input){e->narrow_q, ATTN_I32, {0}};
        t->lengths_kv = (attn_input){e->narrow_kv, ATTN_I32, {0}};
        t->page_table = (attn_input){e->pages, ATTN_I32, {pages_of(e), 0, 0, 1}};
    } else if (e->where != PLAIN) {
        t->lengths_q = attn_in(e->len_q);
        t->lengths_kv = attn_in(e->len_kv);
    }
}

static void point_at_options(embedded *e, attn_tensors *t)
{
    const int first = e->problem.op == ATTN_BACKWARD, n = e->uses;
    if (n & SLOPES) t->alibi_slopes = attn_in(e->slopes);
    if (n & SINK) t->sink = attn_in(e->sink);
    if (n & MATRIX) t->score_matrix = attn_in(e->w);
    if (n & TABLE) t->bias_table = attn_in(e->table);
    if (n & RELATIVE) {
        const int64_t own = n & SHARED ? 0 : ROWS;
        t->relative_keys = (attn_input){e->relative_keys, ATTN_F32, {0, own * D, D, 1}};
        t->relative_values = (attn_input){e->relative_values, ATTN_F32, {0, own * e->of.dim_v, e->of.dim_v, 1}};
    }
    if (n & RELATIVE_QUERIES) t->relative_u = attn_in(e->u), t->relative_v = attn_in(e->v);
    if (first && e->problem.score.kind == ATTN_SCORE_DOT) t->grad_scale = attn_out(e->grad.scale);
    if (first && n & SLOPES) t->grad_alibi_slopes = attn_out(e->grad.slopes);
    if (first && n & SINK) t->grad_sink = attn_out(e->grad.sink);
    if (first && n & MATRIX) t->grad_score_matrix = attn_out(e->grad.w);
    if (first && n & TABLE) t->grad_bias_table = attn_out(e->grad.table);
    if (first && n & RELATIVE)
        t->grad_relative_keys = attn_out(e->grad.relative_keys), t->grad_relative_values = attn_out(e->grad.relative_values);
    if (first && n & RELATIVE_QUERIES) t->grad_relative_u = attn_out(e->grad.u), t->grad_relative_v = attn_out(e->grad.v);
}

static void point_at_bias(const embedded *e, attn_tensors *t)
{
    const attn_op op = e->problem.op;
    const attn_input bias = {e->bias, ATTN_F32, {e->long_q * e->long_kv, 0, e->long_kv, 1}};
    const attn_output out = {e->grad_bias, ATTN_F32, {e->long_q * e->long_kv, 0, e->long_kv, 1}};
    if (!(e->uses & BIAS)) return;
    t->bias = bias;
    if (op == ATTN_BACKWARD) t->grad_bias = out;
    if (op >= ATTN_JVP) t->tan_bias = bias, t->tan_bias.data = e->tan_bias;
    if (op == ATTN_DOUBLE_BACKWARD) t->second_bias = out, t->second_bias.data = e->second_bias;
}

static void point(embedded *e, attn_op op)
{
    attn_tensors *t = &e->tensors;
    const int alone = e->problem.score.normaliser >= ATTN_NORMALISER_SIGMOID;
    e->problem.op = op;
    *t = (attn_tensors){.struct_size = sizeof *t, .q = input_of(e, Q), .k = input_of(e, K), .v = input_of(e, V)};
    t->o = slot_of(e, O), t->lse = slot_of(e, LSE);
    if (op == ATTN_BACKWARD || op == ATTN_DOUBLE_BACKWARD) t->grad_o = input_of(e, GRAD_O);
    if (t->grad_o.data && !alone) t->grad_lse = input_of(e, GRAD_LSE);
    if (op == ATTN_BACKWARD) t->grad_q = slot_of(e, GRAD_Q), t->grad_k = slot_of(e, GRAD_K), t->grad_v = slot_of(e, GRAD_V);
    if (op >= ATTN_JVP) t->tan_q = input_of(e, TAN_Q), t->tan_k = input_of(e, TAN_K), t->tan_v = input_of(e, TAN_V);
    if (op == ATTN_JVP) t->tan_o = slot_of(e, TAN_O), t->tan_lse = slot_of(e, TAN_LSE);
    if (op == ATTN_DOUBLE_BACKWARD) {
        t->second_grad_o = slot_of(e, SECOND_GRAD_O), t->second_grad_lse = slot_of(e, SECOND_GRAD_LSE);
        t->second_q = slot_of(e, SECOND_Q), t->second_k = slot_of(e, SECOND_K), t->second_v = slot_of(e, SECOND_V);
    }
    point_at_sequences(e, t);
    point_at_options(e, t);
    point_at_bias(e, t);
}

/* Returns 0 if the operation does not go with these options. */
static int run(embedded *e, attn_op op, int threads)
{
    attn_options how = {.struct_size = sizeof how, .threads = threads};
    attn_plan *plan;
    attn_error error;
    point(e, op);
    const attn_status status = attn_plan_create(&plan, &e->problem, &e->tensors, &how, &error);
    if (status == ATTN_ERR_UNSUPPORTED && (op >= ATTN_JVP || e->where == PAGED)) return 0;
    if (status != ATTN_OK) fail_msg("%s: %s", place_names[e->where], error.message);
    const size_t size = attn_plan_workspace_size(plan);
    char *workspace = malloc(size + 1);
    assert_non_null(workspace);
    memset(workspace, 0xff, size);
    if (attn_execute(plan, &e->tensors, workspace, size, &error) != ATTN_OK)
        fail_msg("%s: %s", place_names[e->where], error.message);
    free(workspace);
    attn_plan_destroy(plan);
    return 1;
}

/* ---- options ---- */

static void plain(embedded *e) { (void)e; }
static void causal(embedded *e)
{
    e->problem.mask.causal = 1;
    e->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
}
static void window(embedded *e)
{
    causal(e);
    e->problem.mask.window = 1;
    e->problem.mask.window_left = 90;
    e->uses |= SINK;
}
static void globals(embedded *e)
{
    window(e);
    e->problem.mask.global_kv = 5;
    e->problem.mask.global_q = 3;
    e->problem.mask.align = ATTN_ALIGN_TOP_LEFT;
    e->problem.mask.causal = 0;
    e->problem.mask.dilation = 3;
}
static void chunks(embedded *e)
{
    e->problem.mask.chunk = 50;
    e->problem.score.softcap = 2;
}
static void alibi(embedded *e)
{
    causal(e);
    e->uses |= SLOPES;
}
static void bias(embedded *e) { e->uses |= BIAS; }
static void bias_table(embedded *e)
{
    e->problem.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = ROWS / 2};
    e->uses |= TABLE;
}
static void relative(embedded *e)
{
    e->problem.relative = (attn_relative){.first = -ROWS / 2, .rows = ROWS};
    e->uses |= RELATIVE;
}
static void relative_causal(embedded *e)
{
    causal(e);
    relative(e);
    e->uses |= RELATIVE_QUERIES | SHARED;
}
static void has_w(embedded *e, attn_score_kind kind)
{
    e->problem.score.kind = kind;
    e->uses |= MATRIX;
}
static void general(embedded *e) { has_w(e, ATTN_SCORE_GENERAL); }
static void metric(embedded *e) { has_w(e, ATTN_SCORE_METRIC); }
static void additive(embedded *e)
{
    has_w(e, ATTN_SCORE_ADDITIVE);
    e->problem.score.additive_bias = 1;
}
static void cosine(embedded *e) { e->problem.score.kind = ATTN_SCORE_COSINE; }
static void distance(embedded *e) { e->problem.score.kind = ATTN_SCORE_DISTANCE; }
static void sigmoid(embedded *e) { e->problem.score.normaliser = ATTN_NORMALISER_SIGMOID; }
static void relu(embedded *e)
{
    causal(e);
    e->problem.score.normaliser = ATTN_NORMALISER_RELU;
}

typedef void set_options(embedded *e);
static const struct {
    const char *name;
    set_options *set;
} options[] = {{"plain", plain},
               {"causal", causal},
               {"window, sink", window},
               {"globals, dilation", globals},
               {"chunks, softcap", chunks},
               {"alibi", alibi},
               {"bias", bias},
               {"bias by distance", bias_table},
               {"relative", relative},
               {"relative, causal", relative_causal},
               {"general", general},
               {"metric", metric},
               {"additive", additive},
               {"cosine", cosine},
               {"distance", distance},
               {"sigmoid", sigmoid},
               {"relu", relu}};
enum { OPTIONS = sizeof options / sizeof *options };

/* ---- comparing ---- */

static int differs(const embedded *x, const embedded *y, int t)
{
    const size_t bytes = (size_t)dim_of(x, t) * attn_dtype_size(type_of(x, t));
    int count = 0;
    for (int64_t h = 0; h < heads_of(x, t); h++)
        for (int64_t i = 0; i < lengths_of(x, t)[x->own]; i++)
            count += memcmp(row_at(x, t, x->own, h, i), row_at(y, t, y->own, h, i), bytes) != 0;
    return count;
}

static int pairs_differ(const embedded *x, const float *a, const embedded *y, const float *b)
{
    int count = 0;
    for (int64_t i = 0; i < x->len_q[x->own]; i++)
        count += memcmp(a + (x->own * x->long_q + i) * x->long_kv, b + (y->own * y->long_q + i) * y->long_kv,
                        (size_t)x->len_kv[x->own] * sizeof *a) != 0;
    return count;
}

static void compare(const embedded *x, const embedded *y, attn_op op, const char *name, int threads)
{
    int count = 0;
    for (int n = 0; written[op][n] != TENSORS; n++) {
        count += differs(x, y, (int)written[op][n]);
        if (count)
            fail_msg("%s, %s, operation %d, tensor %d, %d threads, %lld queries and %lld keys: %d rows differ", name,
                     place_names[y->where], (int)op, (int)written[op][n], threads, (long long)x->len_q[x->own],
                     (long long)x->len_kv[x->own], count);
    }
    if (op == ATTN_BACKWARD && x->uses & BIAS) count += pairs_differ(x, x->grad_bias, y, y->grad_bias);
    if (op == ATTN_DOUBLE_BACKWARD && x->uses & BIAS) count += pairs_differ(x, x->second_bias, y, y->second_bias);
    if (op == ATTN_BACKWARD && y->batch == 1) count += memcmp(&x->grad, &y->grad, sizeof x->grad) != 0;
    if (count)
        fail_msg("%s, %s, operation %d, %d threads, %lld queries and %lld keys: sums differ", name, place_names[y->where], (int)op,
                 threads, (long long)x->len_q[x->own], (long long)x->len_kv[x->own]);
}

static void each_place(int option, attn_dtype dtype, const sizes *of)
{
    static const int crews[] = {1, 2, 3, 8};
    embedded *x = embed(EXACT, dtype, of);
    options[option].set(x);
    int supported[4];
    for (int op = 0; op < 4; op++) supported[op] = run(x, (attn_op)op, 1);
    for (int where = EXACT; where < PLACES; where++) {
        embedded *y = embed((place)where, dtype, of);
        options[option].set(y);
        for (int op = 0; op < (where == PAGED ? 1 : 4); op++)
            for (int n = 0; n < 4 && supported[op]; n++) {
                if (of->mixed % 4 && op >= ATTN_JVP) continue;
                if ((where != PLAIN || of->mixed) && n != (where + option + op) % 4) continue;
                const int runs = run(y, (attn_op)op, crews[n]);
                assert_true(runs || where == PAGED);
                if (runs) compare(x, y, (attn_op)op, options[option].name, crews[n]);
            }
        destroy(y);
    }
    destroy(x);
}

static void at_lengths(int option, attn_dtype dtype, int64_t len_q, int64_t len_kv)
{
    const sizes of = {len_q, len_kv, 4, 2, DV, 0};
    each_place(option, dtype, &of);
}

static void test_lengths(void **state)
{
    (void)state;
    for (int option = 0; option < OPTIONS; option += EVERY(1)) {
        at_lengths(option, ATTN_F32, 77, 301);
        at_lengths(option, ATTN_F32, 12, 1300);
    }
}

static void test_types(void **state)
{
    static const attn_dtype types[] = {ATTN_F64, ATTN_BF16, ATTN_F16};
    (void)state;
    for (int type = 0; type < 3; type++)
        for (int option = 0; option < OPTIONS; option += EVERY(3)) {
            if (types[type] == ATTN_F64 && options[option].set != plain && options[option].set != globals) continue;
            at_lengths(option, types[type], 61, 340);
        }
}

static void test_many_queries(void **state)
{
    (void)state;
    for (int option = 0; option < OPTIONS; option += EVERY(4)) at_lengths(option, ATTN_F32, 500, 1100);
    at_lengths(1, ATTN_F32, 5, 4200);
}

/* Sequences that different walks take, beside each other: 1 .. 80 queries, short and long, whatever the groups of heads. */
static void test_mixed(void **state)
{
    static const int64_t heads[][2] = {{4, 1}, {4, 4}, {8, 2}, {32, 1}, {3, 3}};
    static const int64_t keys[] = {20, 60, 64, 100, 160, 256, 257, 500, 1100};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F64};
    (void)state;
    for (int n = 0; n < 120; n += EVERY(1)) {
        const int64_t *shape = heads[n % 5], len_q = n < 80 ? n + 1 : 1 + n * 37 % 80;
        const int option = n % 2 ? n / 2 % 7 : n % 4 / 2;
        const attn_dtype dtype = types[n / 5 % 5];
        if (dtype == ATTN_F64 && option > 1) continue;
        const sizes of = {len_q,          n % 3 == 0 ? len_q + n / 40 : keys[n % 9], shape[0], shape[1], n % 4 == 3 ? DV : 16,
                          1 + (uint64_t)n};
        each_place(option, dtype, &of);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths), cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_many_queries), cmocka_unit_test(test_mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
