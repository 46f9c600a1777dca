/* SPDX-License-Identifier: MIT
 *
 * test_shapes.c - outputs in cases that the random problems do not cover: packed sequences, sizes of zero, NaN, a topk above the
 * number of visible keys, and workspace sizes.
 */
#include "requested.h"

#include <math.h>

static double at(const requested *w, int which, int64_t b, int64_t h, int64_t t, int64_t c)
{
    return requested_at(w, which, b, h, t, c);
}

static int same(double x, double y) { return x == y || (isnan(x) && isnan(y)); }

/* A plain problem of this shape, without options. */
static void plain(drawn *d, attn_shape shape)
{
    drawn_clear(d);
    d->compute = ATTN_F32;
    d->random.state = 5;
    d->problem.shape = shape;
    const int64_t counts[3] = {shape.batch * shape.heads_q * shape.len_q * shape.dim_qk,
                               shape.batch * shape.heads_kv * shape.len_kv * shape.dim_qk,
                               shape.batch * shape.heads_kv * shape.len_kv * shape.dim_v};
    float *data[3];
    for (int k = 0; k < 3; k++) {
        data[k] = draw_memory(d, counts[k], sizeof(float));
        for (int64_t i = 0; i < counts[k]; i++) data[k][i] = (float)draw_below(d, 2001) / 1000 - 1;
    }
    d->tensors.q = attn_in(data[0]), d->tensors.k = attn_in(data[1]), d->tensors.v = attn_in(data[2]);
}

/* The rows of a padded tensor [B][H][S][c], packed as [H][total][c]. */
static float *pack(drawn *d, const float *padded, const int64_t *cu, int64_t B, int64_t H, int64_t S, int64_t c)
{
    float *packed = draw_memory(d, H * cu[B] * c, sizeof *packed);
    for (int64_t h = 0; h < H; h++)
        for (int64_t b = 0; b < B; b++)
            memcpy(packed + (h * cu[B] + cu[b]) * c, padded + (b * H + h) * S * c,
                   (size_t)((cu[b + 1] - cu[b]) * c) * sizeof *packed);
    return packed;
}

static void compare_rows(const char *text, int which, const requested *padded, const requested *packed, int64_t b, int64_t first,
                         int64_t n)
{
    const requested_output *o = &padded->outputs[which];
    for (int64_t h = 0; h < o->shape[1]; h++)
        for (int64_t t = 0; t < n; t++)
            for (int64_t c = 0; c < o->shape[3]; c++)
                if (!same(at(padded, which, b, h, t, c), at(packed, which, 0, h, first + t, c)))
                    fail_msg("%s: %s differs at entry %d, head %d, token %d", text, o->name, (int)b, (int)h, (int)t);
}

/* Packed sequences give the same bits as padded ones with lengths, and pairs past a sequence's end are empty. */
static void test_packed(void **state)
{
    enum { B = 3, HQ = 4, HKV = 2, SQ = 70, SKV = 300, D = 9, DV = 5 };
    static const int64_t cu_q[B + 1] = {0, 70, 70, 101}, cu_kv[B + 1] = {0, 300, 511, 513};
    static int64_t len_q[B] = {70, 0, 31}, len_kv[B] = {300, 211, 2};
    static const attn_shape shape = {B, HQ, HKV, SQ, SKV, D, DV};
    (void)state;
    for (int stage = ATTN_STAGE_BIASED; stage <= ATTN_STAGE_WEIGHTS; stage++) {
        drawn padded, packed;
        requested w, v;
        plain(&padded, shape), plain(&packed, shape);
        padded.tensors.lengths_q = attn_in(len_q), padded.tensors.lengths_kv = attn_in(len_kv);
        packed.tensors.cu_seqlens_q = attn_in(cu_q), packed.tensors.cu_seqlens_kv = attn_in(cu_kv);
        padded.problem.mask.causal = packed.problem.mask.causal = 1;
        padded.problem.mask.align = packed.problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
        requested_init(&w, &padded, 1), requested_init(&v, &packed, 1);
        padded.problem.outputs.scores_stage = packed.problem.outputs.scores_stage = (attn_stage)stage;
        /* Dense packed tensors are [head, total tokens, channel] here; those of pairs keep their batch axis. */
        const struct {
            attn_output *slot;
            int which;
            int64_t total;
        } tokens[] = {
            {&packed.tensors.o, OUT_O, cu_q[B]},
            {&packed.tensors.lse, OUT_LSE, cu_q[B]},
            {&packed.tensors.row_max, OUT_ROW_MAX, cu_q[B]},
            {&packed.tensors.entropy, OUT_ENTROPY, cu_q[B]},
            {&packed.tensors.effective_keys, OUT_EFFECTIVE, cu_q[B]},
            {&packed.tensors.column_sum, OUT_COLUMNS, cu_kv[B]},
            {&packed.tensors.topk_index, OUT_TOP_INDEX, cu_q[B]},
            {&packed.tensors.topk_weight, OUT_TOP_WEIGHT, cu_q[B]},
        };
        for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++) {
            int64_t *stride = v.outputs[tokens[k].which].layout.stride;
            stride[0] = 0, stride[1] = tokens[k].total * stride[2];
            memcpy(tokens[k].slot->stride, stride, sizeof tokens[k].slot->stride);
        }
        attn_input *const inputs[3] = {&packed.tensors.q, &packed.tensors.k, &packed.tensors.v};
        for (int k = 0; k < 3; k++) {
            const int64_t *cu = k == 0 ? cu_q : cu_kv, c = k == 2 ? DV : D;
            inputs[k]->data = pack(&packed, inputs[k]->data, cu, B, k == 0 ? HQ : HKV, k == 0 ? SQ : SKV, c);
            inputs[k]->stride[1] = cu[B] * c, inputs[k]->stride[2] = c, inputs[k]->stride[3] = 1;
        }
        for (int threads = 1; threads <= 4; threads += 3) {
            requested_run(&w, &padded, ATTN_ISA_DEFAULT, threads);
            requested_run(&v, &packed, ATTN_ISA_DEFAULT, threads);
            for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++)
                for (int64_t b = 0; b < B; b++) {
                    int keys = tokens[k].which == OUT_COLUMNS;
                    compare_rows("packed", tokens[k].which, &w, &v, b, keys ? cu_kv[b] : cu_q[b], keys ? len_kv[b] : len_q[b]);
                }
            for (int which = OUT_WEIGHTS; which <= OUT_KEEP; which++)
                assert_memory_equal(w.outputs[which].data, v.outputs[which].data, w.outputs[which].bytes);
            for (int64_t row = 0; row < B * HQ * SQ; row++)
                assert_int_equal(v.visits[row], row % SQ < len_q[row / SQ / HQ]); /* each row of each sequence, once */
        }
        drawn_free(&padded), drawn_free(&packed);
    }
}

static void test_sizes_of_zero(void **state)
{
    static const attn_shape shapes[] = {{0, 2, 1, 3, 4, 2, 2}, {2, 0, 0, 3, 4, 2, 2}, {2, 0, 1, 3, 4, 2, 2}, {2, 2, 1, 0, 4, 2, 2},
                                        {2, 2, 1, 3, 0, 2, 2}, {2, 2, 1, 3, 4, 0, 2}, {2, 2, 1, 3, 4, 2, 0}};
    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (uint64_t seed = 0; seed < 12; seed++) { /* enough seeds for column sums of all kinds */
            drawn d;
            requested w;
            plain(&d, shapes[k]);
            d.random.state += seed;
            requested_init(&w, &d, 1);
            d.problem.outputs.column_queries = 0;
            requested_run(&w, &d, ATTN_ISA_DEFAULT, 2);
            const attn_shape *s = &shapes[k];
            const requested_output *sums = &w.outputs[OUT_COLUMNS];
            double expected = s->heads_q * s->len_q == 0 ? 0 : (double)(s->heads_q * s->len_q / sums->shape[1]);
            for (int64_t b = 0; b < s->batch; b++)
                for (int64_t h = 0; h < sums->shape[1]; h++) {
                    double total = 0;
                    for (int64_t j = 0; j < s->len_kv; j++) total += at(&w, OUT_COLUMNS, b, h, j, 0);
                    if (s->len_kv) assert_true(fabs(total - expected) <= 1e-5);
                }
            if (s->len_kv == 0) {
                assert_true(at(&w, OUT_ROW_MAX, 1, 1, 2, 0) == -(double)INFINITY);
                assert_true(at(&w, OUT_ENTROPY, 1, 1, 2, 0) == 0 && at(&w, OUT_EFFECTIVE, 1, 1, 2, 0) == 0);
                assert_true(at(&w, OUT_TOP_INDEX, 1, 1, 2, 0) == -1 && at(&w, OUT_TOP_WEIGHT, 1, 1, 2, 0) == 0);
            }
            if (s->dim_qk == 0) assert_true(fabs(at(&w, OUT_EFFECTIVE, 1, 1, 2, 0) - 4) < 1e-5);
            drawn_free(&d);
        }
}

/* Equal weights: the lowest indices, and nothing past the last key. */
static void test_ties(void **state)
{
    drawn d;
    requested w;
    (void)state;
    for (uint64_t seed = 5;; seed++) { /* until topk is above the number of keys */
        plain(&d, (attn_shape){1, 1, 1, 30, 7, 4, 4});
        d.random.state = seed;
        requested_init(&w, &d, 1);
        if (d.problem.outputs.topk > 8) break;
        drawn_free(&d);
    }
    memset((void *)(uintptr_t)d.tensors.q.data, 0, 30 * 4 * sizeof(float));
    d.problem.mask.causal = 1;
    requested_run(&w, &d, ATTN_ISA_DEFAULT, 1);
    for (int64_t i = 0; i < 30; i++)
        for (int64_t t = 0; t < d.problem.outputs.topk; t++) {
            int64_t seen = i < 7 ? i + 1 : 7;
            assert_true(at(&w, OUT_TOP_INDEX, 0, 0, i, t) == (t < seen ? (double)t : -1));
            assert_true(fabs(at(&w, OUT_TOP_WEIGHT, 0, 0, i, t) - (t < seen ? 1 / (double)seen : 0)) < 1e-6);
        }
    drawn_free(&d);
}

/* NaN in one key, or a score of infinity, affects the rows that see it and no others. */
static void test_nan(void **state)
{
    enum { S = 40, BAD = 25 };
    static const int numbers[] = {OUT_ROW_MAX, OUT_ENTROPY, OUT_EFFECTIVE, OUT_TOP_WEIGHT};
    drawn d;
    requested w;
    (void)state;
    plain(&d, (attn_shape){1, 2, 2, S, S, 4, 4});
    ((float *)(uintptr_t)d.tensors.k.data)[BAD * 4 + 1] = NAN; /* of head 0 */
    ((float *)(uintptr_t)d.tensors.k.data)[(S + BAD) * 4 + 1] = INFINITY;
    d.problem.mask.causal = 1;
    requested_init(&w, &d, 1);
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
        if (!can_run((attn_isa)isa)) continue;
        requested_run(&w, &d, (attn_isa)isa, 1);
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < S; i++) {
                const float beside =
                    ((const float *)d.tensors.q.data)[(S + i) * 4 + 1]; /* of head 1; below 0 the score is -infinity */
                int bad = i >= BAD && (h == 0 || beside > 0);
                for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
                    assert_int_equal(isnan(at(&w, numbers[k], 0, h, i, 0)) != 0, bad);
                for (int64_t t = 0; t < d.problem.outputs.topk && (bad || t == 0); t++)
                    assert_int_equal(at(&w, OUT_TOP_INDEX, 0, h, i, t) < 0, bad);
            }
    }
    drawn_free(&d);
}

static void visit_nothing(void *context, const attn_rows *rows) { (void)context, (void)rows; }

static size_t workspace_of(int64_t len, int rows, int64_t topk)
{
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, len, len, 64, 64}};
    const attn_call call = {.struct_size = sizeof call, .visit_rows = visit_nothing};
    attn_tensors t = {.struct_size = sizeof t};
    attn_options options = {.struct_size = sizeof options, .threads = 1};
    attn_plan *plan;
    t.q.data = t.k.data = t.v.data = ATTN_LATER;
    t.o.data = t.row_max.data = t.entropy.data = t.effective_keys.data = t.column_sum.data = ATTN_LATER;
    t.topk_index.data = t.topk_weight.data = ATTN_LATER;
    p.outputs.topk = topk;
    p.outputs.rows_stage = ATTN_STAGE_WEIGHTS;
    if (rows) t.call = &call;
    assert_int_equal(attn_plan_create(&plan, &p, &t, &options, NULL), ATTN_OK);
    size_t bytes = attn_plan_workspace_size(plan);
    attn_plan_destroy(plan);
    return bytes;
}

/* All scores would take 16 GiB. */
static void test_memory(void **state)
{
    (void)state;
    assert_true(workspace_of(65536, 0, 32) < (size_t)2 << 20);
    assert_true(workspace_of(65536, 1, 32) < (size_t)16 << 20);
    assert_true(workspace_of(65536, 1, 32) < 2 * workspace_of(32768, 1, 32));
    /* No more than len_kv keys are kept, however many are requested. */
    for (int rows = 0; rows < 2; rows++) assert_int_equal(workspace_of(300, rows, INT64_C(1) << 40), workspace_of(300, rows, 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed), cmocka_unit_test(test_sizes_of_zero), cmocka_unit_test(test_ties),
        cmocka_unit_test(test_nan),    cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
