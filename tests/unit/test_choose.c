/* SPDX-License-Identifier: MIT
 *
 * test_choose.c - which kernel and how many threads a plan gets, on a simulated CPU.  Linked with --wrap, so that the test sets the
 * CPU features and the list of kernels; nothing is executed.
 */
#define _GNU_SOURCE /* sched_setaffinity */
#include "small.h"

#include <sched.h>

#include "base/cpu.h"
#include "kernels/registry.h"

/* --wrap requires these names. */
uint32_t __wrap_attn_cpu_features(void);
const attn_kernel_row *__wrap_attn_kernel_rows(int *count);
const attn_kernel_row *__real_attn_kernel_rows(int *count);

static uint32_t features; /* of the CPU */
static unsigned hidden;   /* a bit for each attn_isa that the build is to lack */

uint32_t __wrap_attn_cpu_features(void) { return features; }

const attn_kernel_row *__wrap_attn_kernel_rows(int *count)
{
    static attn_kernel_row shown[256];
    int all;
    const attn_kernel_row *rows = __real_attn_kernel_rows(&all);
    assert_in_range(all, 1, 256);
    *count = 0;
    for (int i = 0; i < all; i++)
        if (!(hidden >> rows[i].isa & 1)) shown[(*count)++] = rows[i];
    return shown;
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
    const char *kernel; /* or, if status is an error, the message */
    const char *why;
} choice;

static const choice choices[] = {
    {0, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "best of 1 usable on this CPU"},
    {0, 0, "", 0, ATTN_F64, ATTN_OK, "attn_fwd_f64_scalar", "best of 1 usable on this CPU"},
    {AVX512 | ATTN_CPU_NEON, 0, "scalar", 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_scalar", "capped by ATTN_ISA=scalar"},
    {AVX512, 0, "scalar", ATTN_ISA_SCALAR, ATTN_F16, ATTN_OK, "attn_fwd_f32_scalar", "requested by options.isa"},
    {0, 1u << ATTN_ISA_AVX2, NULL, ATTN_ISA_AVX2, ATTN_F32, ATTN_ERR_UNSUPPORTED, "this build has no kernel for f32 on avx2", 0},
    {0, ~0u, NULL, 0, ATTN_F64, ATTN_ERR_UNSUPPORTED, "this build has no kernel for f64 on default", 0},
    {0, 0, "sse9", 0, ATTN_F32, ATTN_ERR_ARGUMENT,
     "the environment variable ATTN_ISA is 'sse9'; known: scalar, avx2, avx512, neon, wasm128", 0},
#if defined(__x86_64__)
    {AVX512, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {AVX512, 0, NULL, 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {PAIRS, 0, NULL, 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx512_bf16",
     "best of 4 usable on this CPU; scores are products of bf16"},
    {PAIRS, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {PAIRS, 0, NULL, 0, ATTN_F16, ATTN_OK, "attn_fwd_f32_avx512", "best of 3 usable on this CPU"},
    {PAIRS, 0, "avx2", 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx2", "capped by ATTN_ISA=avx2"},
    {PAIRS, 0, NULL, ATTN_ISA_AVX512, ATTN_BF16, ATTN_OK, "attn_fwd_f32_avx512_bf16",
     "requested by options.isa; scores are products of bf16"},
    {AVX2, 0, NULL, 0, ATTN_F64, ATTN_OK, "attn_fwd_f64_avx2", "best of 2 usable on this CPU"},
    {AVX2 & ~(uint32_t)ATTN_CPU_F16C, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "best of 1 usable on this CPU"},
    {AVX512, 0, "avx2", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx2", "capped by ATTN_ISA=avx2"},
    {AVX2, 0, "avx512", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx2", "best of 2 usable on this CPU"},
    {AVX512, 0, "scalar", ATTN_ISA_AVX512, ATTN_F32, ATTN_OK, "attn_fwd_f32_avx512", "requested by options.isa"},
    {AVX2, 0, NULL, ATTN_ISA_AVX512, ATTN_F64, ATTN_ERR_UNSUPPORTED, "this CPU cannot run the kernel for f64 on avx512", 0},
    {AVX512, 0, "neon", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "capped by ATTN_ISA=neon"},
    {AVX512, 0, NULL, ATTN_ISA_NEON, ATTN_F32, ATTN_ERR_UNSUPPORTED, "this build has no kernel for f32 on neon", 0},
    {AVX512, 0, "wasm128", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "capped by ATTN_ISA=wasm128"},
    {AVX512, 0, NULL, ATTN_ISA_WASM128, ATTN_F32, ATTN_ERR_UNSUPPORTED, "this build has no kernel for f32 on wasm128", 0},
#elif defined(__aarch64__)
    {ATTN_CPU_NEON, 0, NULL, 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_neon", "best of 2 usable on this CPU"},
    {ATTN_CPU_NEON, 0, NULL, 0, ATTN_F64, ATTN_OK, "attn_fwd_f64_neon", "best of 2 usable on this CPU"},
    {ATTN_CPU_NEON, 0, "neon", 0, ATTN_BF16, ATTN_OK, "attn_fwd_f32_neon", "best of 2 usable on this CPU"},
    {ATTN_CPU_NEON, 0, "scalar", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "capped by ATTN_ISA=scalar"},
    {ATTN_CPU_NEON, 0, "wasm128", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "capped by ATTN_ISA=wasm128"},
    {ATTN_CPU_NEON, 0, "avx512", 0, ATTN_F32, ATTN_OK, "attn_fwd_f32_scalar", "capped by ATTN_ISA=avx512"},
    {ATTN_CPU_NEON, 0, "scalar", ATTN_ISA_NEON, ATTN_F32, ATTN_OK, "attn_fwd_f32_neon", "requested by options.isa"},
    {ATTN_CPU_NEON, 0, NULL, ATTN_ISA_AVX2, ATTN_F32, ATTN_ERR_UNSUPPORTED, "this build has no kernel for f32 on avx2", 0},
#endif
};

/* Resolved options choose the same kernel, whatever the environment is later. */
static void check_resolved(size_t row, const choice *c, small *s, const attn_options *resolved)
{
    attn_plan_description description = {.struct_size = sizeof description};
    attn_error error;
    attn_plan *plan;
    setenv("ATTN_ISA", "sse9", 1), setenv("ATTN_THREADS", "none", 1);
    const attn_status status = attn_plan_create(&plan, &s->problem, &s->tensors, resolved, &error);
    unsetenv("ATTN_ISA"), unsetenv("ATTN_THREADS");
    if (status != c->status || (status != ATTN_OK && strcmp(error.message, c->kernel) != 0))
        fail_msg("row %zu, resolved: status %d: %s", row, (int)status, error.message);
    if (status != ATTN_OK) return;
    assert_int_equal(attn_plan_describe(plan, &description, &error), ATTN_OK);
    assert_string_equal(description.kernel, c->kernel);
    attn_plan_destroy(plan);
}

static void test_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const choice *c = &choices[i];
        attn_plan_description description = {.struct_size = sizeof description};
        attn_options resolved = {.struct_size = sizeof resolved};
        attn_error error;
        attn_plan *plan;
        small s;

        small_init(&s);
        s.tensors.q.dtype = c->dtype;
        s.problem.shape.len_q = 40; /* not few */
        s.options.isa = c->isa;
        features = c->features;
        hidden = c->hidden;
        if (c->variable) setenv("ATTN_ISA", c->variable, 1);
        const attn_status resolved_status = attn_options_resolve(&s.options, &resolved, NULL);
        attn_status status = attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, &error);
        unsetenv("ATTN_ISA");

        assert_int_equal(resolved_status, c->status);
        if (resolved_status == ATTN_OK) check_resolved(i, c, &s, &resolved);
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

/* Whatever has a name can be requested in both ways, and is listed where what is unknown is rejected. */
static void test_every_name(void **state)
{
    attn_options options = {.struct_size = sizeof options, .isa = (attn_isa)99}, resolved = {.struct_size = sizeof resolved};
    attn_error of_options, of_variable;
    char listed[32];
    (void)state;
    hidden = features = 0;
    assert_int_equal(attn_options_resolve(&options, &resolved, &of_options), ATTN_ERR_ARGUMENT);
    options.isa = ATTN_ISA_DEFAULT;
    setenv("ATTN_ISA", "sse9", 1);
    assert_int_equal(attn_options_resolve(&options, &resolved, &of_variable), ATTN_ERR_ARGUMENT);
    unsetenv("ATTN_ISA");
    for (int isa = ATTN_ISA_SCALAR; strcmp(attn_isa_name((attn_isa)isa), "unknown") != 0; isa++) {
        const char *name = attn_isa_name((attn_isa)isa);
        snprintf(listed, sizeof listed, "%d (%s)", isa, name);
        setenv("ATTN_ISA", name, 1);
        const attn_status variable = attn_options_resolve(NULL, &resolved, NULL);
        unsetenv("ATTN_ISA");
        options.isa = (attn_isa)isa;
        if (attn_options_resolve(&options, &resolved, NULL) == ATTN_ERR_ARGUMENT) fail_msg("options.isa cannot be %s", listed);
        if (!strstr(of_options.message, listed)) fail_msg("no %s in: %s", listed, of_options.message);
        if (variable != ATTN_OK) fail_msg("ATTN_ISA cannot be %s", name);
        if (!strstr(of_variable.message, name)) fail_msg("no %s in: %s", name, of_variable.message);
    }
}

/* ---- threads ---- */

static void set(const char *name, const char *value)
{
    if (value) assert_int_equal(setenv(name, value, 1), 0);
    else assert_int_equal(unsetenv(name), 0);
}

static int cpus_now(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static void test_threads(void **state)
{
    static const struct {
        const char *ours, *openmp;
        int threads; /* 0: the CPUs; -1: an error */
    } rows[] = {
        {NULL, NULL, 0},  {"", "", 0},       {"3", NULL, 3},     {"1024", "5", 1024}, {NULL, "5", 5},   {NULL, "7,2", 7},
        {NULL, "0", 0},   {NULL, "many", 0}, {NULL, "-2", 0},    {"0", "5", -1},      {"-1", NULL, -1}, {"1025", "5", -1},
        {"3x", NULL, -1}, {"two", "5", -1},  {NULL, "99999", 0}, {"3,4", NULL, -1},
    };
    (void)state;
    features = AVX2;
    hidden = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attn_cpu_description cpu = {.struct_size = sizeof cpu};
        attn_error error;
        attn_plan *plan;
        char message[120];
        small s;
        small_init(&s);
        set("ATTN_THREADS", rows[i].ours), set("OMP_NUM_THREADS", rows[i].openmp);
        attn_options resolved = {.struct_size = sizeof resolved};
        const attn_status resolved_status = attn_options_resolve(NULL, &resolved, NULL), status = attn_cpu_describe(&cpu, &error),
                          planned = attn_plan_create(&plan, &s.problem, &s.tensors, NULL, NULL);
        attn_plan_destroy(plan);
        if (rows[i].threads < 0) {
            (void)snprintf(message, sizeof message,
                           "the environment variable ATTN_THREADS is '%s'; it must be a number from 1 to 1024", rows[i].ours);
            assert_int_equal(planned, ATTN_ERR_ARGUMENT);
            assert_int_equal(status, ATTN_ERR_ARGUMENT);
            assert_int_equal(resolved_status, ATTN_ERR_ARGUMENT);
            assert_int_equal(resolved.threads, 0); /* untouched */
            assert_string_equal(error.message, message);
            s.options.threads = 2; /* then the variable is not read */
            assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, NULL), ATTN_OK);
            attn_plan_destroy(plan);
        } else if (status != ATTN_OK || planned != ATTN_OK || cpu.threads != (rows[i].threads ? rows[i].threads : cpus_now())) {
            fail_msg("row %zu: %d threads: %s", i, cpu.threads, error.message);
        } else {
            assert_int_equal(resolved_status, ATTN_OK);
            assert_int_equal(resolved.threads, cpu.threads);
        }
    }
    set("ATTN_THREADS", NULL), set("OMP_NUM_THREADS", NULL);
}

/* A process that may run on one CPU only has one thread. */
static void test_affinity(void **state)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    cpu_set_t before, one;
    size_t first = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET(first, &before)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cpu.threads, 1);
}

/* ---- few queries ---- */

static void everything(small *s)
{
    s->problem.mask.causal = s->problem.mask.window = 1;
    s->tensors.sink.data = s->tensors.alibi_slopes.data = ATTN_LATER;
    s->problem.score.softcap = 20;
    s->problem.mask.chunk = 4;
}

/* The plan has this kernel, for this reason; why NULL: for any. */
static void expect_kernel(const small *s, const char *kernel, const char *why, int line)
{
    attn_plan_description description = {.struct_size = sizeof description};
    attn_error error;
    attn_plan *plan;
    if (attn_plan_create(&plan, &s->problem, &s->tensors, &s->options, &error) != ATTN_OK)
        fail_msg("line %d: %s", line, error.message);
    assert_int_equal(attn_plan_describe(plan, &description, &error), ATTN_OK);
    if (strcmp(description.kernel, kernel) != 0) fail_msg("line %d: %s instead of %s", line, description.kernel, kernel);
    if (why && strcmp(description.why, why) != 0) fail_msg("line %d: '%s' instead of '%s'", line, description.why, why);
    attn_plan_destroy(plan);
}

static void test_few(void **state)
{
    small s;
    (void)state;
    hidden = features = 0;
#define INVARIANT "; options.invariant: walks in the order of tiles, at most 1.15 times their time (decode 1.3)"
#define CHOOSES(change, kernel, why)                                                                                               \
    (small_init(&s), s.tensors.weights = (attn_output){0}, change,                                                                 \
     expect_kernel(&s, kernel, "best of 1 usable on this CPU" why, __LINE__))
#define DECODES(change, why) CHOOSES(change, "attn_dec_f32_scalar", why)
#define TILES(change, why)   CHOOSES(change, "attn_fwd_f32_scalar", why)
    DECODES((void)0, "; decode, since a key head has few queries");
    DECODES(everything(&s), "; decode, since a key head has few queries");
    DECODES((s.problem.shape.heads_q = 32, s.problem.shape.len_q = 1), "; decode, since a key head has few queries");
    DECODES(s.options.invariant = 1, "; decode in the order of tiles" INVARIANT);
    TILES((s.options.invariant = 1, s.problem.dropout.probability = 0.5), INVARIANT);
    TILES((s.problem.shape.heads_q = 24, s.problem.shape.heads_kv = 2), "; each sequence by its length, in 2 walks"); /* 36 rows */
    TILES((s.problem.shape.heads_q = 24, s.problem.shape.heads_kv = 2, s.tensors.lengths_q = (attn_input){0}), "");
    TILES((s.problem.shape.heads_q = 2, s.problem.shape.len_q = 40), "; each sequence by its length, in 2 walks");
    TILES(s.problem.shape.len_q = 0, "");
    CHOOSES(small_backward(&s), "attn_bwd_f32_scalar", "");
    TILES(s.problem.score.kind = ATTN_SCORE_COSINE, "; tiles, since scores are of prepared rows");
    TILES((s.problem.score.kind = ATTN_SCORE_ADDITIVE, s.tensors.score_matrix.data = ATTN_LATER),
          "; tiles, since scores are additive");
    TILES(s.problem.score.normaliser = ATTN_NORMALISER_SIGMOID, "; tiles, since weights are not a softmax");
    TILES(s.problem.dropout.probability = 0.5, "; tiles, since dropout is requested");
    TILES((s.tensors.block_mask.data = ATTN_LATER, s.problem.mask.block_q = s.problem.mask.block_kv = 2),
          "; tiles, since a block mask is given");
    TILES(s.problem.mask.dilation = 2, "; tiles, since keys are dilated");
    TILES(s.problem.mask.global_kv = 1, "; tiles, since there are global tokens");
    TILES(s.problem.mask.empty = ATTN_EMPTY_UNIFORM, "; tiles, since fully masked rows are uniform");
    TILES(s.tensors.weights.data = ATTN_LATER, "; tiles, since weights or scores are requested");
    TILES((s.problem.outputs.topk = 2, s.tensors.topk_index.data = ATTN_LATER), "; tiles, since statistics of rows are requested");
}

#if defined(__x86_64__)
/* The description counts the kernels of the chosen walk, of which decode has one more. */
static void test_counted(void **state)
{
    (void)state;
    hidden = 0;
    features = AVX512 | ATTN_CPU_AVX512_VNNI;
    for (int few = 0; few < 2; few++) {
        small s;
        small_init(&s);
        s.tensors.weights = (attn_output){0};
        s.tensors.lengths_q = s.tensors.lengths_kv = (attn_input){0};
        if (!few) s.problem.shape.len_q = 40;
        expect_kernel(&s, few ? "attn_dec_f32_avx512_vnni" : "attn_fwd_f32_avx512",
                      few ? "best of 4 usable on this CPU; decode, since a key head has few queries"
                          : "best of 3 usable on this CPU",
                      __LINE__);
    }
}

/* Scores are products of bf16 if all their inputs are bf16. */
static void test_pairs(void **state)
{
    small s;
    (void)state;
    hidden = 0;
    features = PAIRS;
#define BF16(change, kernel)                                                                                                       \
    (small_init(&s), s.tensors.q.dtype = ATTN_BF16, s.tensors.weights = (attn_output){0}, s.problem.shape.len_q = 40, change,      \
     expect_kernel(&s, kernel, NULL, __LINE__))
    BF16(s.problem.shape.heads_q = 2, "attn_fwd_f32_avx512_bf16");
    BF16((everything(&s), s.problem.shape.len_q = SMALL_SQ), "attn_dec_f32_avx512_bf16");
    BF16((s.tensors.k.dtype = ATTN_F32, s.problem.shape.len_q = 2), "attn_dec_f32_avx512");
    BF16(s.problem.score.softcap = 20, "attn_fwd_f32_avx512_bf16");
    BF16(s.tensors.v.dtype = ATTN_F32, "attn_fwd_f32_avx512_bf16");
    BF16(s.tensors.k.dtype = ATTN_F32, "attn_fwd_f32_avx512");
    BF16(small_backward(&s), "attn_bwd_f32_avx512_bf16");
    BF16((small_backward(&s), s.tensors.v.dtype = ATTN_F32), "attn_bwd_f32_avx512");
    BF16((small_backward(&s), s.tensors.grad_o.dtype = ATTN_F32), "attn_bwd_f32_avx512");
    BF16(s.problem.score.kind = ATTN_SCORE_COSINE, "attn_fwd_f32_avx512");
    BF16((s.problem.relative.rows = 2, s.tensors.relative_keys.data = ATTN_LATER), "attn_fwd_f32_avx512");
    BF16((s.problem.op = ATTN_JVP, s.tensors.tan_o.data = ATTN_LATER), "attn_jvp_f32_avx512");
}
#endif

/* attn_cpu_describe and attn_kernel_describe describe the same CPU and the same list. */
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
        /* additional kernels of an instruction set */
        const int vnni = strcmp(kernel.name, "attn_dec_f32_avx512_vnni") == 0, pairs = strstr(kernel.name, "_bf16") != NULL;
        const char *needs = kernel.isa == ATTN_ISA_SCALAR ? ""
                            : kernel.isa == ATTN_ISA_AVX2 ? "avx2 fma f16c"
                            : kernel.isa == ATTN_ISA_NEON ? "neon"
                            : vnni                        ? "avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_vnni"
                            : pairs                       ? "avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_bf16"
                                                          : "avx2 fma f16c avx512f avx512bw avx512dq avx512vl";
        assert_string_equal(kernel.needs, needs);
        forward -= vnni || (pairs && kernel.op == ATTN_FORWARD);
    }
#if defined(__x86_64__)
    assert_string_equal(cpu.features, "avx2 fma f16c");
    assert_int_equal(cpu.isa, ATTN_ISA_AVX2);
    assert_int_equal(3 * usable, 2 * forward); /* every kernel exists for three instruction sets, two of which are usable */
#else
    assert_int_equal(cpu.isa, ATTN_ISA_SCALAR);
#if !defined(__aarch64__)
    assert_int_equal(usable, forward);
#else
    assert_int_equal(2 * usable, forward); /* features lacks NEON */
    features = ATTN_CPU_NEON;
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    assert_string_equal(cpu.features, "neon");
    assert_int_equal(cpu.isa, ATTN_ISA_NEON);
#endif
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_every_name),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_few),
#if defined(__x86_64__)
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_pairs),
#endif
        cmocka_unit_test(test_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
