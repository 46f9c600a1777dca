/* SPDX-License-Identifier: MIT
 * combination.c - makes tensors, arguments and a problem of ref/ from a problem string. */
#include "test.h"

#include "combination.h"

#include <math.h>

enum { TAIL = 64 }; /* guard bytes after the workspace */

const char combination_with_more[] = "more";

/* Steps by name. */
static const struct {
    int flag;
    const char *name;
} steps[] = {{MORE, combination_with_more},
             {KIND, "kind"},
             {TABLE, "table"},
             {MODIFY, "modify"},
             {RELATIVE, "relative"},
             {FULL, "+full"},
             {DILATION, "+dilation"},
             {GLOBAL, "+global"},
             {DISTANT, "+distant"},
             {RANGES, "+ranges"},
             {LISTS, "+lists"},
             {GIVEN, "+given"},
             {PART, "+part"},
             {INTEGERS, "+integers"},
             {IN_BLOCKS, "+blocks"},
             {PAGES, "+pages"},
             {PAGE_LISTS, "+page_lists"},
             {TREE, "+tree"},
             {HEAD_LISTS, "+head_lists"},
             {CHOICES, "+choices"},
             {TYPES, "+types"},
             {STRIDED, "+strided"}};
enum { STEPS = sizeof steps / sizeof *steps };

int combination_step(const char *name)
{
    for (int n = 0; n < STEPS; n++)
        if (strcmp(name, steps[n].name) == 0) return steps[n].flag;
    return 0;
}

void combination_say(combination *c, const char *name)
{
    assert_true(strlen(c->text) + strlen(name) + 2 < sizeof c->text);
    strcat(strcat(c->text, " "), name);
}

typedef struct drawing {
    combination *c;
    const problem_spec *spec;
    int flags;
    random_state random, stored; /* stored: for types and gaps */
    attn_dtype dtype, compute;
    int64_t B, Hq, Hkv, Sq, Skv, D, Dv;
} drawing;

static void *array(int64_t n, size_t size)
{
    void *memory = calloc((size_t)n + 1, size);
    assert_non_null(memory);
    return memory;
}

static void draw_sizes(drawing *d)
{
    const attn_shape *s = &d->c->problem.shape;
    d->B = s->batch, d->Hq = s->heads_q, d->Hkv = s->heads_kv, d->Sq = s->len_q, d->Skv = s->len_kv, d->D = s->dim_qk,
    d->Dv = s->dim_v;
    ref_problem *ref = &d->c->ref;
    ref->B = d->B, ref->Hq = d->Hq, ref->Hkv = d->Hkv, ref->Sq = d->Sq, ref->Skv = d->Skv, ref->D = d->D, ref->Dv = d->Dv;
}

static void draw_lengths(drawing *d)
{
    combination *c = d->c;
    const attn_tensors *t = &c->tensors;
    const int packed_q = t->cu_seqlens_q.data != NULL, packed_kv = t->cu_seqlens_kv.data != NULL;
    c->length_q = array(d->B, sizeof(int64_t));
    c->length_kv = array(d->B, sizeof(int64_t));
    c->start_q = array(d->B + 1, sizeof(int64_t));
    c->start_kv = array(d->B + 1, sizeof(int64_t));
    for (int64_t b = 0; b < d->B; b++) {
        c->length_q[b] = packed_q || t->lengths_q.data ? random_below(&d->random, d->Sq + 1) : d->Sq;
        c->length_kv[b] = packed_kv || t->lengths_kv.data ? random_below(&d->random, d->Skv + 1) : d->Skv;
        if (b == 0 && d->flags & FULL) c->length_q[b] = d->Sq, c->length_kv[b] = d->Skv;
        c->start_q[b + 1] = c->start_q[b] + c->length_q[b];
        c->start_kv[b + 1] = c->start_kv[b] + c->length_kv[b];
    }
    c->offset = array(d->B, sizeof(int64_t));
    const struct {
        attn_input *slot;
        const int64_t *numbers;
    } indices[] = {{&c->tensors.lengths_q, c->length_q},
                   {&c->tensors.lengths_kv, c->length_kv},
                   {&c->tensors.cu_seqlens_q, c->start_q},
                   {&c->tensors.cu_seqlens_kv, c->start_kv},
                   {&c->tensors.offset_q, c->offset}};
    for (size_t n = 0; n < sizeof indices / sizeof *indices; n++)
        if (indices[n].slot->data) indices[n].slot->data = indices[n].numbers;
    c->ref.len_q = c->length_q, c->ref.len_kv = c->length_kv;
}

static void draw_range(drawing *d)
{
    combination *c = d->c;
    const attn_mask *mask = &c->problem.mask;
    for (int64_t b = 0; b < d->B; b++) {
        if (mask->align == ATTN_ALIGN_BOTTOM_RIGHT) c->offset[b] = c->length_kv[b] - c->length_q[b];
        if (d->spec->offset_kind == SPEC_OFFSET_VALUE) c->offset[b] = d->spec->offset;
        if (d->spec->offset_kind == SPEC_OFFSET_EACH) c->offset[b] = random_below(&d->random, d->Skv + d->Sq + 9) - d->Sq - 4;
    }
    c->ref.offset = c->offset;
    c->ref.causal = mask->causal;
    c->ref.window = mask->window, c->ref.window_left = mask->window_left, c->ref.window_right = mask->window_right;
    c->ref.chunk = mask->chunk;
}

/* Clears keep where the mask drops; each of its entries covers block_q x block_kv pairs. */
void combination_apply_mask(combination *c, const tensor *mask, int64_t block_q, int64_t block_kv)
{
    const ref_problem *p = &c->ref;
    int64_t at = 0;
    c->ref.keep = c->keep;
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++)
                for (int64_t j = 0; j < p->Skv; j++, at++)
                    c->keep[at] &= tensor_get(mask, tensor_at(mask, b, h, i / block_q, j / block_kv)) != 0;
}

static tensor draw_mask(drawing *d, const int64_t shape[4], int one, double drop)
{
    tensor mask = tensor_make(ATTN_BOOL, shape, BY_HEAD, (unsigned)one, NULL);
    for (int64_t i = 0; i < mask.count; i++) tensor_set(&mask, i, random_signed(&d->random) / 2 + 0.5 >= drop);
    return mask;
}

static void draw_masks(drawing *d)
{
    combination *c = d->c;
    attn_mask *m = &c->problem.mask;
    int64_t pairs = d->B * d->Hq * d->Sq * d->Skv, shape[4] = {d->B, d->Hq, d->Sq, d->Skv};
    c->keep = array(pairs, 1);
    memset(c->keep, 1, (size_t)pairs);
    if (c->tensors.mask.data) {
        c->of[TENSOR(mask)] = draw_mask(d, shape, d->spec->mask_one, d->spec->mask_drop);
        combination_give(c, TENSOR(mask));
        combination_apply_mask(c, &c->of[TENSOR(mask)], 1, 1);
    }
    if (c->tensors.block_mask.data) {
        shape[2] = problem_blocks(d->Sq, m->block_q);
        shape[3] = problem_blocks(d->Skv, m->block_kv);
        c->of[TENSOR(block_mask)] = draw_mask(d, shape, d->spec->block_one, d->spec->block_drop);
        combination_give(c, TENSOR(block_mask));
        combination_apply_mask(c, &c->of[TENSOR(block_mask)], m->block_q, m->block_kv);
    }
}

/* The storage type of q, or with TYPES a random one that may be combined with it. */
static attn_dtype draw_type(drawing *d)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    return d->flags & TYPES && d->compute == ATTN_F32 ? types[random_below(&d->stored, 3)] : d->dtype;
}

static tensor draw_bias(drawing *d, unsigned one, double size, int with_infinity)
{
    const int64_t shape[4] = {d->B, d->Hq, d->Sq, d->Skv};
    tensor t = tensor_make(draw_type(d), shape, BY_HEAD, one, NULL);
    tensor_draw(&t, &d->random, size);
    for (int64_t i = 0; with_infinity && i < t.count; i++)
        if (random_below(&d->random, 12) == 0) tensor_set(&t, i, -INFINITY);
    tensor_read(&t);
    return t;
}

/* Draws a number for each head, or each batch entry and head, if the problem has tensor t; returns the values for ref/, or NULL. */
static const double *draw_numbers(drawing *d, int t, double size)
{
    combination *c = d->c;
    int64_t shape[4];
    if (!tensors_has(&c->tensors, t)) return NULL;
    tensors_shape(&c->problem, &c->tensors, t, shape);
    c->of[t] = tensor_make(d->compute, shape, BY_HEAD, (unsigned)tensors_broadcasts(&c->tensors, t, 0), NULL);
    tensor_draw(&c->of[t], &d->random, size);
    combination_give(c, t);
    return c->of[t].value;
}

static void draw_scores(drawing *d)
{
    combination *c = d->c;
    attn_problem *p = &c->problem;
    c->ref.scale = d->D ? 1 / sqrt((double)d->D) : 1;
    if (p->score.scale_kind == ATTN_SCALE_VALUE) c->ref.scale = p->score.scale;
    c->ref.temperature = p->score.temperature;
    c->ref.softcap = p->score.softcap;
    c->ref.normaliser = (ref_normaliser)p->score.normaliser;
    c->ref.shift = p->score.shift;
    if (p->mask.empty == ATTN_EMPTY_UNIFORM) c->ref.uniform = c->tensors.cu_seqlens_kv.data ? REF_UNIFORM_OWN : REF_UNIFORM_ALL;
    if (c->tensors.bias.data) {
        c->of[TENSOR(bias)] = draw_bias(d, (unsigned)d->spec->bias_one, 2, 1);
        combination_give(c, TENSOR(bias));
        c->ref.bias = c->of[TENSOR(bias)].value;
    }
    c->ref.slopes = draw_numbers(d, TENSOR(alibi_slopes), 0.2);
    c->ref.sink = draw_numbers(d, TENSOR(sink), 3);
    c->ref.scale_of_head = draw_numbers(d, TENSOR(scale), 0.5);
}

static void draw_dropout(drawing *d)
{
    combination *c = d->c;
    const double p = c->problem.dropout.probability;
    if (p == 0) return;
    c->call.dropout_seed = random_bits(&d->random);
    c->call.dropout_offset = (uint32_t)random_bits(&d->random);
    c->Z = array(d->B * d->Hq * d->Sq * d->Skv, sizeof(double));
    const attn_origin *o = &c->origin;
    int64_t at = 0;
    for (int64_t n = 0; n < d->B * d->Hq; n++) {
        const int64_t head = (o->batch + n / d->Hq) * (o->heads ? o->heads : d->Hq) + o->head + n % d->Hq;
        for (int64_t i = o->q; i < o->q + d->Sq; i++)
            for (int64_t j = o->kv; j < o->kv + d->Skv; j++, at++)
                if (ref_dropout_keeps(c->call.dropout_seed, c->call.dropout_offset, head, i, j, p)) c->Z[at] = 1 / (1 - p);
    }
    c->ref.Z = c->Z;
}

attn_dtype combination_compute(const combination *c) { return tensors_compute(&c->tensors); }

double combination_storage_unit(const combination *c)
{
    const attn_dtype dtype = c->of[TENSOR(o)].layout.dtype;
    return dtype == ATTN_F16 ? 0x1p-11 : dtype == ATTN_BF16 ? 0x1p-8 : 0;
}

/* Draws a tensor of tokens, in one of two axis orders. */
static void draw_tokens(drawing *d, int t, attn_dtype dtype, double size)
{
    combination *c = d->c;
    int64_t shape[4];
    tensors_shape(&c->problem, &c->tensors, t, shape);
    c->of[t] = tensor_make(dtype, shape, random_below(&d->random, 2) ? BY_TOKEN : BY_HEAD, 0,
                           !tensors_are_packed(&c->tensors, t) ? NULL
                           : tensors_of_keys(t)                ? c->start_kv
                                                               : c->start_q);
    tensor_draw(&c->of[t], &d->random, size);
    if (d->flags & STRIDED) tensor_with_gaps(&c->of[t], &d->stored);
}

static void draw_tensors(drawing *d)
{
    combination *c = d->c;
    static const struct {
        int t, always;
        double size;
    } drawn[] = {{TENSOR(q), 1, 2},      {TENSOR(k), 1, 2},     {TENSOR(v), 1, 1},     {TENSOR(o), 1, 0},
                 {TENSOR(grad_o), 1, 1}, {TENSOR(tan_q), 0, 1}, {TENSOR(tan_k), 0, 1}, {TENSOR(tan_v), 0, 1}};
    for (size_t n = 0; n < sizeof drawn / sizeof *drawn; n++) {
        draw_tokens(d, drawn[n].t, drawn[n].t == TENSOR(q) ? d->dtype : draw_type(d), drawn[n].size);
        if (drawn[n].always || random_below(&d->random, 5) > 0) combination_give(c, drawn[n].t);
        else combination_drop(c, drawn[n].t);
    }
    draw_tokens(d, TENSOR(lse), d->compute, 0);
    c->of[TENSOR(grad_lse)] = tensor_like(&c->of[TENSOR(lse)]);
    tensor_draw(&c->of[TENSOR(grad_lse)], &d->random, 1);
    combination_give(c, TENSOR(lse));
    combination_give(c, TENSOR(grad_lse));
    combination_drop(c, TENSOR(tan_bias));
    if (c->tensors.bias.data && random_below(&d->random, 5) > 0) {
        c->of[TENSOR(tan_bias)] = draw_bias(d, (unsigned)random_below(&d->random, 16), 1, 0);
        combination_give(c, TENSOR(tan_bias));
    }
    c->ref.Q = c->of[TENSOR(q)].value, c->ref.K = c->of[TENSOR(k)].value, c->ref.V = c->of[TENSOR(v)].value;
}

static void poison_row(tensor *t, int64_t b, int64_t h, int64_t token)
{
    if (!tensor_has(t, b, token)) return;
    for (int64_t c = 0; c < t->shape[3]; c++) tensor_set(t, tensor_at(t, b, h, token, c), NAN);
}

/* Poisons keys that no query of the group sees, and fully masked queries, in a random subset of the tensors, so that NaN in one
 * does not hide an access to another. */
static void poison(drawing *d)
{
    combination *c = d->c;
    const uint32_t which = (uint32_t)random_bits(&d->random);
    const int64_t group = d->Hkv ? d->Hq / d->Hkv : 0;
    for (int64_t b = 0; b < d->B; b++)
        for (int64_t g = 0; g < d->Hkv; g++) {
            int mean = 0; /* 1: some row has uniform weights */
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                for (int64_t i = 0; i < d->Sq; i++) {
                    int sees = 0;
                    for (int64_t j = 0; j < d->Skv && !sees; j++) sees = ref_visible(&c->ref, b, h, i, j);
                    if (sees) continue;
                    int uniform = c->ref.uniform && i < c->length_q[b];
                    mean |= uniform;
                    if (which & 1) poison_row(&c->of[TENSOR(q)], b, h, i);
                    if (which & 2) poison_row(&c->of[TENSOR(tan_q)], b, h, i);
                    if (which & 4 && !uniform) poison_row(&c->of[TENSOR(grad_o)], b, h, i);
                }
            for (int64_t j = 0; j < d->Skv; j++) {
                int seen = 0;
                for (int64_t h = g * group; h < (g + 1) * group; h++)
                    for (int64_t i = 0; i < d->Sq && !seen; i++) seen = ref_visible(&c->ref, b, h, i, j);
                if (seen) continue;
                if (which & 8) poison_row(&c->of[TENSOR(k)], b, g, j);
                if (which & 16) poison_row(&c->of[TENSOR(tan_k)], b, g, j);
                if (which & 32 && !mean) poison_row(&c->of[TENSOR(v)], b, g, j);
                if (which & 64 && !mean) poison_row(&c->of[TENSOR(tan_v)], b, g, j);
            }
        }
    tensor_read(&c->of[TENSOR(q)]), tensor_read(&c->of[TENSOR(k)]), tensor_read(&c->of[TENSOR(v)]),
        tensor_read(&c->of[TENSOR(grad_o)]);
    tensor_read(&c->of[TENSOR(tan_q)]), tensor_read(&c->of[TENSOR(tan_k)]), tensor_read(&c->of[TENSOR(tan_v)]);
}

/* A random state of its own for a step, so that the step does not change other numbers. */
static random_state separate_random(const drawing *d, uint64_t step) { return random_from(d->spec->seed + step); }

static void draw_chosen(drawing *d)
{
    combination *c = d->c;
    random_state r = separate_random(d, 5000011);
    attn_mask *m = &c->problem.mask;
    if (d->flags & DILATION) m->dilation = c->ref.dilation = 2 + random_below(&r, 3);
    if (d->flags & DISTANT) m->least_distance = c->ref.least_distance = 1 + random_below(&r, 4);
    if (d->flags & GLOBAL) m->global_q = c->ref.global_q = random_below(&r, 4), m->global_kv = c->ref.global_kv = 4;
    if (d->flags & RANGES) combination_ranges(c, &r);
    if (d->flags & LISTS) combination_block_lists(c, &r);
    if (d->flags & GIVEN) combination_given(c, &r);
    if (d->flags & TREE) combination_tree(c, &r);
    if (d->flags & (HEAD_LISTS | CHOICES)) combination_head_lists(c, d->flags & CHOICES, &r);
}

static void draw_steps(drawing *d)
{
    combination *c = d->c;
    const int flags = d->flags;
    random_state more = separate_random(d, 1000003), kind = separate_random(d, 2000003), table = separate_random(d, 3000017),
                 relative = separate_random(d, 4000037);
    if (flags & MORE) combination_more(c, &more);
    draw_chosen(d);
    if (flags & PART) combination_place(c);
    if (flags & KIND) combination_kind(c, &kind, (attn_score_kind)(ATTN_SCORE_GENERAL + d->spec->seed % ATTN_SCORE_ADDITIVE));
    if (flags & TABLE) combination_table(c, &table, flags & FINITE);
    if (flags & MODIFY) combination_modify(c);
    if (flags & RELATIVE) combination_relative(c, &relative, flags & FINITE);
}

void combination_of(combination *c, const problem_spec *spec, int flags)
{
    attn_dtype dtype = problem_dtype(spec);
    drawing d = {.c = c,
                 .spec = spec,
                 .flags = flags,
                 .random = random_from(spec->seed),
                 .dtype = dtype,
                 .compute = dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32};
    random_state origin = separate_random(&d, 6000011), stored = separate_random(&d, 7000003);
    d.stored = separate_random(&d, 8000009);
    attn_error error;
    memset(c, 0, sizeof *c);
    (void)problem_print(spec, c->text, sizeof c->text);
    if (problem_build(spec, &c->problem, &c->tensors, &error) != ATTN_OK) fail_msg("%s: %s", c->text, error.message);
    for (int n = 0; n < STEPS; n++)
        if (flags & steps[n].flag) combination_say(c, steps[n].name);
    c->call.struct_size = sizeof c->call;
    c->tensors.call = &c->call;
    draw_sizes(&d);
    if (flags & PART) combination_origin(c, &origin);
    draw_lengths(&d);
    draw_range(&d);
    draw_masks(&d);
    draw_scores(&d);
    draw_dropout(&d);
    draw_steps(&d);
    draw_tensors(&d);
    if (!(flags & FINITE)) poison(&d);
    if (flags & (INTEGERS | IN_BLOCKS)) combination_integers(c, flags & IN_BLOCKS, &stored);
    if (flags & (PAGES | PAGE_LISTS)) combination_pages(c, flags & PAGE_LISTS, &stored);
}

void combination_parse(combination *c, const char *text, int flags)
{
    char string[400] = {0};
    problem_spec spec;
    attn_error error;
    size_t length = strcspn(text, " ");
    assert_true(length < sizeof string);
    memcpy(string, text, length);
    for (int n = 0; n < STEPS; n++)
        if (strstr(text + length, steps[n].name)) flags |= steps[n].flag;
    if (problem_parse(string, &spec, &error) != ATTN_OK) fail_msg("%s: %s", string, error.message);
    combination_of(c, &spec, flags);
}

void combination_draw(combination *c, uint64_t seed, attn_dtype dtype, int flags)
{
    problem_spec spec;
    random_problem(&spec, seed, dtype);
    combination_of(c, &spec, MORE | flags);
}

void combination_free(combination *c)
{
    void *arrays[] = {c->page_starts,   c->page_index,   c->last_page,   c->start_q, c->start_kv,    c->offset,
                      c->offset_of_ref, c->length_q,     c->length_kv,   c->keep,    c->Z,           c->ranges,
                      c->ranges_of_ref, c->block_starts, c->block_index, c->tree,    c->tree_of_ref, c->page_table,
                      c->paged[0],      c->paged[1],     c->paged[2],    c->paged[3]};
    for (int t = 0; t < TENSORS; t++) tensor_free(&c->of[t]);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* Axes of size 1 that the problem has larger broadcast. */
void combination_give(combination *c, int t)
{
    const tensor *from = &c->of[t];
    attn_output slot = {from->memory, from->layout.dtype, {0, 0, 0, 0}};
    int64_t shape[4];
    tensors_shape(&c->problem, &c->tensors, t, shape);
    for (int axis = 0; axis < 4; axis++)
        slot.stride[axis] = from->shape[axis] == 1 && shape[axis] > 1 ? ATTN_BROADCAST : from->layout.stride[axis];
    *tensors_slot(&c->tensors, t) = slot;
}

void combination_drop(combination *c, int t) { *tensors_slot(&c->tensors, t) = (attn_output){0}; }

static attn_tensors tensors_for(const combination *c, attn_op op, const unsigned char *others)
{
    attn_tensors tensors = tensors_of_op(&c->tensors, op);
    for (int t = 0; t < TENSORS && others; t++)
        if (others[t]) *tensors_slot(&tensors, t) = *tensors_at(&c->tensors, t);
    return tensors;
}

attn_status combination_plan(combination *c, attn_op op, attn_isa isa, int threads, const unsigned char *others, attn_plan **plan,
                             attn_error *error)
{
    const attn_options options = {
        .struct_size = sizeof options, .isa = isa, .threads = threads, .invariant = c->invariant, .reproducible = c->reproducible};
    const attn_tensors tensors = tensors_for(c, op, others);
    c->problem.op = op;
    return attn_plan_create(plan, &c->problem, &tensors, &options, error);
}

int combination_run(combination *c, attn_op op, attn_isa isa, int threads)
{
    attn_error error;
    attn_plan *plan;
    const attn_status status = combination_plan(c, op, isa, threads, NULL, &plan, &error);
    attn_tensors tensors = tensors_for(c, op, NULL);
    if (status == ATTN_ERR_UNSUPPORTED && isa_is_elsewhere((int)isa, error.message)) return 0;
    if (status != ATTN_OK) fail_msg("%s: %s", c->text, error.message);
    const size_t shift = (size_t)threads - 1; /* misaligned by threads - 1 bytes */
    size_t size = attn_plan_workspace_size(plan);
    attn_call call = tensors.call ? *tensors.call : (attn_call){.struct_size = sizeof call};
    void *of_schedule = NULL;
    if (c->scheduled) {
        call.schedule = combination_schedule(c, plan, &tensors, &of_schedule);
        tensors.call = &call;
        size = attn_schedule_workspace_size(call.schedule);
    }
    unsigned char *memory = malloc(shift + size + TAIL), *workspace = memory + shift;
    assert_non_null(memory);
    memset(memory, 0xff, shift + size + TAIL);
    if (attn_execute(plan, &tensors, workspace, size, &error) != ATTN_OK) fail_msg("%s: %s", c->text, error.message);
    for (size_t i = size; i < size + TAIL; i++)
        if (workspace[i] != 0xff) fail_msg("%s: wrote %d bytes beyond the workspace", c->text, (int)(i - size));
    free(memory);
    free(of_schedule);
    attn_plan_destroy(plan);
    return 1;
}

int combination_forward(combination *c, attn_isa isa)
{
    const attn_tensors all = c->tensors;
    const attn_outputs outputs = c->problem.outputs;
    const attn_op op = c->problem.op;
    for (int t = 0; t < TENSORS; t++) /* except o and lse */
        if (t != TENSOR(o) && t != TENSOR(lse) && tensors_writes(&c->tensors, ATTN_FORWARD, t)) combination_drop(c, t);
    c->problem.outputs = (attn_outputs){0};
    const int invariant = c->invariant;
    c->invariant = 0;
    const int ran = combination_run(c, ATTN_FORWARD, isa, 1);
    c->tensors = all, c->problem.outputs = outputs, c->problem.op = op, c->invariant = invariant;
    return ran;
}

const double *combination_flow(const combination *c, int t) { return tensors_has(&c->tensors, t) ? c->of[t].value : NULL; }
