/* SPDX-License-Identifier: MIT
 * test_hopfield.c - associative memory against ref/, known values and finite differences; energies that never rise; rejected calls,
 * with the exact message. */
#include "fails.h"

#include <math.h>

#include "attn/hopfield.h"
#include "attn_ref.h"
#include "testing/random/random.h"

enum { M = 7, N = 10, COUNT = 4 };

static double X[M][N], x[COUNT][N];
static const attn_hopfield memory = {
    .struct_size = sizeof memory, .dtype = ATTN_F64, .stored = M, .dim = N, .beta = 1.3, .patterns.data = X};

/* attn_hopfield_update on arrays, any of which may be NULL. */
static attn_status update(const attn_hopfield *m, int64_t count, const void *states, void *updated, void *energy, attn_error *error)
{
    const attn_hopfield_tensors t = {
        .struct_size = sizeof t, .states.data = states, .updated.data = updated, .energy.data = energy};
    return attn_hopfield_update(m, count, &t, error);
}

static attn_status backward(const attn_hopfield *m, int64_t count, const void *states, const void *grad, const void *grad_energy,
                            void *dx, void *dX, attn_error *error)
{
    const attn_hopfield_tensors t = {.struct_size = sizeof t,
                                     .states.data = states,
                                     .grad_updated.data = grad,
                                     .grad_energy.data = grad_energy,
                                     .grad_states.data = dx,
                                     .grad_patterns.data = dX};
    return attn_hopfield_update_backward(m, count, &t, error);
}

static attn_status retrieve(const attn_hopfield *m, int64_t count, const void *states, int64_t most, double tolerance, void *found,
                            int64_t *iterations, double *energies, attn_error *error)
{
    const attn_hopfield_tensors t = {.struct_size = sizeof t,
                                     .states.data = states,
                                     .updated.data = found,
                                     .iterations.data = iterations,
                                     .energies.data = energies};
    return attn_hopfield_retrieve(m, count, most, tolerance, &t, error);
}

static attn_status classical(const attn_hopfield *m, attn_hopfield_order order, int64_t count, const void *states, void *updated,
                             void *energy, attn_error *error)
{
    const attn_hopfield_tensors t = {
        .struct_size = sizeof t, .states.data = states, .updated.data = updated, .energy.data = energy};
    return attn_hopfield_classical(m, order, count, &t, error);
}

static double uniform(void)
{
    static random_state random = {99};
    return random_signed(&random);
}

static int draw(void **state)
{
    (void)state;
    for (int i = 0; i < M * N; i++) X[i / N][i % N] = uniform();
    for (int i = 0; i < COUNT * N; i++) x[i / N][i % N] = 2 * uniform();
    return 0;
}

/* For sums of at most M + N terms within +-4, with M + N + 16 roundings each. */
static const double bound = 0x1p-53 * (M + N + 16) * 4 * 4;

static void test_definition(void **state)
{
    double updated[COUNT][N], energy[COUNT], dx[COUNT][N], dX[M][N], expected_dX[M][N] = {{0}}, p[M], out[N], expected_dx[N];
    double grad[COUNT][N], grad_energy[COUNT];
    (void)state;
    for (int i = 0; i < COUNT * N; i++) grad[i / N][i % N] = uniform();
    for (int i = 0; i < COUNT; i++) grad_energy[i] = uniform();
    assert_int_equal(update(&memory, COUNT, x, updated, energy, NULL), ATTN_OK);
    assert_int_equal(backward(&memory, COUNT, x, grad, grad_energy, dx, dX, NULL), ATTN_OK);
    for (int i = 0; i < COUNT; i++) {
        const double expected = ref_hopfield_update(M, N, memory.beta, X[0], x[i], p, out);
        ref_hopfield_backward(M, N, memory.beta, X[0], x[i], p, grad[i], grad_energy[i], expected_dx, expected_dX[0]);
        assert_true(fabs(energy[i] - expected) <= bound);
        for (int c = 0; c < N; c++)
            assert_true(fabs(updated[i][c] - out[c]) <= bound && fabs(dx[i][c] - expected_dx[c]) <= bound * 4);
    }
    for (int i = 0; i < M * N; i++) assert_true(fabs(dX[i / N][i % N] - expected_dX[i / N][i % N]) <= bound * 4);
}

static double objective(const double *grad, const double *grad_energy)
{
    double updated[COUNT][N], energy[COUNT], sum = 0;
    assert_int_equal(update(&memory, COUNT, x, updated, energy, NULL), ATTN_OK);
    for (int i = 0; i < COUNT * N; i++) sum += grad[i] * updated[i / N][i % N];
    for (int i = 0; i < COUNT; i++) sum += grad_energy[i] * energy[i];
    return sum;
}

static void test_differences(void **state)
{
    double grad[COUNT * N], grad_energy[COUNT], dx[COUNT * N], dX[M * N];
    const double step = 1e-5;
    (void)state;
    for (int i = 0; i < COUNT * N; i++) grad[i] = uniform();
    for (int i = 0; i < COUNT; i++) grad_energy[i] = uniform();
    assert_int_equal(backward(&memory, COUNT, x, grad, grad_energy, dx, dX, NULL), ATTN_OK);
    for (int i = 0; i < COUNT * N + M * N; i++) {
        const int k = i - COUNT * N;
        double *at = k < 0 ? &x[i / N][i % N] : &X[k / N][k % N], kept = *at;
        const double got = i < COUNT * N ? dx[i] : dX[i - COUNT * N];
        *at = kept + step;
        const double up = objective(grad, grad_energy);
        *at = kept - step;
        const double slope = (up - objective(grad, grad_energy)) / (2 * step);
        *at = kept;
        assert_true(fabs(slope - got) <= 1e-8 * (1 + fabs(got)));
    }
}

/* Known values: K = (1,0), (0,1), (.7,.7), state (.9,.1). */
static void test_known(void **state)
{
    static const float patterns[3][2] = {{1, 0}, {0, 1}, {0.7f, 0.7f}}, from[2] = {0.9f, 0.1f};
    static const double expected[2][2] = {{0.6936, 0.4508}, {0.9072, 0.1990}};
    double separation;
    float to[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        const attn_hopfield m = {.struct_size = sizeof m, .stored = 3, .dim = 2, .beta = k ? 5 : 1, .patterns.data = patterns};
        assert_int_equal(update(&m, 1, from, to, NULL, NULL), ATTN_OK);
        for (int c = 0; c < 2; c++) assert_true(fabs((double)to[c] - expected[k][c]) < 5.1e-5);
    }
    static const double eye[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
    attn_hopfield m = {.struct_size = sizeof m, .dtype = ATTN_F64, .stored = 4, .dim = 4, .patterns.data = eye};
    assert_int_equal(attn_hopfield_separation(&m, &separation, NULL), ATTN_OK);
    assert_true(fabs(separation - sqrt(2)) < 1e-15);
    m.stored = 1;
    assert_int_equal(attn_hopfield_separation(&m, &separation, NULL), ATTN_OK);
    assert_true(isinf(separation));
    static const double same[2][2] = {{1, 2}, {1, 2}};
    m = (attn_hopfield){.struct_size = sizeof m, .dtype = ATTN_F64, .stored = 2, .dim = 2, .patterns.data = same};
    assert_int_equal(attn_hopfield_separation(&m, &separation, NULL), ATTN_OK);
    assert_true(separation == 0);
    assert_true(attn_hopfield_classical_capacity(100) == 0.14 * 100 && fabs(attn_hopfield_modern_capacity(4) - exp(2)) < 1e-14);
    assert_true(isinf(attn_hopfield_modern_capacity(4096)));
}

static void test_retrieve(void **state)
{
    enum { CAPACITY = 30 };
    attn_hopfield sharp = memory;
    double noisy[M][N], found[M][N], energies[M][CAPACITY + 1], again[M][N];
    int64_t taken[M];
    (void)state;
    sharp.beta = 12;
    for (int i = 0; i < M * N; i++) noisy[i / N][i % N] = X[i / N][i % N] + 0.2 * uniform();
    assert_int_equal(retrieve(&sharp, M, noisy, CAPACITY, 1e-10, found, taken, energies[0], NULL), ATTN_OK);
    for (int i = 0; i < M; i++) {
        assert_in_range(taken[i], 1, CAPACITY);
        for (int c = 0; c < N; c++) assert_true(fabs(found[i][c] - X[i][c]) < 0.1);
        for (int k = 0; k < CAPACITY; k++) assert_true(energies[i][k + 1] <= energies[i][k] + 1e-14);
        for (int k = (int)taken[i]; k < CAPACITY; k++) assert_true(energies[i][k + 1] == energies[i][k]);
    }
    /* One state alone converges to the same point; with 0 iterations states do not change. */
    assert_int_equal(retrieve(&sharp, 1, noisy[3], CAPACITY, 1e-10, again[3], NULL, NULL, NULL), ATTN_OK);
    for (int c = 0; c < N; c++) assert_true(fabs(again[3][c] - found[3][c]) <= 1e-9);
    assert_int_equal(retrieve(&sharp, M, noisy, 0, 1e-10, again, taken, energies[0], NULL), ATTN_OK);
    assert_memory_equal(again, noisy, sizeof noisy);
    assert_int_equal(taken[0], 0);
}

static void test_basin_and_landscape(void **state)
{
    enum { POINTS = 9 };
    attn_hopfield sharp = memory;
    double share[3], axis[POINTS], energy[POINTS], one[N] = {0}, expected;
    (void)state;
    sharp.beta = 12;
    assert_int_equal(attn_hopfield_basin(&sharp, 2, 100, 0.05, 1, 20, 1e-6, &share[0], NULL), ATTN_OK);
    assert_int_equal(attn_hopfield_basin(&sharp, 2, 100, 3, 1, 20, 1e-6, &share[1], NULL), ATTN_OK);
    assert_int_equal(attn_hopfield_basin(&sharp, 2, 100, 3, 1, 20, 1e-6, &share[2], NULL), ATTN_OK);
    assert_true(share[0] == 1 && share[1] < 0.9 && share[1] == share[2]);
    assert_int_equal(attn_hopfield_landscape(&memory, 3, POINTS, -2, 2, axis, energy, NULL), ATTN_OK);
    for (int i = 0; i < POINTS; i++) {
        assert_true(axis[i] == -2 + i * 0.5);
        one[3] = axis[i];
        assert_int_equal(update(&memory, 1, one, NULL, &expected, NULL), ATTN_OK);
        assert_true(fabs(expected - energy[i]) <= bound * 4);
    }
}

/* Stored patterns are retrieved with one sign flipped; W by its definition; asynchronous energies never rise. */
static void test_classical(void **state)
{
    enum { UNITS = 40, STORED = 3 };
    static double patterns[STORED][UNITS], from[UNITS], to[UNITS];
    const attn_hopfield m = {.struct_size = sizeof m, .dtype = ATTN_F64, .stored = STORED, .dim = UNITS, .patterns.data = patterns};
    double energy, after, expected = 0;
    (void)state;
    for (int i = 0; i < STORED * UNITS; i++) patterns[i / UNITS][i % UNITS] = uniform() > 0 ? 1 : -1;
    memcpy(from, patterns[1], sizeof from);
    from[5] = -from[5], from[20] = -from[20];
    for (int a = 0; a < UNITS; a++)
        for (int b = 0; b < UNITS; b++)
            for (int k = 0; k < STORED; k++) expected -= from[a] * patterns[k][a] * patterns[k][b] * from[b] / UNITS / 2;
    for (int order = 0; order < 2; order++) {
        assert_int_equal(classical(&m, (attn_hopfield_order)order, 1, from, to, &energy, NULL), ATTN_OK);
        assert_memory_equal(to, patterns[1], sizeof to);
        assert_true(fabs(energy - expected) < 1e-12);
        assert_int_equal(classical(&m, (attn_hopfield_order)order, 1, to, NULL, &after, NULL), ATTN_OK);
        assert_true(after < energy);
    }
    for (int turn = 0; turn < 20; turn++) {
        for (int c = 0; c < UNITS; c++) from[c] = uniform() > 0 ? 1 : -1;
        assert_int_equal(classical(&m, ATTN_HOPFIELD_ORDER_ASYNCHRONOUS, 1, from, to, &energy, NULL), ATTN_OK);
        assert_int_equal(classical(&m, ATTN_HOPFIELD_ORDER_ASYNCHRONOUS, 1, to, NULL, &after, NULL), ATTN_OK);
        assert_true(after <= energy + 1e-12);
    }
    memset(from, 0, sizeof from);
    assert_int_equal(classical(&m, ATTN_HOPFIELD_ORDER_SYNCHRONOUS, 1, from, to, NULL, NULL), ATTN_OK);
    for (int c = 0; c < UNITS; c++) assert_true(to[c] == 0);
}

/* One update has the same bits as attention with scale beta. */
static void test_is_attention(void **state)
{
    double o[COUNT][N], updated[COUNT][N];
    const attn_problem p = {
        .struct_size = sizeof p, .shape = {1, 1, 1, COUNT, M, N, N}, .score = {.scale_kind = ATTN_SCALE_VALUE, .scale = 1.3}};
    const attn_tensors t = {
        .struct_size = sizeof t, .q = {x, ATTN_F64, {0, 0, 0, 0}}, .k = attn_in(X), .v = attn_in(X), .o = attn_out(o)};
    (void)state;
    assert_int_equal(attn_compute(&p, &t, NULL), ATTN_OK);
    assert_int_equal(update(&memory, COUNT, x, updated, NULL, NULL), ATTN_OK);
    assert_memory_equal(o, updated, sizeof o);
}

#define REJECTED(change, call, status, text)                                                                                       \
    do {                                                                                                                           \
        attn_hopfield m = memory;                                                                                                  \
        change;                                                                                                                    \
        FAILS(call, status, text);                                                                                                 \
        for (int i = 0; i < COUNT * N; i++) assert_true(out[i / N][i % N] == 5);                                                   \
    } while (0)
#define UPDATE update(&m, COUNT, x, out, NULL, &error)

static void test_rejected(void **state)
{
    double out[COUNT][N], share;
    (void)state;
    for (int i = 0; i < COUNT * N; i++) out[i / N][i % N] = 5;
    const attn_options unknown = {.struct_size = sizeof unknown, .isa = (attn_isa)99};
    REJECTED(m.options = &unknown, attn_hopfield_separation(&m, &share, &error), ATTN_ERR_ARGUMENT,
             "options.isa is 99; known: 0 (default), 1 (scalar), 2 (avx2), 3 (avx512), 4 (neon), 5 (wasm128)");
    REJECTED(m.struct_size = 3, UPDATE, ATTN_ERR_ARGUMENT, "attn_hopfield.struct_size is 3; set it to sizeof(attn_hopfield)");
    REJECTED(m.dtype = ATTN_F16, UPDATE, ATTN_ERR_UNSUPPORTED, "hopfield: dtype is f16; it must be f32 or f64");
    REJECTED(m.stored = 0, UPDATE, ATTN_ERR_SHAPE, "hopfield: stored is 0; it must be at least 1");
    REJECTED(m.dim = -2, UPDATE, ATTN_ERR_SHAPE, "hopfield: dim is -2; it must be at least 1");
    REJECTED(m.dim = INT64_MAX / 2, UPDATE, ATTN_ERR_SHAPE, "hopfield: the arrays are too large: their bytes overflow 64 bits");
    REJECTED(m.beta = -1, UPDATE, ATTN_ERR_ARGUMENT, "hopfield: beta is -1; it must be above 0 and finite (0 for 1)");
    REJECTED(m.patterns.data = NULL, UPDATE, ATTN_ERR_ARGUMENT, "hopfield: patterns is missing");
    REJECTED(m.reserved[1] = 4, UPDATE, ATTN_ERR_ARGUMENT, "hopfield: reserved[1] is 4; it must be 0");
    REJECTED((void)m, update(NULL, COUNT, x, out, NULL, &error), ATTN_ERR_ARGUMENT, "hopfield: memory is NULL");
    REJECTED((void)m, update(&m, -1, x, out, NULL, &error), ATTN_ERR_SHAPE, "hopfield: count (-1) is negative");
    REJECTED((void)m, update(&m, 1, NULL, out, NULL, &error), ATTN_ERR_ARGUMENT, "hopfield: states is missing");
    REJECTED((void)m, update(&m, 1, out, out, NULL, &error), ATTN_ERR_STRIDE,
             "hopfield: updated and states share elements; an output must not overlap another tensor");
    REJECTED((void)m, retrieve(&m, 1, x, -1, 0, out, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "hopfield: most (-1) is negative");
    REJECTED((void)m, retrieve(&m, 1, x, 1, -0.5, out, NULL, NULL, &error), ATTN_ERR_ARGUMENT,
             "hopfield: tolerance is -0.5; it must be at least 0");
    REJECTED((void)m, retrieve(&m, 1, x, 1, 0, NULL, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "hopfield: updated is missing");
    REJECTED((void)m, retrieve(&m, 1, out, 1, 0, out, NULL, NULL, &error), ATTN_ERR_STRIDE,
             "hopfield: updated and states share elements; an output must not overlap another tensor");
    REJECTED((void)m, classical(&m, (attn_hopfield_order)2, 1, x, out, NULL, &error), ATTN_ERR_ARGUMENT,
             "hopfield: order is 2; known: 0 (synchronous), 1 (asynchronous)");
    attn_hopfield_tensors t = {.struct_size = sizeof t, .states = attn_in(x), .updated = attn_out(out)};
#define WITH(change, status, text) REJECTED(change, attn_hopfield_update(&m, COUNT, &t, &error), status, text)
    WITH(t.energy = attn_out(NULL), ATTN_ERR_ARGUMENT, "hopfield: energy is NULL");
    WITH((t.energy = (attn_output){0}, t.iterations = attn_out(out)), ATTN_ERR_ARGUMENT,
         "hopfield: iterations is set; attn_hopfield_update does not use it");
    WITH((t.iterations = (attn_output){0}, t.states.dtype = ATTN_F32), ATTN_ERR_UNSUPPORTED,
         "hopfield: states is f32; it must be f64");
    WITH((t.states.dtype = ATTN_F64, t.states.stride[2] = N + 1, t.states.stride[3] = 1), ATTN_ERR_STRIDE,
         "hopfield: states has strides; it must be dense (all 0)");
    WITH((t.states.stride[2] = N, t.updated.data = (char *)out + 4), ATTN_ERR_ARGUMENT,
         "hopfield: updated is not aligned to its elements of 8 bytes");
    WITH((t.updated.data = X), ATTN_ERR_STRIDE,
         "hopfield: updated and patterns share elements; an output must not overlap another tensor");
    WITH((t.updated.data = out, t.states = attn_in(ATTN_EMPTY)), ATTN_ERR_ARGUMENT,
         "hopfield: states is ATTN_EMPTY and has elements");
    WITH((t.states = attn_in(ATTN_LATER)), ATTN_ERR_ARGUMENT, "hopfield: states is ATTN_LATER; this call needs its pointer");
    WITH((t.states = attn_in(x), t.call = (const attn_call *)(const void *)x), ATTN_ERR_ARGUMENT,
         "hopfield: call is set; it must be NULL");
    REJECTED((void)m, attn_hopfield_update(&m, COUNT, NULL, &error), ATTN_ERR_ARGUMENT, "hopfield: tensors is NULL");
    REJECTED((void)m, attn_hopfield_separation(&m, NULL, &error), ATTN_ERR_ARGUMENT, "hopfield: separation is NULL");
    REJECTED((void)m, attn_hopfield_landscape(&m, 0, 1, 0, 1, out[0], out[0], &error), ATTN_ERR_ARGUMENT,
             "hopfield: points is 1; it must be at least 2");
    REJECTED((void)m, attn_hopfield_landscape(&m, N, 2, 0, 1, out[0], out[0], &error), ATTN_ERR_ARGUMENT,
             "hopfield: axis (10) is not between 0 and 9");
    REJECTED((void)m, attn_hopfield_landscape(&m, 0, 2, 0, INFINITY, out[0], out[0], &error), ATTN_ERR_ARGUMENT,
             "hopfield: low and high are 0 and inf; they must be finite");
    REJECTED((void)m, attn_hopfield_landscape(&m, 0, 2, 0, 1, out[0], out[0] + 1, &error), ATTN_ERR_STRIDE,
             "hopfield: x and energy share elements; an output must not overlap another tensor");
    REJECTED((void)m, attn_hopfield_landscape(&m, 0, 2, 0, 1, out[0], (double *)(void *)X, &error), ATTN_ERR_STRIDE,
             "hopfield: energy and patterns share elements; an output must not overlap another tensor");
    REJECTED((void)m, attn_hopfield_landscape(&m, 0, 2, 0, 1, NULL, out[0], &error), ATTN_ERR_ARGUMENT, "hopfield: x is NULL");
    REJECTED((void)m, attn_hopfield_basin(&m, 0, 0, 1, 1, 1, 1, &share, &error), ATTN_ERR_ARGUMENT,
             "hopfield: samples is 0; it must be at least 1");
    REJECTED((void)m, attn_hopfield_basin(&m, M, 1, 1, 1, 1, 1, &share, &error), ATTN_ERR_ARGUMENT,
             "hopfield: index (7) is not between 0 and 6");
    REJECTED((void)m, attn_hopfield_basin(&m, 0, 1, -1, 1, 1, 1, &share, &error), ATTN_ERR_ARGUMENT,
             "hopfield: noise is -1; it must be at least 0 and finite");
    REJECTED((void)m, attn_hopfield_basin(&m, 0, 1, 1, 1, 1, 1, NULL, &error), ATTN_ERR_ARGUMENT, "hopfield: share is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_definition),
                                       cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_known),
                                       cmocka_unit_test(test_retrieve),
                                       cmocka_unit_test(test_basin_and_landscape),
                                       cmocka_unit_test(test_classical),
                                       cmocka_unit_test(test_is_attention),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, draw, NULL);
}
