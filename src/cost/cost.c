/* SPDX-License-Identifier: MIT
 * cost.c - the cost of attention: operations, memory and traffic, by counting. */
#include <inttypes.h>
#include <math.h>

#include "../common/formats.h"
#include "../common/slots.h"
#include "attn/cost.h"

static attn_status check(const attn_cost_problem *p, attn_error *error)
{
    CHECK(p->method >= ATTN_COST_METHOD_TILED && p->method <= ATTN_COST_METHOD_LINEAR, ATTN_ERR_ARGUMENT,
          "cost: method is %d; known: 0 (tiled), 1 (matrix), 2 (linear)", (int)p->method);
    CHECK(p->dtype >= ATTN_DTYPE_DEFAULT && p->dtype <= ATTN_BF16, ATTN_ERR_UNSUPPORTED,
          "cost: dtype is %s; it must be f32, f64, f16 or bf16", attn_dtype_name(p->dtype));
    const attn_shape *s = &p->shape;
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"batch", s->batch},       {"heads_q", s->heads_q},
                 {"heads_kv", s->heads_kv}, {"len_q", s->len_q},
                 {"len_kv", s->len_kv},     {"dim_qk", s->dim_qk},
                 {"dim_v", s->dim_v},       {"features", p->features},
                 {"rank", p->rank},         {"fast_elements", p->fast_elements}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        CHECK(sizes[k].size >= 0, ATTN_ERR_SHAPE, "cost: %s (%" PRId64 ") is negative", sizes[k].name, sizes[k].size);
    CHECK(s->heads_kv > 0 ? s->heads_q % s->heads_kv == 0 : s->heads_q == 0, ATTN_ERR_SHAPE,
          "cost: heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")", s->heads_q, s->heads_kv);
    for (int k = 0; k < 2; k++)
        CHECK(p->reserved[k] == 0, ATTN_ERR_ARGUMENT, "cost: reserved[%d] is %" PRId64 "; it must be 0", k, p->reserved[k]);
    CHECK(p->pairs >= 0, ATTN_ERR_ARGUMENT, "cost: pairs is %g; it must be at least 0", p->pairs);
    return ATTN_OK;
}

/* Keys or values of one type. */
typedef struct rows {
    const char *name;
    attn_dtype dtype; /* 0: that of the problem */
    int scaled;
    int64_t dim;
} rows;

static attn_status check_rows(const attn_cost_problem *p, const rows *r, attn_error *error)
{
    const int is_f8 = r->dtype == ATTN_F8_E4M3 || r->dtype == ATTN_F8_E5M2, is_blocks = attn_is_blocks(r->dtype);
    CHECK((r->dtype >= ATTN_DTYPE_DEFAULT && r->dtype <= ATTN_BF16) || r->dtype == ATTN_I8 || is_f8 || is_blocks,
          ATTN_ERR_UNSUPPORTED, "cost: %s_dtype is %s; it must be f32, f64, f16, bf16, i8, f8_e4m3, f8_e5m2, q8_0, q4_0 or q4_1",
          r->name, attn_dtype_name(r->dtype));
    CHECK(p->method != ATTN_COST_METHOD_LINEAR || (!r->dtype && !r->scaled), ATTN_ERR_UNSUPPORTED,
          "cost: %s_dtype is set; keys and values of linear attention have the type of q", r->name);
    CHECK(r->scaled == 0 || r->scaled == 1, ATTN_ERR_ARGUMENT, "cost: %s_scaled is %d; it must be 0 or 1", r->name, r->scaled);
    CHECK(!r->scaled || r->dtype == ATTN_I8 || is_f8, ATTN_ERR_ARGUMENT, "cost: %s_scaled is set and %s_dtype is neither i8 nor f8",
          r->name, r->name);
    CHECK(!is_blocks || r->dim % ATTN_BLOCK == 0, ATTN_ERR_SHAPE,
          "cost: %s_dtype is %s and its rows have %" PRId64 " channels; blocks need a multiple of %d", r->name,
          attn_dtype_name(r->dtype), r->dim, ATTN_BLOCK);
    return ATTN_OK;
}

static double row_bytes(const rows *r, attn_dtype dtype)
{
    const attn_dtype own = r->dtype ? r->dtype : dtype;
    const double scale = r->scaled || own == ATTN_I8 ? sizeof(float) : 0;
    return (double)attn_row_elements(own, r->dim) * (double)attn_dtype_size(own) + scale;
}

/* Queries of a tile: they, their outputs, and as many keys and values fill the fast memory. */
static double tile_rows(const attn_cost_problem *p)
{
    const double wide = fmax((double)p->shape.dim_qk, (double)p->shape.dim_v);
    return fmax(floor((double)p->fast_elements / (4 * wide)), 1);
}

/* How many times the walk over tiles reads the keys and values of a head. */
static double passes(const attn_cost_problem *p)
{
    const double D = (double)p->shape.dim_qk, Dv = (double)p->shape.dim_v, fast = (double)p->fast_elements;
    if (p->fast_elements == 0 || (double)p->shape.len_kv * (D + Dv) <= fast / 2) return 1;
    return ceil((double)p->shape.len_q / tile_rows(p));
}

/* The matrix product of a head: its sizes, the bytes of its factors, and how many times it reads each. */
typedef struct product {
    double rows, inner, columns, left_bytes, right_bytes;
    double left, right;
} product;

/* With a factor in half of the fast memory both are read once; else whichever moves less: strips of rows, as many as a tile of
 * queries has, for each of which the right factor is read, or square blocks, of which three fill the fast memory. */
static void product_passes(const attn_cost_problem *p, product *x)
{
    const double fast = (double)p->fast_elements, block = fmax(floor(sqrt(fast / 3)), 1);
    x->left = x->right = 1;
    if (p->fast_elements == 0 || fmin(x->rows, x->columns) * x->inner <= fast / 2) return;
    const double strips = ceil(x->rows / tile_rows(p)), down = ceil(x->rows / block), across = ceil(x->columns / block);
    const int in_blocks = (across - 1) * x->left_bytes + down * x->right_bytes < strips * x->right_bytes;
    if (in_blocks) x->left = across;
    x->right = in_blocks ? down : strips;
}

/* What the two products of the method with a matrix read beyond each factor once, of all heads. */
static double reread(const attn_cost_problem *p, double size, double key_bytes, double value_bytes)
{
    const attn_shape *s = &p->shape;
    const double n = (double)s->len_q, m = (double)s->len_kv, D = (double)s->dim_qk, Dv = (double)s->dim_v, B = (double)s->batch,
                 heads = B * (double)s->heads_q, shared = B * (double)s->heads_kv;
    product of[2] = {{n, D, m, size * n * D, key_bytes * m, 1, 1}, {n, m, Dv, size * n * m, value_bytes * m, 1, 1}};
    double bytes = 0;
    for (int k = 0; k < 2; k++) {
        product_passes(p, &of[k]);
        bytes += heads * (of[k].left - 1) * of[k].left_bytes;
        if (of[k].right > 1) bytes += (heads * of[k].right - shared) * of[k].right_bytes; /* each query head reads it itself */
    }
    return bytes;
}

attn_status attn_cost_estimate(const attn_cost_problem *problem, attn_cost *cost, attn_error *error)
{
    attn_cost_problem copy;
    const attn_cost_problem *p = &copy;
    CHECK(problem, ATTN_ERR_ARGUMENT, "cost: problem is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, problem, "attn_cost_problem", error));
    TRY(check(p, error));
    const rows k = {"k", p->k_dtype, p->k_scaled, p->shape.dim_qk}, v = {"v", p->v_dtype, p->v_scaled, p->shape.dim_v};
    TRY(check_rows(p, &k, error));
    TRY(check_rows(p, &v, error));
    CHECK(cost, ATTN_ERR_ARGUMENT, "cost: cost is NULL");
    TRY(struct_writable(cost, sizeof *cost, "attn_cost", error));
    const int linear = p->method == ATTN_COST_METHOD_LINEAR;
    const attn_dtype dtype = p->dtype ? p->dtype : ATTN_F32;
    const double size = (double)attn_dtype_size(dtype), B = (double)p->shape.batch, D = (double)p->shape.dim_qk,
                 Dv = (double)p->shape.dim_v;
    const double queries = B * (double)p->shape.heads_q * (double)p->shape.len_q,
                 keys = B * (double)p->shape.heads_kv * (double)p->shape.len_kv, F = p->features ? (double)p->features : D;
    const double row = row_bytes(&k, dtype) + row_bytes(&v, dtype); /* of a key and its value */
    attn_cost c = {.struct_size = sizeof c, .scores = queries * (double)p->shape.len_kv};
    CHECK(p->pairs <= c.scores, ATTN_ERR_ARGUMENT, "cost: pairs (%.17g) exceed those of the shape (%.17g)", p->pairs, c.scores);
    c.pairs = p->pairs > 0 ? p->pairs : c.scores;
    c.operations = linear ? 2 * F * Dv * (keys + queries) : 2 * (D + Dv) * c.pairs;
    c.backward_operations = (linear ? 2 : 2.5) * c.operations;
    c.qkv_bytes = size * queries * D + keys * row;
    c.output_bytes = size * queries * Dv;
    c.matrix_bytes = size * c.scores;
    c.lse_bytes = (dtype == ATTN_F64 ? 8 : 4) * queries;
    c.cache_bytes = keys * row;
    c.latent_bytes = size * B * (double)p->shape.len_kv * (double)p->rank;
    c.state_bytes = size * B * (double)p->shape.heads_kv * F * Dv;
    c.traffic_bytes = c.qkv_bytes + c.output_bytes;
    switch (p->method) {
    case ATTN_COST_METHOD_MATRIX:
        c.extra_bytes = c.matrix_bytes;
        c.traffic_bytes += 2 * c.matrix_bytes + reread(p, size, row_bytes(&k, dtype), row_bytes(&v, dtype));
        break;
    case ATTN_COST_METHOD_TILED:
        c.extra_bytes = c.lse_bytes;
        c.traffic_bytes += c.lse_bytes;
        if (passes(p) > 1) /* each query head reads K and V itself */
            c.traffic_bytes += row * (passes(p) * B * (double)p->shape.heads_q * (double)p->shape.len_kv - keys);
        break;
    case ATTN_COST_METHOD_LINEAR:
        c.extra_bytes = c.state_bytes;
        break;
    }
    c.intensity = c.traffic_bytes > 0 ? c.operations / c.traffic_bytes : 0;
    struct_fill(cost, &c, sizeof c);
    return succeed(error);
}

double attn_attainable_rate(double peak, double bandwidth, double intensity) { return fmin(peak, bandwidth * intensity); }
