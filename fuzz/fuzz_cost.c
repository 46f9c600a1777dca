/* SPDX-License-Identifier: MIT
 * fuzz_cost.c - fuzzes cost estimates (target.h; calls.h) with sizes up to 2^62, against the formulas. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn/cost.h"
#include "calls.h"

const char *const target_cases = "costs";

static struct {
    draws *from;
    attn_cost_problem cost_problem;
    attn_cost cost;
} c;

void target_print(void)
{
    const attn_cost_problem *p = &c.cost_problem;
    const attn_shape *s = &p->shape;
    fprintf(stderr,
            "method %d dtype %d, %d (%d), %d (%d) B %" PRId64 " H %" PRId64 " %" PRId64 " S %" PRId64 " %" PRId64 " D %" PRId64
            " %" PRId64 " features %" PRId64 " rank %" PRId64 " fast %" PRId64 " pairs %g\n",
            (int)p->method, (int)p->dtype, (int)p->k_dtype, p->k_scaled, (int)p->v_dtype, p->v_scaled, s->batch, s->heads_q,
            s->heads_kv, s->len_q, s->len_kv, s->dim_qk, s->dim_v, p->features, p->rank, p->fast_elements, p->pairs);
}

static attn_status call(attn_error *e)
{
    c.cost = (attn_cost){.struct_size = sizeof c.cost};
    return attn_cost_estimate(&c.cost_problem, &c.cost, e);
}

static void place(void) {}

static const calls all = {NULL, 0, call, place};

static int is_scaled(attn_dtype dtype) { return dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_F8_E5M2; }

static void draw_cost(void)
{
    draws *d = c.from;
    attn_cost_problem *p = &c.cost_problem;
    *p = (attn_cost_problem){
        .struct_size = sizeof *p, .method = (attn_cost_method)draw_below(d, 3), .dtype = (attn_dtype)draw_below(d, 5)};
    p->shape.heads_kv = 1 + draw_below(d, 8), p->shape.heads_q = p->shape.heads_kv * draw_below(d, 5);
    int64_t *const sizes[] = {&p->shape.batch, &p->shape.len_q, &p->shape.len_kv, &p->shape.dim_qk,
                              &p->shape.dim_v, &p->features,    &p->rank,         &p->fast_elements};
    const int vast = draw_one_in(d, 6) ? 1 : 9; /* all of them, or some */
    for (int i = 0; i < 8; i++) *sizes[i] = draw_one_in(d, vast) ? (int64_t)1 << draw_below(d, 63) : draw_below(d, 5000);
    if (p->method == ATTN_COST_METHOD_LINEAR || draw_one_in(d, 2)) return;
    static const attn_dtype stored[] = {ATTN_DTYPE_DEFAULT, ATTN_F32,  ATTN_I8,   ATTN_F8_E4M3,
                                        ATTN_F8_E5M2,       ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1};
    p->k_dtype = stored[draw_below(d, 8)], p->v_dtype = stored[draw_below(d, 8)];
    p->k_scaled = is_scaled(p->k_dtype) && draw_one_in(d, 2), p->v_scaled = is_scaled(p->v_dtype) && draw_one_in(d, 2);
    p->shape.dim_qk -= p->shape.dim_qk % ATTN_BLOCK, p->shape.dim_v -= p->shape.dim_v % ATTN_BLOCK;
}

static double row_bytes(attn_dtype own, attn_dtype dtype, int scaled, int64_t dim)
{
    const attn_dtype type = own ? own : dtype ? dtype : ATTN_F32;
    const double width = type >= ATTN_Q8_0 ? ATTN_BLOCK : 1;
    return (double)dim / width * (double)attn_dtype_size(type) + (scaled || type == ATTN_I8 ? 4 : 0);
}

static void by_counting(void)
{
    const attn_cost_problem *p = &c.cost_problem;
    const attn_shape *s = &p->shape;
    const double D = (double)s->dim_qk, Dv = (double)s->dim_v, bytes = (double)attn_dtype_size(p->dtype ? p->dtype : ATTN_F32);
    const double q = (double)s->batch * (double)s->heads_q * (double)s->len_q,
                 k = (double)s->batch * (double)s->heads_kv * (double)s->len_kv, F = p->features ? (double)p->features : D;
    const double operations = p->method == ATTN_COST_METHOD_LINEAR ? 2 * F * Dv * (k + q) : 2 * (D + Dv) * q * (double)s->len_kv;
    const double row =
        row_bytes(p->k_dtype, p->dtype, p->k_scaled, s->dim_qk) + row_bytes(p->v_dtype, p->dtype, p->v_scaled, s->dim_v);
    const double qkv = bytes * q * D + k * row, got[] = {c.cost.operations, c.cost.qkv_bytes, c.cost.scores},
                 exact[] = {operations, qkv, q * (double)s->len_kv};
    for (int i = 0; i < 3; i++)
        if (!(fabs(got[i] - exact[i]) <= 1e-14 * exact[i])) finding("cost %d is %.17g, not %.17g", i, got[i], exact[i]);
    if (s->heads_q > 0 && !(c.cost.traffic_bytes >= qkv * (1 - 1e-12) && c.cost.intensity >= 0))
        finding("%g bytes of traffic, but q, k and v have %g", c.cost.traffic_bytes, qkv);
}

static const char *corrupt_cost(void)
{
    draws *d = c.from;
    attn_cost_problem *p = &c.cost_problem;
    int64_t *const sizes[] = {&p->shape.batch, &p->shape.len_q, &p->shape.len_kv, &p->shape.dim_qk,
                              &p->shape.dim_v, &p->features,    &p->rank,         &p->fast_elements};
    switch (draw_below(d, 5)) {
    case 0:
        *sizes[draw_below(d, 8)] = INT64_MIN + draw_below(d, 2);
        return "a negative size";
    case 1:
        p->reserved[draw_below(d, 2)] = 1;
        return "a reserved word";
    case 2:
        p->pairs = draw_one_in(d, 2) ? NAN : -1;
        return "an invalid number of pairs";
    case 3:
        p->k_dtype = ATTN_U8;
        return "an invalid type of keys";
    default:
        p->dtype = (attn_dtype)(5 + draw_below(d, 30));
        return "an invalid type";
    }
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_cost();
    target_drawn();
    calls_first(&all);
    by_counting();
    const double peak = draw_real(from, 0, 9), bandwidth = draw_real(from, 0, 9), rate = attn_attainable_rate(peak, bandwidth, 1);
    if (rate != fmin(peak, bandwidth)) finding("a rate of %g under %g and %g", rate, peak, bandwidth);
    if (draw_one_in(from, 2)) calls_rejected(&all, corrupt_cost());
}
