/* SPDX-License-Identifier: MIT
 *
 * test_run_terms.c - scores with weights, relative terms, biases by distance and rotary positions through `attn run`, forward and
 * --backward, against ref/. */
#include "run_example.h"

#include "attn/position.h"

static example e;
static gradients g;

static void draw(void)
{
    example_init(&e);
    gradients_draw(&g);
}

/* A tensor in the file besides q, k, v and do; ref/ takes the same numbers. */
typedef struct term {
    const char *name;
    int rank;
    int64_t shape[3];
    double *values; /* drawn */
} term;

static void write_terms(const term *terms, int count)
{
    attn_archive *file = new_file();
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

/* Forward and backward in f64 of a problem that both e.p and the words describe; grads: the terms' gradients by ref/. */
static void check_terms(const char *words, const term *terms, int count, double *const *grads, const char *problem)
{
    char all[400], name[60];
    write_terms(terms, count);
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --lse --weights --dtype=f64 --backward %s", words);
    run(all);
    attn_archive *out = read_file("out.safetensors");
    assert_outputs(&e, out);
    ref_gradients back = gradients_in(&g);
    back.dW = e.p.W ? grads[0] : NULL;
    back.dbias_table = e.p.bias_table ? grads[0] : NULL;
    back.drelative_keys = e.p.relative_keys ? grads[0] : NULL;
    back.drelative_values = e.p.relative_values ? grads[1] : NULL;
    back.drelative_u = e.p.relative_u ? grads[1] : NULL;
    back.drelative_v = e.p.relative_v ? grads[2] : NULL;
    ref_backward(&e.p, &back);
    assert_close(out, "dq", g.dQ, 6 * 4 * 3 * 4);
    assert_close(out, "dk", g.dK, 6 * 2 * 5 * (e.p.Dk ? e.p.Dk : e.p.D));
    assert_close(out, "dv", g.dV, 6 * 2 * 5 * 3);
    for (int t = 0; t < count; t++) {
        snprintf(name, sizeof name, "d%s", terms[t].name);
        const attn_archive_tensor *gradient = attn_archive_find(out, name);
        if (!gradient) fail_msg("%s: no %s", words, name);
        assert_int_equal(gradient->rank, terms[t].rank);
        assert_memory_equal(gradient->shape, terms[t].shape, (size_t)terms[t].rank * sizeof(int64_t));
        assert_close(out, name, grads[t], product(terms[t].rank, terms[t].shape));
    }
    const char *written = attn_archive_get_metadata(out, "attn_problem");
    assert_string_equal(written, problem);
    attn_archive_destroy(out);
}

static double terms_of[3][CAPACITY], grads_of[3][CAPACITY];
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
    static const int64_t ends[] = {2, 2, 2, 2, 2, 2}, three_later[] = {3, 3, 3, 3, 3, 3};
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
        /* the last queries over a longer memory: distances from 1 - 3 to 4 */
        {"--rel=xl --causal=bottom-right", ":rel=xl:drel:shared=rel", 0, -2, 7, 0, 1, 1, ends},
        {"--rel=full --offset=3", ":rel=full:drel", 4, -1, 7, 0, 0, 0, three_later},
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
                 rows[n].offset == three_later ? ":offset=3" : "", rows[n].problem);
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
    const attn_input from = {x, ATTN_F64, {0, 0, 0, 0}}, at = attn_in(positions);
    const attn_output to = {x, ATTN_F64, {0, 0, 0, 0}};
    assert_int_equal(attn_rope_apply(rope, (int64_t[]){6, heads, tokens, 4}, &from, &at, &to, NULL), ATTN_OK);
}

static void rotary_positions(void **state)
{
    static const int64_t ends[] = {2, 2, 2, 2, 2, 2};
    static const int64_t of_q[] = {7, 1, 30}, of_kv[] = {0, 5, 2, 90, 11};
    double frequencies[2], magnitude;
    const attn_rope_scaling yarn = {
        .struct_size = sizeof yarn, .kind = ATTN_ROPE_SCALING_YARN, .dim = 4, .base = 500, .factor = 4, .original_length = 64};
    (void)state;
    assert_int_equal(attn_rope_frequencies(&yarn, frequencies, &magnitude, NULL), ATTN_OK);
    const struct {
        const char *words;
        attn_rope rope;
        int bottom_right, given;
    } rows[] = {
        {"--rope", {0}, 0, 0},
        {"--rope --rope-pairs=halves --rope-base=100 --causal=bottom-right", {.pairs = ATTN_ROPE_PAIRS_HALVES, .base = 100}, 1, 0},
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
        attn_archive *file = read_file("in.safetensors");
        add_full(file, "at_q", 1, (int64_t[]){3}, ATTN_I64, of_q);
        add_full(file, "at_kv", 1, (int64_t[]){5}, ATTN_I32, of_kv);
        write_file(file, "in.safetensors");
        for (int i = 0; i < 18; i++) at_q[i] = rows[n].given ? of_q[i % 3] : i % 3 + (rows[n].bottom_right ? 2 : 0);
        for (int j = 0; j < 30; j++) at_kv[j] = rows[n].given ? of_kv[j % 5] : j % 5;
        turn(e.Q, 4, 3, &rope, at_q);
        turn(e.K, 2, 5, &rope, at_kv);
        if (rows[n].bottom_right) e.p.causal = 1, e.p.offset = ends;
        ref_forward(&e.p, e.O, e.lse, e.S, e.P);
        const ref_gradients flow = gradients_in(&g);
        ref_backward(&e.p, &flow);
        back = rope, back.inverse = 1;
        turn(g.dQ, 4, 3, &back, at_q);
        turn(g.dK, 2, 5, &back, at_kv);
        snprintf(all, sizeof all, "in.safetensors -o out.safetensors --scale=0.5 --weights --dtype=f64 --backward %s",
                 rows[n].words);
        run(all);
        attn_archive *out = read_file("out.safetensors");
        assert_close(out, "o", e.O, 6 * 4 * 3 * 3);
        assert_close(out, "weights", e.P, 6 * 4 * 3 * 5);
        assert_close(out, "dq", g.dQ, 6 * 4 * 3 * 4);
        assert_close(out, "dk", g.dK, 6 * 2 * 5 * 4);
        assert_close(out, "dv", g.dV, 6 * 2 * 5 * 3);
        attn_archive_destroy(out);
    }
}

/* A number of heads that is not a power of two follows the published rule too. */
static void published_slopes(void **state)
{
    double own[6];
    (void)state;
    draw();
    assert_int_equal(attn_alibi_slopes(6, &(attn_output){own, ATTN_F64, {0, 0, 0, 0}}, NULL), ATTN_OK);
    attn_archive *file = new_file();
    add_floats(file, "q", 3, (int64_t[]){6, 3, 4}, e.Q);
    add_floats(file, "k", 3, (int64_t[]){2, 5, 4}, e.K);
    add_floats(file, "v", 3, (int64_t[]){2, 5, 3}, e.V);
    write_file(file, "in.safetensors");
    e.p.B = 1, e.p.Hq = 6, e.p.slopes = own;
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    run("in.safetensors -o out.safetensors --scale=0.5 --weights --dtype=f64 --alibi");
    attn_archive *out = read_file("out.safetensors");
    assert_close(out, "o", e.O, 6 * 3 * 3);
    assert_close(out, "weights", e.P, 6 * 3 * 5);
    attn_archive_destroy(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_with_weights), cmocka_unit_test(relative_tables),  cmocka_unit_test(shared_tables),
        cmocka_unit_test(rotary_positions),    cmocka_unit_test(published_slopes),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
