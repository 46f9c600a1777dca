/* SPDX-License-Identifier: MIT
 *
 * test_jvp.c - forward mode against ref/, on random combinations of all options: within the bound, the same bits for any number of
 * threads, and the transpose of backward.
 */
#define OPERATION ATTN_JVP
#include "operation.h"

typedef struct tangents {
    tensor o, lse;
} tangents;

static tangents outputs(combination *c)
{
    tangents out = {tensor_like(&c->of[TENSOR(o)]), tensor_like(&c->of[TENSOR(lse)])};
    c->tensors.tan_o = slot_of(&out.o), c->tensors.tan_lse = slot_of(&out.lse);
    return out;
}

static int run(combination *c, tangents *out, attn_isa isa, int threads)
{
    tensor_fill_bytes(&out->o, 0xff);
    tensor_fill_bytes(&out->lse, 0xff);
    if (!combination_run(c, OPERATION, isa, threads)) return 0;
    tensor_read(&out->o);
    tensor_read(&out->lse);
    return 1;
}

static ref_tangents inputs(const combination *c)
{
    ref_tangents in = {combination_flow(c, TENSOR(tan_q)),
                       combination_flow(c, TENSOR(tan_k)),
                       combination_flow(c, TENSOR(tan_v)),
                       combination_flow(c, TENSOR(tan_bias)),
                       NULL,
                       NULL};
    return in;
}

/* The largest fraction of the bound. */
static double compare(attn_dtype dtype)
{
    double worst = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        combination c;
        combination_draw(&c, (uint64_t)seed, dtype, 0);
        tangents out = outputs(&c), exact = {tensor_like(&c.of[TENSOR(o)]), tensor_like(&c.of[TENSOR(lse)])};
        ref_tangents t = inputs(&c);
        bounds bound;
        t.Od = exact.o.value, t.lsed = exact.lse.value;
        ref_jvp(&c.ref, &t);
        ref_gradgrad sizes = {.Qd = t.Qd, .Kd = t.Kd, .Vd = t.Vd, .biasd = t.biasd};
        bounds_make(&bound, &c.ref, &sizes);
        for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
            if (!combination_forward(&c, (attn_isa)isa) || !run(&c, &out, (attn_isa)isa, 1)) continue;
            int64_t rows = c.ref.B * c.ref.Hq * c.ref.Sq;
            double o = bound_fraction(out.o.value, exact.o.value, bound.tan_o, rows * c.ref.Dv, unit(dtype));
            double lse = bound_fraction(out.lse.value, exact.lse.value, bound.tan_lse, rows, unit(dtype));
            if (!(o < 1) || !(lse < 1))
                fail_msg("%s on %s: o %g, lse %g of the bound", c.text, attn_isa_name((attn_isa)isa), o, lse);
            worst = fmax(worst, fmax(o, lse));
        }
        bounds_free(&bound);
        tensor_free(&out.o), tensor_free(&out.lse), tensor_free(&exact.o), tensor_free(&exact.lse);
        combination_free(&c);
    }
    print_message("jvp in %s: at most %.3f of the bound\n", attn_dtype_name(dtype), worst);
    return worst;
}

/* Returns x.y and adds |x|.|y| to *size; where y is 0, x may be poisoned. */
static double inner(const tensor *x, const tensor *y, double *size)
{
    double sum = 0;
    for (int64_t i = 0; i < x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]; i++) {
        if (y->value[i] == 0) continue;
        sum += x->value[i] * y->value[i];
        *size += fabs(x->value[i] * y->value[i]);
    }
    return sum;
}

/* <dO, J x> + <dlse, J_lse x> = <J^T (dO, dlse), x>. */
static void test_adjoint(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        combination c;
        combination_draw(&c, (uint64_t)seed + 1000, ATTN_F64, 0);
        tangents out = outputs(&c);
        assert_true(combination_forward(&c, ATTN_ISA_DEFAULT) && run(&c, &out, ATTN_ISA_DEFAULT, 2));
        double size = 0, forward = inner(&c.of[TENSOR(grad_o)], &out.o, &size) + inner(&c.of[TENSOR(grad_lse)], &out.lse, &size);

        const int64_t pairs[4] = {c.ref.B, c.ref.Hq, c.ref.Sq, c.ref.Skv};
        tensor q = tensor_like(&c.of[TENSOR(q)]), k = tensor_like(&c.of[TENSOR(k)]), v = tensor_like(&c.of[TENSOR(v)]);
        tensor bias = tensor_make(ATTN_F64, pairs, BY_HEAD, 0, NULL);
        c.tensors.grad_q = slot_of(&q), c.tensors.grad_k = slot_of(&k), c.tensors.grad_v = slot_of(&v);
        combination_give(&c, TENSOR(grad_lse));
        /* The tangent of the bias has its own axes, so the gradient is needed for each score: from an expanded bias. */
        tensor spread = tensor_make(ATTN_F64, pairs, BY_HEAD, 0, NULL);
        if (c.tensors.tan_bias.data) {
            const attn_output slot = slot_of(&spread);
            memcpy(spread.memory, c.of[TENSOR(bias)].value, (size_t)spread.count * sizeof(double));
            c.tensors.bias = attn_in(spread.memory);
            c.tensors.bias.dtype = slot.dtype, memcpy(c.tensors.bias.stride, slot.stride, sizeof slot.stride);
            c.tensors.grad_bias = slot_of(&bias);
        }
        (void)combination_run(&c, ATTN_BACKWARD, ATTN_ISA_DEFAULT, 2);
        tensor_read(&q), tensor_read(&k), tensor_read(&v), tensor_read(&bias);
        double backward = 0;
        if (c.tensors.tan_q.data) backward += inner(&c.of[TENSOR(tan_q)], &q, &size);
        if (c.tensors.tan_k.data) backward += inner(&c.of[TENSOR(tan_k)], &k, &size);
        if (c.tensors.tan_v.data) backward += inner(&c.of[TENSOR(tan_v)], &v, &size);
        if (c.tensors.tan_bias.data) backward += inner(&c.of[TENSOR(tan_bias)], &bias, &size);
        if (!(fabs(forward - backward) <= 1e-13 * size))
            fail_msg("%s: <dO, J x> is %.17g and <J^T dO, x> %.17g, of %g", c.text, forward, backward, size);

        tensor *all[] = {&out.o, &out.lse, &q, &k, &v, &bias, &spread};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensor_free(all[i]);
        combination_free(&c);
    }
}

int main(void) { return operation_main((struct CMUnitTest)cmocka_unit_test(test_adjoint)); }
