/* SPDX-License-Identifier: MIT
 *
 * test_make.c - `attn make`: its files have the tensors of `attn check`, bit for bit, and the line that it prints computes what
 * `attn check` computes: the numbers of that line are put in place of those of a check, which then judges them. */
#include "fnv.h"
#include "run_example.h"

#include "testing/case/linear_numbers.h"
#include "testing/case/sweep.h"
#include "testing/memory/element.h"
#include "testing/problem/linear_problem.h"
#include "testing/text/failure.h"
#include "testing/verdict/run.h"

/* Runs words in the folder; its output in `printed`, without the last newline.  Returns the exit status. */
static int execute(const char *words, char *printed, size_t size)
{
    char command[1600];
    snprintf(command, sizeof command, "cd %s && %s >printed 2>&1", folder, words);
    const int status = system(command);
    FILE *file = fopen(in_folder("printed"), "r");
    assert_non_null(file);
    const size_t length = fread(printed, 1, size - 1, file);
    fclose(file);
    printed[length - (length > 0 && printed[length - 1] == '\n')] = 0;
    return WEXITSTATUS(status);
}

/* `attn make`, then the line that it prints. */
static void make_and_run(const char *problem, char line[600])
{
    char words[1600], printed[600];
    snprintf(words, sizeof words, "%s make '%s' -o in.safetensors", ATTN_COMMAND, problem);
    if (execute(words, line, 600) != 0) fail_msg("%s", line);
    if (strncmp(line, "attn run in.safetensors -o out.safetensors", 42) != 0) fail_msg("%s: %s", problem, line);
    snprintf(words, sizeof words, "%s %s", ATTN_COMMAND, line + 5);
    if (execute(words, printed, sizeof printed) != 0 || printed[0]) fail_msg("%s: %s: %s", problem, line, printed);
}

/* ---- inputs ---- */

/* Every element of the check's tensor is where the file has it: axes of size 1 move nothing, with layout=bshd tokens come first. */
static void assert_input(const attn_archive *file, const check_call *call, const check_case *c, int t, const char *problem)
{
    const tensor *own = &call->in[t];
    const attn_archive_tensor *got = attn_archive_find(file, tensors_file_name(t));
    const int turned = c->spec.order == SPEC_BSHD && tensors_packs(t) &&
                       (tensors_about(t)->axes[3] != ATTN_AXIS_ONE || t == TENSOR(k_scale) || t == TENSOR(v_scale));
    const size_t size = attn_dtype_size(own->layout.dtype);
    int64_t n = 0, have[4];
    if (!got || got->dtype != own->layout.dtype) fail_msg("%s: no %s of its type", problem, tensors_file_name(t));
    for (int a = 0; a < 4; a++) have[a] = own->stride[a] == 0 && own->size[a] > 0 ? 1 : own->size[a];
    for (int64_t b = 0; b < have[0]; b++)
        for (int64_t x = 0; x < have[turned ? 2 : 1]; x++)
            for (int64_t y = 0; y < have[turned ? 1 : 2]; y++)
                for (int64_t e = 0; e < have[3]; e++, n++) {
                    const unsigned char *from = tensor_at(own, b, turned ? y : x, turned ? x : y, e);
                    const unsigned char *to = (const unsigned char *)got->data + (size_t)n * size;
                    const int same = own->layout.dtype == ATTN_BOOL ? *to == (*from != 0) : memcmp(from, to, size) == 0;
                    if (!same) fail_msg("%s: element %d of %s differs", problem, (int)n, tensors_file_name(t));
                }
    assert_int_equal(n * (int64_t)size, got->bytes);
}

/* ---- outputs ---- */

typedef struct replacement {
    const attn_archive *file;
    const check_call *call;
    const check_case *c;
    int count;
} replacement;

/* The number of a file at (b, h, i, e) of the library's tensor t; NAN past the end of a packed sequence. */
static double number_of(const replacement *r, const attn_archive_tensor *t, int slot, const int64_t shape[4], const int64_t at[4])
{
    const int keys = tensors_of_keys(slot), turned = r->c->spec.order == SPEC_BSHD && tensors_about(slot)->axes[3] != ATTN_AXIS_ONE;
    const int64_t *begin = keys ? r->call->expected.begin_kv : r->call->expected.begin_q;
    int64_t b = at[0], i = at[2], tokens = shape[2], n;
    if (begin && tensors_packs(slot)) {
        if (i >= begin[b + 1] - begin[b]) return NAN;
        i += begin[b];
        tokens = begin[r->call->problem.shape.batch];
        b = 0;
    }
    n = turned && tensors_packs(slot) ? (b * tokens + i) * shape[1] + at[1] : (b * shape[1] + at[1]) * tokens + i;
    n = n * shape[3] + at[3];
    return element_read(t->dtype, (const char *)t->data + (size_t)n * attn_dtype_size(t->dtype));
}

static void replace(check_outputs *out, void *context)
{
    replacement *r = context;
    for (int t = 0; t < TENSORS; t++) {
        const attn_archive_tensor *found = attn_archive_find(r->file, tensors_file_name(t));
        int64_t shape[4], n = 0, at[4];
        if (!out->numbers[t] || !found) continue;
        r->count++;
        tensors_shape(&r->call->problem, &r->call->tensors, t, shape);
        for (at[0] = 0; at[0] < shape[0]; at[0]++)
            for (at[1] = 0; at[1] < shape[1]; at[1]++)
                for (at[2] = 0; at[2] < shape[2]; at[2]++)
                    for (at[3] = 0; at[3] < shape[3]; at[3]++, n++) {
                        const double x = number_of(r, found, t, shape, at);
                        if (!isnan(x)) out->numbers[t][n] = x;
                    }
    }
}

/* The problem that `attn run` says it computed has the types of keys and values of this one. */
static void assert_types(const attn_archive *out, const check_case *c, const char *problem)
{
    static const char *const words[] = {":ktype=", ":vtype="};
    const char *said = attn_archive_get_metadata(out, "attn_problem");
    assert_non_null(said);
    for (int n = 0; n < 2; n++) {
        const char *own = strstr(problem, words[n]), *same = strstr(said, words[n]);
        const int like_q = problem_stored_dtype(&c->spec, TENSOR(k) + n) == problem_dtype(&c->spec);
        if (c->spec.dtype == SPEC_INT8 || like_q) continue;
        if (!own || !same || strncmp(own, same, strcspn(own + 1, ":") + 1) != 0) fail_msg("%s: run says %s", problem, said);
    }
}

static void assert_problem(const char *problem)
{
    char line[600];
    check_case c;
    check_call call;
    check_result result;
    attn_error error;
    if (case_parse(problem, &c, &error) != ATTN_OK || check_call_create(&call, &c, &error) != ATTN_OK)
        fail_msg("%s: %s", problem, error.message);
    make_and_run(problem, line);
    attn_archive *in = read_file("in.safetensors"), *out = read_file("out.safetensors");
    assert_string_equal(attn_archive_get_metadata(in, "attn_problem"), problem);
    int64_t inputs = 0;
    for (int t = 0; t < TENSORS; t++) {
        const int of_flag = (t == TENSOR(offset_q) && c.spec.offset_kind == SPEC_OFFSET_VALUE) ||
                            (c.spec.sparse[0] && ((t == TENSOR(mask) && !c.spec.mask) || t == TENSOR(ranges) ||
                                                  t == TENSOR(block_starts) || t == TENSOR(block_index)));
        if (!call.in[t].base || of_flag) continue;
        assert_input(in, &call, &c, t, problem);
        inputs++;
    }
    assert_int_equal(inputs, attn_archive_count(in));
    assert_types(out, &c, problem);
    replacement r = {out, &call, &c, 0};
    const check_setting setting = {.options = {.struct_size = sizeof setting.options}, .tamper = replace, .tamper_context = &r};
    check_run(&result, &call, &c, &setting);
    if (result.status != CHECK_PASSED) fail_msg("%s\n%s: %s", problem, line, result.reason);
    if (r.count < 1 + 2 * (c.spec.op == SPEC_BACKWARD)) fail_msg("%s: %d outputs", problem, r.count);
    attn_archive_destroy(in);
    attn_archive_destroy(out);
    check_call_destroy(&call);
}

static void equal_to_the_check_of_each_option(void **state)
{
    static const char *const problems[] = {
        "fwd:f32:sq4:d8",
        "fwd:f64:sq4:skv7:d8:dv3",
        "fwd:f16:hq2:sq5:d8:causal",
        "fwd:bf16:b2:hq4:hkv2:sq5:skv9:d8:causal=bottom-right:lse:weights",
        "fwd:int8:hq4:hkv2:sq3:skv9:d8",
        "fwd:f32:b2:hq2:sq4:skv6:d8:ktype=i8:layout=bshd",
        "fwd:f32:b2:hq2:sq4:skv6:d8:vtype=bf16",
        "fwd:f32:b2:hq2:sq5:d8:window=2,1:align=bottom-right",
        "fwd:f32:b2:hq2:sq5:d8:causal:offset=3",
        "fwd:f32:b2:hq2:sq5:d8:causal:offset:seed=9",
        "fwd:f32:sq5:d8:offset=3",
        "fwd:f32:b2:hq2:sq5:d8:mask=0.3/b1:bias=h1:seed=2",
        "fwd:f32:hq3:sq5:skv6:d8:mask=0.3/h1q1",
        "fwd:f32:sq5:skv6:d8:bias",
        "fwd:f32:b3:hq2:sq9:d8:lens",
        "fwd:f32:b3:hq2:sq9:d8:lens=kv:layout=bshd",
        "fwd:f32:b3:hq2:sq9:d8:causal:packed:layout=bshd",
        "fwd:f32:b3:hq4:hkv2:sq9:skv12:d8:bias:packed:ktype=i8",
        "fwd:f32:hq3:sq5:d8:scale=heads:softcap=2:temperature=1.5:sink",
        "fwd:f32:b2:hq3:sq5:d8:scale=-0.25:alibi=batch-head",
        "fwd:f32:hq3:sq5:d8:alibi",
        "fwd:f32:b2:hq2:sq8:d8:dropout=0.25:seed=5",
        "fwd:f32:hq2:sq8:d8:chunk=3:empty=uniform:mask=0.5",
        "fwd:f32:b2:hq2:sq8:d8:block=4,2/0.4",
        "fwd:f32:hq2:sq8:d8:sparse=longformer/4/1",
        "fwd:f32:hq2:sq6:d8:score=cosine:normaliser=sigmoid:shift=-1",
        "fwd:f32:hq2:sq6:d8:score=general/12:w=heads",
        "fwd:f32:hq2:sq6:d8:score=metric/3",
        "fwd:f32:hq2:sq6:d8:score=additive:w=heads-bias",
        "fwd:f32:sq6:d8:score=additive",
        "fwd:f32:hq2:sq6:d8:rel=xl:t5=causal/16/64",
        "fwd:f32:hq2:sq6:d8:rel=shaw-values/2:clipped=3:shared",
        "bwd:f32:b2:hq4:hkv2:sq8:d16:lens:sink:dlse:dsink:dbias:bias",
        "bwd:f32:b2:hq2:sq8:d8:causal:packed",
        "jvp:f32:hq2:sq6:d4:bias",
        "bwd2:f64:b2:sq4:d4:bias",
        "decode:f32:hq4:sq1:skv50:d8:causal=bottom-right",
        "fwd:f32:hq2:sq8:d8:causal:fill=huge:poison=nan:index=i32",
        "fwd:f32:hq2:sq8:d8:bias:biastype=f16",
    };
    (void)state;
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++) {
        check_case c;
        char canonical[CASE_TEXT];
        assert_int_equal(case_parse(problems[k], &c, NULL), ATTN_OK);
        case_print(&c, canonical, sizeof canonical);
        assert_problem(canonical);
    }
}

/* Random ones: those that `attn check` itself runs, as far as `attn run` has their words. */
static void equal_to_checks_of_the_sweep(void **state)
{
    sweep cases;
    int ran = 0;
    (void)state;
    assert_true(sweep_create(&cases, (sweep_tile){16, 64}, 7, 0));
    for (int64_t n = 0; n < cases.count; n += EVERY(cases.count / 60 + 1)) {
        check_case *c = &cases.cases[n];
        char problem[CASE_TEXT];
        c->memory = MEMORY_DENSE, c->o_dtype = 0;
        if (problem_stored(&c->spec, TENSOR(k)) > SPEC_STORED_I8 || problem_stored(&c->spec, TENSOR(v)) > SPEC_STORED_I8) continue;
        if (c->spec.page || c->spec.tree || c->spec.ragged || c->spec.schedule) continue;
        case_print(c, problem, sizeof problem);
        assert_problem(problem);
        ran++;
    }
    sweep_destroy(&cases);
    assert_true(ran >= 1);
}

/* ---- linear attention ---- */

typedef struct linear_call {
    attn_linear_problem problem;
    attn_linear_tensors tensors;
    random_state random;
    void *memory[LINEARS];
    attn_tensor_plan about[LINEARS];
} linear_call;

/* As `attn check` draws: forward's inputs in their order, then those of backward. */
static void *take_linear(void *context, int t, const attn_tensor_plan *about)
{
    linear_call *call = context;
    const size_t size = attn_dtype_size(about->dtype);
    char *memory = call->memory[t] = need_memory(about->bytes + 1, 1);
    call->about[t] = *about;
    for (int64_t n = 0; about->role == ATTN_ROLE_INPUT && n < about->bytes / (int64_t)size; n++) {
        const double x = linear_number(&call->problem, t, &call->random);
        (void)attn_convert(1, &x, ATTN_F64, memory + (size_t)n * size, about->dtype, NULL);
    }
    return memory;
}

static void execute_linear(linear_call *call, attn_op op)
{
    attn_linear_plan *plan = NULL;
    attn_error error;
    call->problem.op = op;
    if (linear_plan(&plan, &call->problem, &call->tensors, NULL, take_linear, call, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    const attn_linear_tensors some = linear_of_op(&call->problem, &call->tensors);
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = need_memory((int64_t)size + 1, 1);
    assert_int_equal(attn_linear_execute(plan, &some, workspace, size, &error), ATTN_OK);
    free(workspace);
    attn_linear_plan_destroy(plan);
}

/* Inputs and outputs have the bits of a call. */
static void equal_to_linear_attention(void **state)
{
    static const char *const problems[] = {
        "linear:f32:sq9:d8:causal:rule=delta",
        "linear:f64:b2:hq4:hkv2:sq9:d8:dv5:causal:decay=channel:seed=4",
        "linear:f32:sq1:d8:causal",
        "linear-bwd:f32:b2:hq2:sq9:d8:causal:phi=favor/16:decay=head:seed=3",
        "linear-bwd:f32:hq2:sq12:d8:causal:phi=identity:rule=low-rank:scale=-0.3",
        "linear-bwd:f16:hq2:sq12:skv7:d8:denominator=add:epsilon=0.5",
    };
    (void)state;
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++) {
        char line[600];
        problem_spec spec;
        linear_call call = {.random = {0}};
        int inputs = 0, written = 0;
        assert_int_equal(problem_parse(problems[k], &spec, NULL), ATTN_OK);
        assert_int_equal(linear_problem_build(&spec, &call.problem, &call.tensors, NULL), ATTN_OK);
        const attn_op op = call.problem.op;
        call.random = random_from(spec.seed);
        linear_request_states(&call.problem, &call.tensors);
        execute_linear(&call, ATTN_FORWARD);
        if (op == ATTN_BACKWARD) execute_linear(&call, ATTN_BACKWARD);
        make_and_run(problems[k], line);
        attn_archive *in = read_file("in.safetensors"), *out = read_file("out.safetensors");
        for (int t = 0; t < LINEARS; t++) {
            if (!call.memory[t] || t == LINEAR(denominators)) continue;
            const int given = call.about[t].role == ATTN_ROLE_INPUT;
            const attn_archive_tensor *got = attn_archive_find(given ? in : out, linear_file_name(t));
            if (!got && !given && t >= LINEAR(grad_decay)) continue; /* gradients that attn run does not write */
            if (!got || got->dtype != call.about[t].dtype || (int64_t)got->bytes != call.about[t].bytes)
                fail_msg("%s: no %s of its size", problems[k], linear_file_name(t));
            if (memcmp(got->data, call.memory[t], got->bytes) != 0) fail_msg("%s: %s differs", problems[k], linear_file_name(t));
            *(given ? &inputs : &written) += 1;
        }
        assert_int_equal(inputs, attn_archive_count(in));
        assert_true(written >= (op == ATTN_BACKWARD ? 4 : 2));
        attn_archive_destroy(in);
        attn_archive_destroy(out);
        for (int t = 0; t < LINEARS; t++) free(call.memory[t]);
    }
}

/* ---- seeds ---- */

/* Recorded: the same on every machine. */
static void same_bits_everywhere(void **state)
{
    static const struct {
        const char *problem;
        uint64_t expected;
    } rows[] = {{"fwd:f32:hq2:sq5:d8:causal", 0x2f1f58babe3f5dbau},
                {"bwd:f64:b2:hq2:sq9:d8:bias:lens:sink --seed=3", 0xc408d2e11e44d84fu},
                {"bwd:f64:b2:hq2:sq9:d8:bias:lens:sink:seed=3", 0xc408d2e11e44d84fu},
                {"fwd:int8:hq2:sq5:d8:mask=0.5 --seed=18446744073709551615", 0x293ffaf8ab3de38eu},
                {"linear:f32:sq5:d8:causal:phi=favor/8:decay=head", 0xc1d7dcfda4d320b0u}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char words[1000], line[600];
        snprintf(words, sizeof words, "%s make %s -o in.safetensors", ATTN_COMMAND, rows[k].problem);
        assert_int_equal(execute(words, line, sizeof line), 0);
        attn_archive *in = read_file("in.safetensors");
        uint64_t hash = FNV_START;
        for (int64_t n = 0; n < attn_archive_count(in); n++) {
            const attn_archive_tensor *t = attn_archive_at(in, n);
            hash = fnv_add(hash, t->name, strlen(t->name));
            hash = fnv_add(hash, t->data, t->bytes);
        }
        if (hash != rows[k].expected) fail_msg("%s: 0x%llx", rows[k].problem, (unsigned long long)hash);
        attn_archive_destroy(in);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_to_the_check_of_each_option),
                                       cmocka_unit_test(equal_to_checks_of_the_sweep), cmocka_unit_test(equal_to_linear_attention),
                                       cmocka_unit_test(same_bits_everywhere)};
    return cmocka_run_group_tests_name("cli/make", tests, enter_folder, leave_folder);
}
