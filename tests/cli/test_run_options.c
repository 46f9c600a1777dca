/* SPDX-License-Identifier: MIT
 *
 * test_run_options.c - the options of the core through `attn run`, forward and --backward, against ref/.  Scores with weights, and
 * biases and relative terms from tables, are in test_run_terms.c. */
#include "run_example.h"

static example e;
static gradients g;
static double slopes[32], sink[8], scale[8], table[4 * 32];

/* Writes the tensors of all options; each row sets the scalars of the problem. */
static void write_inputs(const char *name)
{
    static const unsigned char blocks[2 * 4 * 2 * 2] = {1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1,
                                                        0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1};
    attn_archive *file = example_file(&e, 2, lead23);
    add_floats(file, "do", 5, (int64_t[]){2, 3, 4, 3, 3}, g.dO);
    add_floats(file, "dlse", 4, (int64_t[]){2, 3, 4, 3}, g.dlse);
    add_floats(file, "slopes", 3, (int64_t[]){2, 3, 4}, slopes);
    add_floats(file, "one_slope_a_head", 1, (int64_t[]){4}, slopes);
    add_floats(file, "by_distance", 2, (int64_t[]){4, 5}, table);
    add_floats(file, "by_bucket", 2, (int64_t[]){4, 32}, table);
    add_floats(file, "sink", 1, (int64_t[]){4}, sink);
    add_floats(file, "scale", 3, (int64_t[]){4, 1, 1}, scale);
    add_floats(file, "bias", 5, (int64_t[]){2, 1, 4, 3, 5}, e.bias);
    add_bytes(file, "blocks", 5, (int64_t[]){2, 1, 4, 2, 2}, blocks);
    write_file(file, name);
    for (int64_t b = 0; b < 6; b++)
        for (int64_t h = 0; h < 4; h++)
            for (int64_t i = 0; i < 3; i++)
                for (int64_t j = 0; j < 5; j++)
                    e.keep[((b * 4 + h) * 3 + i) * 5 + j] = blocks[((b / 3 * 4 + h) * 2 + i / 2) * 2 + j / 3];
}

static void draw(void)
{
    example_init(&e);
    gradients_draw(&g);
    for (int64_t k = 0; k < 24; k++) slopes[k] = (float)(0.4 + 0.3 * number(k, 6));
    for (int64_t k = 0; k < 4 * 32; k++) table[k] = (float)number(k, 9);
    for (int64_t k = 0; k < 4; k++) sink[k] = (float)number(k, 7), scale[k] = (float)(0.5 + 0.2 * number(k, 8));
    for (int64_t k = 0; k < 2 * 4 * 3 * 5; k++) e.bias[k] = (float)number(k, 3);
}

/* The bias expanded for ref/: batch entry b of 6 has that of b / 3. */
static double full_bias[CAPACITY];

static void expand_bias(void)
{
    for (int64_t b = 0; b < 6; b++) memcpy(full_bias + b * 60, e.bias + b / 3 * 60, 60 * sizeof *full_bias);
}

static void expect_gradients(const attn_archive *out, int has_bias)
{
    double dbias[2 * 4 * 3 * 5] = {0};
    assert_close(out, "dq", g.dQ, 6 * 4 * 3 * 4);
    assert_close(out, "dk", g.dK, 6 * 2 * 5 * 4);
    assert_close(out, "dv", g.dV, 6 * 2 * 5 * 3);
    if (e.p.scale_of_head) assert_close(out, "dscale", g.dscale, 4);
    if (e.p.sink) assert_close(out, "dsink", g.dsink, 4);
    for (int64_t k = 0; k < 360; k++) dbias[k / 180 * 60 + k % 60] += g.dS[k];
    if (has_bias) assert_close(out, "dbias", dbias, 120);
    assert_true(!attn_archive_find(out, "dscale") == !e.p.scale_of_head);
    assert_true(!attn_archive_find(out, "dsink") == !e.p.sink);
    assert_true(!attn_archive_find(out, "dbias") == !has_bias);
}

/* Runs one option alone, forward and backward, in f64, where the difference from ref/ is rounding only. */
static void check_both(const char *words, int slope_tensor)
{
    char all[500];
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --lse --weights --dtype=f64 --backward %s", words);
    run(all);
    attn_archive *out = read_file("out.safetensors");
    assert_outputs(&e, out);
    static double dtable[4 * 32];
    ref_gradients back = gradients_in(&g);
    if (!strstr(words, "=dlse")) back.dlse = g.dlse;
    back.dbias_table = dtable;
    ref_backward(&e.p, &back);
    expect_gradients(out, e.p.bias != NULL);
    if (e.p.bias_table) assert_close(out, "dbias_table", dtable, 4 * e.p.buckets);
    assert_true(!attn_archive_find(out, "dbias_table") == !e.p.bias_table);
    if (slope_tensor == 24) assert_close(out, "dslopes", g.dslopes, 24);
    for (int h = 0; h < 4 && slope_tensor == 4; h++)
        for (int b = 1; b < 6; b++) g.dslopes[h] += g.dslopes[b * 4 + h];
    if (slope_tensor == 4) assert_close(out, "dslopes", g.dslopes, 4);
    assert_true(!attn_archive_find(out, "dslopes") == !slope_tensor);
    attn_archive_destroy(out);

    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --lse --weights --dtype=f64 --ignore=do --ignore=dlse %s", words);
    run(all);
    out = read_file("out.safetensors");
    assert_close(out, "o", e.O, 6 * 4 * 3 * 3);
    assert_null(attn_archive_find(out, "dq"));
    attn_archive_destroy(out);
}

#define NONE "--ignore=slopes --ignore=sink --ignore=scale --ignore=bias --ignore=blocks --scale=0.5 "

static void scalar_options(void **state)
{
    (void)state;
    draw();
    write_inputs("in.safetensors");
    check_both(NONE, 0);
    check_both(NONE "--ignore=dlse", 0);
    e.p.temperature = 2.5;
    check_both(NONE "--temperature=2.5", 0);
    e.p.temperature = 0;
    e.p.softcap = 0.75;
    check_both(NONE "--softcap=0.75", 0);
    e.p.softcap = 0;
    e.p.chunk = 2;
    check_both(NONE "--chunk=2", 0);
    const int64_t far[] = {-2, -2, -2, -2, -2, -2};
    e.p.chunk = 0, e.p.causal = 1, e.p.offset = far; /* queries 0 and 1 see nothing */
    check_both(NONE "--causal --offset=-2", 0);
    e.p.uniform = 1;
    check_both(NONE "--causal --offset=-2 --empty=uniform", 0);
}

static void dropout_draws_from_the_seed(void **state)
{
    (void)state;
    draw();
    write_inputs("in.safetensors");
    for (int64_t k = 0; k < 360; k++) g.Z[k] = ref_dropout_keeps(77, 0, k / 15, k / 5 % 3, k % 5, 0.25) / 0.75;
    e.p.Z = g.Z;
    check_both(NONE "--dropout=0.25 --seed=77", 0);
    for (int64_t k = 0; k < 360; k++) g.Z[k] = 0;
    check_both(NONE "--dropout=1", 0);
}

static void numbers_of_each_head(void **state)
{
    (void)state;
    double published[24];
    draw();
    write_inputs("in.safetensors");
    e.p.slopes = slopes;
    check_both("--ignore=sink --ignore=scale --ignore=bias --ignore=blocks --scale=0.5", 24);
    check_both("--ignore=sink --ignore=scale --ignore=bias --ignore=blocks --scale=0.5 --alibi", 24);
    for (int b = 1; b < 6; b++) memcpy(slopes + b * 4, slopes, 4 * sizeof *slopes);
    check_both("--ignore=slopes --ignore=sink --ignore=scale --ignore=bias --ignore=blocks --scale=0.5 --slopes=one_slope_a_head",
               4);
    for (int k = 0; k < 24; k++) published[k] = exp2(-2.0 * (k % 4 + 1)); /* 2^(-8h/4) */
    e.p.slopes = published;
    check_both(NONE "--alibi", 0);
    e.p.slopes = NULL;
    e.p.sink = sink;
    check_both("--ignore=slopes --ignore=scale --ignore=bias --ignore=blocks --scale=0.5", 0);
    e.p.sink = NULL;
    e.p.scale_of_head = scale;
    check_both("--ignore=slopes --ignore=sink --ignore=bias --ignore=blocks", 0);
}

static void biases_by_distance(void **state)
{
    (void)state;
    draw();
    write_inputs("in.safetensors");
    e.p.bias_table = table, e.p.bias_table_of_each_head = 1;
    e.p.bucket_rule = REF_CLIPPED, e.p.buckets = 5, e.p.reach = 2;
    check_both(NONE "--clipped=2 --bias-table=by_distance", 0);
    e.p.bucket_rule = REF_T5_CAUSAL, e.p.buckets = 32, e.p.reach = 128;
    check_both(NONE "--t5=causal --bias-table=by_bucket", 0);
}

static void blocks_and_bias(void **state)
{
    (void)state;
    draw();
    write_inputs("in.safetensors");
    expand_bias();
    e.p.bias = full_bias; /* broadcast over one of two leading axes: its gradient is a sum over that axis */
    check_both("--ignore=slopes --ignore=sink --ignore=scale --ignore=blocks --scale=0.5", 0);
    e.p.bias = NULL;
    e.p.keep = e.keep;
    check_both("--ignore=slopes --ignore=sink --ignore=scale --ignore=bias --scale=0.5 --block=2,3", 0);
}

static void all_at_once(void **state)
{
    (void)state;
    draw();
    write_inputs("in.safetensors");
    expand_bias();
    for (int64_t k = 0; k < 360; k++) g.Z[k] = ref_dropout_keeps(5, 0, k / 15, k / 5 % 3, k % 5, 0.125) / 0.875;
    e.p.Z = g.Z, e.p.bias = full_bias, e.p.keep = e.keep, e.p.slopes = slopes, e.p.sink = sink, e.p.scale_of_head = scale;
    e.p.temperature = 1.5, e.p.softcap = 2, e.p.window = 1, e.p.window_left = 2, e.p.window_right = 3;
    check_both("--temperature=1.5 --softcap=2 --block=2,3 --dropout=0.125 --seed=5 --window=2,3", 24);
}

/* 16-bit storage: ref/ on the rounded inputs, within the rounding of the output. */
static void halves(void **state)
{
    (void)state;
    draw();
    write_inputs("in.safetensors");
    run("in.safetensors -o half.safetensors --backward --dtype=bf16 --block=2,3");
    run("in.safetensors -o whole.safetensors --backward --block=2,3");
    attn_archive *half = read_file("half.safetensors"), *whole = read_file("whole.safetensors");
    static const char *const names[] = {"o", "dq", "dk", "dv"};
    for (int n = 0; n < 4; n++) {
        const attn_archive_tensor *a = attn_archive_find(half, names[n]), *b = attn_archive_find(whole, names[n]);
        assert_int_equal(a->dtype, ATTN_BF16);
        for (int64_t k = 0; k < product(a->rank, a->shape); k++) {
            const uint32_t bits = (uint32_t)((const uint16_t *)a->data)[k] << 16;
            float got;
            memcpy(&got, &bits, sizeof got);
            assert_true(fabs((double)got - (double)((const float *)b->data)[k]) < 0.06);
        }
    }
    assert_int_equal(attn_archive_find(half, "dbias")->dtype, ATTN_F32);
    attn_archive_destroy(half);
    attn_archive_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalar_options),
        cmocka_unit_test(dropout_draws_from_the_seed),
        cmocka_unit_test(numbers_of_each_head),
        cmocka_unit_test(biases_by_distance),
        cmocka_unit_test(blocks_and_bias),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(halves),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
