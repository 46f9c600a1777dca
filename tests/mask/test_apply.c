/* SPDX-License-Identifier: MIT
 * test_apply.c - attention with the mask fields that a set of patterns fills in sees the pairs of the set, and skips empty tiles.
 */
#include "test.h"

#include "attn/mask.h"
#include "draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct attention {
    attn_problem problem;
    attn_tensors tensors;
    double *q, *k, *v, *o, *weights;
} attention;

static double *numbers(int64_t n, int64_t factor)
{
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = sin((double)(i * factor));
    return x;
}

/* Two heads, in f64, with weights. */
static attention attention_make(int64_t len_q, int64_t len_kv)
{
    attention a = {.problem = {.struct_size = sizeof a.problem, .shape = {1, 2, 1, len_q, len_kv, 3, 2}},
                   .tensors = {.struct_size = sizeof a.tensors}};
    a.q = numbers(2 * len_q * 3, 1), a.k = numbers(len_kv * 3, 2), a.v = numbers(len_kv * 2, 3);
    a.o = numbers(2 * len_q * 2, 0), a.weights = numbers(2 * len_q * len_kv, 0);
    a.tensors.q = (attn_input){a.q, ATTN_F64, {0, 0, 0, 0}};
    a.tensors.k = attn_in(a.k), a.tensors.v = attn_in(a.v);
    a.tensors.o = attn_out(a.o), a.tensors.weights = attn_out(a.weights);
    return a;
}

static void attention_free(attention *a) { free(a->q), free(a->k), free(a->v), free(a->o), free(a->weights); }

/* Fails unless weights are above 0 exactly for the pairs of the set.  Returns 1 if fields can express the set; otherwise its matrix
 * is tested. */
static int seen_as_said(const attn_pattern *patterns, int64_t count, int64_t len_q, int64_t len_kv)
{
    attn_pattern_set *set;
    attn_error error;
    char text[200] = "";
    describe(patterns, count, text, sizeof text);
    if (attn_pattern_set_create(&set, len_q, len_kv, count, patterns, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
    attention a = attention_make(len_q, len_kv), before = a;
    attn_status status = attn_pattern_set_apply(set, &a.problem, &a.tensors, &error);
    if (status != ATTN_OK) {
        assert_int_equal(status, ATTN_ERR_UNSUPPORTED);
        assert_memory_equal(&a.problem, &before.problem, sizeof a.problem);
        assert_memory_equal(&a.tensors, &before.tensors, sizeof a.tensors);
        static unsigned char keep[MAX_Q * MAX_KV]; /* then the matrix is used */
        const attn_output matrix = attn_out(keep);
        assert_int_equal(attn_pattern_set_fill(set, &matrix, NULL), ATTN_OK);
        a.tensors.mask = (attn_input){keep, ATTN_BOOL, {ATTN_BROADCAST, ATTN_BROADCAST, len_kv, 1}};
    }
    if (attn_compute(&a.problem, &a.tensors, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < len_q; i++)
            for (int64_t j = 0; j < len_kv; j++)
                if ((a.weights[(h * len_q + i) * len_kv + j] > 0) != attn_pattern_set_sees(set, i, j))
                    fail_msg("%s: query %d, key %d of %d x %d", text, (int)i, (int)j, (int)len_q, (int)len_kv);
    attention_free(&a);
    attn_pattern_set_destroy(set);
    return status == ATTN_OK;
}

/* Each kind on its own, and 400 sets of two or three patterns, most of which fields can express. */
static void test_what_is_seen(void **state)
{
    (void)state;
    int alone = 0, together = 0;
    draw_blocks();
    for (int64_t kind = ATTN_PATTERN_CAUSAL; kind <= LAST_KIND; kind++)
        for (int shape = 0; shape < 4; shape++) {
            const int64_t len_q = shape & 1 ? MAX_Q : 1 + below(MAX_Q), len_kv = shape & 2 ? MAX_KV : 1 + below(MAX_KV);
            const attn_pattern pattern = draw_pattern(kind, len_q, len_kv);
            int has_fields = seen_as_said(&pattern, 1, len_q, len_kv);
            expect_fields(kind, has_fields);
            alone += has_fields;
        }
    for (int n = 0; n < 400; n++) {
        const int64_t len_q = below(3) ? MAX_Q : 1 + below(MAX_Q), len_kv = below(3) ? MAX_KV : 1 + below(MAX_KV);
        attn_pattern patterns[3];
        const int64_t count = 2 + below(2);
        for (int64_t k = 0; k < count; k++) patterns[k] = draw_pattern(1 + below(LAST_KIND), len_q, len_kv);
        together += seen_as_said(patterns, count, len_q, len_kv);
    }
    print_message("fields express %d of %d single patterns and %d of 400 sets\n", alone, 4 * LAST_KIND, together);
    assert_true(together > 250);
}

/* A plan visits the tiles that have pairs, and less than 5 % more. */
static void test_what_is_skipped(void **state)
{
    (void)state;
    const attn_pattern patterns[] = {attn_pattern_global_local(256, 16), attn_pattern_radius(128), attn_pattern_strided(1000),
                                     attn_pattern_block_diagonal(512)};
    for (int k = 0; k < 4; k++) {
        attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, 8192, 8192, 64, 64}};
        attn_tensors tensors = {.struct_size = sizeof tensors,
                                .q = attn_in(ATTN_LATER),
                                .k = attn_in(ATTN_LATER),
                                .v = attn_in(ATTN_LATER),
                                .o = attn_out(ATTN_LATER)};
        attn_plan_description d = {.struct_size = sizeof d};
        attn_pattern_set *set;
        attn_pattern_set_counts count = {.struct_size = sizeof count};
        attn_plan *plan;
        assert_int_equal(attn_pattern_set_create(&set, 8192, 8192, 1, &patterns[k], NULL), ATTN_OK);
        assert_int_equal(attn_pattern_set_apply(set, &problem, &tensors, NULL), ATTN_OK);
        assert_int_equal(attn_plan_create(&plan, &problem, &tensors, NULL, NULL), ATTN_OK);
        assert_int_equal(attn_plan_describe(plan, &d, NULL), ATTN_OK);
        assert_int_equal(attn_pattern_set_count(set, d.tile_q, d.block_kv, &count, NULL), ATTN_OK);
        assert_int_equal(count.tiles, d.tiles_total);
        assert_true(d.tiles_visited >= count.tiles - count.tiles_empty);
        assert_true((double)d.tiles_visited < 1.05 * (double)(count.tiles - count.tiles_empty));
        assert_true(d.flops == 2.0 * 128 * (double)count.pairs);
        attn_plan_destroy(plan);
        attn_pattern_set_destroy(set);
    }
}

static void rejected(const attn_pattern *patterns, int64_t count, int field, attn_status status, const char *message)
{
    attn_pattern_set *set;
    attn_error error;
    attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, 8, 9, 4, 4}};
    attn_tensors tensors = {.struct_size = sizeof tensors};
    attn_mask *m = &problem.mask;
    attn_input *const slots[] = {&tensors.ranges,       &tensors.block_mask,    &tensors.mask,
                                 &tensors.cu_seqlens_q, &tensors.cu_seqlens_kv, &tensors.lengths_kv};
    if (field == 14) m->causal = 1;
    if (field == 15) tensors.ranges.stride[3] = 1; /* NULL with a stride, as after a failed allocation */
    if (field == 16) m->chunk = -3;
    const attn_origin origin = {.q = 4, .kv = 2};
    const attn_call call = {.struct_size = sizeof call, .origin = &origin};
    if (field == 17) tensors.call = &call;
    int64_t *const numbers_of[] = {&m->chunk, &m->global_kv, &m->dilation, &problem.shape.len_q, &m->block_q};
    if (field == 0) m->window = 1;
    if (field == 1) m->align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (field >= 2 && field < 8) *slots[field - 2] = attn_in(ATTN_LATER);
    if (field >= 8 && field < 13) *numbers_of[field - 8] = 7;
    if (field == 13) tensors.struct_size = 8;
    attn_problem before = problem;
    assert_int_equal(attn_pattern_set_create(&set, 8, 9, count, patterns, &error), ATTN_OK);
    assert_int_equal(attn_pattern_set_apply(set, &problem, &tensors, &error), status);
    assert_string_equal(error.message, message);
    assert_memory_equal(&before, &problem, sizeof problem);
    attn_pattern_set_destroy(set);
}

static void test_rejected(void **state)
{
    (void)state;
    const attn_pattern causal = attn_pattern_causal(), columns = attn_pattern_columns(2),
                       bottom_right = attn_pattern_causal_bottom_right();
    static const char *const used[] = {"mask.window",
                                       "mask.align",
                                       "ranges",
                                       "block_mask",
                                       "mask",
                                       "cu_seqlens_q",
                                       "cu_seqlens_kv",
                                       NULL,
                                       "mask.chunk",
                                       "mask.global_q or mask.global_kv",
                                       "mask.dilation",
                                       NULL,
                                       "mask.block_q, mask.block_kv or mask.block_entries"};
    for (int field = 0; field < 13; field++) {
        char message[200];
        if (!used[field]) continue;
        (void)snprintf(message, sizeof message, "%s is already in use; express it as a pattern of the set", used[field]);
        rejected(&columns, 1, field, ATTN_ERR_ARGUMENT, message);
    }
    rejected(&bottom_right, 1, 14, ATTN_ERR_ARGUMENT, "mask.causal is already in use; express it as a pattern of the set");
    rejected(&causal, 1, 15, ATTN_ERR_ARGUMENT, "ranges is already in use; express it as a pattern of the set");
    rejected(&causal, 1, 16, ATTN_ERR_ARGUMENT, "mask.chunk is already in use; express it as a pattern of the set");
    rejected(&causal, 1, 17, ATTN_ERR_ARGUMENT, "call.origin is at query 4 and key 2; a set of patterns begins at 0");
    rejected(&columns, 1, 13, ATTN_ERR_ARGUMENT, "attn_tensors.struct_size is 8; set it to sizeof(attn_tensors)");
    rejected(&bottom_right, 1, 7, ATTN_ERR_ARGUMENT,
             "causal bottom-right depends on the lengths of each batch entry; set mask.align instead");
    rejected(&causal, 1, 11, ATTN_ERR_ARGUMENT, "the patterns are for 8 x 9 and the problem has 7 queries and 9 keys");
    const attn_pattern fixed[] = {attn_pattern_causal_bottom_right(), attn_pattern_fixed(3, 1)}; /* of 8 x 9 */
    rejected(fixed, 2, -1, ATTN_ERR_UNSUPPORTED,
             "pattern 2 (fixed) needs a mask of len_q x len_kv in this set; attn_pattern_set_fill makes one for the tensor mask");
    const attn_pattern lifted[] = {attn_pattern_global_local(3, 1), attn_pattern_strided(2)};
    rejected(lifted, 2, -1, ATTN_ERR_UNSUPPORTED,
             "pattern 2 (strided) needs a mask of len_q x len_kv in this set; attn_pattern_set_fill makes one for the tensor mask");
    attn_error error;
    assert_int_equal(attn_pattern_set_apply(NULL, NULL, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "set is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_seen), cmocka_unit_test(test_what_is_skipped),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
