/* SPDX-License-Identifier: MIT
 *
 * test_kernels.c - every function of every kernel that this CPU can run, against plain loops.
 */

#include "../../src/core/base/cpu.h"
#include "kernel_test.h"

static int each_test(void **state)
{
    (void)state;
    seed(1);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, each_test)
static const struct CMUnitTest tests[] = {
    TEST(test_pack_query),
    TEST(test_load_rows),
    TEST(test_finish),
    TEST(test_store_all_patterns),
    TEST(test_weigh),
    TEST(test_score),
    TEST(test_score_same_bits),
    TEST(test_keep_range),
    TEST(test_seen),
    TEST(test_keep_mask),
    TEST(test_add_bias),
    TEST(test_bias_overflow),
    TEST(test_softcap),
    TEST(test_block_max),
    TEST(test_clear),
    TEST(test_exp),
    TEST(test_fold),
    TEST(test_fold_maximum),
    TEST(test_fold_same_bits),
    TEST(test_fold_hostile),
    TEST(test_fold_nan_safe),
    TEST(test_not_finite),
    TEST(test_transfer_rows),
    TEST(test_transfer_rotate),
    TEST(test_transfer_angles),
    TEST(test_transfer_quantise),
};

/* A kernel with pairs of bf16 inherits everything else. */
static const struct CMUnitTest bf16_tests[] = {TEST(test_pairs), TEST(test_score_pairs), TEST(test_pairs_seen)};

static const struct CMUnitTest decode_tests[] = {
    TEST(test_dots),
    TEST(test_dots_same_bits),
    TEST(test_weigh_row),
    TEST(test_add_values),
    TEST(test_fixed_point_dots),
    TEST(test_fixed_point_values),
    TEST(test_fixed_point_rows),
    TEST(test_unpacked_blocks),
    TEST(test_unpacked_f8),
    TEST(test_block_dots),
    TEST(test_block_values),
    TEST(test_gathered),
    TEST(test_nan_safe_row),
    TEST(test_modify_row),
    TEST(test_finish_row),
    TEST(test_order),
    TEST(test_order_edges),
    TEST(test_pair_dots),
};

static void test_cpu(void **state)
{
    char text[256], small[10];
    size_t l1d, l2, l3;
    (void)state;
    attn_cpu_feature_names(ATTN_CPU_AVX2 | ATTN_CPU_FMA | ATTN_CPU_AMX_INT8, text, sizeof text);
    assert_string_equal(text, "avx2 fma amx_int8");
    attn_cpu_feature_names(ATTN_CPU_AVX2 | ATTN_CPU_FMA | ATTN_CPU_AMX_INT8, small, sizeof small);
    assert_string_equal(small, "avx2 fma"); /* whole names only */
    attn_cpu_feature_names(0, small, 1);
    assert_string_equal(small, "");
    attn_cpu_name(text, sizeof text);
    assert_true(text[0] && text[0] != ' ');
    attn_cpu_name(small, 4);
    assert_memory_equal(small, text, 3);
    assert_int_equal(small[3], 0);
    attn_cpu_caches(&l1d, &l2, &l3);
    assert_true(!l1d || (l1d >= 4096 && l1d <= l2));
#if defined(__GNUC__) && defined(__x86_64__)
    __builtin_cpu_init();
    assert_int_equal(!!(attn_cpu_features() & ATTN_CPU_AVX2), !!__builtin_cpu_supports("avx2"));
    assert_int_equal(!!(attn_cpu_features() & ATTN_CPU_FMA), !!__builtin_cpu_supports("fma"));
#if !defined(ATTN_EMULATE_AVX512)
    assert_int_equal(!!(attn_cpu_features() & ATTN_CPU_AVX512F), !!__builtin_cpu_supports("avx512f"));
    assert_int_equal(!!(attn_cpu_features() & ATTN_CPU_AVX512VL), !!__builtin_cpu_supports("avx512vl"));
#endif
#endif
#if defined(__aarch64__)
    assert_int_equal(attn_cpu_features(), ATTN_CPU_NEON);
#endif
}

int main(void)
{
    const struct CMUnitTest common[] = {cmocka_unit_test(test_registry), cmocka_unit_test(test_cpu)};
    int failed = cmocka_run_group_tests_name("registry", common, NULL, NULL);
    for (int r = 0; attn_kernel_at(r); r++) {
        it.row = attn_kernel_at(r);
        if (it.row->op != ATTN_FORWARD) continue; /* the others are checked as a whole, against ref/ */
#if defined(ATTN_EMULATE_AVX512)
        if (it.row->isa != ATTN_ISA_AVX512) continue; /* kernels/native tests the others */
#endif
        attn_kernel_assemble(it.row, &it.kernel);
        it.decode = it.row->decode ? it.kernel.decode : NULL;
        it.compute = it.row->compute;
        it.lanes = it.kernel.lanes;
        it.vectors = it.kernel.vectors;
        it.tile = it.lanes * it.vectors;
        it.unit = it.compute == ATTN_F64 ? 0x1p-53 : 0x1p-24;
        it.lowest = it.compute == ATTN_F64 ? -0x1.fffffffffffffp+1023 : (double)-0x1.fffffep+127f;
        if (it.row->needs & ~attn_cpu_features()) {
            print_message("skipped: this CPU cannot run %s\n", it.row->name);
            continue;
        }
        const struct CMUnitTest *list = it.decode ? decode_tests : it.row->pairs ? bf16_tests : tests;
        const size_t bytes = it.decode ? sizeof decode_tests : it.row->pairs ? sizeof bf16_tests : sizeof tests;
        failed += _cmocka_run_group_tests(it.row->name, list, bytes / sizeof *list, NULL, NULL);
    }
    return failed ? 1 : 0;
}
