/* SPDX-License-Identifier: MIT
 * rules.c - the rules of a memory and of the tensors of its calls, with the message for each violation. */
#include <math.h>

#include "../common/places.h"
#include "internal.h"

/* A dense array of this shape, or NULL if the slot is absent. */
static attn_status bind(const char *name, attn_input slot, attn_dtype dtype, int64_t rows, int64_t columns, const void **data,
                        attn_error *error)
{
    char label[64];
    const int64_t shape[4] = {1, 1, rows, columns};
    const int implied = slot_is_dense(&slot);
    (void)snprintf(label, sizeof label, "hopfield: %s", name);
    TRY(slot_check(&slot, label, rows > 0, error));
    *data = NULL;
    if (!slot.data) return ATTN_OK;
    CHECK(!slot.dtype || slot.dtype == dtype, ATTN_ERR_UNSUPPORTED, "%s is %s; it must be %s", label, attn_dtype_name(slot.dtype),
          attn_dtype_name(dtype));
    CHECK(implied || ((rows <= 1 || slot.stride[2] == columns) && (columns == 1 || slot.stride[3] == 1)), ATTN_ERR_STRIDE,
          "%s has strides; it must be dense (all 0)", label);
    TRY(slot_resolve(&slot, label, shape, dtype, error));
    CHECK((uintptr_t)slot.data % attn_dtype_size(dtype) == 0 || rows == 0, ATTN_ERR_ARGUMENT,
          "%s is not aligned to its elements of %zu bytes", label, attn_dtype_size(dtype));
    *data = slot.data;
    return ATTN_OK;
}

attn_status attn_hopfield_resolve(const attn_hopfield *caller, int64_t count, hopfield *m, attn_error *error)
{
    attn_hopfield given;
    CHECK(caller, ATTN_ERR_ARGUMENT, "hopfield: memory is NULL");
    TRY(slots_read(&given, sizeof given, sizeof given, caller, "attn_hopfield", error));
    const attn_dtype dtype = given.dtype ? given.dtype : ATTN_F32;
    CHECK(dtype == ATTN_F32 || dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "hopfield: dtype is %s; it must be f32 or f64",
          attn_dtype_name(dtype));
    CHECK(given.stored >= 1, ATTN_ERR_SHAPE, "hopfield: stored is %" PRId64 "; it must be at least 1", given.stored);
    CHECK(given.dim >= 1, ATTN_ERR_SHAPE, "hopfield: dim is %" PRId64 "; it must be at least 1", given.dim);
    CHECK(count >= 0, ATTN_ERR_SHAPE, "hopfield: count (%" PRId64 ") is negative", count);
    CHECK(given.dim <= INT64_MAX / 16 / given.stored && (count == 0 || given.dim <= INT64_MAX / 16 / count), ATTN_ERR_SHAPE,
          "hopfield: the arrays are too large: their bytes overflow 64 bits");
    CHECK(given.beta >= 0 && isfinite(given.beta), ATTN_ERR_ARGUMENT,
          "hopfield: beta is %g; it must be above 0 and finite (0 for 1)", given.beta);
    for (int k = 0; k < 4; k++)
        CHECK(given.reserved[k] == 0, ATTN_ERR_ARGUMENT, "hopfield: reserved[%d] is %" PRId64 "; it must be 0", k,
              given.reserved[k]);
    *m = (hopfield){.dtype = dtype, .patterns = given.stored, .dim = given.dim, .beta = given.beta > 0 ? given.beta : 1};
    TRY(options_read(&m->options, given.options, error));
    attn_options known = {.struct_size = sizeof known};
    if (given.options) TRY(attn_options_resolve(given.options, &known, error)); /* not every function here plans */
    TRY(bind("patterns", given.patterns, dtype, given.stored, given.dim, &m->data, error));
    CHECK(m->data, ATTN_ERR_ARGUMENT, "hopfield: patterns is missing");
    return ATTN_OK;
}

/* Each slot of attn_hopfield_tensors, and whether each function needs it, takes it or rejects it. */
typedef enum part { NONE, OPTIONAL, NEEDED } part;
typedef struct row {
    const char *name;
    int output;
    part need[HOPFIELD_USES];
} row;

enum { STATES, UPDATED, ENERGY, GRAD_UPDATED, GRAD_ENERGY, GRAD_STATES, GRAD_PATTERNS, ITERATIONS, ENERGIES, SLOTS };

static const row rows[SLOTS] = {
    [STATES] = {"states", 0, {NEEDED, NEEDED, NEEDED, NEEDED}},
    [UPDATED] = {"updated", 1, {OPTIONAL, NONE, NEEDED, OPTIONAL}},
    [ENERGY] = {"energy", 1, {OPTIONAL, NONE, NONE, OPTIONAL}},
    [GRAD_UPDATED] = {"grad_updated", 0, {NONE, OPTIONAL, NONE, NONE}},
    [GRAD_ENERGY] = {"grad_energy", 0, {NONE, OPTIONAL, NONE, NONE}},
    [GRAD_STATES] = {"grad_states", 1, {NONE, OPTIONAL, NONE, NONE}},
    [GRAD_PATTERNS] = {"grad_patterns", 1, {NONE, OPTIONAL, NONE, NONE}},
    [ITERATIONS] = {"iterations", 1, {NONE, NONE, OPTIONAL, NONE}},
    [ENERGIES] = {"energies", 1, {NONE, NONE, OPTIONAL, NONE}},
};
static const char *const functions[HOPFIELD_USES] = {"attn_hopfield_update", "attn_hopfield_update_backward",
                                                     "attn_hopfield_retrieve", "attn_hopfield_classical"};

_Static_assert(sizeof(attn_hopfield_tensors) == offsetof(attn_hopfield_tensors, states) + SLOTS * sizeof(attn_input),
               "a row for each slot");

static void *written(const void *data) { return (void *)(uintptr_t)data; }

attn_status attn_hopfield_bind(const hopfield *m, int64_t count, int64_t most, hopfield_use use,
                               const attn_hopfield_tensors *caller, hopfield_arrays *arrays, attn_error *error)
{
    attn_hopfield_tensors given;
    const void *data[SLOTS];
    places all = {.size = attn_dtype_size(m->dtype)};
    const int64_t of_patterns[4] = {1, 1, m->patterns, m->dim}, dense[4] = {0, 0, m->dim, 1};
    CHECK(caller, ATTN_ERR_ARGUMENT, "hopfield: tensors is NULL");
    TRY(slots_read(&given, sizeof given, sizeof given, caller, "attn_hopfield_tensors", error));
    CHECK(!given.call, ATTN_ERR_ARGUMENT, "hopfield: call is set; it must be NULL");
    places_add(&all, "", "patterns", m->data, of_patterns, dense, 0);
    for (int s = 0; s < SLOTS; s++) {
        attn_input slot;
        const attn_dtype dtype = s == ITERATIONS ? ATTN_I64 : s == ENERGIES ? ATTN_F64 : m->dtype;
        const int64_t count_of = s == GRAD_PATTERNS ? m->patterns : count,
                      width = s == ENERGIES                                        ? most + 1
                              : s == ENERGY || s == GRAD_ENERGY || s == ITERATIONS ? 1
                                                                                   : m->dim;
        memcpy(&slot, (const char *)&given + offsetof(attn_hopfield_tensors, states) + (size_t)s * sizeof slot, sizeof slot);
        TRY(bind(rows[s].name, slot, dtype, count_of, width, &data[s], error));
        CHECK(!data[s] || rows[s].need[use], ATTN_ERR_ARGUMENT, "hopfield: %s is set; %s does not use it", rows[s].name,
              functions[use]);
        CHECK(data[s] || rows[s].need[use] != NEEDED, ATTN_ERR_ARGUMENT, "hopfield: %s is missing", rows[s].name);
        const int64_t shape[4] = {1, 1, count_of, width}, stride[4] = {0, 0, width, 1};
        all.size = attn_dtype_size(dtype);
        places_add(&all, "", rows[s].name, data[s], shape, stride, rows[s].output);
    }
    TRY(places_check(&all, "hopfield", error));
    *arrays = (hopfield_arrays){.states = data[STATES],
                                .updated = written(data[UPDATED]),
                                .energy = written(data[ENERGY]),
                                .grad_updated = data[GRAD_UPDATED],
                                .grad_energy = data[GRAD_ENERGY],
                                .grad_states = written(data[GRAD_STATES]),
                                .grad_patterns = written(data[GRAD_PATTERNS]),
                                .iterations = written(data[ITERATIONS]),
                                .energies = written(data[ENERGIES])};
    return ATTN_OK;
}
