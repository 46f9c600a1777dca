/* SPDX-License-Identifier: MIT
 *
 * test_overlap.c - outputs may share no element with an input or another output, which is decided element by element: tensors
 * interleaved in one buffer are computed as if they were apart; one shared element is rejected, and both tensors are named. */
#include "valid_call.h"

#include "testing/random/random.h"

enum { B = 2, H = 3, S = 5, D = 4, ALL = B * H * S * D, GUARDS = 64 };

static int q, k, v, o, lse, weights, bias, mask, grad_o, grad_q, grad_k, grad_v; /* their numbers in the table */

typedef struct numbers {
    float q[ALL], k[ALL], v[ALL], grad_o[ALL], o[ALL], lse[B * H * S], grad_q[ALL], grad_k[ALL], grad_v[ALL];
} numbers;

static numbers all;
static attn_problem problem;

static attn_tensors forward_of(numbers *n)
{
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(n->q), .k = attn_in(n->k), .v = attn_in(n->v)};
    t.o = attn_out(n->o), t.lse = attn_out(n->lse);
    return t;
}

static attn_tensors backward_of(numbers *n)
{
    attn_tensors t = forward_of(n);
    t.o = attn_saved(n->o), t.lse = attn_saved(n->lse), t.grad_o = attn_in(n->grad_o);
    t.grad_q = attn_out(n->grad_q), t.grad_k = attn_out(n->grad_k), t.grad_v = attn_out(n->grad_v);
    return t;
}

static void run(attn_op op, const attn_tensors *t)
{
    attn_error error;
    problem.op = op;
    if (attn_compute(&problem, t, &error) != ATTN_OK) fail_msg("%s", error.message);
}

/* The expected results: forward and backward in separate buffers. */
static int setup(void **state)
{
    random_state r = random_from(3);
    float *inputs[] = {all.q, all.k, all.v, all.grad_o};
    (void)state;
    q = tensor_number("q"), k = tensor_number("k"), v = tensor_number("v"), o = tensor_number("o"), lse = tensor_number("lse");
    weights = tensor_number("weights"), bias = tensor_number("bias"), mask = tensor_number("mask");
    grad_o = tensor_number("grad_o"), grad_q = tensor_number("grad_q");
    grad_k = tensor_number("grad_k"), grad_v = tensor_number("grad_v");
    problem = (attn_problem){.struct_size = sizeof problem, .shape = {B, H, H, S, S, D, D}, .mask.causal = 1};
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < ALL; i++) inputs[n][i] = (float)random_signed(&r);
    attn_tensors t = forward_of(&all);
    run(ATTN_FORWARD, &t);
    t = backward_of(&all);
    run(ATTN_BACKWARD, &t);
    return 0;
}

static void strides(int64_t stride[4], int64_t b, int64_t h, int64_t t, int64_t c)
{
    stride[0] = b, stride[1] = h, stride[2] = t, stride[3] = c;
}

/* Execution is rejected, with outputs untouched; the error names x and y. */
static void rejected_bytes(attn_op op, const attn_tensors *t, int x, int y, void *memory, size_t bytes, int line)
{
    attn_error error;
    attn_plan *plan;
    unsigned char *before = malloc(bytes + 1);
    assert_non_null(before);
    memcpy(before, memory, bytes);
    problem.op = op;
    for (int call = 0; call < 2; call++) {
        attn_status status;
        if (call == 0) {
            status = attn_plan_create(&plan, &problem, t, NULL, &error);
            if (status != ATTN_OK) fail_msg("line %d: planning must not depend on pointers: %s", line, error.message);
            status = valid_call_execute(plan, t, &error);
            attn_plan_destroy(plan);
        } else status = attn_compute(&problem, t, &error);
        if (status != ATTN_ERR_STRIDE || !((error.tensor == x && error.other == y) || (error.tensor == y && error.other == x)))
            fail_msg("line %d: status %d, tensors %d and %d: %s", line, (int)status, error.tensor, error.other, error.message);
        if (!strstr(error.message, table[x].name) || !strstr(error.message, table[y].name))
            fail_msg("line %d: %s", line, error.message);
        if (memcmp(before, memory, bytes) != 0) fail_msg("line %d: something was written", line);
    }
    free(before);
}
#define REJECTED(op, t, x, y, memory) rejected_bytes(op, t, x, y, memory, sizeof(memory), __LINE__)

/* Loops over the elements i of a dense [B, H, S, D]. */
#define FOR_EACH_ELEMENT(i)                                                                                                        \
    for (int64_t b = 0, i = 0; b < B; b++)                                                                                         \
        for (int64_t h = 0; h < H; h++)                                                                                            \
            for (int64_t j = 0; j < S; j++)                                                                                        \
                for (int64_t c = 0; c < D; c++, i++)

/* dQ, dK and dV in one [B, S, 3, H, D] buffer, and q, k and v in another. */
static void test_interleaved(void **state)
{
    static float in[3 * ALL + GUARDS], out[3 * ALL + GUARDS];
    const float *inputs[] = {all.q, all.k, all.v}, *expected[] = {all.grad_q, all.grad_k, all.grad_v};
    (void)state;
    FOR_EACH_ELEMENT(i)
    for (int n = 0; n < 3; n++) in[(((b * S + j) * 3 + n) * H + h) * D + c] = inputs[n][i];
    attn_tensors t = backward_of(&all);
    attn_input *const slots[] = {&t.q, &t.k, &t.v};
    attn_output *const gradients[] = {&t.grad_q, &t.grad_k, &t.grad_v};
    for (int n = 0; n < 3; n++) {
        slots[n]->data = in + n * H * D, gradients[n]->data = out + n * H * D;
        strides(slots[n]->stride, S * 3 * H * D, D, 3 * H * D, 1), strides(gradients[n]->stride, S * 3 * H * D, D, 3 * H * D, 1);
    }
    memset(out, VALID_PATTERN, sizeof out);
    run(ATTN_BACKWARD, &t);
    FOR_EACH_ELEMENT(i)
    for (int n = 0; n < 3; n++) assert_true(out[(((b * S + j) * 3 + n) * H + h) * D + c] == expected[n][i]);
    for (size_t g = 3 * ALL * sizeof *out; g < sizeof out; g++) assert_int_equal(((unsigned char *)out)[g], VALID_PATTERN);

    t.grad_k.data = out + H * D - 1; /* one element of each row of dQ */
    REJECTED(ATTN_BACKWARD, &t, grad_q, grad_k, out);
    t.grad_k.data = out + H * D + 1; /* and of dV */
    REJECTED(ATTN_BACKWARD, &t, grad_k, grad_v, out);
    t.grad_k.data = out + H * D, t.grad_v.data = out + H * D;
    REJECTED(ATTN_BACKWARD, &t, grad_k, grad_v, out);
    t.grad_v.data = out + 2 * H * D;
    run(ATTN_BACKWARD, &t);
}

/* The output interleaved with the inputs: q, k, v and o in one [B, S, 4, H, D] buffer. */
static void test_output_among_inputs(void **state)
{
    static float memory[4 * ALL];
    const float *inputs[] = {all.q, all.k, all.v};
    (void)state;
    FOR_EACH_ELEMENT(i)
    for (int n = 0; n < 3; n++) memory[(((b * S + j) * 4 + n) * H + h) * D + c] = inputs[n][i];
    attn_tensors t = forward_of(&all);
    attn_input *const slots[] = {&t.q, &t.k, &t.v};
    for (int n = 0; n < 3; n++) slots[n]->data = memory + n * H * D, strides(slots[n]->stride, S * 4 * H * D, D, 4 * H * D, 1);
    t.o.data = memory + 3 * H * D, strides(t.o.stride, S * 4 * H * D, D, 4 * H * D, 1);
    static float own_lse[B * H * S];
    t.lse = attn_out(own_lse);
    run(ATTN_FORWARD, &t);
    FOR_EACH_ELEMENT(i) assert_true(memory[(((b * S + j) * 4 + 3) * H + h) * D + c] == all.o[i]);
    assert_memory_equal(own_lse, all.lse, sizeof own_lse);
    t.o.data = memory + 3 * H * D - 1;
    REJECTED(ATTN_FORWARD, &t, o, v, memory);
    t.o.data = memory; /* in place of q: read after it is written, by other tasks */
    REJECTED(ATTN_FORWARD, &t, o, q, memory);
}

/* K and V in one cache, [B, S, 2, H, D] or [B, H, S, 2, D], head by head or token by token; inputs may overlap each other. */
static void test_one_cache(void **state)
{
    static const int64_t layouts[][4] = {{2 * S * H * D, D, 2 * H * D, H * D}, {2 * H * S * D, 2 * S * D, 2 * D, D}};
    static float cache[2 * ALL], gradients[2 * ALL], out[ALL], out_lse[B * H * S];
    (void)state;
    for (int n = 0; n < 2; n++) {
        const int64_t *to = layouts[n], v_first = to[3]; /* strides of b, h and j; from k to v */
        FOR_EACH_ELEMENT(i)
        {
            const int64_t at = b * to[0] + h * to[1] + j * to[2] + c;
            cache[at] = all.k[i], cache[at + v_first] = all.v[i];
        }
        attn_tensors t = forward_of(&all);
        t.o = attn_out(out), t.lse = attn_out(out_lse);
        t.k.data = cache, t.v.data = cache + v_first;
        strides(t.k.stride, to[0], to[1], to[2], 1), strides(t.v.stride, to[0], to[1], to[2], 1);
        run(ATTN_FORWARD, &t);
        assert_memory_equal(out, all.o, sizeof out);
        t.q = t.v = t.k; /* all the same */
        run(ATTN_FORWARD, &t);
        t.v.data = cache + 1; /* shifted inputs: still inputs */
        run(ATTN_FORWARD, &t);
        /* And gradients of them: dK and dV in one cache. */
        t = backward_of(&all);
        t.grad_k.data = gradients, t.grad_v.data = gradients + v_first;
        strides(t.grad_k.stride, to[0], to[1], to[2], 1), strides(t.grad_v.stride, to[0], to[1], to[2], 1);
        run(ATTN_BACKWARD, &t);
        FOR_EACH_ELEMENT(i)
        {
            const int64_t at = b * to[0] + h * to[1] + j * to[2] + c;
            assert_true(gradients[at] == all.grad_k[i] && gradients[at + v_first] == all.grad_v[i]);
        }
        t.grad_v.data = gradients + v_first - 1;
        REJECTED(ATTN_BACKWARD, &t, grad_k, grad_v, gradients);
    }
}

/* Dense tensors, adjacent and overlapping. */
static void test_dense(void **state)
{
    static float memory[4 * ALL], separate_weights[B * H * S * S];
    attn_tensors t = forward_of(&all);
    (void)state;
    t.v.data = memcpy(memory, all.v, sizeof all.v);
    t.o.data = memory + ALL; /* one after the other */
    run(ATTN_FORWARD, &t);
    assert_memory_equal(memory + ALL, all.o, sizeof all.o);
    t.o.data = memory + ALL / 2; /* half of v */
    REJECTED(ATTN_FORWARD, &t, o, v, memory);
    t.o.data = memory + ALL - 1; /* the last element */
    REJECTED(ATTN_FORWARD, &t, o, v, memory);
    t.o.data = memory;
    REJECTED(ATTN_FORWARD, &t, o, v, memory);
    t.v.data = memory + ALL, t.o.data = memory + 1;
    REJECTED(ATTN_FORWARD, &t, o, v, memory);
    t.o.data = memory, t.v.data = all.v;
    t.lse.data = memory + 7; /* inside o */
    REJECTED(ATTN_FORWARD, &t, lse, o, memory);
    t.lse.data = memory + ALL;
    run(ATTN_FORWARD, &t);
    t.weights = attn_out(memory + ALL / 3); /* over o and lse */
    attn_error error;
    assert_int_equal(attn_compute(&problem, &t, &error), ATTN_ERR_STRIDE);
    assert_true(error.tensor == weights || error.other == weights);
    static numbers separate; /* a call with weights takes another walk, whose bits differ */
    attn_tensors beside = forward_of(&separate);
    beside.q = t.q, beside.k = t.k, beside.v = t.v;
    beside.weights = attn_out(separate_weights);
    run(ATTN_FORWARD, &beside);
    t.weights = attn_out(memory + ALL + B * H * S);
    run(ATTN_FORWARD, &t);
    assert_memory_equal(memory, separate.o, sizeof separate.o);
    assert_memory_equal(memory + ALL, separate.lse, sizeof separate.lse);
    t = backward_of(&all);
    t.grad_q.data = memory, t.grad_k.data = memory + D; /* a row apart */
    REJECTED(ATTN_BACKWARD, &t, grad_q, grad_k, memory);
    t.grad_k.data = memory + ALL, t.grad_o.data = memory + 2 * ALL, t.grad_v.data = memory + 3 * ALL - 1; /* an input's last */
    REJECTED(ATTN_BACKWARD, &t, grad_v, grad_o, memory);
}

/* lse in the last column of rows of D + 1, o in the others; and a column inside o. */
static void test_columns(void **state)
{
    enum { ROW = D + 1 };
    static float memory[B * H * S * ROW];
    attn_tensors t = forward_of(&all);
    (void)state;
    t.o.data = memory, strides(t.o.stride, H * S * ROW, S * ROW, ROW, 1);
    t.lse.data = memory + D, strides(t.lse.stride, H * S * ROW, S * ROW, ROW, 1);
    run(ATTN_FORWARD, &t);
    FOR_EACH_ELEMENT(i) assert_true(memory[i / D * ROW + c] == all.o[i]);
    for (int i = 0; i < B * H * S; i++) assert_true(memory[i * ROW + D] == all.lse[i]);
    t.lse.data = memory + D - 1;
    REJECTED(ATTN_FORWARD, &t, lse, o, memory);
    t.lse.data = memory + ROW; /* column 0 of the next row, and past the end for the last one */
    REJECTED(ATTN_FORWARD, &t, lse, o, memory);
}

/* Tensors of different element sizes: a mask of bytes in the gaps of o, and in o. */
static void test_bytes(void **state)
{
    enum { ROW = 2 * D + S };
    static float memory[B * H * S * ROW];
    unsigned char *bytes = (unsigned char *)memory;
    attn_tensors t = forward_of(&all);
    (void)state;
    memset(memory, 1, sizeof memory);
    t.o.data = memory, strides(t.o.stride, H * S * ROW, S * ROW, ROW, 1);
    t.mask.data = bytes + D * sizeof(float);
    strides(t.mask.stride, H * S * ROW * 4, S * ROW * 4, ROW * 4, 1);
    run(ATTN_FORWARD, &t);
    FOR_EACH_ELEMENT(i) assert_true(memory[i / D * ROW + c] == all.o[i]);
    memset(memory, 1, sizeof memory);
    t.mask.data = bytes + D * sizeof(float) - 1; /* the last byte of a row of o */
    REJECTED(ATTN_FORWARD, &t, o, mask, memory);
    t.mask.data = bytes, t.mask.stride[3] = 2; /* every second byte: in each element of o */
    REJECTED(ATTN_FORWARD, &t, o, mask, memory);
}

/* Inputs that broadcast or run backwards. */
static void test_inputs_of_any_stride(void **state)
{
    static float memory[2 * ALL];
    attn_tensors t = forward_of(&all);
    (void)state;
    /* Keys from the last to the first, before o. */
    for (int i = 0; i < B * H; i++)
        for (int j = 0; j < S; j++) memcpy(memory + (i * S + S - 1 - j) * D, all.k + (i * S + j) * D, D * sizeof(float));
    t.k.data = memory + (S - 1) * D, strides(t.k.stride, H * S * D, S * D, -D, 1);
    t.o.data = memory + ALL;
    run(ATTN_FORWARD, &t);
    assert_memory_equal(memory + ALL, all.o, sizeof all.o);
    t.o.data = memory + ALL - D; /* the first key of the last head lies there */
    REJECTED(ATTN_FORWARD, &t, o, k, memory);
    t.k.data = memory + ALL + (S - 1) * D, t.o.data = memory; /* after o: keys lie before their pointer */
    run(ATTN_FORWARD, &t);
    t.o.data = memory + 1;
    REJECTED(ATTN_FORWARD, &t, o, k, memory);
    /* A row that broadcasts, before o and in it. */
    t = forward_of(&all);
    t.k.data = memory, strides(t.k.stride, ATTN_BROADCAST, 0, 0, 1);
    t.o.data = memory + D;
    run(ATTN_FORWARD, &t);
    t.o.data = memory + D - 1;
    REJECTED(ATTN_FORWARD, &t, o, k, memory);
    t.k.data = memory + ALL + D - 1, t.o.data = memory + D;
    REJECTED(ATTN_FORWARD, &t, o, k, memory);
    /* One number as a bias, between two outputs. */
    t = forward_of(&all);
    t.o.data = memory, t.bias.data = memory + ALL, t.lse.data = memory + ALL + 1;
    memory[ALL] = 0;
    for (int axis = 0; axis < 4; axis++) t.bias.stride[axis] = ATTN_BROADCAST;
    run(ATTN_FORWARD, &t);
    t.bias.data = memory + ALL - 1;
    REJECTED(ATTN_FORWARD, &t, o, bias, memory);
    t.bias.data = memory + ALL + 1;
    REJECTED(ATTN_FORWARD, &t, lse, bias, memory);
}

/* Packed tensors have the length in cu_seqlens, not len_q: the memory after them is free. */
static void test_packed(void **state)
{
    enum { TOKENS = 7 };
    static float memory[2 * TOKENS * H * D], scratch[ALL];
    static const int64_t cu[B + 1] = {0, 4, TOKENS};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(all.q), .k = attn_in(all.k), .v = attn_in(memory)};
    (void)state;
    t.cu_seqlens_q = t.cu_seqlens_kv = attn_in(cu);
    t.o = attn_out(memory + TOKENS * H * D);
    run(ATTN_FORWARD, &t);
    t.o = attn_out(memory + TOKENS * H * D - 1);
    REJECTED(ATTN_FORWARD, &t, o, v, memory);
    t.o = attn_out(scratch);
    run(ATTN_FORWARD, &t);
}

/* Random cases against marked elements: two tensors with any strides that an output may have, at any distance.  No overlap is
 * accepted, and a wrong rejection always says that it cannot be decided. */
static void test_random(void **state)
{
    enum { PLACES = 4096 };
    static unsigned char of_o[PLACES * 4];
    static float memory[PLACES], plenty[256];
    random_state r = random_from(17);
    int met = 0, disjoint = 0, close = 0, undecided = 0;
    (void)state;
    for (int n = 0; n < 6000; n++) {
        const int64_t sizes[4] = {1 + random_below(&r, 3), 1 + random_below(&r, 3), 1 + random_below(&r, 4),
                                  1 + random_below(&r, 4)};
        const attn_problem p = {.struct_size = sizeof p,
                                .shape = {sizes[0], sizes[1], sizes[1], sizes[2], sizes[2], sizes[3], sizes[3]}};
        int64_t stride[2][4];
        for (int which = 0; which < 2; which++) { /* axes in any order, each with a gap or none */
            int order[3] = {0, 1, 2};
            int64_t span = sizes[3];
            for (int x = 2; x > 0; x--) {
                const int y = (int)random_below(&r, x + 1), keep = order[x];
                order[x] = order[y], order[y] = keep;
            }
            stride[which][3] = 1;
            if (which == 1 && random_below(&r, 2)) { /* the same strides: the usual case of tensors in one buffer */
                memcpy(stride[1], stride[0], sizeof stride[1]);
                continue;
            }
            for (int x = 0; x < 3; x++) {
                stride[which][order[x]] = span + (random_below(&r, 2) ? random_below(&r, 6) : 0);
                span = stride[which][order[x]] * (sizes[order[x]] - 1) + span;
            }
        }
        const int64_t base[2] = {random_below(&r, 40), random_below(&r, 200)};
        memset(of_o, 0, sizeof of_o);
        int expected = 0;
        for (int which = 0; which < 2; which++)
            for (int64_t b = 0; b < sizes[0]; b++)
                for (int64_t h = 0; h < sizes[1]; h++)
                    for (int64_t i = 0; i < sizes[2]; i++)
                        for (int64_t c = 0; c < sizes[3]; c++) {
                            const int64_t at = base[which] + b * stride[which][0] + h * stride[which][1] + i * stride[which][2] + c;
                            assert_in_range(at, 0, PLACES - 1);
                            if (which == 0) of_o[at] = 1;
                            else expected |= of_o[at];
                        }
        attn_tensors t = {.struct_size = sizeof t, .q = attn_in(plenty), .k = attn_in(plenty)};
        attn_error error;
        t.o = attn_out(memory + base[0]), t.v = attn_in(memory + base[1]);
        memcpy(t.o.stride, stride[0], sizeof stride[0]), memcpy(t.v.stride, stride[1], sizeof stride[1]);
        const attn_status status = attn_compute(&p, &t, &error);
        if (status == ATTN_OK && expected) fail_msg("number %d: an overlap is accepted", n);
        if (status != ATTN_OK) assert_int_equal(status, ATTN_ERR_STRIDE);
        if (status != ATTN_OK && !expected) {
            if (!strstr(error.message, "decide")) fail_msg("number %d: wrongly rejected: %s", n, error.message);
            undecided++;
        }
        met += expected, disjoint += !expected, close += !expected && status == ATTN_OK;
    }
    print_message("%d overlap, %d do not, of which %d could not be decided\n", met, disjoint, undecided);
    assert_true(met > 500 && disjoint > 500 && close > 400 && undecided * 50 < disjoint);
}

/* Strides so irregular that the search gives up: rejected, and the message says so. */
static void test_undecided(void **state)
{
    enum { N = 40 };
    attn_problem p = {.struct_size = sizeof p, .shape = {N, N, N, N, N, 1, 1}};
    attn_tensors t = {.struct_size = sizeof t, .k = attn_in(all.k), .v = attn_in(all.v)};
    attn_error error;
    attn_plan *plan;
    (void)state;
    float *memory = calloc(2 * N * N * N + 1, sizeof *memory);
    assert_non_null(memory);
    t.q = attn_in(memory), strides(t.q.stride, 6, 10, 14, 1); /* even addresses, each reached in many ways */
    strides(t.k.stride, ATTN_BROADCAST, 0, 0, 1), strides(t.v.stride, ATTN_BROADCAST, 0, 0, 1);
    t.o = attn_out(memory + 1), strides(t.o.stride, 2 * N * N, 2 * N, 2, 1); /* odd ones */
    assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
    assert_int_equal(valid_call_execute(plan, &t, &error), ATTN_ERR_STRIDE);
    assert_string_equal(error.message,
                        "whether o and q share elements cannot be decided from their strides; give them separate memory");
    assert_true(error.tensor == o && error.other == q);
    for (int i = 0; i <= 2 * N * N * N; i++) assert_true(memory[i] == 0);
    attn_plan_destroy(plan);
    free(memory);
}

/* The workspace may lie beside a tensor and between its rows, but share no byte with an element of any. */
static void test_workspace(void **state)
{
    attn_tensors t = backward_of(&all);
    attn_error error;
    attn_plan *plan;
    (void)state;
    problem.op = ATTN_BACKWARD;
    assert_int_equal(attn_plan_create(&plan, &problem, &t, NULL, NULL), ATTN_OK);
    const size_t need = attn_plan_workspace_size(plan), bytes = sizeof(float[ALL]);
    assert_true(need > bytes);
    char *memory = malloc(need + 2 * bytes), *const workspace = memory + bytes;
    assert_non_null(memory);
    struct {
        int number;
        const void **data;
        const float *values;
    } moved[] = {{q, &t.q.data, all.q}, {k, &t.k.data, all.k}, {v, &t.v.data, all.v}, {grad_o, &t.grad_o.data, all.grad_o}};
    for (size_t n = 0; n < sizeof moved / sizeof *moved; n++) {
        const void *const kept = *moved[n].data;
        char *const places[] = {workspace - bytes, workspace - bytes + sizeof(float), workspace + need / 2 / 8 * 8,
                                workspace + need / 8 * 8 - sizeof(float)};
        for (int place = 0; place < 4; place++) {
            memcpy(places[place], moved[n].values, bytes);
            *moved[n].data = places[place];
            const attn_status status = attn_execute(plan, &t, workspace, need, &error);
            if (status != (place ? ATTN_ERR_ARGUMENT : ATTN_OK)) fail_msg("tensor %zu, place %d: %s", n, place, error.message);
            if (place) assert_int_equal(error.tensor, moved[n].number);
            if (place) assert_non_null(strstr(error.message, " and the workspace overlap"));
            assert_memory_equal(places[place], moved[n].values, bytes); /* nothing was written */
        }
        *moved[n].data = kept;
    }
    free(memory);
    attn_plan_destroy(plan);

    /* Rows so far apart that the workspace fits between two of them. */
    enum { STEP = 1 << 16 };
    float *const rows = calloc((size_t)S * STEP, sizeof *rows), out[S * D], expected[S * D], row_lse[S];
    attn_problem few = {.struct_size = sizeof few, .shape = {1, 1, 1, S, S, D, D}};
    attn_tensors f = {.struct_size = sizeof f, .q = attn_in(all.q), .k = attn_in(all.k), .v = attn_in(all.v)};
    assert_non_null(rows);
    f.o = attn_out(expected), f.lse = attn_out(row_lse);
    assert_int_equal(attn_compute(&few, &f, NULL), ATTN_OK);
    for (int i = 0; i < S * D; i++) rows[i / D * STEP + i % D] = all.q[i];
    f.q.data = rows, strides(f.q.stride, S * STEP, S * STEP, STEP, 1), f.o = attn_out(out);
    assert_int_equal(attn_plan_create(&plan, &few, &f, NULL, NULL), ATTN_OK);
    const size_t small = attn_plan_workspace_size(plan);
    assert_true(small > 0 && small < (STEP - D) * sizeof *rows);
    assert_int_equal(attn_execute(plan, &f, rows + D, small, &error), ATTN_OK);
    assert_memory_equal(out, expected, sizeof out);
    assert_int_equal(attn_execute(plan, &f, rows + D - 1, small, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_execute(plan, &f, (char *)(rows + STEP) - small + 1, small, &error), ATTN_ERR_ARGUMENT);
    attn_plan_destroy(plan);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interleaved), cmocka_unit_test(test_output_among_inputs),
        cmocka_unit_test(test_one_cache),   cmocka_unit_test(test_dense),
        cmocka_unit_test(test_columns),     cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_packed),      cmocka_unit_test(test_inputs_of_any_stride),
        cmocka_unit_test(test_random),      cmocka_unit_test(test_undecided),
        cmocka_unit_test(test_workspace),
    };
    valid_call_table();
    return cmocka_run_group_tests(tests, setup, NULL);
}
