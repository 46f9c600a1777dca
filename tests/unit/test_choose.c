/* SPDX-License-Identifier: MIT
 *
 * test_choose.c - which kernel a plan gets, on a CPU of this test's making.  Linked with --wrap, so that CPU features and the
 * list of kernels are what the test says; nothing is executed.
 */
#include "small.h"

#include "base/cpu.h"
#include "kernels/kernel.h"

/* The names are the linker's. */
uint32_t __wrap_attn_cpu_features(void);
const attn_kernel_row *__wrap_attn_kernel_at(int index);
const attn_kernel_row *__real_attn_kernel_at(int index);

static uint32_t features; /* of the CPU */
static unsigned hidden;   /* a bit for each attn_isa that this build does not have */

uint32_t __wrap_attn_cpu_features(void) { return features; }

const attn_kernel_row *__wrap_attn_kernel_at(int index)
{
    const attn_kernel_row *row;
    for (int i = 0; (row = __real_attn_kernel_at(i)); i++)
        if (!(hidden >> row->isa & 1) && index-- == 0) return row;
    return NULL;
}

enum {
    AVX2 = ATTN_CPU_AVX2 | ATTN_CPU_FMA | ATTN_CPU_F16C,
    AVX512 = AVX2 | ATTN_CPU_AVX512F | ATTN_CPU_AVX512BW | ATTN_CPU_AVX512DQ | ATTN_CPU_AVX512VL,
    PAIRS = AVX512 | ATTN_CPU_AVX512_BF16
};

typedef struct choice {
    uint32_t features;
    unsigned hidden;
    const char *variable; /* ATTN_ISA */
    attn_isa isa;         /* options.isa */
    attn_dtype dtype;
    attn_status status;
    const char *kernel; /* or, where status says so, the message */
    const char *why;
} choice;

static const choice choices[] = {
    {0, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "best of 1 usable on this CPU"},
    {0, 0, "", 0, ATTN_F64, ATTN_OK, "attn_fwd_f64_scalar", "best of 1 usable on this CPU"},
    {AVX512, 0, "scalar", 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_scalar", "capped by ATTN_ISA=scalar"},
    {AVX512, 0, "scalar", ATTN_ISA_SCALAR, ATTN_F16, ATTN_OK, "attn_fwd_f32_scalar", "asked for by options.isa"},
    {0, 1u << ATTN_ISA_AVX2, NULL, ATTN_ISA_AVX2, ATTN_F32, ATTN_ERR_UNSUPPORTED, "this build has no kernel for f32 on avx2", 0},
    {0, ~0u, NULL, 0, ATTN_F64, ATTN_ERR_UNSUPPORTED, "this build has no kernel for f64 on default", 0},
    {0, 0, "sse9", 0, ATTN_F32, ATTN_ERR_ARGUMENT, "the environment variable ATTN_ISA is 'sse9'; known: scalar, avx2, avx512", 0},
#if defined(__x86_64__)
    {AVX512, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {AVX512, 0, NULL, 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {PAIRS, 0, NULL, 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx512_bf16",
     "best of 4 usable on this CPU; scores are products of bf16"},
    {PAIRS, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {PAIRS, 0, NULL, 0, ATTN_F16, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {PAIRS, 0, "avx2", 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx2", "capped by ATTN_ISA=avx2"},
    {PAIRS, 0, NULL, ATTN_ISA_AVX512, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx512_bf16",
     "asked for by options.isa; scores are products of bf16"},
    {AVX2, 0, NULL, 0, ATTN_F64, ATTN_OK, "attn_fwd_f64_avx2", "best of 2 usable on this CPU"},
    {AVX2 & ~(uint32_t)ATTN_CPU_F16C, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "best of 1 usable on this CPU"},
    {AVX512, 0, "avx2", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx2", "capped by ATTN_ISA=avx2"},
    {AVX2, 0, "avx512", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx2", "best of 2 usable on this CPU"},
    {AVX512, 0, "scalar", ATTN_ISA_AVX512, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx512", "asked for by options.isa"},
    {AVX2, 0, NULL, ATTN_ISA_AVX512, ATTN_F64, ATTN_ERR_UNSUPPORTED, "this CPU cannot run the kernel for f64 on avx512", 0},
#endif
};

static void test_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const choice *c = &choices[i];
        attn_plan_description description = {.struct_size = sizeof description};
        attn_error error;
        attn_plan *plan;
        small s;

        small_init(&s);
        s.problem.q.dtype = c->dtype;
        s.problem.shape.len_q = 9; /* not few */
        s.options.isa = c->isa;
        features = c->features;
        hidden = c->hidden;
        if (c->variable) setenv("ATTN_ISA", c->variable, 1);
        attn_status status = attn_plan_create(&plan, &s.problem, &s.options, &error);
        unsetenv("ATTN_ISA");

        if (status != c->status || (status != ATTN_OK && strcmp(error.message, c->kernel) != 0))
            fail_msg("row %zu: status %d: %s", i, (int)status, error.message);
        if (status != ATTN_OK) continue;
        assert_int_equal(attn_plan_describe(plan, &description, &error), ATTN_OK);
        if (strcmp(description.kernel, c->kernel) != 0 || strcmp(description.why, c->why) != 0)
            fail_msg("row %zu: %s (%s)", i, description.kernel, description.why);
        assert_int_equal(description.compute, c->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32);
        attn_plan_destroy(plan);
    }
}

/* ---- few queries ---- */

static void nothing_more(attn_problem *p) { (void)p; }
static void many_heads(attn_problem *p) { p->shape.heads_q = 12, p->shape.heads_kv = 2; } /* 18 rows */
static void one_query(attn_problem *p) { p->shape.heads_q = 32, p->shape.len_q = 1; }
static void five_queries(attn_problem *p) { p->shape.heads_q = 2, p->shape.len_q = 5; }
static void no_queries(attn_problem *p) { p->shape.len_q = 0; }
static void everything(attn_problem *p)
{
    p->mask.causal = p->mask.window = p->bias.sink = 1;
    p->bias.alibi = ATTN_ALIBI_HEAD;
    p->score.softcap = 20;
    p->mask.chunk = 4;
}
static void cosine(attn_problem *p) { p->score.kind = ATTN_SCORE_COSINE; }
static void additive(attn_problem *p) { p->score.kind = ATTN_SCORE_ADDITIVE; }
static void sigmoid(attn_problem *p) { p->score.normaliser = ATTN_NORMALISER_SIGMOID; }
static void dropout(attn_problem *p) { p->dropout.probability = 0.5; }
static void blocks(attn_problem *p) { p->mask.block = 1, p->mask.block_q = p->mask.block_kv = 2; }
static void dilation(attn_problem *p) { p->mask.dilation = 2; }
static void global(attn_problem *p) { p->mask.global_kv = 1; }
static void uniform(attn_problem *p) { p->mask.empty = ATTN_EMPTY_UNIFORM; }
static void weights(attn_problem *p) { p->want.weights = 1; }
static void top(attn_problem *p) { p->want.topk = 2; }
static void backward(attn_problem *p) { p->op = ATTN_BACKWARD; }

static void test_few(void **state)
{
    static const struct {
        void (*change)(attn_problem *p);
        const char *kernel, *why;
    } rows[] = {
        {nothing_more, "attn_dec_f32_scalar", "; decode, since a key head has few queries"},
        {everything, "attn_dec_f32_scalar", "; decode, since a key head has few queries"},
        {one_query, "attn_dec_f32_scalar", "; decode, since a key head has few queries"},
        {many_heads, "attn_fwd_f32_scalar", ""},
        {five_queries, "attn_fwd_f32_scalar", ""},
        {no_queries, "attn_fwd_f32_scalar", ""},
        {backward, "attn_bwd_f32_scalar", ""},
        {cosine, "attn_fwd_f32_scalar", "; tiles, since scores are of prepared rows"},
        {additive, "attn_fwd_f32_scalar", "; tiles, since scores are additive"},
        {sigmoid, "attn_fwd_f32_scalar", "; tiles, since weights are no softmax"},
        {dropout, "attn_fwd_f32_scalar", "; tiles, since dropout is asked for"},
        {blocks, "attn_fwd_f32_scalar", "; tiles, since a block mask is given"},
        {dilation, "attn_fwd_f32_scalar", "; tiles, since keys are dilated"},
        {global, "attn_fwd_f32_scalar", "; tiles, since tokens are global"},
        {uniform, "attn_fwd_f32_scalar", "; tiles, since empty rows are uniform"},
        {weights, "attn_fwd_f32_scalar", "; tiles, since weights or scores are wanted"},
        {top, "attn_fwd_f32_scalar", "; tiles, since more than O and lse is wanted"},
    };
    (void)state;
    hidden = features = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attn_plan_description description = {.struct_size = sizeof description};
        attn_error error;
        attn_plan *plan;
        char why[160];
        small s;
        small_init(&s);
        s.problem.want.weights = 0;
        rows[i].change(&s.problem);
        if (attn_plan_create(&plan, &s.problem, &s.options, &error) != ATTN_OK) fail_msg("row %zu: %s", i, error.message);
        assert_int_equal(attn_plan_describe(plan, &description, &error), ATTN_OK);
        (void)snprintf(why, sizeof why, "best of 1 usable on this CPU%s", rows[i].why);
        assert_string_equal(description.kernel, rows[i].kernel);
        assert_string_equal(description.why, why);
        attn_plan_destroy(plan);
    }
}

#if defined(__x86_64__)
static void mixed_keys(attn_problem *p) { p->k.dtype = ATTN_F32; }
static void few_mixed(attn_problem *p) { p->k.dtype = ATTN_F32, p->shape.len_q = 2; }
static void mixed_values(attn_problem *p) { p->v.dtype = ATTN_F32; }
static void mixed_gradient(attn_problem *p) { p->op = ATTN_BACKWARD, p->gradients.grad_o.dtype = ATTN_F32; }
static void mixed_backward(attn_problem *p) { p->op = ATTN_BACKWARD, p->v.dtype = ATTN_F32; }
static void capped(attn_problem *p) { p->score.softcap = 20; }
static void relative(attn_problem *p) { p->relative.keys = 1, p->relative.rows = 2; }
static void forward_mode(attn_problem *p) { p->op = ATTN_JVP; }

/* Scores are products of bf16 where nothing but bf16 goes into them. */
static void test_pairs(void **state)
{
    static const struct {
        void (*change)(attn_problem *p);
        const char *kernel;
    } rows[] = {
        {five_queries, "attn_fwd_f32_avx512_bf16"}, {everything, "attn_dec_f32_avx512_bf16"},
        {few_mixed, "attn_dec_f32_avx512"},         {capped, "attn_fwd_f32_avx512_bf16"},
        {mixed_values, "attn_fwd_f32_avx512_bf16"}, {mixed_keys, "attn_fwd_f32_avx512"},
        {backward, "attn_bwd_f32_avx512_bf16"},     {mixed_backward, "attn_bwd_f32_avx512"},
        {mixed_gradient, "attn_bwd_f32_avx512"},    {cosine, "attn_fwd_f32_avx512"},
        {relative, "attn_fwd_f32_avx512"},          {forward_mode, "attn_jvp_f32_avx512"},
    };
    (void)state;
    hidden = 0;
    features = PAIRS;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attn_plan_description description = {.struct_size = sizeof description};
        attn_error error;
        attn_plan *plan;
        small s;
        small_init(&s);
        s.problem.q.dtype = ATTN_BF16;
        s.problem.want.weights = 0;
        if (rows[i].change != everything) s.problem.shape.len_q = 9; /* not few */
        rows[i].change(&s.problem);
        if (attn_plan_create(&plan, &s.problem, &s.options, &error) != ATTN_OK) fail_msg("row %zu: %s", i, error.message);
        assert_int_equal(attn_plan_describe(plan, &description, &error), ATTN_OK);
        if (strcmp(description.kernel, rows[i].kernel) != 0) fail_msg("row %zu: %s", i, description.kernel);
        attn_plan_destroy(plan);
    }
}
#endif

/* attn_cpu_describe and attn_kernel_describe speak of the same CPU and the same list. */
static void test_described(void **state)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    int usable = 0, forward = 0, count = 0;
    (void)state;
    hidden = 0;
    features = AVX2;
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    for (; attn_kernel_describe(count, &kernel, NULL) == ATTN_OK; count++) {
        forward += kernel.op == ATTN_FORWARD;
        usable += kernel.op == ATTN_FORWARD && kernel.usable;
        /* second ones for their instruction set */
        const int vnni = strcmp(kernel.name, "attn_dec_f32_avx512_vnni") == 0, pairs = strstr(kernel.name, "_bf16") != NULL;
        const char *needs = kernel.isa == ATTN_ISA_SCALAR ? ""
                            : kernel.isa == ATTN_ISA_AVX2 ? "avx2 fma f16c"
                            : vnni                        ? "avx512f avx512bw avx512dq avx512vl avx512_vnni"
                            : pairs                       ? "avx512f avx512bw avx512dq avx512vl avx512_bf16"
                                                          : "avx512f avx512bw avx512dq avx512vl";
        assert_string_equal(kernel.needs, needs);
        forward -= vnni || (pairs && kernel.op == ATTN_FORWARD);
    }
#if defined(__x86_64__)
    assert_string_equal(cpu.features, "avx2 fma f16c");
    assert_int_equal(cpu.isa, ATTN_ISA_AVX2);
    assert_int_equal(3 * usable, 2 * forward); /* every kernel is there for three instruction sets, and two are left */
#else
    assert_int_equal(cpu.isa, ATTN_ISA_SCALAR);
    assert_int_equal(usable, forward);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_few),
#if defined(__x86_64__)
        cmocka_unit_test(test_pairs),
#endif
        cmocka_unit_test(test_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
