/* SPDX-License-Identifier: MIT
 * linear_pass.c - see linear_pass.h. */
#include "linear_pass.h"

#include "../common/options.h"
#include "grid.h"

/* ---- who has what ---- */

/* The first part of a rank: part n belongs to rank n ranks / parts. */
static int64_t first_part(int64_t parts, int rank, int ranks) { return (parts * rank + ranks - 1) / ranks; }

attn_stretch attn_stretch_of(int64_t tokens, int64_t part, int rank, int ranks)
{
    const int64_t parts = attn_parts_of(tokens, part), first = first_part(parts, rank, ranks),
                  end = first_part(parts, rank + 1, ranks);
    attn_stretch s = {.parts_total = parts, .tokens_total = tokens, .part = first, .parts = end - first};
    s.first = attn_min(first * part, tokens);
    s.tokens = attn_min(end * part, tokens) - s.first;
    s.before = s.parts > 0 && first > 0 ? (int)((first - 1) * ranks / parts) : -1;
    s.after = s.parts > 0 && end < parts ? (int)(end * ranks / parts) : -1;
    s.last = parts > 0 ? (int)((parts - 1) * ranks / parts) : -1;
    return s;
}

/* The largest divisor of n that is at most `most`, at least 1. */
static int64_t divisor(int64_t n, int64_t most)
{
    int64_t d = attn_max(1, attn_min(n, most));
    while (d > 1 && n % d != 0) d--;
    return d;
}

void attn_linear_passes_divide(attn_linear_passes *p, int ranks)
{
    const attn_shape *s = &p->problem.shape;
    const int64_t wanted = ranks > 1 && !p->scans ? 8 * (int64_t)ranks : 1;
    int64_t of_batch = divisor(s->batch, wanted), of_heads = 1;
    if (of_batch < wanted / 4 && s->batch <= 8 * wanted) of_batch = attn_max(1, s->batch); /* it has no divisor near */
    if (of_batch == s->batch) of_heads = divisor(s->heads_kv, wanted / of_batch);
    p->entries = s->batch / of_batch;
    p->heads = s->heads_kv / of_heads;
    p->groups = of_batch * of_heads;
}

/* ---- calls ---- */

static const struct {
    attn_op op;
    int queries, keys;
} kinds[ATTN_PASS_KINDS] = {[ATTN_PASS_STATES] = {ATTN_FORWARD, 0, 1},
                            [ATTN_PASS_TOKENS] = {ATTN_FORWARD, 1, 1},
                            [ATTN_PASS_QUERIES] = {ATTN_FORWARD, 1, 0},
                            [ATTN_PASS_BACKWARD] = {ATTN_BACKWARD, 1, 1},
                            [ATTN_PASS_BACKWARD_QUERIES] = {ATTN_BACKWARD, 1, 0},
                            [ATTN_PASS_BACKWARD_KEYS] = {ATTN_BACKWARD, 0, 1},
                            [ATTN_PASS_MAPS] = {ATTN_FORWARD, 0, 1}};

/* The library's problem for `tokens` tokens. */
static attn_linear_problem problem_of(const attn_linear_passes *p, attn_pass_kind kind, int64_t tokens)
{
    attn_linear_problem x = p->problem;
    const int64_t per_key_head = x.shape.heads_kv > 0 ? x.shape.heads_q / x.shape.heads_kv : 0;
    x.op = kinds[kind].op;
    x.shape.batch = p->entries;
    x.shape.heads_kv = p->heads;
    x.shape.heads_q = kinds[kind].queries ? p->heads * per_key_head : 0;
    x.shape.len_q = kinds[kind].queries || x.causal ? tokens : 0;
    x.shape.len_kv = kinds[kind].keys ? tokens : 0;
    if (kind != ATTN_PASS_MAPS) return x;
    x.shape.dim_v = p->map_width;
    x.denominator = ATTN_DENOMINATOR_NONE;
    return x;
}

static attn_input *slot_at(attn_linear_tensors *t, size_t offset) { return (attn_input *)(void *)((char *)t + offset); }

const attn_linear_bound *attn_linear_bound_at(const attn_linear_passes *p, size_t offset)
{
    const size_t first = offsetof(attn_linear_tensors, q);
    return &p->bound[(offset - first) / sizeof(attn_input)];
}

/* Moves a slot of the caller to an entry, a key head and a token; four strides of 0 would mean dense. */
static void move_slot(const attn_linear_passes *p, const attn_linear_bound *b, attn_input *slot, const attn_input *of,
                      int64_t entry, int64_t head, int64_t token)
{
    const attn_shape *s = &p->problem.shape;
    const int64_t group = s->heads_kv > 0 ? s->heads_q / s->heads_kv : 0, *stride = b->plan.stride;
    *slot = (attn_input){of->data, b->plan.dtype, {stride[0], stride[1], stride[2], stride[3]}};
    if (slot_is_dense(slot) && b->plan.role == ATTN_ROLE_INPUT) slot->stride[0] = ATTN_BROADCAST;
    if (!slot_is_address(of)) return;
    int64_t at = 0;
    for (int axis = 0; axis < 3; axis++) switch (b->about.axes[axis]) {
        case ATTN_AXIS_BATCH:
            at += entry * stride[axis];
            break;
        case ATTN_AXIS_HEAD_Q:
            at += head * group * stride[axis];
            break;
        case ATTN_AXIS_HEAD_KV:
            at += head * stride[axis];
            break;
        case ATTN_AXIS_QUERY:
        case ATTN_AXIS_KEY:
            at += token * stride[axis];
            break;
        default:
            break;
        }
    slot->data = (const char *)of->data + at * (int64_t)attn_dtype_size(b->plan.dtype);
}

/* The states of a call, in memory of this module; with ATTN_LATER where that is not known yet. */
static void set_states(const attn_linear_passes *p, attn_linear_tensors *t, const attn_pass_states *states)
{
    const struct {
        char *memory;
        size_t state, sum;
    } all[] = {
        {states->before, offsetof(attn_linear_tensors, initial_state), offsetof(attn_linear_tensors, initial_sum)},
        {states->after, offsetof(attn_linear_tensors, final_state), offsetof(attn_linear_tensors, final_sum)},
        {states->gradient_after, offsetof(attn_linear_tensors, grad_final_state), offsetof(attn_linear_tensors, grad_final_sum)},
        {states->gradient_before, offsetof(attn_linear_tensors, grad_initial_state),
         offsetof(attn_linear_tensors, grad_initial_sum)}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        char *const memory = all[n].memory;
        if (!memory) continue;
        const int later = memory == ATTN_LATER;
        slot_at(t, all[n].state)->data = later ? memory : p->state ? memory : ATTN_EMPTY;
        if (p->normalised) slot_at(t, all[n].sum)->data = later ? memory : p->sum ? memory + p->state : ATTN_EMPTY;
    }
}

/* All heads and tokens share the identity, and a row of zeros as values. */
static void set_maps(const attn_linear_passes *p, attn_linear_tensors *t, const attn_pass_states *states)
{
    t->v = (attn_input){states->values, p->compute, {ATTN_BROADCAST, 0, 0, 1}};
    t->initial_state = (attn_input){states->before, p->compute, {ATTN_BROADCAST, 0, p->map_width, 1}};
    t->final_state = (attn_output){states->after, p->compute, {0, 0, 0, 0}};
}

static int is_state(const attn_tensor_description *d) { return d->axes[2] == ATTN_AXIS_FEATURE; }

/* What of the caller's tensors a call has, and the states. */
static void fill(const attn_linear_passes *p, attn_pass_kind kind, int64_t g, int64_t token, const attn_linear_tensors *mine,
                 const char *lengths, const attn_pass_states *states, attn_linear_tensors *t)
{
    const int64_t per_entry = p->heads > 0 ? p->problem.shape.heads_kv / p->heads : 1, entry = g / per_entry * p->entries,
                  head = g % per_entry * p->heads;
    *t = (attn_linear_tensors){.struct_size = sizeof *t};
    for (const attn_linear_bound *b = p->bound; b < p->bound + ATTN_LINEAR_BOUNDS; b++) {
        const attn_tensor_description *d = &b->about;
        attn_input *slot = slot_at(t, d->offset);
        const int passed = b->plan.role != ATTN_ROLE_NONE, of_queries = d->axes[1] == ATTN_AXIS_HEAD_Q,
                  of_keys = d->axes[2] == ATTN_AXIS_KEY, of_lengths = d->offset == offsetof(attn_linear_tensors, lengths);
        if (d->role[kinds[kind].op] == ATTN_ROLE_NONE || is_state(d)) continue;
        if ((of_queries && !kinds[kind].queries) || (of_keys && !kinds[kind].keys)) {
            if ((passed && kind != ATTN_PASS_MAPS) || d->need[kinds[kind].op] == ATTN_NEED_ALWAYS)
                *slot = (attn_input){ATTN_EMPTY, b->plan.dtype, {0, 0, 0, 0}};
        } else if (passed && !of_lengths) {
            move_slot(p, b, slot, slot_at((attn_linear_tensors *)(uintptr_t)mine, d->offset), entry, head, token);
        } else if (passed && kinds[kind].keys) {
            const char *const own = lengths ? lengths + entry * (int64_t)attn_dtype_size(b->plan.dtype) : ATTN_LATER;
            *slot = (attn_input){own, b->plan.dtype, {0, 0, 0, 0}};
        }
    }
    if (kind == ATTN_PASS_MAPS) set_maps(p, t, states);
    else set_states(p, t, states);
}

/* ---- plans ---- */

static attn_status plan_one(attn_linear_passes *p, attn_pass_kind kind, int ragged, int64_t tokens, attn_error *error)
{
    const int backward = kinds[kind].op == ATTN_BACKWARD;
    const attn_pass_states states = {.before = kind == ATTN_PASS_BACKWARD_KEYS ? NULL : ATTN_LATER,
                                     .after = backward || kind == ATTN_PASS_QUERIES ? NULL : ATTN_LATER,
                                     .gradient_after = backward ? ATTN_LATER : NULL,
                                     .gradient_before = backward && kinds[kind].queries ? ATTN_LATER : NULL,
                                     .values = ATTN_LATER};
    attn_linear_problem problem = problem_of(p, kind, tokens);
    attn_linear_tensors t;
    if (p->plan[kind][ragged]) return ATTN_OK;
    fill(p, kind, 0, 0, &p->planned, NULL, &states, &t);
    TRY(attn_linear_plan_create(&p->plan[kind][ragged], &problem, &t, &p->options, error));
    const size_t size = attn_linear_plan_workspace_size(p->plan[kind][ragged]);
    if (size > p->workspace) p->workspace = size;
    return ATTN_OK;
}

static attn_status plan_kind(attn_linear_passes *p, attn_pass_kind kind, const attn_stretch *along, attn_error *error)
{
    const int ragged = along->tokens % p->part != 0;
    if (along->parts > ragged) TRY(plan_one(p, kind, 0, p->part, error));
    return ragged ? plan_one(p, kind, 1, along->tokens % p->part, error) : ATTN_OK;
}

attn_status attn_linear_passes_plan(attn_linear_passes *p, attn_error *error)
{
    const int backward = p->problem.op == ATTN_BACKWARD;
    if (p->scans && p->map_width > 0) TRY(plan_kind(p, ATTN_PASS_MAPS, &p->kv, error));
    if (p->problem.causal) {
        if (backward || p->scans) TRY(plan_kind(p, ATTN_PASS_STATES, &p->kv, error));
        return plan_kind(p, backward ? ATTN_PASS_BACKWARD : ATTN_PASS_TOKENS, &p->kv, error);
    }
    TRY(plan_kind(p, ATTN_PASS_STATES, &p->kv, error));
    TRY(plan_kind(p, backward ? ATTN_PASS_BACKWARD_QUERIES : ATTN_PASS_QUERIES, &p->q, error));
    return backward ? plan_kind(p, ATTN_PASS_BACKWARD_KEYS, &p->kv, error) : ATTN_OK;
}

void attn_linear_passes_free(attn_linear_passes *p)
{
    for (int kind = 0; kind < ATTN_PASS_KINDS; kind++)
        for (int ragged = 0; ragged < 2; ragged++) attn_linear_plan_destroy(p->plan[kind][ragged]);
}

attn_status attn_linear_pass_run(const attn_linear_passes *p, attn_pass_kind kind, int64_t g, int64_t n,
                                 const attn_linear_tensors *mine, const char *lengths, const attn_pass_states *states,
                                 void *workspace, attn_error *error)
{
    const attn_stretch *along = kinds[kind].keys ? &p->kv : &p->q;
    const int ragged = attn_stretch_tokens(along, p->part, n) < p->part;
    attn_linear_tensors t;
    fill(p, kind, g, n * p->part, mine, lengths, states, &t);
    return attn_linear_execute(p->plan[kind][ragged], &t, workspace, p->workspace, error);
}

/* ---- states of the caller ---- */

/* Copies numbers [entries][heads][F][width] of group g, dense in `memory`. */
static void move(const attn_linear_passes *p, const attn_linear_tensors *mine, size_t offset, int64_t g, int64_t width,
                 char *memory, int store)
{
    const attn_linear_bound *b = attn_linear_bound_at(p, offset);
    const int64_t per_entry = p->heads > 0 ? p->problem.shape.heads_kv / p->heads : 1;
    const size_t size = attn_dtype_size(p->compute), row = (size_t)width * size;
    const attn_input *slot = slot_at((attn_linear_tensors *)(uintptr_t)mine, offset);
    const int64_t *stride = b->plan.stride;
    for (int64_t e = 0; e < p->entries; e++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t f = 0; f < p->dim_features && row > 0; f++, memory += row) {
                if (b->plan.role == ATTN_ROLE_NONE) {
                    if (!store) memset(memory, 0, row);
                    continue;
                }
                char *at = (char *)(uintptr_t)slot->data + ((g / per_entry * p->entries + e) * stride[0] +
                                                            (g % per_entry * p->heads + h) * stride[1] + f * stride[2]) *
                                                               (int64_t)size;
                if (store) memcpy(at, memory, row);
                else memcpy(memory, at, row);
            }
}

void attn_linear_move_states(const attn_linear_passes *p, const attn_linear_tensors *mine, size_t state, size_t sum, int64_t g,
                             char *memory, int store)
{
    move(p, mine, state, g, p->problem.shape.dim_v, memory, store);
    if (p->normalised) move(p, mine, sum, g, 1, memory + p->state, store);
}
