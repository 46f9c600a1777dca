/* SPDX-License-Identifier: MIT
 * test_built.c - what problem strings become: problems of the library, their tensors, and the data of batches of engines. */
#include "test.h"

#include "testing/problem/problem.h"
#include "testing/problem/serving.h"
#include "testing/problem/tensors.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

typedef struct building {
    attn_problem p;
    attn_tensors t;
} building;

/* A problem that the library accepts for a plan. */
static building built(const char *text)
{
    problem_spec spec;
    building b = {.p = {0}};
    attn_error error = {0};
    if (problem_parse(text, &spec, &error) != ATTN_OK || problem_build(&spec, &b.p, &b.t, &error) != ATTN_OK)
        fail_msg("%s: %s", text, error.message);
    attn_plan *plan = NULL;
    if (attn_plan_create(&plan, &b.p, &b.t, NULL, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
    attn_plan_destroy(plan);
    return b;
}

/* The problem has exactly these tensors. */
static void assert_tensors(const char *text, const char *names)
{
    const building b = built(text);
    char found[600] = "";
    for (int t = 0; t < TENSORS; t++)
        if (tensors_has(&b.t, t)) strcat(strcat(found, *found ? " " : ""), tensors_about(t)->name);
    assert_string_equal(found, names);
}

static void builds_problems(void **state)
{
    (void)state;
    building b = built("bf16:b2:hq6:hkv3:sq5:skv7:d4:dv8:causal=bottom-right:window=3,-1:scale=0:lse:weights");
    assert_int_equal(b.t.q.dtype, ATTN_BF16);
    assert_memory_equal(&b.p.shape, &((attn_shape){2, 6, 3, 5, 7, 4, 8}), sizeof b.p.shape);
    assert_int_equal(b.p.mask.causal, 1);
    assert_int_equal(b.p.mask.align, ATTN_ALIGN_BOTTOM_RIGHT);
    assert_int_equal(b.p.mask.window, 1);
    assert_int_equal(b.p.mask.window_left, 3);
    assert_int_equal(b.p.mask.window_right, -1);
    assert_int_equal(b.p.score.scale_kind, ATTN_SCALE_VALUE);
    assert_true(b.t.lse.data && b.t.weights.data);

    b = built("b2:hq6:hkv3:sq5:skv7:d4:layout=bshd:mask=0.5/h1:bias=b1h1q1k1:lens=kv:offset=2");
    assert_memory_equal(b.t.q.stride, ((int64_t[4]){5 * 6 * 4, 4, 6 * 4, 1}), sizeof b.t.q.stride);
    assert_memory_equal(b.t.v.stride, ((int64_t[4]){7 * 3 * 4, 4, 3 * 4, 1}), sizeof b.t.v.stride);
    assert_memory_equal(b.t.mask.stride, ((int64_t[4]){5 * 7, ATTN_BROADCAST, 7, 1}), sizeof b.t.mask.stride);
    for (int axis = 0; axis < 4; axis++) assert_true(b.t.bias.stride[axis] == ATTN_BROADCAST);
    assert_tensors("b2:hq6:hkv3:sq5:skv7:d4:layout=bshd:mask=0.5/h1:bias=b1h1q1k1:lens=kv:offset=2",
                   "q k v o mask bias lengths_kv offset_q");

    /* decode is an alias of forward, with the same tensors. */
    const building decode = built("decode:int8:hq6:hkv3:sq1:skv7:d4:causal=bottom-right:lse");
    b = built("fwd:int8:hq6:hkv3:sq1:skv7:d4:causal=bottom-right:lse");
    assert_int_equal(decode.p.op, ATTN_FORWARD);
    assert_memory_equal(&decode, &b, sizeof b);

    b = built("sq5:d4:align=bottom-right:window=0,0");
    assert_int_equal(b.p.mask.causal, 0);
    assert_int_equal(b.p.mask.align, ATTN_ALIGN_BOTTOM_RIGHT);
}

/* A tree has a row of words for each query, and shared pages exist once. */
static void builds_batches_of_engines(void **state)
{
    (void)state;
    building b = built("b3:sq7:skv90:d8:tree=70:layout=bshd");
    int64_t shape[4];
    tensors_shape(&b.p, &b.t, TENSOR(tree), shape);
    assert_memory_equal(shape, ((int64_t[4]){3, 1, 7, 2}), sizeof shape);
    assert_int_equal(b.p.mask.tree_keys, 70);
    b = built("b3:sq1:skv90:d8:page=8:prefix=40");
    assert_int_equal(b.p.paging.pages, 3 * 12 - 2 * 5);
    b = built("b0:sq1:skv90:d8:page=8:prefix=40");
    assert_int_equal(b.p.paging.pages, 0);
    assert_tensors("b3:sq7:skv90:d8:tree=70:page=8:prefix=40:lens=kv", "q k v o lengths_kv page_table tree");
}

/* Trees of drafts: parents come first, so a draft sees itself, its parent, and whatever that sees; rows are those of the last
 * drafts.  Pages: those of the prefix are the first sequence's, no other is in two rows. */
static void draws_batches_of_engines(void **state)
{
    enum { DRAFTS = 100, QUERIES = 130, WORDS = 2 };
    static uint64_t rows[QUERIES][WORDS], last[20][WORDS];
    random_state random = {5}, again = {5};
    (void)state;
    serving_tree(DRAFTS, QUERIES, rows[0], &random);
    serving_tree(DRAFTS, 20, last[0], &again);
    assert_memory_equal(rows[QUERIES - 20], last, sizeof last);
    int roots = 0, deep = 0;
    for (int n = 0; n < DRAFTS; n++) {
        const uint64_t *row = rows[QUERIES - DRAFTS + n];
        int parent = n - 1;
        assert_true(row[n / 64] >> n % 64 & 1);
        while (parent >= 0 && !(row[parent / 64] >> parent % 64 & 1)) parent--;
        roots += parent<0, deep += parent> 0;
        for (int k = 0; k < WORDS; k++) {
            const uint64_t above = parent < 0 ? 0 : rows[QUERIES - DRAFTS + parent][k],
                           own = n / 64 == k ? UINT64_C(1) << n % 64 : 0;
            assert_true(row[k] == (above | own));
        }
    }
    assert_true(roots > 0 && roots < DRAFTS / 2 && deep > DRAFTS / 2);
    for (int i = 0; i < QUERIES - DRAFTS; i++) assert_true(rows[i][0] == 0 && rows[i][1] == 0);

    problem_spec spec;
    int64_t table[3][3];
    assert_int_equal(problem_parse("b3:sq1:skv22:d8:page=8:prefix=8", &spec, NULL), ATTN_OK);
    assert_int_equal(serving_pages(&spec, (int64_t[]){17, 8, 16}, (int64_t[]){5, 3, 2, 0, 1, 4, 6}, table[0]), 4);
    assert_memory_equal(table, ((int64_t[3][3]){{5, 3, 2}, {5, -1, -1}, {5, 0, -1}}), sizeof table);
}

/* Types of keys and values, with scales of rows; strides count blocks. */
static void builds_formats(void **state)
{
    static const struct {
        const char *word;
        attn_dtype dtype;
        int scaled;
    } rows[] = {{"f32", ATTN_F32, 0},         {"f16", ATTN_F16, 0},
                {"bf16", ATTN_BF16, 0},       {"i8", ATTN_I8, 1},
                {"f8_e4m3", ATTN_F8_E4M3, 1}, {"f8_e4m3-unscaled", ATTN_F8_E4M3, 0},
                {"f8_e5m2", ATTN_F8_E5M2, 1}, {"f8_e5m2-unscaled", ATTN_F8_E5M2, 0},
                {"q8_0", ATTN_Q8_0, 0},       {"q4_0", ATTN_Q4_0, 0},
                {"q4_1", ATTN_Q4_1, 0},       {"q4_1c", ATTN_Q4_1C, 0}};
    (void)state;
    assert_int_equal(COUNT(rows), SPEC_STORED_KINDS - 1);
    for (size_t n = 0; n < COUNT(rows); n++)
        for (int of_k = 0; of_k < 2; of_k++) {
            char text[80];
            if (!of_k && rows[n].dtype == ATTN_Q4_1C) continue; /* keys only */
            snprintf(text, sizeof text, "bf16:hq2:sq3:skv5:d64:%ctype=%s:layout=bshd", of_k ? 'k' : 'v', rows[n].word);
            const building b = built(text);
            const attn_input *of = of_k ? &b.t.k : &b.t.v, *other = of_k ? &b.t.v : &b.t.k;
            const int64_t row = rows[n].dtype >= ATTN_Q8_0 ? 2 : 64;
            assert_int_equal(of->dtype, rows[n].dtype);
            assert_int_equal(other->dtype, ATTN_BF16);
            assert_int_equal((of_k ? &b.t.k_scale : &b.t.v_scale)->data != NULL, rows[n].scaled);
            assert_null((of_k ? &b.t.v_scale : &b.t.k_scale)->data);
            assert_memory_equal(of->stride, ((int64_t[4]){5 * 2 * row, row, 2 * row, 1}), sizeof of->stride);
        }
}

/* Every option of the core, gradients, tangents and double backward. */
static void builds_what_the_library_has(void **state)
{
    (void)state;
    problem_spec spec;
    attn_problem problem;
    attn_tensors tensors;
    attn_error error = {0};
    const char *text = "bwd:b2:hq4:sq5:d4:softcap=3:temperature=2:dropout=0.25:alibi:sink:bias:dbias:layout=bshd";
    building b = built(text);
    assert_int_equal(b.p.op, ATTN_BACKWARD);
    assert_true(b.p.score.softcap == 3 && b.p.score.temperature == 2 && b.p.dropout.probability == 0.25);
    assert_tensors(text, "q k v o lse bias alibi_slopes sink grad_o grad_q grad_k grad_v grad_bias");
    assert_memory_equal(b.t.grad_v.stride, ((int64_t[4]){5 * 4 * 4, 4, 4 * 4, 1}), sizeof b.t.grad_v.stride);

    b = built("sq5:d4:packed:layout=bshd");
    assert_true(b.t.cu_seqlens_q.data && b.t.cu_seqlens_kv.data && b.t.q.stride[3] == 0); /* packed tensors are dense */

    text = "bwd:b2:hq4:sq5:skv9:d4:chunk=3:block=2,4:empty=uniform:alibi=batch-head:scale=heads:dlse:dslopes:dscale";
    b = built(text);
    assert_true(b.p.mask.chunk == 3 && b.p.mask.block_q == 2 && b.p.mask.block_kv == 4);
    assert_memory_equal(b.t.block_mask.stride, ((int64_t[4]){4 * 3 * 3, 3 * 3, 3, 1}), sizeof b.t.block_mask.stride);
    assert_true(b.p.mask.empty == ATTN_EMPTY_UNIFORM && b.t.alibi_slopes.stride[0] == 4);
    assert_int_equal(b.p.score.scale_kind, ATTN_SCALE_DEFAULT);
    assert_tensors(text, "q k v o lse block_mask scale alibi_slopes grad_o grad_lse grad_q grad_k grad_v grad_scale "
                         "grad_alibi_slopes");

    assert_int_equal(built("sq5:d4:score=cosine").p.score.kind, ATTN_SCORE_COSINE);
    assert_int_equal(built("bwd:sq5:d4:score=distance").p.score.kind, ATTN_SCORE_DISTANCE);
    assert_tensors("bwd:sq5:d4:score=additive", "q k v o lse score_matrix grad_o grad_q grad_k grad_v grad_score_matrix");
    assert_int_equal(built("sq5:d4:normaliser=relu").p.score.normaliser, ATTN_NORMALISER_RELU);
    assert_true(built("sq5:d4:normaliser=sigmoid:shift=-1.5").p.score.shift == -1.5);
    assert_int_equal(built("sq5:d4:score=additive/4").p.score.kind, ATTN_SCORE_ADDITIVE);
    b = built("bwd:hq2:sq5:skv9:d4:layout=bshd:score=general/6:w=heads");
    assert_true(b.p.score.kind == ATTN_SCORE_GENERAL && b.p.score.dim_k == 6 && b.t.score_matrix.stride[1] == 24);
    assert_true(b.t.k.stride[2] == 12 && b.t.grad_k.stride[1] == 6 && b.t.q.stride[1] == 4);
    b = built("hq2:sq5:d4:score=metric/2");
    assert_true(b.p.score.kind == ATTN_SCORE_METRIC && b.p.score.dim_metric == 2);
    assert_true(b.t.score_matrix.stride[1] == 0 && !b.t.grad_score_matrix.data);
    assert_true(built("sq5:d4:score=additive:w=bias").p.score.additive_bias);
    b = built("hq2:sq5:d4:t5=causal/12/40:shared");
    assert_true(b.p.bias_table.causal && b.p.bias_table.buckets == 12 && b.p.bias_table.max_distance == 40);
    assert_true(tensors_broadcasts(&b.t, TENSOR(bias_table), 1));
    b = built("hq2:sq5:skv9:d4:rel=full:shared"); /* distances p_i - j from -8 to 4; with the last query at the last key -4 to 8 */
    assert_true(b.p.relative.first == -8 && b.p.relative.rows == 13 && tensors_broadcasts(&b.t, TENSOR(relative_keys), 1));
    assert_tensors("sq5:skv9:d4:rel=full:shared", "q k v o relative_keys");
    assert_true(built("sq5:skv9:d4:rel=full:causal=bottom-right").p.relative.first == -4);
    assert_true(built("sq5:skv9:d4:rel=xl:offset=7").p.relative.first == -1);
    assert_tensors("sq5:d4:rel=xl", "q k v o relative_keys relative_u relative_v");
    b = built("jvp:sq5:d4:bias=h1:layout=bshd");
    assert_tensors("jvp:sq5:d4:bias=h1:layout=bshd", "q k v o lse bias tan_q tan_k tan_v tan_bias tan_o tan_lse");
    assert_true(b.t.tan_bias.stride[1] == ATTN_BROADCAST && b.t.tan_o.stride[1] == 4);
    assert_tensors("bwd2:sq5:d4", "q k v o lse grad_o tan_q tan_k tan_v second_grad_o second_q second_k second_v second_grad_lse");
    assert_tensors("bwd2:hq2:sq5:d4:bias:dlse",
                   "q k v o lse bias grad_o grad_lse tan_q tan_k tan_v tan_bias second_grad_o second_q "
                   "second_k second_v second_bias second_grad_lse");

    static const struct {
        const char *text, *message;
    } wrong[] = {{"bwd:sq5:d4:dbias", "dbias needs bwd and bias: it is the gradient of the bias"},
                 {"sq5:d4:alibi:dslopes", "dslopes needs bwd and alibi: it is the gradient of its slopes"},
                 {"bwd:sq5:d4:dsink", "dsink needs bwd and sink: it is the gradient of the sink"},
                 {"bwd:sq5:d4:dscale", "dscale needs bwd and scale=heads: it is the gradient of the scale of each head"},
                 {"sq5:d4:prefix=4", "prefix needs page: sequences share the pages of their first keys"},
                 {"sq5:d4:page=4:prefix=3", "prefix=3 is not a multiple of page=4: sequences share whole pages"},
                 {"sq5:d4:page=3:prefix=6", "prefix=6: there are only 5 keys, of which these are the first"},
                 {"sq5:d4:tree=6", "tree=6: there are only 5 keys, of which drafts are the last"},
                 {"sq5:d4:dlse", "dlse needs bwd or bwd2: it is an incoming gradient"}};
    for (size_t k = 0; k < COUNT(wrong); k++) {
        assert_int_equal(problem_parse(wrong[k].text, &spec, &error), ATTN_OK);
        assert_int_equal(problem_build(&spec, &problem, &tensors, &error), ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, wrong[k].message);
    }
    assert_int_equal(problem_parse("sq5:d4:rope", &spec, &error), ATTN_OK);
    assert_int_equal(problem_build(&spec, &problem, &tensors, &error), ATTN_ERR_UNSUPPORTED);
}

static void rejects_sizes_that_overflow(void **state)
{
    (void)state;
    problem_spec spec;
    attn_problem problem;
    attn_tensors tensors;
    attn_error error;
    assert_int_equal(problem_parse("sq4294967296:d4294967296:layout=bshd", &spec, &error), ATTN_OK);
    assert_int_equal(problem_build(&spec, &problem, &tensors, &error), ATTN_ERR_SHAPE);
    assert_string_equal(error.message, "a tensor of 1 x 1 x 4294967296 x 4294967296 elements is too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_problems),
        cmocka_unit_test(builds_formats),
        cmocka_unit_test(builds_batches_of_engines),
        cmocka_unit_test(draws_batches_of_engines),
        cmocka_unit_test(builds_what_the_library_has),
        cmocka_unit_test(rejects_sizes_that_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
