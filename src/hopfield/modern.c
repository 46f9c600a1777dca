/* SPDX-License-Identifier: MIT
 * modern.c - the modern Hopfield network through the core's attention: E = -lse / beta + |x|^2 / 2. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "internal.h"

static attn_problem problem_of(const hopfield *m, int64_t count)
{
    return (attn_problem){.struct_size = sizeof(attn_problem),
                          .shape = {1, 1, 1, count, m->patterns, m->dim, m->dim},
                          .score = {.scale_kind = ATTN_SCALE_VALUE, .scale = m->beta}};
}

/* A dense array; NULL only without states, and then it has no elements. */
static attn_input read_from(const hopfield *m, const void *data)
{
    return (attn_input){data ? data : ATTN_EMPTY, m->dtype, {0, 0, 0, 0}};
}
static attn_output write_to(const hopfield *m, void *data)
{
    return (attn_output){data ? data : ATTN_EMPTY, m->dtype, {0, 0, 0, 0}};
}

static attn_tensors tensors_of(const hopfield *m, const void *states, void *updated, void *lse)
{
    return (attn_tensors){.struct_size = sizeof(attn_tensors),
                          .q = read_from(m, states),
                          .k = read_from(m, m->data),
                          .v = read_from(m, m->data),
                          .o = write_to(m, updated),
                          .lse = write_to(m, lse)};
}

static void finish_energy(const hopfield *m, int64_t count, const void *states, const void *lse, void *energy)
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

/* The update of `count` states, planned once; nothing fails after that.  spare: scratch for an output that the caller omits. */
typedef struct update {
    execution run;
    void *lse, *spare;
} update;

/* Call update_end afterwards, even on failure. */
static attn_status update_begin(update *u, const hopfield *m, int64_t count, int has_updated, attn_error *error)
{
    const attn_problem problem = problem_of(m, count);
    *u = (update){.lse = hopfield_acquire(m, count), .spare = has_updated ? NULL : hopfield_acquire(m, count * m->dim)};
    CHECK(u->lse && (has_updated || u->spare), ATTN_ERR_MEMORY, "hopfield: cannot allocate memory");
    const attn_tensors tensors = tensors_of(m, ATTN_LATER, ATTN_LATER, u->lse);
    return execution_begin(&u->run, &problem, &tensors, &m->options, error);
}

static attn_status update_run(const update *u, const hopfield *m, int64_t count, const void *states, void *updated, void *energy,
                              attn_error *error)
{
    const attn_tensors tensors = tensors_of(m, states, updated ? updated : u->spare, u->lse);
    TRY(execution_run(&u->run, &tensors, error));
    if (energy) finish_energy(m, count, states, u->lse, energy);
    return ATTN_OK;
}

static void update_end(update *u, const hopfield *m)
{
    execution_end(&u->run, &m->options);
    hopfield_release(m, u->spare);
    hopfield_release(m, u->lse);
}

attn_status attn_hopfield_resolved_update(const hopfield *m, int64_t count, const void *states, void *updated, void *energy,
                                          attn_error *error)
{
    update u;
    attn_status status = update_begin(&u, m, count, updated != NULL, error);
    if (status == ATTN_OK) status = update_run(&u, m, count, states, updated, energy, error);
    update_end(&u, m);
    return status;
}

attn_status attn_hopfield_update(const attn_hopfield *memory, int64_t count, const attn_hopfield_tensors *tensors,
                                 attn_error *error)
{
    hopfield m;
    hopfield_arrays a;
    TRY(attn_hopfield_resolve(memory, count, &m, error));
    TRY(attn_hopfield_bind(&m, count, 0, HOPFIELD_UPDATE, tensors, &a, error));
    return attn_hopfield_resolved_update(&m, count, a.states, a.updated, a.energy, error);
}

/* dE/dlse = -1/beta; dE/dx also has the term x; patterns are both keys and values, so their two gradients add up. */
static attn_status backward(const hopfield *m, int64_t count, const void *states, const void *grad_updated, const void *grad_energy,
                            void *parts[6], void *grad_states, void *grad_patterns, attn_error *error)
{
    attn_problem problem = problem_of(m, count);
    attn_tensors tensors = tensors_of(m, states, parts[0], parts[1]);
    TRY(options_compute(&problem, &tensors, &m->options, error));
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
    TRY(options_compute(&problem, &tensors, &m->options, error));
    for (int64_t i = 0; grad_states && grad_energy && i < count * m->dim; i++)
        put_number(m->dtype, grad_states, i,
                   number_at(m->dtype, grad_states, i) +
                       number_at(m->dtype, grad_energy, i / m->dim) * number_at(m->dtype, states, i));
    for (int64_t i = 0; grad_patterns && i < m->patterns * m->dim; i++)
        put_number(m->dtype, grad_patterns, i, number_at(m->dtype, grad_patterns, i) + number_at(m->dtype, parts[5], i));
    return succeed(error);
}

attn_status attn_hopfield_update_backward(const attn_hopfield *memory, int64_t count, const attn_hopfield_tensors *tensors,
                                          attn_error *error)
{
    hopfield m;
    hopfield_arrays a;
    TRY(attn_hopfield_resolve(memory, count, &m, error));
    TRY(attn_hopfield_bind(&m, count, 0, HOPFIELD_BACKWARD, tensors, &a, error));
    const int64_t all = count * m.dim, stored = m.patterns * m.dim;
    const int64_t sizes[6] = {all, count, count, all, all + stored, stored};
    void *parts[6];
    attn_status status = ATTN_OK;
    for (int k = 0; k < 6; k++)
        if (!(parts[k] = hopfield_acquire(&m, sizes[k]))) status = fail(error, ATTN_ERR_MEMORY, "hopfield: cannot allocate memory");
    if (status == ATTN_OK)
        status = backward(&m, count, a.states, a.grad_updated, a.grad_energy, parts, a.grad_states, a.grad_patterns, error);
    for (int k = 0; k < 6; k++) hopfield_release(&m, parts[k]);
    return status;
}

/* ---- retrieval ---- */

/* The largest change of a component of state i from a to b. */
static double move_of(const hopfield *m, int64_t i, const void *a, const void *b)
{
    double most = 0;
    for (int64_t c = i * m->dim; c < (i + 1) * m->dim; c++) {
        const double move = fabs(number_at(m->dtype, b, c) - number_at(m->dtype, a, c));
        if (!(move <= most)) most = move;
    }
    return most;
}

/* Each state converges on its own; later updates of a converged one are discarded (taken[i] < 0 marks it). */
static attn_status iterate(const update *u, const hopfield *m, int64_t count, int64_t most, double tolerance, void *now, void *next,
                           void *energy, int64_t *taken, double *energies, attn_error *error)
{
    const size_t row = (size_t)m->dim * attn_dtype_size(m->dtype);
    int64_t moving = count;
    for (int64_t step = 0; step <= most; step++) {
        TRY(update_run(u, m, count, now, next, energy, error));
        for (int64_t i = 0; energies && i < count; i++) energies[i * (most + 1) + step] = number_at(m->dtype, energy, i);
        if (step == most || moving == 0) {
            for (int64_t later = step + 1; energies && count > 0 && later <= most; later++)
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

attn_status attn_hopfield_check_limit(int64_t most, attn_error *error)
{
    CHECK(most >= 0, ATTN_ERR_ARGUMENT, "hopfield: most (%" PRId64 ") is negative", most);
    CHECK(most < INT64_MAX, ATTN_ERR_SHAPE, "hopfield: most (%" PRId64 ") plus one overflows 64 bits", most);
    return ATTN_OK;
}

attn_status attn_hopfield_resolved_retrieve(const hopfield *m, int64_t count, int64_t most, double tolerance,
                                            const hopfield_arrays *arrays, attn_error *error)
{
    CHECK(tolerance >= 0, ATTN_ERR_ARGUMENT, "hopfield: tolerance is %g; it must be at least 0", tolerance);
    const size_t bytes = (size_t)(count * m->dim) * attn_dtype_size(m->dtype);
    void *now = hopfield_acquire(m, count * m->dim), *next = hopfield_acquire(m, count * m->dim),
         *energy = hopfield_acquire(m, count);
    int64_t *taken = options_acquire(&m->options, (size_t)count * sizeof *taken);
    update u;
    attn_status status = update_begin(&u, m, count, 1, error);
    if (status == ATTN_OK && !(now && next && energy && taken))
        status = fail(error, ATTN_ERR_MEMORY, "hopfield: cannot allocate memory");
    if (status == ATTN_OK) {
        memset(taken, 0, (size_t)count * sizeof *taken);
        if (bytes) memcpy(now, arrays->states, bytes);
        status = iterate(&u, m, count, most, tolerance, now, next, energy, taken, arrays->energies, error);
    }
    if (status == ATTN_OK) {
        if (bytes) memcpy(arrays->updated, now, bytes);
        for (int64_t i = 0; arrays->iterations && i < count; i++) arrays->iterations[i] = taken[i] < 0 ? -taken[i] : taken[i];
        status = succeed(error);
    }
    update_end(&u, m);
    hopfield_release(m, now);
    hopfield_release(m, next);
    hopfield_release(m, energy);
    hopfield_release(m, taken);
    return status;
}

attn_status attn_hopfield_retrieve(const attn_hopfield *memory, int64_t count, int64_t most, double tolerance,
                                   const attn_hopfield_tensors *tensors, attn_error *error)
{
    hopfield m;
    hopfield_arrays a;
    TRY(attn_hopfield_resolve(memory, count, &m, error));
    TRY(attn_hopfield_check_limit(most, error));
    TRY(attn_hopfield_bind(&m, count, most, HOPFIELD_RETRIEVE, tensors, &a, error));
    return attn_hopfield_resolved_retrieve(&m, count, most, tolerance, &a, error);
}
