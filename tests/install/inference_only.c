/* SPDX-License-Identifier: MIT
 * inference_only.c - a library built with ATTN_INFERENCE_ONLY computes attention, and says of what it lacks why. */
#include <stdio.h>
#include <string.h>

#include "attn/attn.h"
#include "attn/convolution.h"
#include "attn/distributed.h"
#include "attn/hopfield.h"
#include "attn/linear.h"
#include "attn/merge.h"
#include "attn/product.h"

static int failures;

static void expect(const char *what, attn_status status, attn_status wanted, const attn_error *error)
{
    const int named = strstr(error->message, "ATTN_INFERENCE_ONLY") != NULL;
    if (status == wanted && named == (wanted != ATTN_OK)) return;
    printf("%s: status %d, '%s'\n", what, (int)status, error->message);
    failures++;
}

int main(void)
{
    enum { N = 3, D = 4 };
    static float x[N * D], y[N * D], lse[N];
    static double wide[N * D], result[1];
    attn_error error;
    for (int i = 0; i < N * D; i++) x[i] = (float)(i % 5) - 2;

    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, N, N, D, D}, .mask = {.causal = 1}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(x), .k = attn_in(x), .v = attn_in(x), .o = attn_out(y)};
    expect("forward", attn_compute(&p, &t, &error), ATTN_OK, &error);
    if (memcmp(y, x, D * sizeof *x) != 0) failures++, puts("forward: the first query sees itself alone");
    attn_problem backward = p;
    backward.op = ATTN_BACKWARD;
    attn_tensors g = {.struct_size = sizeof g, .q = attn_in(x), .k = attn_in(x), .v = attn_in(x), .o = attn_out(y)};
    g.lse = attn_out(lse), g.grad_o = attn_in(x), g.grad_q = attn_out(y);
    expect("backward", attn_compute(&backward, &g, &error), ATTN_ERR_UNSUPPORTED, &error);
    attn_tensors d = {.struct_size = sizeof d, .q = attn_in(wide), .k = attn_in(wide), .v = attn_in(wide), .o = attn_out(wide)};
    d.q.dtype = d.k.dtype = d.v.dtype = d.o.dtype = ATTN_F64;
    expect("f64", attn_compute(&p, &d, &error), ATTN_ERR_UNSUPPORTED, &error);

    const attn_product_problem m = {.struct_size = sizeof m, .dtype = ATTN_F64, .rows = 1, .columns = 1, .inner = 1};
    const attn_product_tensors of_product = {
        .struct_size = sizeof of_product, .a = attn_in(wide), .b = attn_in(wide), .c = attn_out(result)};
    expect("product of f64", attn_product(&m, &of_product, NULL, &error), ATTN_ERR_UNSUPPORTED, &error);

    attn_linear_problem linear = {.struct_size = sizeof linear, .shape = {1, 1, 1, N, N, D, D}, .causal = 1};
    attn_linear_tensors of = {.struct_size = sizeof of, .q = attn_in(x), .k = attn_in(x), .v = attn_in(x), .o = attn_out(y)};
    expect("linear", attn_linear_compute(&linear, &of, &error), ATTN_OK, &error);
    linear.op = ATTN_BACKWARD;
    expect("linear, backward", attn_linear_compute(&linear, &of, &error), ATTN_ERR_UNSUPPORTED, &error);
    const attn_convolution_problem c = {
        .struct_size = sizeof c, .op = ATTN_BACKWARD, .batch = 1, .len = N, .channels = D, .width = 2};
    const attn_convolution_tensors none = {.struct_size = sizeof none};
    expect("convolution, backward", attn_convolution(&c, &none, NULL, &error), ATTN_ERR_UNSUPPORTED, &error);
    attn_distributed_plan *plan;
    expect("distributed", attn_distributed_plan_create(&plan, &p, &t, NULL, NULL, NULL, &error), ATTN_ERR_UNSUPPORTED, &error);
    expect("hopfield", attn_hopfield_update(NULL, 1, NULL, &error), ATTN_ERR_UNSUPPORTED, &error);
    return failures != 0;
}
