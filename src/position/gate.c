/* SPDX-License-Identifier: MIT
 * gate.c - the gate by which each query scales a bias by distance, and its gradient. */
#include <math.h>
#include <stdlib.h>

#include "../common/bound.h"
#include "attn/position.h"

/* Each slot of attn_bias_gate_tensors, and whether each function needs it, takes it or rejects it. */
typedef enum part { NONE, OPTIONAL, NEEDED } part;
enum { Q, W, B, A, GATES, GRAD_GATES, GRAD_Q, GRAD_W, GRAD_B, GRAD_A, SLOTS };
enum { FORWARD, BACKWARD };

static const struct row {
    const char *name;
    int output;
    part need[2];
} rows[SLOTS] = {
    [Q] = {"q", 0, {NEEDED, NEEDED}},           [W] = {"w", 0, {NEEDED, NEEDED}},
    [B] = {"b", 0, {NEEDED, NEEDED}},           [A] = {"a", 0, {NEEDED, NEEDED}},
    [GATES] = {"gates", 1, {NEEDED, NONE}},     [GRAD_GATES] = {"grad_gates", 0, {NONE, NEEDED}},
    [GRAD_Q] = {"grad_q", 1, {NONE, OPTIONAL}}, [GRAD_W] = {"grad_w", 1, {NONE, OPTIONAL}},
    [GRAD_B] = {"grad_b", 1, {NONE, OPTIONAL}}, [GRAD_A] = {"grad_a", 1, {NONE, OPTIONAL}},
};
static const char *const functions[2] = {"attn_bias_gate_forward", "attn_bias_gate_backward"};

_Static_assert(sizeof(attn_bias_gate_tensors) == offsetof(attn_bias_gate_tensors, q) + SLOTS * sizeof(attn_input),
               "a row for each slot");

typedef struct gate {
    attn_bias_gate n; /* sizes */
    bound_tensor t[SLOTS];
} gate;

static attn_status check_sizes(const attn_bias_gate *n, attn_error *error)
{
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"batch", n->batch}, {"heads", n->heads}, {"len_q", n->len_q}, {"dim", n->dim}, {"width", n->width}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        CHECK(sizes[k].size >= 0, ATTN_ERR_SHAPE, "bias gate: %s (%" PRId64 ") is negative", sizes[k].name, sizes[k].size);
    const int64_t gates[3] = {n->batch, n->heads, n->len_q}, w[2] = {n->dim, n->width}, most = INT64_MAX / 64;
    CHECK(n->heads < most && n->dim < most && n->width < most && sizes_fit(8, gates, 3) && sizes_fit(16, w, 2), ATTN_ERR_SHAPE,
          "bias gate: the arrays are too large: their bytes overflow 64 bits");
    return ATTN_OK;
}

static attn_status bind(const attn_bias_gate *given, const attn_bias_gate_tensors *tensors, int use, gate *g, attn_error *error)
{
    attn_bias_gate_tensors slots;
    bound_call call = {.module = "bias gate"};
    CHECK(given, ATTN_ERR_ARGUMENT, "bias gate: rule is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "bias gate: tensors is NULL");
    TRY(struct_read(&g->n, sizeof g->n, sizeof g->n, given, "attn_bias_gate", error));
    TRY(slots_read(&slots, sizeof slots, sizeof slots, tensors, "attn_bias_gate_tensors", error));
    TRY(check_sizes(&g->n, error));
    CHECK(!slots.call, ATTN_ERR_ARGUMENT, "bias gate: call is set; it must be NULL");
    const attn_bias_gate *const n = &g->n;
    const int64_t of_q[4] = {n->batch, n->heads, n->len_q, n->dim}, of_w[4] = {1, 1, n->dim, 2 * n->width},
                  of_b[4] = {1, 1, 1, 2 * n->width}, of_a[4] = {1, n->heads, 1, 1}, of_gates[4] = {n->batch, n->heads, n->len_q, 1};
    const int64_t *const shapes[SLOTS] = {of_q, of_w, of_b, of_a, of_gates, of_gates, of_q, of_w, of_b, of_a};
    for (int s = 0; s < SLOTS; s++) {
        bound_rule rule = {.name = rows[s].name,
                           .natural = s == Q ? ATTN_F32 : g->t[Q].dtype,
                           .types = BOUND_REAL,
                           .optional = rows[s].need[use] != NEEDED};
        attn_input slot;
        g->t[s] = (bound_tensor){.data = NULL};
        memcpy(rule.shape, shapes[s], sizeof rule.shape);
        memcpy(&slot, (const char *)&slots + offsetof(attn_bias_gate_tensors, q) + (size_t)s * sizeof slot, sizeof slot);
        TRY(bound_add(&call, &rule, &slot, rows[s].output, &g->t[s], error));
        CHECK(!g->t[s].data || rows[s].need[use], ATTN_ERR_ARGUMENT, "bias gate: %s is set; %s does not use it", rows[s].name,
              functions[use]);
    }
    return bound_no_overlap(&call, error);
}

/* The number of queries; 0 if a size is 0, even if the product of the others overflows. */
static int64_t queries(const gate *g)
{
    return g->n.batch > 0 && g->n.heads > 0 && g->n.len_q > 0 ? g->n.batch * g->n.heads * g->n.len_q : 0;
}

/* 1 if no gradient that is requested has elements. */
static int writes_nothing(const gate *g)
{
    const bound_tensor *t = g->t;
    const int of_w = t[GRAD_W].data && g->n.dim > 0 && g->n.width > 0, of_b = t[GRAD_B].data && g->n.width > 0,
              of_a = t[GRAD_A].data && g->n.heads > 0, of_q = t[GRAD_Q].data && g->n.dim > 0 && queries(g) > 0;
    return !of_q && !of_w && !of_b && !of_a;
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static double get_w(const gate *g, int64_t c, int64_t k) { return bound_get(&g->t[W], bound_at(&g->t[W], 0, 0, c, k)); }

/* The index of channel c of query n in [batch][heads][len_q]. */
static int64_t query_at(const gate *g, const bound_tensor *t, int64_t n, int64_t c)
{
    const int64_t len = g->n.len_q, heads = g->n.heads;
    return bound_at(t, n / len / heads, n / len % heads, n % len, c);
}

/* u (which 0) or r (which 1) of a query. */
static double half_gate(const gate *g, int64_t n, int which)
{
    const bound_tensor *q = &g->t[Q], *b = &g->t[B];
    double sum = 0;
    for (int64_t k = which * g->n.width; k < (which + 1) * g->n.width; k++) {
        sum += bound_get(b, bound_at(b, 0, 0, 0, k));
        for (int64_t c = 0; c < g->n.dim; c++) sum += bound_get(q, query_at(g, q, n, c)) * get_w(g, c, k);
    }
    return sigmoid(sum);
}

static double get_a(const gate *g, int64_t n)
{
    return bound_get(&g->t[A], bound_at(&g->t[A], 0, n / g->n.len_q % g->n.heads, 0, 0));
}

attn_status attn_bias_gate_forward(const attn_bias_gate *rule, const attn_bias_gate_tensors *tensors, attn_error *error)
{
    gate g;
    TRY(bind(rule, tensors, FORWARD, &g, error));
    const bound_tensor *gates = &g.t[GATES];
    for (int64_t n = 0; n < queries(&g); n++) {
        const double u = half_gate(&g, n, 0), r = half_gate(&g, n, 1);
        bound_put(gates, query_at(&g, gates, n, 0), u * (r * get_a(&g, n) - 1) + 2);
    }
    return succeed(error);
}

attn_status attn_bias_gate_backward(const attn_bias_gate *rule, const attn_bias_gate_tensors *tensors, attn_error *error)
{
    gate g;
    TRY(bind(rule, tensors, BACKWARD, &g, error));
    if (writes_nothing(&g)) return succeed(error);
    const bound_tensor *q = &g.t[Q], *grad_gates = &g.t[GRAD_GATES], *grad_q = &g.t[GRAD_Q], *grad_w = &g.t[GRAD_W],
                       *grad_b = &g.t[GRAD_B], *grad_a = &g.t[GRAD_A];
    /* Every z of a half enters its sum alike, so all columns of a half have the same dw and db: one is kept for each half. */
    const int64_t width = g.n.width, columns = 2 * width, dim = g.n.dim, heads = g.n.heads;
    double *const sums = calloc((size_t)(2 * (dim + 1) + heads), sizeof *sums);
    CHECK(sums, ATTN_ERR_MEMORY, "bias gate: cannot allocate %" PRId64 " sums", 2 * (dim + 1) + heads);
    double *const db = sums + 2 * dim, *const da = db + 2;
    for (int64_t n = 0; n < queries(&g); n++) {
        const double u = half_gate(&g, n, 0), r = half_gate(&g, n, 1), a = get_a(&g, n);
        const double grad = bound_get(grad_gates, query_at(&g, grad_gates, n, 0));
        const double dz[2] = {grad * (r * a - 1) * u * (1 - u), grad * u * a * r * (1 - r)};
        da[n / g.n.len_q % heads] += grad * u * r;
        for (int half = 0; half < 2; half++) db[half] += dz[half];
        for (int64_t c = 0; c < dim; c++) {
            double dq = 0;
            for (int64_t k = 0; k < columns; k++) dq += dz[k >= width] * get_w(&g, c, k);
            if (grad_q->data) bound_put(grad_q, query_at(&g, grad_q, n, c), dq);
            for (int half = 0; half < 2; half++) sums[2 * c + half] += dz[half] * bound_get(q, query_at(&g, q, n, c));
        }
    }
    for (int64_t k = 0; grad_w->data && k < dim * columns; k++)
        bound_put(grad_w, bound_at(grad_w, 0, 0, k / columns, k % columns), sums[2 * (k / columns) + (k % columns >= width)]);
    for (int64_t k = 0; grad_b->data && k < columns; k++) bound_put(grad_b, bound_at(grad_b, 0, 0, 0, k), db[k >= width]);
    for (int64_t h = 0; grad_a->data && h < heads; h++) bound_put(grad_a, bound_at(grad_a, 0, h, 0, 0), da[h]);
    free(sums);
    return succeed(error);
}
