/* SPDX-License-Identifier: MIT
 * modifier.c - a score modifier: a learned recency bias, s - rate |p_i - j|, with the gradient of the rate. */
#include <attn/attn.h>
#include <stdio.h>
#include <stdlib.h>

/* clang-format off */
/* begin */
struct recency { float rate; double grad; };
static void recency_scores(void *context, const attn_score_tile *t)
{
    const struct recency *r = context;
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++)
            ((float *)t->scores)[j * t->stride + i] -= r->rate * (float)llabs(t->position + i - t->first_kv - j);
}
static void recency_slopes(void *context, const attn_score_tile *t)
{
    struct recency *r = context;
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++) {
            const float dS = ((const float *)t->gradients)[j * t->stride + i];
            ((float *)t->slopes)[j * t->stride + i] = 1;
            if (!t->again) r->grad -= dS * (double)llabs(t->position + i - t->first_kv - j); /* threads = 1: no lock */
        }
}
/* end */
/* clang-format on */

enum { N = 6, D = 2 };
static float q[N][D], k[N][D], v[N][D], o[N][D], lse[N], grad_o[N][D], grad_q[N][D], grad_k[N][D], grad_v[N][D];

static double run(attn_op op, struct recency *r)
{
    attn_problem problem = {.struct_size = sizeof problem, .op = op, .shape = {1, 1, 1, N, N, D, D}};
    attn_call call = {.struct_size = sizeof call, .modify_scores = recency_scores, .modify_context = r};
    attn_tensors t = {.struct_size = sizeof t, .call = &call, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v)};
    attn_error error;
    t.o = attn_out(o), t.lse = attn_out(lse);
    if (op == ATTN_BACKWARD) {
        call.modify_slopes = recency_slopes;
        t.grad_o = attn_in(grad_o), t.grad_q = attn_out(grad_q), t.grad_k = attn_out(grad_k), t.grad_v = attn_out(grad_v);
    }
    if (attn_compute(&problem, &t, &error) != ATTN_OK) fprintf(stderr, "%s\n", error.message);
    double loss = 0;
    for (int i = 0; i < N; i++) loss += (double)(o[i][0] * grad_o[i][0] + o[i][1] * grad_o[i][1]);
    return loss;
}

int main(void)
{
    struct recency r = {0.5f, 0};
    for (int i = 0; i < N; i++)
        for (int c = 0; c < D; c++) {
            q[i][c] = (float)((3 * i + c) % 5) / 2, k[i][c] = (float)((2 * i + c) % 3);
            v[i][c] = (float)(i * (1 - 2 * c)), grad_o[i][c] = (float)(1 + c);
        }
    printf("loss %.4f\n", run(ATTN_FORWARD, &r));
    run(ATTN_BACKWARD, &r); /* so small a problem runs on this thread alone */
    const double grad = r.grad;
    r.rate = 0.51f;
    const double more = run(ATTN_FORWARD, &r);
    r.rate = 0.49f;
    printf("gradient of the rate %.3f, by differences %.3f\n", grad, (more - run(ATTN_FORWARD, &r)) / 0.02);
    return 0;
}
