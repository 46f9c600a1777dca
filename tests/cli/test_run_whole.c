/* SPDX-License-Identifier: MIT
 *
 * test_run_whole.c - keys and values of i8 through `attn run`: with their scales from a file, as --dtype=int8 makes them, and
 * turned back into a float type; against ref/. */
#include "run_example.h"

static example e;
static double whole_k[MOST], whole_v[MOST], scale_k[MOST], scale_v[MOST];

/* The example with keys and values as i8 holds them. */
static void draw(void)
{
    example_init(&e);
    const int64_t rows = e.p.B * e.p.Hkv * e.p.Skv;
    for (int64_t j = 0; j < rows; j++) {
        scale_k[j] = ref_quantise(e.p.D, e.K + j * e.p.D, whole_k + j * e.p.D);
        scale_v[j] = ref_quantise(e.p.Dv, e.V + j * e.p.Dv, whole_v + j * e.p.Dv);
    }
    ref_dequantise(rows, e.p.D, whole_k, scale_k, e.K);
    ref_dequantise(rows, e.p.Dv, whole_v, scale_v, e.V);
}

static void add_i8(attn_archive *file, const char *name, int rank, const int64_t *shape, const double *values)
{
    void *data;
    assert_int_equal(attn_archive_allocate(file, name, ATTN_I8, rank, shape, &data, NULL), ATTN_OK);
    for (int64_t k = 0; k < product(rank, shape); k++) ((int8_t *)data)[k] = (int8_t)values[k];
}

/* [2][3] is the batch; one: scales have an axis more, of size 1.  bshd: tokens before heads. */
static void write_whole(int one, int bshd)
{
    attn_archive *file = new_file();
    double q[MOST], k[MOST], v[MOST], sk[MOST], sv[MOST];
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
                memcpy(k + to * D, whole_k + from * D, (size_t)D * sizeof *k);
                memcpy(v + to * Dv, whole_v + from * Dv, (size_t)Dv * sizeof *v);
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

static void whole_numbers_with_their_scales(void **state)
{
    (void)state;
    draw();
    for (int one = 0; one < 2; one++) {
        write_whole(one, 0);
        check(&e, "--scale=0.5");
        check(&e, "--scale=0.5 --dtype=f32"); /* turned back first */
        check(&e, "--scale=0.5 --dtype=int8");
    }
    e.p.causal = 1;
    check(&e, "--scale=0.5 --causal");
}

static void tokens_before_heads(void **state)
{
    (void)state;
    draw();
    write_whole(0, 1);
    run("in.safetensors -o out.safetensors --scale=0.5 --layout=bshd --lse");
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    attn_archive *out = read_file("out.safetensors");
    assert_close(out, "lse", e.lse, 6 * 4 * 3);
    attn_archive_destroy(out);
}

/* --dtype=int8 quantises what the file has; and a file that was turned back into numbers gives the same whole ones again. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers_with_their_scales), cmocka_unit_test(tokens_before_heads),
                                       cmocka_unit_test(quantised_first)};
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
