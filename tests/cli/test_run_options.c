/* SPDX-License-Identifier: MIT
 *
 * test_run_options.c - every option of the core through `attn run`, forward and --backward, and packed sequences, against ref/. */
#include "run_example.h"

#include "attn/position.h"

/* What --backward writes, as the reference computes it. */
typedef struct gradients {
    double dO[MOST], dlse[MOST], dQ[MOST], dK[MOST], dV[MOST], P[MOST], dS[MOST], dscale[8], dslopes[32], dsink[8], Z[MOST];
} gradients;

static example e;
static gradients g;
static double slopes[32], sink[8], scale[8], table[4 * 32];

/* The inputs of every option that is a tensor; scalars of the problem are left to the rows. */
static void write_inputs(const char *name)
{
    static const unsigned char blocks[2 * 4 * 2 * 2] = {1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1,
                                                        0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1};
    attn_tensors *file = example_file(&e, 2, lead23);
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
    memset(&g, 0, sizeof g);
    for (int64_t k = 0; k < 6 * 4 * 3 * 3; k++) g.dO[k] = (float)number(k, 4);
    for (int64_t k = 0; k < 6 * 4 * 3; k++) g.dlse[k] = (float)number(k, 5);
    for (int64_t k = 0; k < 24; k++) slopes[k] = (float)(0.4 + 0.3 * number(k, 6));
    for (int64_t k = 0; k < 4 * 32; k++) table[k] = (float)number(k, 9);
    for (int64_t k = 0; k < 4; k++) sink[k] = (float)number(k, 7), scale[k] = (float)(0.5 + 0.2 * number(k, 8));
    for (int64_t k = 0; k < 2 * 4 * 3 * 5; k++) e.bias[k] = (float)number(k, 3);
}

/* The bias as the reference takes it: entry b of 6 has that of b / 3. */
static double full_bias[MOST];

static void spread_bias(void)
{
    for (int64_t b = 0; b < 6; b++) memcpy(full_bias + b * 60, e.bias + b / 3 * 60, 60 * sizeof *full_bias);
}

static void expect_gradients(const attn_tensors *out, int has_bias)
{
    double dbias[2 * 4 * 3 * 5] = {0};
    assert_close(out, "dq", g.dQ, 6 * 4 * 3 * 4);
    assert_close(out, "dk", g.dK, 6 * 2 * 5 * 4);
    assert_close(out, "dv", g.dV, 6 * 2 * 5 * 3);
    if (e.p.scale_of_head) assert_close(out, "dscale", g.dscale, 4);
    if (e.p.sink) assert_close(out, "dsink", g.dsink, 4);
    for (int64_t k = 0; k < 360; k++) dbias[k / 180 * 60 + k % 60] += g.dS[k];
    if (has_bias) assert_close(out, "dbias", dbias, 120);
    assert_true(!attn_tensors_find(out, "dscale") == !e.p.scale_of_head);
    assert_true(!attn_tensors_find(out, "dsink") == !e.p.sink);
    assert_true(!attn_tensors_find(out, "dbias") == !has_bias);
}

/* Runs one option alone, forward and backward, in f64, where the reference is met to the last digits. */
static void check_both(const char *words, int slope_tensor)
{
    char all[500];
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --lse --weights --dtype=f64 --backward %s", words);
    run(all);
    attn_tensors *out = read_file("out.safetensors");
    assert_close(out, "o", e.O, 6 * 4 * 3 * 3);
    assert_close(out, "lse", e.lse, 6 * 4 * 3);
    assert_close(out, "weights", e.P, 6 * 4 * 3 * 5);
    static double dtable[4 * 32];
    const ref_gradients back = {.dO = g.dO,
                                .dlse = strstr(words, "=dlse") ? NULL : g.dlse,
                                .dQ = g.dQ,
                                .dK = g.dK,
                                .dV = g.dV,
                                .P = g.P,
                                .dS = g.dS,
                                .dscale = g.dscale,
                                .dslopes = g.dslopes,
                                .dsink = g.dsink,
                                .dbias_table = dtable};
    ref_backward(&e.p, &back);
    expect_gradients(out, e.p.bias != NULL);
    if (e.p.bias_table) assert_close(out, "dbias_table", dtable, 4 * e.p.buckets);
    assert_true(!attn_tensors_find(out, "dbias_table") == !e.p.bias_table);
    if (slope_tensor == 24) assert_close(out, "dslopes", g.dslopes, 24);
    for (int h = 0; h < 4 && slope_tensor == 4; h++)
        for (int b = 1; b < 6; b++) g.dslopes[h] += g.dslopes[b * 4 + h];
    if (slope_tensor == 4) assert_close(out, "dslopes", g.dslopes, 4);
    assert_true(!attn_tensors_find(out, "dslopes") == !slope_tensor);
    attn_tensors_destroy(out);

    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --lse --weights --dtype=f64 --ignore=do --ignore=dlse %s", words);
    run(all);
    out = read_file("out.safetensors");
    assert_close(out, "o", e.O, 6 * 4 * 3 * 3);
    assert_null(attn_tensors_find(out, "dq"));
    attn_tensors_destroy(out);
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
    spread_bias();
    e.p.bias = full_bias; /* broadcast over one leading axis of two: its gradient is summed over that axis */
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
    spread_bias();
    for (int64_t k = 0; k < 360; k++) g.Z[k] = ref_dropout_keeps(5, 0, k / 15, k / 5 % 3, k % 5, 0.125) / 0.875;
    e.p.Z = g.Z, e.p.bias = full_bias, e.p.keep = e.keep, e.p.slopes = slopes, e.p.sink = sink, e.p.scale_of_head = scale;
    e.p.temperature = 1.5, e.p.softcap = 2, e.p.window = 1, e.p.window_left = 2, e.p.window_right = 3;
    check_both("--temperature=1.5 --softcap=2 --block=2,3 --dropout=0.125 --seed=5 --window=2,3", 24);
}

/* ---- scores with weights, and terms by distance ---- */

/* Adds a tensor of numbers to q, k, v and do; the reference takes the same numbers. */
typedef struct term {
    const char *name;
    int rank;
    int64_t shape[3];
    double *values; /* drawn */
} term;

static void write_terms(const term *terms, int count)
{
    attn_tensors *file = new_file();
    const int64_t dim_k = e.p.Dk ? e.p.Dk : e.p.D;
    for (int64_t k = 0; k < 6 * 2 * 5 * dim_k; k++) e.K[k] = (float)number(k, 1);
    add_floats(file, "q", 4, (int64_t[]){6, 4, 3, 4}, e.Q);
    add_floats(file, "k", 4, (int64_t[]){6, 2, 5, dim_k}, e.K);
    add_floats(file, "v", 4, (int64_t[]){6, 2, 5, 3}, e.V);
    add_floats(file, "do", 4, (int64_t[]){6, 4, 3, 3}, g.dO);
    for (int t = 0; t < count; t++) {
        for (int64_t k = 0; k < product(terms[t].rank, terms[t].shape); k++) terms[t].values[k] = (float)number(k, 10 + t);
        add_floats(file, terms[t].name, terms[t].rank, terms[t].shape, terms[t].values);
    }
    write_file(file, "in.safetensors");
}

/* Forward and backward, in f64, of the problem that e.p says and the words say; grads: of the terms, in the reference. */
static void check_terms(const char *words, const term *terms, int count, double *const *grads, const char *problem)
{
    char all[400], name[60];
    write_terms(terms, count);
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --lse --weights --dtype=f64 --backward %s", words);
    run(all);
    attn_tensors *out = read_file("out.safetensors");
    assert_close(out, "o", e.O, 6 * 4 * 3 * 3);
    assert_close(out, "lse", e.lse, 6 * 4 * 3);
    assert_close(out, "weights", e.P, 6 * 4 * 3 * 5);
    ref_gradients back = {.dO = g.dO,
                          .dQ = g.dQ,
                          .dK = g.dK,
                          .dV = g.dV,
                          .P = g.P,
                          .dS = g.dS,
                          .dscale = g.dscale,
                          .dW = e.p.W ? grads[0] : NULL,
                          .dbias_table = e.p.bias_table ? grads[0] : NULL,
                          .drelative_keys = e.p.relative_keys ? grads[0] : NULL,
                          .drelative_values = e.p.relative_values ? grads[1] : NULL,
                          .drelative_u = e.p.relative_u ? grads[1] : NULL,
                          .drelative_v = e.p.relative_v ? grads[2] : NULL};
    ref_backward(&e.p, &back);
    assert_close(out, "dq", g.dQ, 6 * 4 * 3 * 4);
    assert_close(out, "dk", g.dK, 6 * 2 * 5 * (e.p.Dk ? e.p.Dk : e.p.D));
    assert_close(out, "dv", g.dV, 6 * 2 * 5 * 3);
    for (int t = 0; t < count; t++) {
        snprintf(name, sizeof name, "d%s", terms[t].name);
        const attn_tensor *gradient = attn_tensors_find(out, name);
        if (!gradient) fail_msg("%s: no %s", words, name);
        assert_int_equal(gradient->rank, terms[t].rank);
        assert_memory_equal(gradient->shape, terms[t].shape, (size_t)terms[t].rank * sizeof(int64_t));
        assert_close(out, name, grads[t], product(terms[t].rank, terms[t].shape));
    }
    const char *said = attn_tensors_get_metadata(out, "attn_problem");
    assert_string_equal(said, problem);
    attn_tensors_destroy(out);
}

static double terms_of[3][MOST], grads_of[3][MOST];
static double *const grads[] = {grads_of[0], grads_of[1], grads_of[2]};

static void begin_terms(void)
{
    draw();
    e.p.scale = 1;
}

static void scores_with_weights(void **state)
{
    double *w = terms_of[0];
    (void)state;
#define SHAPE "bwd:f64:b6:hq4:hkv2:sq3:skv5:d4:dv3"
    const struct {
        const char *words, *problem;
        term w;
        ref_kind kind;
        int64_t Dk, R;
    } rows[] = {
        {"--score=general", SHAPE ":lse:weights:score=general", {"w", 2, {4, 4}, w}, REF_GENERAL, 0, 0},
        {"--score=general", SHAPE ":lse:weights:score=general/7:w=heads", {"w", 3, {4, 4, 7}, w}, REF_GENERAL, 7, 0},
        {"--score=general/2", SHAPE ":lse:weights:score=general/2", {"w", 2, {4, 2}, w}, REF_GENERAL, 2, 0},
        {"--score=metric", SHAPE ":lse:weights:score=metric", {"w", 3, {1, 4, 4}, w}, REF_METRIC, 0, 0},
        {"--score=metric", SHAPE ":lse:weights:score=metric/2:w=heads", {"w", 3, {4, 2, 4}, w}, REF_METRIC, 0, 2},
        {"--score=metric/6 --layout=bhsd", SHAPE ":lse:weights:score=metric/6", {"w", 2, {6, 4}, w}, REF_METRIC, 0, 6},
        {"--score=additive", SHAPE ":lse:weights:score=additive", {"w", 1, {4}, w}, REF_ADDITIVE, 0, 1},
        {"--score=additive", SHAPE ":lse:weights:score=additive:w=heads-bias", {"w", 3, {4, 2, 4}, w}, REF_ADDITIVE, 0, 2},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        begin_terms();
        e.p.kind = rows[n].kind, e.p.Dk = rows[n].Dk, e.p.R = rows[n].R;
        e.p.W = w, e.p.W_of_each_head = rows[n].w.rank == 3 && rows[n].w.shape[0] > 1;
        check_terms(rows[n].words, &rows[n].w, 1, grads, rows[n].problem);
    }
}

static void relative_tables(void **state)
{
    static const int64_t ends[] = {2, 2, 2, 2, 2, 2}, ahead[] = {3, 3, 3, 3, 3, 3};
    const struct {
        const char *words, *problem;
        int64_t heads, first, rows;
        int values, xl, causal;
        const int64_t *offset;
    } rows[] = {
        {"--rel=shaw/2", ":rel=shaw/2:drel", 4, -2, 5, 0, 0, 0, NULL},
        {"--rel=shaw-values/1", ":rel=shaw-values/1:drel:shared=rel", 0, -1, 3, 1, 0, 0, NULL},
        {"--rel=shaw-values/3", ":rel=shaw-values/3:drel", 4, -3, 7, 1, 0, 0, NULL},
        {"--rel=full", ":rel=full:drel", 4, -4, 7, 0, 0, 0, NULL},
        {"--rel=xl", ":rel=xl:drel", 4, -4, 7, 0, 1, 0, NULL},
        /* the last queries of a memory: distances from 1 - 3 to 4 */
        {"--rel=xl --causal=bottom-right", ":rel=xl:drel:shared=rel", 0, -2, 7, 0, 1, 1, ends},
        {"--rel=full --offset=3", ":rel=full:drel", 4, -1, 7, 0, 0, 0, ahead},
    };
    (void)state;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        char problem[200];
        begin_terms();
        e.p.scale = 0.5;
        const int rank = rows[n].heads ? 3 : 2, from = rank == 3 ? 0 : 1;
        const int64_t keys[3] = {4, rows[n].rows, 4}, values[3] = {4, rows[n].rows, 3};
        term terms[3] = {{"relative_keys", rank, {0}, terms_of[0]}, {"relative_values", rank, {0}, terms_of[1]}};
        memcpy(terms[0].shape, keys + from, (size_t)rank * sizeof *keys);
        memcpy(terms[1].shape, values + from, (size_t)rank * sizeof *values);
        if (rows[n].xl)
            terms[1] = (term){"relative_u", 2, {4, 4}, terms_of[1]}, terms[2] = (term){"relative_v", 2, {4, 4}, terms_of[2]};
        e.p.relative_keys = terms_of[0], e.p.relative_first = rows[n].first, e.p.relative_rows = rows[n].rows;
        e.p.relative_values = rows[n].values ? terms_of[1] : NULL;
        e.p.relative_u = rows[n].xl ? terms_of[1] : NULL, e.p.relative_v = rows[n].xl ? terms_of[2] : NULL;
        e.p.relative_of_each_head = rows[n].heads > 0;
        e.p.causal = rows[n].causal, e.p.offset = rows[n].offset;
        snprintf(problem, sizeof problem, SHAPE "%s%s:scale=0.5:lse:weights%s", rows[n].causal ? ":causal=bottom-right" : "",
                 rows[n].offset == ahead ? ":offset=3" : "", rows[n].problem);
        char words[100];
        snprintf(words, sizeof words, "--scale=0.5 %s", rows[n].words);
        check_terms(words, terms, rows[n].xl ? 3 : 1 + rows[n].values, grads, problem);
    }
}

static void shared_tables(void **state)
{
    (void)state;
    const struct {
        const char *words, *problem;
        term table;
        ref_buckets rule;
        int64_t reach;
    } rows[] = {
        {"--clipped=2", ":clipped=2:shared=table:dtable", {"bias_table", 1, {5}, terms_of[0]}, REF_CLIPPED, 2},
        {"--clipped=2", ":clipped=2:shared=table:dtable", {"bias_table", 2, {1, 5}, terms_of[0]}, REF_CLIPPED, 2},
        {"--t5", ":t5:dtable", {"bias_table", 2, {4, 32}, terms_of[0]}, REF_T5, 128},
        {"--t5=causal/6/4", ":t5=causal/6/4:shared=table:dtable", {"bias_table", 1, {6}, terms_of[0]}, REF_T5_CAUSAL, 4},
        {"--t5=both/8", ":t5=both/8:dtable", {"bias_table", 2, {4, 8}, terms_of[0]}, REF_T5, 128},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        char problem[200], words[100];
        const term *one = &rows[n].table;
        begin_terms();
        e.p.scale = 0.5;
        e.p.bias_table = terms_of[0], e.p.bias_table_of_each_head = one->rank == 2 && one->shape[0] == 4;
        e.p.bucket_rule = rows[n].rule, e.p.buckets = one->shape[one->rank - 1], e.p.reach = rows[n].reach;
        snprintf(problem, sizeof problem, SHAPE ":scale=0.5:lse:weights%s", rows[n].problem);
        snprintf(words, sizeof words, "--scale=0.5 %s", rows[n].words);
        check_terms(words, one, 1, grads, problem);
    }
}

/* ---- positions ---- */

/* Rotates Q or K of the example in place. */
static void turn(double *x, int64_t heads, int64_t tokens, const attn_rope *rope, const int64_t *positions)
{
    const attn_layout dense = {.dtype = ATTN_F64};
    assert_int_equal(attn_rope_apply(rope, (int64_t[]){6, heads, tokens, 4}, &dense, x, &dense, x, positions, NULL), ATTN_OK);
}

static void rotary_positions(void **state)
{
    static const int64_t ends[] = {2, 2, 2, 2, 2, 2};
    static const int64_t of_q[] = {7, 1, 30}, of_kv[] = {0, 5, 2, 90, 11};
    double frequencies[2], magnitude;
    const attn_rope_scaling yarn = {
        .struct_size = sizeof yarn, .kind = ATTN_ROPE_YARN, .dim = 4, .base = 500, .factor = 4, .original_length = 64};
    (void)state;
    assert_int_equal(attn_rope_frequencies(&yarn, frequencies, &magnitude, NULL), ATTN_OK);
    const struct {
        const char *words;
        attn_rope rope;
        int bottom_right, given;
    } rows[] = {
        {"--rope", {0}, 0, 0},
        {"--rope --rope-pairs=halves --rope-base=100 --causal=bottom-right", {.pairs = ATTN_ROPE_HALVES, .base = 100}, 1, 0},
        {"--rope --rope-channels=2 --positions-q=at_q --positions-kv=at_kv", {.dim_rotary = 2}, 0, 1},
        {"--rope --rope-base=500 --rope-scaling=yarn/4/64",
         {.base = 500, .frequencies = frequencies, .magnitude = magnitude},
         0,
         0},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        int64_t at_q[18], at_kv[30];
        attn_rope rope = rows[n].rope, back;
        char all[400];
        rope.struct_size = sizeof rope;
        draw();
        write_terms(NULL, 0);
        attn_tensors *file = read_file("in.safetensors");
        add_whole(file, "at_q", 1, (int64_t[]){3}, ATTN_I64, of_q);
        add_whole(file, "at_kv", 1, (int64_t[]){5}, ATTN_I32, of_kv);
        write_file(file, "in.safetensors");
        for (int i = 0; i < 18; i++) at_q[i] = rows[n].given ? of_q[i % 3] : i % 3 + (rows[n].bottom_right ? 2 : 0);
        for (int j = 0; j < 30; j++) at_kv[j] = rows[n].given ? of_kv[j % 5] : j % 5;
        turn(e.Q, 4, 3, &rope, at_q);
        turn(e.K, 2, 5, &rope, at_kv);
        if (rows[n].bottom_right) e.p.causal = 1, e.p.offset = ends;
        ref_forward(&e.p, e.O, e.lse, e.S, e.P);
        ref_gradients flow = {.dO = g.dO, .dQ = g.dQ, .dK = g.dK, .dV = g.dV, .P = g.P, .dS = g.dS, .dscale = g.dscale};
        ref_backward(&e.p, &flow);
        back = rope, back.inverse = 1;
        turn(g.dQ, 4, 3, &back, at_q);
        turn(g.dK, 2, 5, &back, at_kv);
        snprintf(all, sizeof all, "in.safetensors -o out.safetensors --scale=0.5 --weights --dtype=f64 --backward %s",
                 rows[n].words);
        run(all);
        attn_tensors *out = read_file("out.safetensors");
        assert_close(out, "o", e.O, 6 * 4 * 3 * 3);
        assert_close(out, "weights", e.P, 6 * 4 * 3 * 5);
        assert_close(out, "dq", g.dQ, 6 * 4 * 3 * 4);
        assert_close(out, "dk", g.dK, 6 * 2 * 5 * 4);
        assert_close(out, "dv", g.dV, 6 * 2 * 5 * 3);
        attn_tensors_destroy(out);
    }
}

/* Heads no power of two have the slopes of the published rule too. */
static void published_slopes(void **state)
{
    double own[6];
    (void)state;
    draw();
    assert_int_equal(attn_alibi_slopes(6, ATTN_F64, own, NULL), ATTN_OK);
    attn_tensors *file = new_file();
    add_floats(file, "q", 3, (int64_t[]){6, 3, 4}, e.Q);
    add_floats(file, "k", 3, (int64_t[]){2, 5, 4}, e.K);
    add_floats(file, "v", 3, (int64_t[]){2, 5, 3}, e.V);
    write_file(file, "in.safetensors");
    e.p.B = 1, e.p.Hq = 6, e.p.slopes = own;
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    run("in.safetensors -o out.safetensors --scale=0.5 --weights --dtype=f64 --alibi");
    attn_tensors *out = read_file("out.safetensors");
    assert_close(out, "o", e.O, 6 * 3 * 3);
    assert_close(out, "weights", e.P, 6 * 3 * 5);
    attn_tensors_destroy(out);
}

/* ---- packed sequences ---- */

enum { SEQUENCES = 3, HEADS = 4, KEY_HEADS = 2, WIDTH = 4, VALUE_WIDTH = 3 };
static const int64_t begin_q[] = {0, 2, 2, 5}, begin_kv[] = {0, 3, 4, 8};

/* Copies the tokens of one sequence, [head][token][width] or [token][head][width] in the file, out of or into a dense array. */
static void copy_sequence(int into_file, int bshd, double *file, double *dense, const int64_t *begin, int b, int64_t heads,
                          int64_t width)
{
    const int64_t total = begin[SEQUENCES], tokens = begin[b + 1] - begin[b];
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t c = 0; c < width; c++) {
                double *f = &file[bshd ? ((begin[b] + t) * heads + h) * width + c : (h * total + begin[b] + t) * width + c];
                double *d = &dense[(h * tokens + t) * width + c];
                if (into_file) *f = *d;
                else *d = *f;
            }
}

static void check_packed(int bshd)
{
    static double Q[MOST], K[MOST], V[MOST], dO[MOST], O[MOST], lse[MOST], dQ[MOST], dK[MOST], dV[MOST], one[4][MOST];
    const int64_t tq = begin_q[SEQUENCES], tk = begin_kv[SEQUENCES];
    double row_max[32] = {0}, column_sum[32] = {0}, weights[SEQUENCES * HEADS * 3 * 4] = {0};
    for (int64_t k = 0; k < MOST; k++) {
        Q[k] = (float)number(k, 0), K[k] = (float)number(k, 1), V[k] = (float)number(k, 2), dO[k] = (float)number(k, 3);
        O[k] = lse[k] = dQ[k] = dK[k] = dV[k] = 0;
    }
    attn_tensors *file = new_file();
    const struct {
        const char *name;
        int64_t heads, tokens, width;
        double *data;
    } rows[] = {{"q", HEADS, tq, WIDTH, Q},
                {"k", KEY_HEADS, tk, WIDTH, K},
                {"v", KEY_HEADS, tk, VALUE_WIDTH, V},
                {"do", HEADS, tq, VALUE_WIDTH, dO}};
    for (int r = 0; r < 4; r++) {
        const int64_t shape[3] = {bshd ? rows[r].tokens : rows[r].heads, bshd ? rows[r].heads : rows[r].tokens, rows[r].width};
        add_floats(file, rows[r].name, 3, shape, rows[r].data);
    }
    add_whole(file, "cu_seqlens_q", 1, (int64_t[]){4}, ATTN_I32, begin_q);
    add_whole(file, "cu_seqlens_kv", 1, (int64_t[]){4}, ATTN_I64, begin_kv);
    write_file(file, "in.safetensors");
    char words[300];
    snprintf(words, sizeof words,
             "in.safetensors -o out.safetensors --dtype=f64 --lse --weights --row-max --column-sum --topk=2 --backward "
             "--causal=bottom-right%s",
             bshd ? " --layout=bshd" : "");
    run(words);
    for (int b = 0; b < SEQUENCES; b++) {
        const int64_t nq = begin_q[b + 1] - begin_q[b], nk = begin_kv[b + 1] - begin_kv[b], offset = nk - nq;
        example_init(&e);
        e.p = (ref_problem){.B = 1,
                            .Hq = HEADS,
                            .Hkv = KEY_HEADS,
                            .Sq = nq,
                            .Skv = nk,
                            .D = WIDTH,
                            .Dv = VALUE_WIDTH,
                            .Q = e.Q,
                            .K = e.K,
                            .V = e.V,
                            .scale = 0.5,
                            .causal = 1,
                            .offset = &offset};
        copy_sequence(0, bshd, Q, e.Q, begin_q, b, HEADS, WIDTH);
        copy_sequence(0, bshd, K, e.K, begin_kv, b, KEY_HEADS, WIDTH);
        copy_sequence(0, bshd, V, e.V, begin_kv, b, KEY_HEADS, VALUE_WIDTH);
        copy_sequence(0, bshd, dO, g.dO, begin_q, b, HEADS, VALUE_WIDTH);
        ref_forward(&e.p, e.O, e.lse, e.S, e.P);
        const ref_gradients back = {.dO = g.dO, .dQ = one[0], .dK = one[1], .dV = one[2], .P = g.P, .dS = g.dS, .dscale = g.dscale};
        ref_backward(&e.p, &back);
        copy_sequence(1, bshd, O, e.O, begin_q, b, HEADS, VALUE_WIDTH);
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < nq; i++) {
                const double *S = &e.S[(h * nq + i) * nk], *P = &e.P[(h * nq + i) * nk];
                double *most = &row_max[h * tq + begin_q[b] + i];
                *most = -INFINITY;
                for (int64_t j = 0; j < nk; j++) {
                    *most = fmax(*most, S[j]);
                    column_sum[h * tk + begin_kv[b] + j] += P[j];
                    weights[((b * HEADS + h) * 3 + i) * 4 + j] = P[j];
                }
            }
        copy_sequence(1, 0, lse, e.lse, begin_q, b, HEADS, 1);
        copy_sequence(1, bshd, dQ, one[0], begin_q, b, HEADS, WIDTH);
        copy_sequence(1, bshd, dK, one[1], begin_kv, b, KEY_HEADS, WIDTH);
        copy_sequence(1, bshd, dV, one[2], begin_kv, b, KEY_HEADS, VALUE_WIDTH);
    }
    attn_tensors *out = read_file("out.safetensors");
    assert_shape(out, "lse", 2, (int64_t[]){HEADS, tq});
    assert_shape(out, "weights", 4, (int64_t[]){SEQUENCES, HEADS, 3, 4});
    assert_close(out, "row_max", row_max, tq * HEADS);
    assert_close(out, "column_sum", column_sum, tk * HEADS);
    assert_shape(out, "topk_index", 3, (int64_t[]){HEADS, tq, 2});
    assert_close(out, "weights", weights, SEQUENCES * HEADS * 3 * 4);
    assert_close(out, "o", O, tq * HEADS * VALUE_WIDTH);
    assert_close(out, "lse", lse, tq * HEADS);
    assert_close(out, "dq", dQ, tq * HEADS * WIDTH);
    assert_close(out, "dk", dK, tk * KEY_HEADS * WIDTH);
    assert_close(out, "dv", dV, tk * KEY_HEADS * VALUE_WIDTH);
    attn_tensors_destroy(out);
}

static void packed_sequences(void **state)
{
    (void)state;
    check_packed(0);
    check_packed(1);
}

static void packed_numbers_out_of_range(void **state)
{
    (void)state;
    static const int64_t falling[] = {0, 3, 2, 5}, far[] = {0, 2, 2, 6};
    const int64_t *rows[] = {falling, far};
    static const char *const said[] = {"tensor 'cu_seqlens_q': number 2 (2) is not within 3 and 5",
                                       "tensor 'cu_seqlens_q': number 3 (6) is not within 2 and 5"};
    for (int r = 0; r < 2; r++) {
        example_init(&e);
        attn_tensors *file = new_file();
        add_floats(file, "q", 3, (int64_t[]){2, 5, 4}, e.Q);
        add_floats(file, "k", 3, (int64_t[]){2, 8, 4}, e.K);
        add_floats(file, "v", 3, (int64_t[]){2, 8, 4}, e.V);
        add_whole(file, "cu_seqlens_q", 1, (int64_t[]){4}, ATTN_I32, rows[r]);
        add_whole(file, "cu_seqlens_kv", 1, (int64_t[]){4}, ATTN_I32, begin_kv);
        write_file(file, "in.safetensors");
        char command[400], line[300] = "";
        snprintf(command, sizeof command, "cd %s && exec %s run in.safetensors -o no.safetensors 2>&1", folder, ATTN_COMMAND);
        FILE *pipe = popen(command, "r");
        assert_non_null(pipe);
        assert_non_null(fgets(line, sizeof line, pipe));
        assert_int_equal(WEXITSTATUS(pclose(pipe)), 2);
        if (!strstr(line, said[r])) fail_msg("said: %s", line);
        assert_int_not_equal(access(in_folder("no.safetensors"), F_OK), 0);
    }
}

/* 16-bit storage: the reference over the rounded numbers, to the rounding of the output. */
static void halves(void **state)
{
    (void)state;
    draw();
    write_inputs("in.safetensors");
    run("in.safetensors -o half.safetensors --backward --dtype=bf16 --block=2,3");
    run("in.safetensors -o whole.safetensors --backward --block=2,3");
    attn_tensors *half = read_file("half.safetensors"), *whole = read_file("whole.safetensors");
    static const char *const names[] = {"o", "dq", "dk", "dv"};
    for (int n = 0; n < 4; n++) {
        const attn_tensor *a = attn_tensors_find(half, names[n]), *b = attn_tensors_find(whole, names[n]);
        assert_int_equal(a->dtype, ATTN_BF16);
        for (int64_t k = 0; k < product(a->rank, a->shape); k++) {
            const uint32_t bits = (uint32_t)((const uint16_t *)a->data)[k] << 16;
            float got;
            memcpy(&got, &bits, sizeof got);
            assert_true(fabs((double)got - (double)((const float *)b->data)[k]) < 0.06);
        }
    }
    assert_int_equal(attn_tensors_find(half, "dbias")->dtype, ATTN_F32);
    attn_tensors_destroy(half);
    attn_tensors_destroy(whole);
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
        cmocka_unit_test(scores_with_weights),
        cmocka_unit_test(relative_tables),
        cmocka_unit_test(shared_tables),
        cmocka_unit_test(rotary_positions),
        cmocka_unit_test(published_slopes),
        cmocka_unit_test(packed_sequences),
        cmocka_unit_test(packed_numbers_out_of_range),
        cmocka_unit_test(halves),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
