/* SPDX-License-Identifier: MIT
 *
 * layer.c - a layer with its projections: forward, backward from what forward saved, and over a cache, empty (prefill) or with the
 * tokens before the new ones.  A call of the library allocates what it needs; an allocator of its own counts that in the first. */
#include "layer.h"

#include <stdlib.h>
#include <string.h>

#include "cli/measure/draw.h"
#include "cli/measure/work.h"
#include "memory.h"
#include "testing/memory/format.h"
#include "testing/text/failure.h"

/* ---- memory ---- */

enum { HEAD = 64 }; /* before what count_allocate returns: its size */

static void *count_allocate(void *context, size_t bytes)
{
    layer_work *w = context;
    char *memory = aligned_alloc(HEAD, HEAD + ((bytes + HEAD - 1) & ~(size_t)(HEAD - 1)));
    if (!memory) return NULL;
    memcpy(memory, &bytes, sizeof bytes);
    w->taken += bytes;
    if (w->taken > w->most) w->most = w->taken;
    return memory + HEAD;
}

static void count_release(void *context, void *memory)
{
    size_t bytes;
    if (!memory) return;
    memcpy(&bytes, (char *)memory - HEAD, sizeof bytes);
    ((layer_work *)context)->taken -= bytes;
    free((char *)memory - HEAD);
}

/* ---- a cache ---- */

/* Rows of keys or values of a type, with their scales if it has any. */
static void make_rows(layer_work *w, int t, int64_t rows, int64_t dim, attn_output *to, attn_output *scale)
{
    const attn_dtype dtype = problem_stored_dtype(&w->o.spec, t);
    *to = (attn_output){.dtype = dtype};
    to->data = data_keep(w->data, (size_t)(rows * format_elements(dtype, dim)) * attn_dtype_size(dtype));
    if (problem_stored_scaled(&w->o.spec, t)) *scale = attn_out(data_keep(w->data, (size_t)rows * sizeof(float)));
}

/* The tokens before the new ones. */
static attn_status fill_cache(layer_work *w, int64_t len, attn_error *error)
{
    const attn_cache *c = &w->cache;
    const attn_dtype dtype = problem_dtype(&w->o.spec);
    const int shared = c->v.data == NULL; /* values are channels of the keys */
    attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = len, .options = &w->options};
    const size_t rows = (size_t)(c->batch * c->heads_kv * len) * attn_dtype_size(dtype), keys = rows * (size_t)c->dim_qk,
                 values = shared ? 0 : rows * (size_t)c->dim_v;
    void *k = fresh_memory(keys), *v = fresh_memory(values);
    draw_numbers(&w->random, dtype, k, keys);
    draw_numbers(&w->random, dtype, v, values);
    tokens.k = (attn_input){k, dtype, {0, 0, 0, 0}};
    if (!shared) tokens.v = (attn_input){v, dtype, {0, 0, 0, 0}};
    attn_cache plain = *c; /* numbers are as good as rotated ones */
    if (shared) {          /* the first channels of the keys: the same strides, whatever the widths */
        const int64_t dim = format_elements(plain.k.dtype, c->dim_qk), head = (c->page_size ? c->page_size : c->capacity) * dim,
                      stride[4] = {head, head, dim, 1};
        memcpy(plain.k.stride, stride, sizeof stride);
        plain.v = plain.k;
    }
    const attn_status status = attn_cache_append(&plain, &tokens, error);
    fresh_release(k, keys);
    fresh_release(v, values);
    return status;
}

static attn_status make_cache(layer_work *w, const layer_functions *f, attn_error *error)
{
    const problem_spec *spec = &w->o.spec;
    const attn_shape *s = &spec->shape;
    attn_cache *c = &w->cache;
    *c = (attn_cache){.struct_size = sizeof *c, .batch = s->batch, .capacity = s->len_kv};
    f->size_cache(w, c);
    if (spec->page) {
        const int64_t of_entry = problem_blocks(s->len_kv, spec->page);
        int64_t *table = data_keep(w->data, (size_t)(s->batch * of_entry) * sizeof *table);
        for (int64_t n = 0; n < s->batch * of_entry; n++) table[n] = n % of_entry * s->batch + n / of_entry; /* in turn */
        c->page_size = spec->page;
        c->pages = s->batch * of_entry;
        c->page_table = attn_in(table);
    }
    const int64_t rows = c->heads_kv * (spec->page ? c->pages * spec->page : s->batch * s->len_kv);
    make_rows(w, TENSOR(k), rows, c->dim_qk, &c->k, &c->k_scale);
    if (w->o.form != LAYER_MLA) make_rows(w, TENSOR(v), rows, c->dim_v, &c->v, &c->v_scale);
    w->lengths = data_keep(w->data, (size_t)s->batch * sizeof *w->lengths);
    c->lengths = attn_out(w->lengths);
    w->attention.mask.causal = 1; /* new tokens see themselves and what is before them */
    return s->len_kv > s->len_q ? fill_cache(w, s->len_kv - s->len_q, error) : ATTN_OK;
}

/* ---- one call ---- */

static attn_status execute(candidate *c, attn_error *error)
{
    layer_work *w = c->state;
    const attn_shape *s = &w->o.spec.shape;
    const layer_functions *f = layer_functions_of(w->o.form);
    attn_status status;
    const int first = w->options.allocator.allocate != NULL;
    for (int64_t b = 0; w->lengths && b < s->batch; b++) w->lengths[b] = s->len_kv - s->len_q;
    status = w->lengths ? f->decode(w, error) : w->o.spec.op == SPEC_BACKWARD ? f->backward(w, error) : f->forward(w, error);
    if (!first) return status;
    c->call_bytes = w->most;
    w->options.allocator = (attn_allocator){0};
    return status;
}

/* ---- all of it ---- */

static void make_tensors(layer_work *w)
{
    const attn_shape *s = &w->o.spec.shape;
    const int64_t count = s->batch * s->len_q * w->o.model;
    w->args = (attn_layer_tensors){.struct_size = sizeof w->args,
                                   .batch = s->batch,
                                   .len_q = s->len_q,
                                   .len_kv = w->lengths ? s->len_q : 0,
                                   .options = &w->options,
                                   .query = attn_in(layer_draw(w, count)),
                                   .output = attn_out(layer_draw(w, count))};
    if (w->o.spec.op != SPEC_BACKWARD) return;
    w->args.grad_output = attn_in(layer_draw(w, count));
    w->args.grad_query = attn_out(layer_draw(w, count));
    w->args.saved = data_keep(w->data, (size_t)w->counts.saved_bytes);
}

/* The kernel of the attention inside, and its pairs. */
static attn_status describe(candidate *c, const layer_work *w, const layer_functions *f, const attn_options *options, double *pairs,
                            attn_error *error)
{
    attn_problem inner;
    attn_tensors tensors;
    problem_spec spec = w->o.spec;
    spec.rope = 0;
    spec.page = 0;
    spec.shape = f->attends(w);
    if (w->o.form == LAYER_MLA) spec.v_type = spec.k_type;
    attn_status status = problem_build(&spec, &inner, &tensors, error);
    if (status == ATTN_OK) status = attn_plan_create(&c->plan, &inner, &tensors, options, error);
    if (status == ATTN_OK) status = attn_plan_describe(c->plan, &c->plan_says, error);
    if (status != ATTN_OK) return status;
    c->plan_says.workspace_bytes = 0; /* counted with what the call allocates */
    c->problem = inner;
    *pairs = visible_pairs(&inner, NULL, NULL, NULL, NULL);
    return ATTN_OK;
}

/* The options of the string that the layer passes to its attention. */
static attn_status read_options(layer_work *w, attn_error *error)
{
    attn_problem all;
    attn_tensors tensors;
    problem_spec spec = w->o.spec;
    spec.op = SPEC_FORWARD;
    spec.rope = 0;
    spec.page = spec.k_type = spec.v_type = 0;
    const attn_status status = problem_build(&spec, &all, &tensors, error);
    if (status != ATTN_OK) return status;
    w->attention = (attn_problem){.struct_size = sizeof w->attention, .score = all.score, .mask = all.mask};
    w->attention.mask.align = ATTN_ALIGN_TOP_LEFT;
    return ATTN_OK;
}

static attn_status check(const operand *o, attn_error *error)
{
    layer_work w = {.o = *o};
    return read_options(&w, error);
}

static attn_status create(candidate *c, const operand *o, const attn_options *options, attn_error *error)
{
    layer_work *w = c->state = need_memory(1, sizeof *w);
    const layer_functions *f = layer_functions_of(o->form);
    double pairs = 0;
    w->o = *o;
    w->data = &c->data;
    w->options = *options;
    w->rope = (attn_rope){.struct_size = sizeof w->rope, .pairs = ATTN_ROPE_PAIRS_HALVES};
    w->counts.struct_size = sizeof w->counts;
    w->random = (random_state){2 * o->spec.seed + 1};
    attn_status status = read_options(w, error);
    if (status == ATTN_OK) status = f->make(w, error);
    if (status == ATTN_OK && o->spec.op == SPEC_DECODE) status = make_cache(w, f, error);
    if (status == ATTN_OK) status = describe(c, w, f, options, &pairs, error);
    if (status != ATTN_OK) return status;
    make_tensors(w);
    c->data.tokens = o->spec.shape.batch * o->spec.shape.len_q;
    const int backward = o->spec.op == SPEC_BACKWARD;
    c->flops = (backward ? 2 : 1) * f->projections(w) + problem_flops(&c->problem, pairs);
    if (backward && (status = f->forward(w, error)) != ATTN_OK) return status;
    w->options.allocator = (attn_allocator){count_allocate, count_release, w};
    return ATTN_OK;
}

static void destroy(candidate *c) { free(c->state); }

const candidate_kind layer_kind = {check, create, NULL, execute, destroy};
