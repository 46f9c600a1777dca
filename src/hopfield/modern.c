/* SPDX-License-Identifier: MIT
 * modern.c - the modern Hopfield network, by the attention of the core: lse is the energy's first term. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

attn_status hopfield_resolve(const attn_hopfield *given, int64_t count, attn_hopfield *memory, attn_error *error)
{
    CHECK(given, ATTN_ERR_ARGUMENT, "hopfield: memory is NULL");
    TRY(struct_read(memory, sizeof *memory, sizeof *memory, given, "attn_hopfield", error));
    if (memory->dtype == ATTN_DTYPE_DEFAULT) memory->dtype = ATTN_F32;
    CHECK(memory->dtype == ATTN_F32 || memory->dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED,
          "hopfield: patterns are %s; they must be f32 or f64", attn_dtype_name(memory->dtype));
    CHECK(memory->patterns >= 1, ATTN_ERR_SHAPE, "hopfield: patterns (%" PRId64 ") is not at least 1", memory->patterns);
    CHECK(memory->dim >= 1, ATTN_ERR_SHAPE, "hopfield: dim (%" PRId64 ") is not at least 1", memory->dim);
    CHECK(count >= 0, ATTN_ERR_SHAPE, "hopfield: count (%" PRId64 ") is negative", count);
    CHECK(memory->dim <= INT64_MAX / 16 / memory->patterns && (count == 0 || memory->dim <= INT64_MAX / 16 / count), ATTN_ERR_SHAPE,
          "hopfield: the arrays have more bytes than 64 bits count");
    CHECK(memory->beta >= 0 && isfinite(memory->beta), ATTN_ERR_ARGUMENT,
          "hopfield: beta is %g; it must be above 0 and finite (0 for 1)", memory->beta);
    CHECK(memory->data, ATTN_ERR_ARGUMENT, "hopfield: the patterns are NULL");
    for (int k = 0; k < 4; k++)
        CHECK(memory->reserved[k] == 0, ATTN_ERR_ARGUMENT, "hopfield: reserved[%d] is %" PRId64 "; it must be 0", k,
              memory->reserved[k]);
    if (memory->beta == 0) memory->beta = 1;
    return ATTN_OK;
}

static attn_problem problem_of(const attn_hopfield *m, int64_t count)
{
    return (attn_problem){.struct_size = sizeof(attn_problem),
                          .shape = {1, 1, 1, count, m->patterns, m->dim, m->dim},
                          .score = {.scale_kind = ATTN_SCALE_VALUE, .scale = m->beta}};
}

/* A dense array, which has no elements where there are no states. */
static attn_input read_from(const attn_hopfield *m, const void *data)
{
    return (attn_input){data ? data : ATTN_EMPTY, m->dtype, {0, 0, 0, 0}};
}
static attn_output write_to(const attn_hopfield *m, void *data)
{
    return (attn_output){data ? data : ATTN_EMPTY, m->dtype, {0, 0, 0, 0}};
}

static attn_tensors tensors_of(const attn_hopfield *m, const void *states, void *updated, void *lse)
{
    return (attn_tensors){.struct_size = sizeof(attn_tensors),
                          .q = read_from(m, states),
                          .k = read_from(m, m->data),
                          .v = read_from(m, m->data),
                          .o = write_to(m, updated),
                          .lse = write_to(m, lse)};
}

static void *make_array(const attn_hopfield *m, int64_t count) { return malloc((size_t)count * attn_dtype_size(m->dtype) + 1); }

static void finish_energy(const attn_hopfield *m, int64_t count, const void *states, const void *lse, void *energy)
{
    for (int64_t i = 0; i < count; i++) {
        double square = 0;
        for (int64_t c = 0; c < m->dim; c++) {
            const double x = number_at(m->dtype, states, i * m->dim + c);
            square += x * x;
        }
        put_number(m->dtype, energy, i, square / 2 - number_at(m->dtype, lse, i) / m->beta);
    }
}

attn_status attn_hopfield_update(const attn_hopfield *memory, int64_t count, const void *states, void *updated, void *energy,
                                 attn_error *error)
{
    attn_hopfield m;
    TRY(hopfield_resolve(memory, count, &m, error));
    CHECK(states || count == 0, ATTN_ERR_ARGUMENT, "hopfield: states is NULL");
    CHECK(updated != states || !updated, ATTN_ERR_ARGUMENT, "hopfield: updated is the array of states");
    const attn_problem problem = problem_of(&m, count);
    void *lse = make_array(&m, count), *spare = updated ? NULL : make_array(&m, count * m.dim);
    attn_status status;
    if (!lse || !(updated || spare)) {
        status = fail(error, ATTN_ERR_MEMORY, "hopfield: out of memory");
    } else {
        const attn_tensors tensors = tensors_of(&m, states, updated ? updated : spare, lse);
        status = attn_compute(&problem, &tensors, error);
        if (status == ATTN_OK && energy) finish_energy(&m, count, states, lse, energy);
    }
    free(lse);
    free(spare);
    return status;
}

/* dE/dlse = -1/beta; dE/dx has x itself as well; patterns are keys and values. */
static attn_status backward(const attn_hopfield *m, int64_t count, const void *states, const void *grad_updated,
                            const void *grad_energy, void *parts[6], void *grad_states, void *grad_patterns, attn_error *error)
{
    attn_problem problem = problem_of(m, count);
    attn_tensors tensors = tensors_of(m, states, parts[0], parts[1]);
    TRY(attn_compute(&problem, &tensors, error));
    for (int64_t i = 0; i < count; i++)
        put_number(m->dtype, parts[2], i, grad_energy ? -number_at(m->dtype, grad_energy, i) / m->beta : 0);
    problem.op = ATTN_BACKWARD;
    memset(parts[3], 0, (size_t)(count * m->dim) * attn_dtype_size(m->dtype));
    tensors.grad_o = read_from(m, grad_updated ? grad_updated : parts[3]);
    tensors.grad_lse = read_from(m, parts[2]);
    tensors.grad_q = write_to(m, grad_states ? grad_states : parts[4]);
    tensors.grad_k = write_to(m, grad_patterns ? grad_patterns : parts[4]);
    if (!grad_states && !grad_patterns) return ATTN_OK;
    if (!grad_patterns) tensors.grad_k.data = (char *)parts[4] + (size_t)(count * m->dim) * attn_dtype_size(m->dtype);
    tensors.grad_v = write_to(m, parts[5]);
    TRY(attn_compute(&problem, &tensors, error));
    for (int64_t i = 0; grad_states && grad_energy && i < count * m->dim; i++)
        put_number(m->dtype, grad_states, i,
                   number_at(m->dtype, grad_states, i) +
                       number_at(m->dtype, grad_energy, i / m->dim) * number_at(m->dtype, states, i));
    for (int64_t i = 0; grad_patterns && i < m->patterns * m->dim; i++)
        put_number(m->dtype, grad_patterns, i, number_at(m->dtype, grad_patterns, i) + number_at(m->dtype, parts[5], i));
    return succeed(error);
}

attn_status attn_hopfield_update_backward(const attn_hopfield *memory, int64_t count, const void *states, const void *grad_updated,
                                          const void *grad_energy, void *grad_states, void *grad_patterns, attn_error *error)
{
    attn_hopfield m;
    TRY(hopfield_resolve(memory, count, &m, error));
    CHECK(states || count == 0, ATTN_ERR_ARGUMENT, "hopfield: states is NULL");
    const int64_t all = count * m.dim, stored = m.patterns * m.dim;
    void *parts[6] = {make_array(&m, all), make_array(&m, count),        make_array(&m, count),
                      make_array(&m, all), make_array(&m, all + stored), make_array(&m, stored)};
    attn_status status = ATTN_OK;
    for (int k = 0; k < 6; k++)
        if (!parts[k]) status = fail(error, ATTN_ERR_MEMORY, "hopfield: out of memory");
    if (status == ATTN_OK)
        status = backward(&m, count, states, grad_updated, grad_energy, parts, grad_states, grad_patterns, error);
    for (int k = 0; k < 6; k++) free(parts[k]);
    return status;
}

/* ---- retrieval ---- */

/* The largest move of state i from a to b. */
static double move_of(const attn_hopfield *m, int64_t i, const void *a, const void *b)
{
    double most = 0;
    for (int64_t c = i * m->dim; c < (i + 1) * m->dim; c++) {
        const double move = fabs(number_at(m->dtype, b, c) - number_at(m->dtype, a, c));
        if (!(move <= most)) most = move;
    }
    return most;
}

/* States settle one by one: a settled one stays as it is, and later updates of it are not taken. */
static attn_status settle(const attn_hopfield *m, int64_t count, int64_t most, double tolerance, void *now, void *next,
                          void *energy, int64_t *taken, double *energies, attn_error *error)
{
    const size_t row = (size_t)m->dim * attn_dtype_size(m->dtype);
    int64_t moving = count;
    for (int64_t step = 0; step <= most; step++) {
        TRY(attn_hopfield_update(m, count, now, next, energy, error));
        for (int64_t i = 0; energies && i < count; i++) energies[i * (most + 1) + step] = number_at(m->dtype, energy, i);
        if (step == most || moving == 0) {
            for (int64_t later = step + 1; energies && later <= most; later++)
                for (int64_t i = 0; i < count; i++) energies[i * (most + 1) + later] = energies[i * (most + 1) + step];
            break;
        }
        for (int64_t i = 0; i < count; i++) {
            if (taken[i] < 0) continue;
            const double move = move_of(m, i, now, next);
            memcpy((char *)now + (size_t)i * row, (char *)next + (size_t)i * row, row);
            taken[i]++;
            if (move < tolerance) taken[i] = -taken[i], moving--;
        }
    }
    return ATTN_OK;
}

attn_status attn_hopfield_retrieve(const attn_hopfield *memory, int64_t count, const void *states, int64_t most, double tolerance,
                                   void *found, int64_t *iterations, double *energies, attn_error *error)
{
    attn_hopfield m;
    TRY(hopfield_resolve(memory, count, &m, error));
    CHECK(states || count == 0, ATTN_ERR_ARGUMENT, "hopfield: states is NULL");
    CHECK(found || count == 0, ATTN_ERR_ARGUMENT, "hopfield: found is NULL");
    CHECK(found != states || count == 0, ATTN_ERR_ARGUMENT, "hopfield: found is the array of states");
    CHECK(most >= 0, ATTN_ERR_ARGUMENT, "hopfield: most (%" PRId64 ") is negative", most);
    CHECK(tolerance >= 0, ATTN_ERR_ARGUMENT, "hopfield: tolerance is %g; it must be at least 0", tolerance);
    const size_t bytes = (size_t)(count * m.dim) * attn_dtype_size(m.dtype);
    void *now = make_array(&m, count * m.dim), *next = make_array(&m, count * m.dim), *energy = make_array(&m, count);
    int64_t *taken = calloc((size_t)count + 1, sizeof *taken);
    attn_status status;
    if (!now || !next || !energy || !taken) {
        status = fail(error, ATTN_ERR_MEMORY, "hopfield: out of memory");
    } else {
        memcpy(now, states, bytes);
        status = settle(&m, count, most, tolerance, now, next, energy, taken, energies, error);
    }
    if (status == ATTN_OK) {
        memcpy(found, now, bytes);
        for (int64_t i = 0; iterations && i < count; i++) iterations[i] = taken[i] < 0 ? -taken[i] : taken[i];
        status = succeed(error);
    }
    free(now);
    free(next);
    free(energy);
    free(taken);
    return status;
}
