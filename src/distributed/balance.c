/* SPDX-License-Identifier: MIT
 * balance.c - owners of parts such that all ranks have about the same work. */
#include <stdlib.h>

#include "../common/options.h"
#include "../common/places.h"
#include "index.h"
#include "split.h"

/* A part of queries, and the keys that its queries see, added up. */
typedef struct load {
    double pairs;
    int64_t part;
} load;

static void fill_loads(load *loads, int64_t count, int64_t part, const attn_problem *problem, const attn_grid_index *x)
{
    for (int64_t n = 0; n < count; n++) loads[n] = (load){0, n};
    for (int64_t b = 0; b < x->entries; b++) {
        const attn_entry e = attn_entry_at(x, &problem->shape, b);
        for (int64_t i = 0; i < e.queries && e.keys > 0; i++)
            loads[(e.first_q + i) / part].pairs += attn_keys_count(&problem->mask, i + e.offset, e.keys);
    }
}

static int by_load(const void *a, const void *b)
{
    const load *x = a, *y = b;
    return x->pairs != y->pairs ? (x->pairs > y->pairs ? -1 : 1) : x->part < y->part ? -1 : 1;
}

/* The largest part first, to the rank with the least work of those that do not have their share of parts yet (Graham 1969). */
static void assign(load *loads, int64_t count, int ranks, double *work, int64_t *owned, int32_t *owners)
{
    const int64_t most = attn_parts_of(count, ranks);
    for (int r = 0; r < ranks; r++) work[r] = 0, owned[r] = 0;
    qsort(loads, (size_t)count, sizeof *loads, by_load);
    for (int64_t n = 0; n < count; n++) {
        int least = -1;
        for (int r = 0; r < ranks; r++)
            if (owned[r] < most && (least < 0 || work[r] < work[least])) least = r;
        owners[loads[n].part] = (int32_t)least;
        work[least] += loads[n].pairs;
        owned[least]++;
    }
}

/* Keys belong to the rank of the queries at their place, if there are as many; else to ranges of ranks. */
static void follow(const int32_t *owners_q, int64_t count_q, int32_t *owners_kv, int64_t count_kv, int ranks)
{
    const attn_split contiguous = {.struct_size = sizeof contiguous};
    for (int64_t n = 0; n < count_kv; n++)
        owners_kv[n] = count_q == count_kv ? owners_q[n] : attn_split_owner(&contiguous, ATTN_AXIS_KEY, n, count_kv, ranks);
}

typedef struct balancing {
    attn_options options;
    attn_split split;
    attn_problem problem;
    attn_tensors tensors;
    attn_grid_index index;
    int64_t *numbers;
    void *memory;
} balancing;

static attn_status check_owners(const attn_output *slot, const char *name, int64_t parts, attn_error *error)
{
    const attn_input s = slot_of(slot);
    TRY(slot_check(&s, name, parts > 0, error));
    CHECK(s.data, ATTN_ERR_ARGUMENT, "%s is missing", name);
    CHECK(s.dtype == ATTN_I32, ATTN_ERR_UNSUPPORTED, "%s is %s; it must be i32", name, attn_dtype_name(s.dtype));
    CHECK(slot_is_dense(&s) || s.stride[0] == 1, ATTN_ERR_STRIDE, "%s must be dense", name);
    return slot_aligned(&s, name, sizeof(int32_t), error);
}

static attn_status balance(balancing *x, int ranks, const attn_output *owners_q, const attn_output *owners_kv, attn_error *error)
{
    const attn_shape *s = &x->problem.shape;
    CHECK(ranks >= 1, ATTN_ERR_ARGUMENT, "ranks is %d; it must be at least 1", ranks);
    TRY(attn_index_check(s, error));
    x->numbers = options_acquire(&x->options, attn_index_bytes(s->batch));
    CHECK(x->numbers, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of lengths", attn_index_bytes(s->batch));
    TRY(attn_index_read(&x->index, &x->tensors, &x->problem, x->numbers, error));
    const attn_range tokens = attn_index_tokens(&x->index, &x->problem);
    TRY(attn_split_check(&x->split, tokens.first, ATTN_AXIS_QUERY, "the number of queries", error));
    TRY(attn_split_check(&x->split, tokens.end, ATTN_AXIS_KEY, "the number of keys", error));
    const int64_t part = x->split.part, count_q = attn_parts_of(tokens.first, part), count_kv = attn_parts_of(tokens.end, part);
    TRY(check_owners(owners_q, "owners_q", count_q, error));
    TRY(check_owners(owners_kv, "owners_kv", count_kv, error));
    places both = {.size = sizeof(int32_t)};
    places_add_numbers(&both, "owners_q", owners_q->data, 1, 1, count_q, 1);
    places_add_numbers(&both, "owners_kv", owners_kv->data, 1, 1, count_kv, 1);
    TRY(places_check(&both, "balance", error));
    const size_t bytes = (size_t)count_q * sizeof(load) + (size_t)ranks * (sizeof(double) + sizeof(int64_t));
    x->memory = options_acquire(&x->options, bytes);
    CHECK(x->memory, ATTN_ERR_MEMORY, "cannot allocate %zu bytes to balance parts", bytes);
    load *const loads = x->memory;
    double *const work = (double *)(void *)(loads + count_q);
    fill_loads(loads, count_q, part, &x->problem, &x->index);
    assign(loads, count_q, ranks, work, (int64_t *)(void *)(work + ranks), owners_q->data);
    follow(owners_q->data, count_q, owners_kv->data, count_kv, ranks);
    return ATTN_OK;
}

attn_status attn_split_balance(const attn_problem *problem, int ranks, const attn_tensors *tensors, const attn_split *split,
                               const attn_output *owners_q, const attn_output *owners_kv, attn_error *error)
{
    balancing x = {.options.struct_size = sizeof x.options};
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    CHECK(owners_q && owners_kv, ATTN_ERR_ARGUMENT, "owners_%s is NULL", owners_q ? "kv" : "q");
    TRY(struct_read(&x.problem, sizeof x.problem, sizeof x.problem, problem, "attn_problem", error));
    TRY(slots_read(&x.tensors, sizeof x.tensors, sizeof x.tensors, tensors, "attn_tensors", error));
    TRY(attn_split_read(&x.split, split, error));
    x.split.layout = ATTN_LAYOUT_CONTIGUOUS; /* owners are what is asked for */
    const attn_status status = balance(&x, ranks, owners_q, owners_kv, error);
    options_release(&x.options, x.memory);
    options_release(&x.options, x.numbers);
    return status == ATTN_OK ? succeed(error) : status;
}
