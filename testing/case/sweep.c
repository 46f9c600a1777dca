/* SPDX-License-Identifier: MIT
 * sweep.c - the covering set of cases. */
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#include "sweep_options.h"

#define COUNT(list) ((int64_t)(sizeof(list) / sizeof *(list)))

static const int64_t widths[] = {1, 8, 31, 32, 40, 64, 80, 96, 128, 160, 256, 576};
static const int64_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}, {6, 3}};
static const int types[] = {SPEC_F32, SPEC_F64, SPEC_F32, SPEC_F16, SPEC_F64, SPEC_BF16};
static const attn_dtype outputs[] = {ATTN_F32, ATTN_F16, ATTN_BF16};

typedef struct generator {
    sweep *list;
    sweep_tile tile;
    uint64_t next_seed;
} generator;

static void add(generator *g, const check_case *c)
{
    sweep *s = g->list;
    if (s->failed) return; /* memory may be available again, but the list has a hole */
    if (s->count == s->capacity) {
        const int64_t capacity = s->capacity ? 2 * s->capacity : 1024;
        check_case *more = realloc(s->cases, (size_t)capacity * sizeof *more);
        if (!more) {
            s->failed = 1;
            return;
        }
        s->cases = more;
        s->capacity = capacity;
    }
    s->cases[s->count++] = *c;
}

/* A number of keys: mostly up to 70, sometimes at the edge of a block. */
static int64_t draw_keys(const generator *g, random_state *r)
{
    const int64_t block = g->tile.block_kv;
    if (random_below(r, 4)) return random_between(r, 1, 70);
    return random_between(r, 1, 2) * block + random_between(r, -2, 3);
}

/* The work of the reference, roughly. */
static int64_t work(const attn_shape *s)
{
    return s->batch * s->heads_q * s->len_q * s->len_kv * (2 * s->dim_qk + 2 * s->dim_v + 20);
}

static void shrink(attn_shape *s, int64_t enough)
{
    if (work(s) > enough && s->batch > 2) s->batch = 2;
    if (work(s) > enough) s->heads_q /= s->heads_kv, s->heads_kv = 1;
    if (work(s) > enough) s->batch = 1;
    while (work(s) > enough && s->len_kv > 70) s->len_kv /= 2;
    while (work(s) > enough && s->dim_v > 8) s->dim_v /= 2;
    while (work(s) > enough && s->dim_qk > 8) s->dim_qk /= 2;
    while (work(s) > enough && s->len_q > 8) s->len_q /= 2;
}

enum { ENOUGH = 3000000, ENOUGH_BEYOND = 500000 }; /* for forward, and for gradients and tangents, whose reference takes longer */

/* Sizes and types at random; no options yet. */
static check_case draw_sizes(generator *g, random_state *r)
{
    check_case c = {0};
    problem_init(&c.spec);
    const int64_t *head = heads[random_below(r, COUNT(heads))];
    c.spec.seed = g->next_seed++;
    c.spec.dtype = (int)types[random_below(r, COUNT(types))];
    c.spec.shape = (attn_shape){.batch = random_between(r, 1, 3),
                                .heads_q = head[0],
                                .heads_kv = head[1],
                                .len_q = random_between(r, 1, random_below(r, 3) ? 12 : 2 * g->tile.tile_q + 1),
                                .len_kv = draw_keys(g, r),
                                .dim_qk = widths[random_below(r, COUNT(widths))],
                                .dim_v = widths[random_below(r, COUNT(widths))]};
    if (random_below(r, 3) == 0) c.spec.shape.dim_v = c.spec.shape.dim_qk;
    shrink(&c.spec.shape, ENOUGH);
    return c;
}

static int64_t whole_blocks(int64_t dim) { return dim > 0 && dim < ATTN_BLOCK ? ATTN_BLOCK : dim - dim % ATTN_BLOCK; }

/* Draws everything but options, and sizes up to blocks. */
static void draw_rest(check_case *c, random_state *r)
{
    static const double scales[] = {0, -0.3, 1, 0.05, 2.5};
    problem_spec *s = &c->spec;
    s->order = random_below(r, 3) == 0 ? SPEC_BSHD : SPEC_BHSD;
    s->lse = random_below(r, 4) != 0;
    s->weights = random_below(r, 3) == 0;
    s->schedule = random_below(r, 4) == 0;
    if (!s->scale_heads && random_below(r, 3) == 0) s->has_scale = 1, s->scale = scales[random_below(r, COUNT(scales))];
    c->fill = random_below(r, 3) ? FILL_NORMAL : (case_fill)random_below(r, FILL_KINDS);
    c->poison = (case_poison)random_below(r, POISON_KINDS);
    if (random_below(r, 8) == 0) c->plant = (case_plant)random_below(r, PLANT_KINDS);
    c->memory = (case_memory)random_below(r, MEMORY_KINDS);
    c->index32 = (int)random_below(r, 2);
    if (s->dtype != SPEC_F64 && random_below(r, 4) == 0) {
        s->k_type = (int)random_between(r, SPEC_STORED_F32, SPEC_STORED_KINDS - 1);
        s->v_type = (int)random_between(r, SPEC_STORED_F32, SPEC_STORED_Q4_1);
        if (s->k_type >= SPEC_STORED_Q8_0) s->shape.dim_qk = whole_blocks(s->shape.dim_qk);
        if (s->v_type >= SPEC_STORED_Q8_0) s->shape.dim_v = whole_blocks(s->shape.dim_v);
        c->o_dtype = outputs[random_below(r, COUNT(outputs))];
    }
    if (s->bias && random_below(r, 2)) c->bias_dtype = (attn_dtype)random_between(r, ATTN_F32, ATTN_BF16);
    if (!s->bias && c->plant == PLANT_BIAS) c->plant = PLANT_NONE;
}

static check_case draw(generator *g, random_state *r)
{
    check_case c = draw_sizes(g, r);
    sweep_set_option(&c, random_below(r, sweep_options), r);
    draw_rest(&c, r);
    return c;
}

static void add_sizes(generator *g, random_state *r)
{
    for (int wide = 0; wide < 2; wide++) {
        const int dtype = wide ? SPEC_F64 : SPEC_F32;
        /* Each width of q and of v, then all small ones: remainders of the channels that a kernel processes at once. */
        for (int64_t d = 0; d < COUNT(widths) + 34; d++)
            for (int which = 0; which < 2; which++) {
                check_case c = draw(g, r);
                *(which ? &c.spec.shape.dim_v : &c.spec.shape.dim_qk) = d < COUNT(widths) ? widths[d] : d - COUNT(widths) + 1;
                c.spec.dtype = (int)dtype;
                add(g, &c);
            }
        /* Remainders of the queries of a tile, with one tile and two. */
        for (int64_t n = 1; n <= 2 * g->tile.tile_q + 1; n++) {
            check_case c = draw(g, r);
            c.spec.shape.len_q = n;
            c.spec.dtype = (int)dtype;
            add(g, &c);
        }
        /* Remainders of the keys that a kernel processes at once, and the edges of blocks. */
        for (int64_t n = 1; n <= 66; n++) {
            check_case c = draw(g, r);
            c.spec.shape.len_kv = n;
            c.spec.dtype = (int)dtype;
            add(g, &c);
        }
        for (int64_t blocks = 1; blocks <= 3; blocks++)
            for (int64_t past = -3; past <= 3; past++) {
                check_case c = draw(g, r);
                c.spec.shape.len_q = random_between(r, 1, 9);
                c.spec.shape.len_kv = blocks * g->tile.block_kv + past;
                c.spec.dtype = (int)dtype;
                add(g, &c);
            }
    }
    /* Enough keys for split-KV. */
    for (int64_t blocks = 7; blocks <= 40; blocks = blocks * 5 / 4 + 1)
        for (int wide = 0; wide < 2; wide++) {
            check_case c = draw_sizes(g, r);
            attn_shape *s = &c.spec.shape;
            s->len_q = random_between(r, 1, 3);
            s->len_kv = blocks * g->tile.block_kv + random_between(r, -2, 2);
            s->dim_qk = random_between(r, 1, 40);
            s->dim_v = random_between(r, 1, 40);
            sweep_set_option(&c, random_below(r, sweep_options), r);
            draw_rest(&c, r);
            c.spec.dtype = wide ? SPEC_F64 : SPEC_F32;
            add(g, &c);
        }
    /* Sizes of zero: no outputs, or zeros. */
    for (int which = 0; which < sweep_options; which++)
        for (int axis = 0; axis < 6; axis++) {
            check_case c = draw_sizes(g, r);
            attn_shape *s = &c.spec.shape;
            int64_t *size[] = {&s->batch, &s->len_q, &s->len_kv, &s->dim_qk, &s->dim_v, &s->heads_q};
            *size[axis] = 0;
            if (axis == 5 && which % 2) s->heads_kv = 0;
            sweep_set_option(&c, which, r);
            draw_rest(&c, r);
            add(g, &c);
        }
}

/* All pairs of an option and one other choice. */
static void add_pairs(generator *g, random_state *r)
{
    for (int which = 0; which < sweep_options; which++)
        for (int kind = 0; kind < FILL_KINDS + POISON_KINDS + PLANT_KINDS + MEMORY_KINDS + COUNT(types); kind++) {
            check_case c = draw_sizes(g, r);
            sweep_set_option(&c, which, r);
            draw_rest(&c, r);
            int k = kind;
            if (k < FILL_KINDS) c.fill = (case_fill)k;
            else if ((k -= FILL_KINDS) < POISON_KINDS) c.poison = (case_poison)k;
            else if ((k -= POISON_KINDS) < PLANT_KINDS) c.plant = c.spec.bias || k != PLANT_BIAS ? (case_plant)k : PLANT_NONE;
            else if ((k -= PLANT_KINDS) < MEMORY_KINDS) c.memory = (case_memory)k;
            else c.spec.dtype = (int)types[k - MEMORY_KINDS];
            add(g, &c);
        }
}

/* Gradients, tangents and double backward: every option, fill, remainder of a tile and edge of a block. */
static void add_beyond(generator *g, random_state *r)
{
    for (int op = SPEC_BACKWARD; op <= SPEC_DOUBLE_BACKWARD; op++) {
        const int64_t rows = g->tile.tile_q + 2, edges = 9;
        const int64_t draws = 4 * sweep_options, fills = draws + FILL_KINDS, sizes = fills + rows, all = sizes + edges;
        for (int64_t n = 0; n < all; n++) {
            check_case c = draw_sizes(g, r);
            attn_shape *s = &c.spec.shape;
            if (n >= fills && n < sizes) s->len_q = n - fills + 1;
            if (n >= sizes) s->len_kv = g->tile.block_kv * (1 + (n - sizes) / 5) + (n - sizes) % 5 - 2;
            if (n >= sizes) s->len_q = random_between(r, 1, 9);
            shrink(s, ENOUGH_BEYOND);
            if (n >= sizes) s->len_kv = g->tile.block_kv * (1 + (n - sizes) / 5) + (n - sizes) % 5 - 2;
            sweep_set_option(&c, n < draws ? n % sweep_options : random_below(r, sweep_options), r);
            draw_rest(&c, r);
            if (n >= draws && n < fills) c.fill = (case_fill)(n - draws);
            sweep_set_operation(&c, op, r);
            add(g, &c);
        }
        for (int axis = 0; axis < 6; axis++) { /* sizes of zero; heads_q of 0 leaves heads_kv as it is */
            check_case c = draw_sizes(g, r);
            attn_shape *s = &c.spec.shape;
            shrink(s, ENOUGH_BEYOND);
            int64_t *size[] = {&s->batch, &s->len_q, &s->len_kv, &s->dim_qk, &s->dim_v, &s->heads_q};
            *size[axis] = 0;
            sweep_set_option(&c, random_below(r, sweep_options), r);
            draw_rest(&c, r);
            sweep_set_operation(&c, op, r);
            add(g, &c);
        }
    }
}

/* The reference applies a matrix for each pair. */
static void shrink_matrix(attn_shape *s)
{
    const int64_t enough = 6000000;
    while (s->dim_qk > 70) s->dim_qk /= 2;
    while (work(s) * (s->dim_qk + 20) > 20 * enough && s->len_kv > 8) s->len_kv /= 2;
    while (work(s) * (s->dim_qk + 20) > 20 * enough && s->len_q > 4) s->len_q /= 2;
}

/* Repairs combinations that overrides left inconsistent. */
static void make_consistent(check_case *c)
{
    problem_spec *s = &c->spec;
    if (s->tree > s->shape.len_kv) s->tree = s->shape.len_kv;
    if (s->prefix > s->shape.len_kv) s->prefix = s->shape.len_kv - s->shape.len_kv % s->page;
    if (s->op != SPEC_FORWARD || (s->lengths != SPEC_LENGTHS_NONE && s->lengths != SPEC_LENGTHS_KV)) s->schedule = 0;
    if (s->op != SPEC_FORWARD && s->k_type >= SPEC_STORED_I8) s->k_type = SPEC_STORED_LIKE_Q;
    if (s->op != SPEC_FORWARD && s->v_type >= SPEC_STORED_I8) s->v_type = SPEC_STORED_LIKE_Q;
    if (s->dtype == SPEC_F64) s->k_type = s->v_type = SPEC_STORED_LIKE_Q, c->o_dtype = ATTN_DTYPE_DEFAULT;
    if (c->spec.op == SPEC_JVP || c->spec.op == SPEC_DOUBLE_BACKWARD) { /* these support only dot products and softmax */
        c->spec.score[0] = c->spec.rel[0] = 0;
        c->spec.w = c->spec.normaliser = 0;
        c->spec.shift = 0;
        c->spec.shared &= SPEC_SHARED_TABLE;
    }
    if (c->spec.w || c->spec.score[0] == 'g' || c->spec.score[0] == 'm') shrink_matrix(&c->spec.shape);
    const int64_t channels = strncmp(s->score, "general/", 8) == 0 ? problem_after_slash(s->score) : s->shape.dim_qk;
    const int no_groups = s->packed || s->page % ATTN_BLOCK != 0 || s->score[0] == 'c' || s->score[0] == 'd';
    if (s->k_type == SPEC_STORED_Q4_1C && no_groups) s->k_type = SPEC_STORED_Q8_0;
    if (s->k_type >= SPEC_STORED_Q8_0 && channels % ATTN_BLOCK != 0) s->k_type = SPEC_STORED_I8;
    if (s->v_type >= SPEC_STORED_Q8_0 && s->shape.dim_v % ATTN_BLOCK != 0) s->v_type = SPEC_STORED_I8;
    /* With dropout, a NaN may meet a weight that is 0, dropped or by underflow, and so reach nothing. */
    if (c->spec.dropout > 0) c->plant = PLANT_NONE;
    /* Values beyond f16 are infinite, and 0 times infinity differs from what the reference has for a weight of 1e-50. */
    const int narrow =
        c->spec.dtype == SPEC_F16 || s->v_type == SPEC_STORED_F16 || s->v_type >= SPEC_STORED_F8_E4M3 || c->o_dtype == ATTN_F16;
    if (narrow && c->fill == FILL_SPREAD) c->fill = FILL_NORMAL;
    (void)problem_check(s, NULL); /* types in their shortest form */
}

int sweep_create(sweep *s, sweep_tile tile, uint64_t seed, int thorough)
{
    *s = (sweep){0};
    random_state r = {seed};
    generator g = {s, tile, 1};
    for (int round = 0; round < (thorough ? 10 : 1); round++) {
        add_sizes(&g, &r);
        add_pairs(&g, &r);
        add_beyond(&g, &r);
        for (int n = 0; n < 400; n++) {
            const check_case c = draw(&g, &r);
            add(&g, &c);
        }
    }
    for (int64_t n = 0; n < s->count; n++) make_consistent(&s->cases[n]);
    if (s->failed) sweep_destroy(s);
    return s->cases != NULL;
}

void sweep_destroy(sweep *s)
{
    free(s->cases);
    *s = (sweep){0};
}
