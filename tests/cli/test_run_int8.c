/* SPDX-License-Identifier: MIT
 *
 * test_run_int8.c - i8 keys and values through `attn run`: with scales from the file, quantised by --dtype=int8, and dequantised
 * to a float type; against ref/. */
#include "run_example.h"

static example e;
static double int8_k[CAPACITY], int8_v[CAPACITY], scale_k[CAPACITY], scale_v[CAPACITY];

/* The example with keys and values rounded to i8 and back. */
static void draw(void)
{
    example_init(&e);
    const int64_t rows = e.p.B * e.p.Hkv * e.p.Skv;
    for (int64_t j = 0; j < rows; j++) {
        scale_k[j] = ref_quantise(e.p.D, e.K + j * e.p.D, int8_k + j * e.p.D);
        scale_v[j] = ref_quantise(e.p.Dv, e.V + j * e.p.Dv, int8_v + j * e.p.Dv);
    }
    ref_dequantise(rows, e.p.D, int8_k, scale_k, e.K);
    ref_dequantise(rows, e.p.Dv, int8_v, scale_v, e.V);
}

static void add_i8(attn_archive *file, const char *name, int rank, const int64_t *shape, const double *values)
{
    void *data;
    assert_int_equal(attn_archive_allocate(file, name, ATTN_I8, rank, shape, &data, NULL), ATTN_OK);
    for (int64_t k = 0; k < product(rank, shape); k++) ((int8_t *)data)[k] = (int8_t)values[k];
}

/* The batch is [2][3]; one: scales have another axis, of size 1; bshd: tokens before heads. */
static void write_int8(int one, int bshd)
{
    attn_archive *file = new_file();
    double q[CAPACITY], k[CAPACITY], v[CAPACITY], sk[CAPACITY], sv[CAPACITY];
    const int64_t Hq = e.p.Hq, Hkv = e.p.Hkv, Sq = e.p.Sq, Skv = e.p.Skv, D = e.p.D, Dv = e.p.Dv;
    for (int64_t b = 0; b < 6; b++)
        for (int64_t h = 0; h < Hq; h++)
            for (int64_t i = 0; i < Sq; i++)
                memcpy(q + (bshd ? (b * Sq + i) * Hq + h : (b * Hq + h) * Sq + i) * D, e.Q + ((b * Hq + h) * Sq + i) * D,
                       (size_t)D * sizeof *q);
    for (int64_t b = 0; b < 6; b++)
        for (int64_t h = 0; h < Hkv; h++)
            for (int64_t j = 0; j < Skv; j++) {
                const int64_t from = (b * Hkv + h) * Skv + j, to = bshd ? (b * Skv + j) * Hkv + h : from;
                memcpy(k + to * D, int8_k + from * D, (size_t)D * sizeof *k);
                memcpy(v + to * Dv, int8_v + from * Dv, (size_t)Dv * sizeof *v);
                sk[to] = scale_k[from], sv[to] = scale_v[from];
            }
    add_floats(file, "q", 5, (int64_t[]){2, 3, bshd ? Sq : Hq, bshd ? Hq : Sq, D}, q);
    int64_t shape[5] = {2, 3, bshd ? Skv : Hkv, bshd ? Hkv : Skv, 1};
    add_floats(file, "k_scale", one ? 5 : 4, shape, sk);
    add_floats(file, "v_scale", one ? 5 : 4, shape, sv);
    shape[4] = D;
    add_i8(file, "k", 5, shape, k);
    shape[4] = Dv;
    add_i8(file, "v", 5, shape, v);
    write_file(file, "in.safetensors");
}

static void integers_with_their_scales(void **state)
{
    (void)state;
    draw();
    for (int one = 0; one < 2; one++) {
        write_int8(one, 0);
        check(&e, "--scale=0.5");
        check(&e, "--scale=0.5 --dtype=f32"); /* dequantised first */
        check(&e, "--scale=0.5 --dtype=int8");
    }
    e.p.causal = 1;
    check(&e, "--scale=0.5 --causal");
}

static void tokens_before_heads(void **state)
{
    (void)state;
    draw();
    write_int8(0, 1);
    run("in.safetensors -o out.safetensors --scale=0.5 --layout=bshd --lse");
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    attn_archive *out = read_file("out.safetensors");
    assert_close(out, "lse", e.lse, 6 * 4 * 3);
    attn_archive_destroy(out);
}

/* --dtype=int8 quantises floats in the file; quantising dequantised numbers gives the same integers again. */
static void quantised_first(void **state)
{
    (void)state;
    draw();
    example given = e;
    example_init(&given);
    write_file(example_file(&given, 2, lead23), "in.safetensors");
    check(&e, "--scale=0.5 --dtype=int8");
    e.p.window = 1, e.p.window_left = 1, e.p.window_right = 0;
    check(&e, "--scale=0.5 --dtype=int8 --window=1,0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(integers_with_their_scales), cmocka_unit_test(tokens_before_heads),
                                       cmocka_unit_test(quantised_first)};
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
