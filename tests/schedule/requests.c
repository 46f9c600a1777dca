/* SPDX-License-Identifier: MIT
 * requests.c - draws requests, and runs them alone or together. */
#include "test.h"

#include "requests.h"

static int is_latent(const serving *how) { return how->dim_v > 0; }
static int shares_scales(const serving *how) { return is_latent(how) && !how->cross; } /* else values have their own */
static int dim_of_values(const serving *how) { return is_latent(how) ? how->dim_v : how->dim; }
static int64_t width_of_results(const serving *how) { return how->heads_q * (int64_t)dim_of_values(how); }

static void *scratch(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    assert_non_null(memory);
    return memory;
}

static attn_dtype type_of_queries(const serving *how) { return how->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

/* Elements of a row of keys or values: blocks have several channels each. */
static int64_t row_of(const serving *how) { return how->dtype >= ATTN_Q8_0 ? how->dim / ATTN_BLOCK : how->dim; }

static int64_t row_of_values(const serving *how) { return is_latent(how) ? how->dim_v : row_of(how); }

/* Any bytes are numbers of f8, but those with the largest exponent, and any are steps of blocks, whose scales are halves. */
static void draw_bytes(random_state *random, attn_dtype dtype, char *to)
{
    const size_t bytes = attn_dtype_size(dtype);
    for (size_t i = 0; i < bytes; i++) to[i] = (char)(random_below(random, 256) & (bytes == 1 ? 0xaf : 0xff));
    for (size_t i = 0; i < 4 && bytes > 1; i += dtype == ATTN_Q4_1 ? 2 : 4) {
        const double x = 0.1 * random_signed(random);
        (void)attn_convert(1, &x, ATTN_F64, to + i, ATTN_F16, NULL);
    }
}

static char *numbers(random_state *random, int64_t count, attn_dtype dtype)
{
    const int64_t bytes = (int64_t)attn_dtype_size(dtype);
    char *to = scratch(count, (size_t)bytes);
    for (int64_t n = 0; n < count; n++) {
        const double x = 2 * random_signed(random);
        if (dtype >= ATTN_F8_E4M3) draw_bytes(random, dtype, to + n * bytes);
        else if (dtype == ATTN_I8) to[n] = (char)(signed char)(random_below(random, 255) - 127);
        else (void)attn_convert(1, &x, ATTN_F64, to + n * bytes, dtype, NULL);
    }
    return to;
}

static float *scales(random_state *random, int64_t count)
{
    float *to = scratch(count, sizeof *to);
    for (int64_t n = 0; n < count; n++) to[n] = (float)(0.01 + 0.02 * random_unit(random));
    return to;
}

/* Values of latents by themselves: the definition, over which a request runs alone. */
static char *first_channels(const char *k, int64_t rows, const serving *how, size_t size)
{
    const size_t of_row = (size_t)how->dim_v * size;
    char *to = scratch(rows, of_row);
    for (int64_t n = 0; n < rows; n++) memcpy(to + (size_t)n * of_row, k + (size_t)(n * how->dim) * size, of_row);
    return to;
}

/* The strides of pages. */
static void page_strides(const serving *how, int64_t dim, int64_t stride[4])
{
    const int64_t heads = how->heads_kv, size = how->page_size;
    stride[0] = (how->joined ? 2 : 1) * heads * size * dim;
    stride[1] = how->token_major ? dim : size * dim;
    stride[2] = how->token_major ? heads * dim : dim;
    stride[3] = 1;
}

/* Copies rows [token, head] of so many elements into their places. */
static void lay_in_pages(const requests *r, int n, const void *rows, int64_t dim, size_t size, char *pages)
{
    const serving *how = &r->how;
    int64_t stride[4];
    page_strides(how, dim, stride);
    for (int64_t t = 0; t < r->tokens[n]; t++)
        for (int64_t h = 0; h < how->heads_kv; h++) {
            const int64_t to = r->table[n][t / how->page_size] * stride[0] + h * stride[1] + t % how->page_size * stride[2];
            memcpy(pages + (size_t)to * size, (const char *)rows + (size_t)((t * how->heads_kv + h) * dim) * size,
                   (size_t)dim * size);
        }
}

void requests_draw(requests *r, const serving *how, int count, random_state *random)
{
    const size_t size = attn_dtype_size(how->dtype);
    const int64_t rows = how->heads_kv * (int64_t)how->page_size;
    memset(r, 0, sizeof *r);
    r->how = *how;
    r->count = count;
    for (int n = 0; n < count; n++) {
        r->tokens[n] = n == 0 ? how->capacity : 1 + random_below(random, 1 + random_below(random, how->capacity));
        r->pages += (r->tokens[n] + how->page_size - 1) / how->page_size;
    }
    int32_t *order = scratch(r->pages, sizeof *order);
    for (int64_t p = 0; p < r->pages; p++) {
        const int64_t place = random_below(random, p + 1);
        order[p] = order[place];
        order[place] = (int32_t)p;
    }
    r->pages_k = scratch((how->joined ? 2 : 1) * r->pages * rows * row_of(how), size);
    r->pages_v = how->joined      ? r->pages_k + (size_t)(rows * row_of(how)) * size
                 : is_latent(how) ? r->pages_k
                                  : scratch(r->pages * rows * row_of(how), size);
    if (how->dtype == ATTN_I8) {
        r->pages_k_scale = scales(random, (how->joined ? 2 : 1) * r->pages * rows);
        r->pages_v_scale = how->joined          ? r->pages_k_scale + rows
                           : shares_scales(how) ? r->pages_k_scale
                                                : scales(random, r->pages * rows);
    }
    for (int n = 0, next = 0; n < count; n++) {
        const int64_t T = r->tokens[n], of_keys = T * how->heads_kv;
        r->table[n] = order + next;
        next += (int)((T + how->page_size - 1) / how->page_size);
        r->q[n] = numbers(random, T * how->heads_q * how->dim, type_of_queries(how));
        r->k[n] = numbers(random, of_keys * row_of(how), how->dtype);
        r->v[n] = is_latent(how) ? first_channels(r->k[n], of_keys, how, size) : numbers(random, of_keys * row_of(how), how->dtype);
        r->o[n] = scratch(T * width_of_results(how), attn_dtype_size(type_of_queries(how)));
        lay_in_pages(r, n, r->k[n], row_of(how), size, r->pages_k);
        if (!is_latent(how)) lay_in_pages(r, n, r->v[n], row_of(how), size, r->pages_v);
        if (how->dtype != ATTN_I8) continue;
        r->k_scale[n] = scales(random, of_keys), r->v_scale[n] = shares_scales(how) ? r->k_scale[n] : scales(random, of_keys);
        lay_in_pages(r, n, r->k_scale[n], 1, sizeof(float), (char *)r->pages_k_scale);
        lay_in_pages(r, n, r->v_scale[n], 1, sizeof(float), (char *)r->pages_v_scale);
    }
    for (int h = 0; h < how->heads_q; h++) r->sinks[h] = (float)random_signed(random), r->slopes[h] = 0.3f / (float)(h + 1);
}

void requests_free(requests *r)
{
    for (int n = 0; n < r->count; n++) {
        void *of_request[] = {r->q[n], r->k[n], r->v[n], r->o[n], r->k_scale[n], shares_scales(&r->how) ? NULL : r->v_scale[n]};
        for (size_t i = 0; i < sizeof of_request / sizeof *of_request; i++) free(of_request[i]);
    }
    free(r->table[0]);
    free(r->pages_k), free(r->pages_k_scale);
    if (!r->how.joined && !is_latent(&r->how)) free(r->pages_v);
    if (!r->how.joined && !shares_scales(&r->how)) free(r->pages_v_scale);
}

size_t requests_bytes(const requests *r, int n)
{
    return (size_t)(r->tokens[n] * width_of_results(&r->how)) * attn_dtype_size(type_of_queries(&r->how));
}

static attn_problem problem_of(const requests *r, int64_t batch, int64_t len_q, int64_t len_kv)
{
    const serving *how = &r->how;
    attn_problem p = {.struct_size = sizeof p,
                      .shape = {batch, how->heads_q, how->heads_kv, len_q, len_kv, how->dim, dim_of_values(how)},
                      .mask = {.causal = !how->cross, .align = ATTN_ALIGN_BOTTOM_RIGHT},
                      .score.softcap = how->softcap};
    if (how->window) p.mask.window = 1, p.mask.window_left = how->window, p.mask.window_right = -1;
    return p;
}

static attn_options options_of(const requests *r, int threads)
{
    return (attn_options){.struct_size = sizeof(attn_options), .threads = threads, .invariant = r->how.invariant};
}

static void check(attn_status status, const attn_error *error)
{
    if (status != ATTN_OK) fail_msg("%s", error->message);
}

/* What all heads have: sinks, slopes. */
static void set_heads(const requests *r, attn_tensors *t)
{
    if (r->how.sink) t->sink = attn_in(r->sinks);
    if (r->how.alibi) t->alibi_slopes = attn_in(r->slopes);
}

void requests_run_alone(requests *r, int n, int64_t first, int64_t count, int threads)
{
    const serving *how = &r->how;
    const int64_t width = how->heads_q * (int64_t)how->dim, width_o = width_of_results(how),
                  size = (int64_t)attn_dtype_size(type_of_queries(how));
    const attn_problem p = problem_of(r, 1, count, how->cross ? r->tokens[n] : first + count);
    const attn_options options = options_of(r, threads);
    const int64_t of_q[] = {0, how->dim, width, 1}, of_k[] = {0, row_of(how), how->heads_kv * row_of(how), 1};
    const int64_t of_value = row_of_values(how);
    attn_tensors t = {.struct_size = sizeof t};
    attn_plan *plan;
    attn_error error;
    set_heads(r, &t);
    t.q = (attn_input){r->q[n] + first * width * size, type_of_queries(how), {of_q[0], of_q[1], of_q[2], 1}};
    t.k = (attn_input){r->k[n], how->dtype, {0, of_k[1], of_k[2], 1}};
    t.v = (attn_input){r->v[n], how->dtype, {0, of_value, how->heads_kv * of_value, 1}};
    t.o = (attn_output){r->o[n] + first * width_o * size, type_of_queries(how), {0, dim_of_values(how), width_o, 1}};
    if (how->dtype == ATTN_I8) {
        t.k_scale = (attn_input){r->k_scale[n], ATTN_F32, {0, 1, how->heads_kv, 1}};
        t.v_scale = (attn_input){r->v_scale[n], ATTN_F32, {0, 1, how->heads_kv, 1}};
    }
    check(attn_plan_create(&plan, &p, &t, &options, &error), &error);
    void *workspace = scratch((int64_t)attn_plan_workspace_size(plan), 1);
    check(attn_execute(plan, &t, workspace, attn_plan_workspace_size(plan), &error), &error);
    free(workspace);
    attn_plan_destroy(plan);
}

/* ---- a step ---- */

typedef struct lists {
    int32_t starts_q[MOST_REQUESTS + 1], page_starts[MOST_REQUESTS + 1], last[MOST_REQUESTS];
    int64_t lengths[MOST_REQUESTS];
    int32_t *pages;
    int64_t of_row; /* pages of a row of the table */
} lists;

static void list_step(const requests *r, const step *s, lists *l)
{
    const serving *how = &r->how;
    memset(l, 0, sizeof *l);
    l->of_row = (how->capacity + how->page_size - 1) / how->page_size;
    l->pages = scratch(r->count * l->of_row, sizeof *l->pages);
    for (int n = 0; n < r->count; n++) {
        const int64_t length = how->cross ? r->tokens[n] : s->first[n] + s->count[n],
                      pages = (length + how->page_size - 1) / how->page_size;
        int32_t *to = l->pages + (how->lists ? l->page_starts[n] : n * l->of_row);
        const int64_t behind = how->window ? (s->first[n] - how->window) / how->page_size : 0; /* pages that no query sees */
        memcpy(to, r->table[n], (size_t)pages * sizeof *to);
        for (int64_t i = 0; i < behind; i++) to[i] = INT32_MIN;                /* freed */
        for (int64_t i = pages; !how->lists && i < l->of_row; i++) to[i] = -9; /* not read */
        l->starts_q[n + 1] = l->starts_q[n] + (int32_t)s->count[n];
        l->page_starts[n + 1] = l->page_starts[n] + (int32_t)pages;
        l->lengths[n] = length;
        l->last[n] = pages ? (int32_t)(length - (pages - 1) * how->page_size) : 0;
    }
}

/* Some requests in a row, and among them again some, as if they shared all but a few of the keys that the shortest has. */
static int64_t draw_prefixes(const requests *r, const step *s, random_state *random, attn_prefix prefixes[2])
{
    int64_t first = random_below(random, r->count), count = 1 + random_below(random, r->count - first), least = 0;
    for (int i = 0; i < 2; i++) {
        int64_t keys = INT64_MAX;
        for (int64_t n = first; n < first + count; n++) keys = s->first[n] + s->count[n] < keys ? s->first[n] + s->count[n] : keys;
        keys = keys > least ? least + random_below(random, keys - least + 1) : keys;
        prefixes[i] = (attn_prefix){first, count, keys};
        const int64_t skip = random_below(random, count);
        least = keys, first += skip, count -= skip;
    }
    return 2;
}

/* Of memory, -1 (none) among them. */
static void draw_nodes(int nodes, int count, random_state *random, int32_t *to)
{
    for (int n = 0; n < count; n++) to[n] = (int32_t)random_below(random, nodes + 1) - 1;
}

void requests_run_step(requests *r, const step *s, int scheduled, int threads, random_state *random)
{
    const serving *how = &r->how;
    const size_t size_q = attn_dtype_size(type_of_queries(how));
    const size_t row = (size_t)(how->heads_q * how->dim) * size_q, row_o = (size_t)width_of_results(how) * size_q;
    const attn_options options = options_of(r, threads);
    int64_t stride[4], longest = 1 + random_below(random, 40); /* the capacity of queries, which may be more than there are */
    lists l;
    list_step(r, s, &l);
    for (int n = 0; n < r->count; n++) longest = s->count[n] > longest ? s->count[n] : longest;
    attn_problem p = problem_of(r, r->count, longest, how->capacity);
    const int64_t total = l.starts_q[r->count];
    char *q = scratch(total, row), *o = scratch(total, row_o);
    for (int n = 0; n < r->count; n++)
        memcpy(q + (size_t)l.starts_q[n] * row, r->q[n] + (size_t)s->first[n] * row, (size_t)s->count[n] * row);
    attn_call call = {.struct_size = sizeof call};
    attn_tensors t = {.struct_size = sizeof t, .call = &call};
    set_heads(r, &t);
    page_strides(how, row_of(how), stride);
    t.q = (attn_input){q, type_of_queries(how), {0}};
    t.o = (attn_output){o, type_of_queries(how), {0}};
    t.k = (attn_input){r->pages_k, how->dtype, {stride[0], stride[1], stride[2], 1}};
    t.v = (attn_input){r->pages_v, how->dtype, {stride[0], stride[1], stride[2], 1}};
    page_strides(how, 1, stride);
    if (r->pages_k_scale) {
        t.k_scale = (attn_input){r->pages_k_scale, ATTN_F32, {stride[0], stride[1], stride[2], 1}};
        t.v_scale = (attn_input){r->pages_v_scale, ATTN_F32, {stride[0], stride[1], stride[2], 1}};
    }
    t.cu_seqlens_q = (attn_input){l.starts_q, ATTN_I32, {0}};
    p.paging.page_size = how->page_size, p.paging.pages = r->pages;
    if (how->lists) {
        t.page_starts = (attn_input){l.page_starts, ATTN_I32, {0}};
        t.page_index = (attn_input){l.pages, ATTN_I32, {0}};
        t.lengths_last_page = (attn_input){l.last, ATTN_I32, {0}};
        p.paging.page_entries = l.page_starts[r->count];
    } else {
        t.page_table = (attn_input){l.pages, ATTN_I32, {l.of_row, 0, 0, 1}};
        t.lengths_kv = attn_in(l.lengths);
    }
    attn_plan *plan;
    attn_error error;
    check(attn_plan_create(&plan, &p, &t, &options, &error), &error);
    size_t size = attn_plan_workspace_size(plan);
    void *memory = scratch((int64_t)attn_schedule_size(plan), 1);
    if (scheduled) {
        attn_prefix prefixes[2];
        int32_t entry_nodes[MOST_REQUESTS], worker_nodes[3];
        attn_schedule_options known = {.struct_size = sizeof known, .prefixes = prefixes};
        if (random_below(random, 2)) known.prefix_count = draw_prefixes(r, s, random, prefixes);
        if (random_below(random, 2)) {
            known.nodes = 1 + (int)random_below(random, 4);
            known.entry_nodes = entry_nodes;
            draw_nodes(known.nodes, r->count, random, entry_nodes);
            if (random_below(random, 2)) known.worker_nodes = worker_nodes, known.workers = 3;
            draw_nodes(known.nodes, 3, random, worker_nodes);
        }
        check(attn_schedule_make(&call.schedule, plan, &t, memory, attn_schedule_size(plan), &known, &error), &error);
        size = attn_schedule_workspace_size(call.schedule);
    }
    void *workspace = scratch((int64_t)size, 1);
    check(attn_execute(plan, &t, workspace, size, &error), &error);
    for (int n = 0; n < r->count; n++)
        memcpy(r->o[n] + (size_t)s->first[n] * row_o, o + (size_t)l.starts_q[n] * row_o, (size_t)s->count[n] * row_o);
    attn_plan_destroy(plan);
    free(workspace), free(memory), free(q), free(o), free(l.pages);
}
