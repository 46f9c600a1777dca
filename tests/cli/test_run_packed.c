/* SPDX-License-Identifier: MIT
 *
 * test_run_packed.c - packed sequences through `attn run`, forward and --backward, each compared with ref/ on that sequence alone.
 */
#include "run_example.h"

static example e;
static gradients g;

enum { SEQUENCES = 3, HEADS = 4, KEY_HEADS = 2, WIDTH = 4, VALUE_WIDTH = 3 };
static const int64_t begin_q[] = {0, 2, 2, 5}, begin_kv[] = {0, 3, 4, 8};

/* Copies the tokens of one sequence between the file's array, [head][token][width] or [token][head][width], and a dense one. */
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
    static double Q[CAPACITY], K[CAPACITY], V[CAPACITY], dO[CAPACITY], O[CAPACITY], lse[CAPACITY], dQ[CAPACITY], dK[CAPACITY],
        dV[CAPACITY], one[4][CAPACITY];
    const int64_t tq = begin_q[SEQUENCES], tk = begin_kv[SEQUENCES];
    double row_max[32] = {0}, column_sum[32] = {0}, weights[SEQUENCES * HEADS * 3 * 4] = {0};
    for (int64_t k = 0; k < CAPACITY; k++) {
        Q[k] = (float)number(k, 0), K[k] = (float)number(k, 1), V[k] = (float)number(k, 2), dO[k] = (float)number(k, 3);
        O[k] = lse[k] = dQ[k] = dK[k] = dV[k] = 0;
    }
    attn_archive *file = new_file();
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
    add_full(file, "cu_seqlens_q", 1, (int64_t[]){4}, ATTN_I32, begin_q);
    add_full(file, "cu_seqlens_kv", 1, (int64_t[]){4}, ATTN_I64, begin_kv);
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
        ref_gradients back = gradients_in(&g);
        back.dQ = one[0], back.dK = one[1], back.dV = one[2];
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
    attn_archive *out = read_file("out.safetensors");
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
    attn_archive_destroy(out);
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
    static const char *const expected[] = {"tensor 'cu_seqlens_q': number 2 (2) is not between 3 and 5",
                                           "tensor 'cu_seqlens_q': number 3 (6) is not between 2 and 5"};
    for (int r = 0; r < 2; r++) {
        example_init(&e);
        attn_archive *file = new_file();
        add_floats(file, "q", 3, (int64_t[]){2, 5, 4}, e.Q);
        add_floats(file, "k", 3, (int64_t[]){2, 8, 4}, e.K);
        add_floats(file, "v", 3, (int64_t[]){2, 8, 4}, e.V);
        add_full(file, "cu_seqlens_q", 1, (int64_t[]){4}, ATTN_I32, rows[r]);
        add_full(file, "cu_seqlens_kv", 1, (int64_t[]){4}, ATTN_I32, begin_kv);
        write_file(file, "in.safetensors");
        char command[400], line[300] = "";
        snprintf(command, sizeof command, "cd %s && exec %s run in.safetensors -o no.safetensors 2>&1", folder, ATTN_COMMAND);
        FILE *pipe = popen(command, "r");
        assert_non_null(pipe);
        assert_non_null(fgets(line, sizeof line, pipe));
        assert_int_equal(WEXITSTATUS(pclose(pipe)), 2);
        if (!strstr(line, expected[r])) fail_msg("printed: %s", line);
        assert_int_not_equal(access(in_folder("no.safetensors"), F_OK), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_sequences),
        cmocka_unit_test(packed_numbers_out_of_range),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
