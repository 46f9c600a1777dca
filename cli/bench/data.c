/* SPDX-License-Identifier: MIT
 * data.c - draws the tensors that a problem reads and places those that it writes. */
#include "data.h"

#include <math.h>
#include <string.h>

#include "attn/position.h"

#include "../check/element.h"
#include "../check/flow.h"
#include "memory.h"
#include "work.h"

enum { NORMALS = 65521, LARGEST_ELEMENT = 8 };
#define WHOLE_SCALE 0.03 /* of keys and values of i8 */

static void *keep(data *d, size_t bytes)
{
    void *memory = fresh_memory(bytes);
    d->block[d->blocks] = memory;
    d->block_bytes[d->blocks++] = bytes;
    d->bytes += (double)bytes;
    return memory;
}

static void draw_normals(random_state *random, attn_dtype dtype, unsigned char *memory, size_t bytes)
{
    static unsigned char table[NORMALS * LARGEST_ELEMENT];
    const size_t element = attn_dtype_size(dtype), whole = NORMALS * element;
    for (size_t k = 0; k < whole && k < bytes; k += element) {
        const double x = random_normal(random);
        element_write(dtype, table + k, dtype == ATTN_I8 ? fmax(-127, fmin(127, nearbyint(x / WHOLE_SCALE))) : x);
    }
    for (size_t at = 0; at < bytes; at += whole) memcpy(memory + at, table, bytes - at < whole ? bytes - at : whole);
}

/* ---- tensors ---- */

/* From the first element to the last, in elements; the strides are those of problem_build, none of which is negative. */
static int64_t extent(const attn_layout *layout, const int64_t size[4])
{
    int64_t stride[4], last = 0;
    layout_strides(layout, size, stride);
    for (int axis = 0; axis < 4; axis++) {
        if (size[axis] == 0) return 0;
        last += (size[axis] - 1) * stride[axis];
    }
    return last + 1;
}

static void *room_of(data *d, const attn_layout *layout, attn_dtype natural, const int64_t size[4], attn_dtype *dtype,
                     size_t *bytes)
{
    *dtype = layout->dtype ? layout->dtype : natural;
    *bytes = (size_t)extent(layout, size) * attn_dtype_size(*dtype);
    return keep(d, *bytes);
}

static const void *input(data *d, const attn_layout *layout, attn_dtype natural, const int64_t size[4])
{
    attn_dtype dtype;
    size_t bytes;
    void *memory = room_of(d, layout, natural, size, &dtype, &bytes);
    draw_normals(&d->random, dtype, memory, bytes);
    return memory;
}

static void *output(data *d, const attn_layout *layout, attn_dtype natural, const int64_t size[4])
{
    attn_dtype dtype;
    size_t bytes;
    void *memory = room_of(d, layout, natural, size, &dtype, &bytes);
    memset(memory, 0xff, bytes); /* touched, so that its pages are not counted as the library's */
    return memory;
}

static const void *draw_mask(data *d, const attn_layout *layout, const int64_t size[4], double drop)
{
    const size_t bytes = (size_t)extent(layout, size);
    unsigned char *memory = keep(d, bytes);
    for (size_t k = 0; k < bytes; k++) memory[k] = random_unit(&d->random) >= drop;
    return memory;
}

/* `count` numbers of the compute type. */
static void *few(data *d, attn_dtype compute, int64_t count)
{
    const size_t bytes = (size_t)count * attn_dtype_size(compute);
    void *memory = keep(d, bytes);
    draw_normals(&d->random, compute, memory, bytes);
    return memory;
}

/* Of a score; matrices that leave scores of the size of those of a dot product. */
static const void *draw_weights(data *d, attn_dtype compute, const attn_problem *p)
{
    const size_t element = attn_dtype_size(compute);
    int64_t size[4];
    problem_w_size(p, size);
    const int64_t count = size[1] * size[2] * size[3];
    if (count == 0) return NULL;
    unsigned char *memory = few(d, compute, count);
    const double fan = p->score.kind == ATTN_SCORE_ADDITIVE ? 1
                       : p->score.kind == ATTN_SCORE_METRIC ? pow((double)size[2], 0.25) * sqrt(sqrt((double)size[3]))
                                                            : sqrt((double)(size[2] * size[3]));
    for (int64_t k = 0; k < count && fan > 1; k++)
        element_write(compute, memory + (size_t)k * element, element_read(compute, memory + (size_t)k * element) / fan);
    return memory;
}

/* The scale of every row of keys or values. */
static const void *draw_scales(data *d, const attn_layout *layout, const int64_t size[4])
{
    attn_dtype dtype;
    size_t bytes;
    float *memory = room_of(d, layout, ATTN_F32, size, &dtype, &bytes);
    for (size_t k = 0; k < bytes / sizeof *memory; k++) memory[k] = (float)WHOLE_SCALE;
    return memory;
}

/* The slopes of Press et al. 2022. */
static const void *draw_slopes(data *d, attn_dtype compute, const attn_problem *p)
{
    const int64_t heads = p->shape.heads_q, batch = p->bias.alibi == ATTN_ALIBI_BATCH_HEAD ? p->shape.batch : 1;
    unsigned char *memory = few(d, compute, heads * batch);
    for (int64_t b = 0; b < batch; b++)
        (void)attn_alibi_slopes(heads, compute, memory + (size_t)(b * heads) * attn_dtype_size(compute), NULL);
    return memory;
}

/* ---- indices, which are i64 ---- */

static int64_t *draw_index(data *d, int64_t count, int64_t low, int64_t high)
{
    int64_t *index = keep(d, (size_t)count * sizeof *index);
    for (int64_t k = 0; k < count; k++) index[k] = random_between(&d->random, low, high > low ? high : low);
    return index;
}

/* Where each of `batch` sequences begins, the first at 0, and the end of the last. */
static int64_t *running_sum(data *d, const int64_t *length, int64_t batch)
{
    int64_t *sum = keep(d, (size_t)(batch + 1) * sizeof *sum);
    for (int64_t b = 0; b < batch; b++) sum[b + 1] = sum[b] + length[b];
    return sum;
}

typedef struct lengths {
    const int64_t *q, *kv, *offset; /* NULL: full, full, 0 */
    int64_t total_q, total_kv;      /* of packed sequences */
} lengths;

static lengths draw_lengths(data *d, const problem_spec *spec, const attn_problem *p)
{
    const attn_shape *s = &p->shape;
    const attn_mask *m = &p->mask;
    lengths l = {0};
    if (m->lengths_q || m->packed) l.q = draw_index(d, s->batch, s->len_q ? 1 : 0, s->len_q);
    if (m->lengths_kv || m->packed) l.kv = draw_index(d, s->batch, s->len_kv ? 1 : 0, s->len_kv);
    if (m->align == ATTN_ALIGN_OFFSET) {
        const int named = spec->offset_kind == SPEC_OFFSET_VALUE;
        l.offset = draw_index(d, s->batch, named ? spec->offset : 0, named ? spec->offset : s->len_kv - s->len_q);
    }
    if (m->lengths_q) d->args.lengths_q = l.q;
    if (m->lengths_kv) d->args.lengths_kv = l.kv;
    d->args.offset = l.offset;
    if (m->packed) {
        const int64_t *begin_q = running_sum(d, l.q, s->batch), *begin_kv = running_sum(d, l.kv, s->batch);
        d->args.cu_seqlens_q = begin_q;
        d->args.cu_seqlens_kv = begin_kv;
        l.total_q = begin_q[s->batch];
        l.total_kv = begin_kv[s->batch];
    }
    d->tokens = s->batch * s->len_q;
    if (l.q) d->tokens = 0;
    for (int64_t b = 0; l.q && b < s->batch; b++) d->tokens += l.q[b];
    d->pairs = visible_pairs(p, l.q, l.kv, l.offset);
    return l;
}

/* ---- the whole ---- */

/* All but forward read what forward wrote.  Its memory is freed again before anything is measured. */
static attn_status run_forward(const data *d, const attn_problem *problem, const attn_options *options, attn_error *error)
{
    attn_problem forward = *problem;
    attn_plan *plan;
    forward.op = ATTN_FORWARD;
    forward.gradients = (attn_gradients){0};
    forward.tangents = (attn_tangents){0};
    forward.second = (attn_second){0};
    forward.want.lse = 1;
    attn_status status = attn_plan_create(&plan, &forward, options, error);
    if (status != ATTN_OK) return status;
    const size_t bytes = attn_plan_workspace_size(plan);
    void *workspace = fresh_memory(bytes);
    status = attn_execute(plan, &d->args, workspace, bytes, error);
    fresh_release(workspace, bytes);
    attn_plan_destroy(plan);
    return status;
}

attn_status data_create(data *d, const problem_spec *spec, const attn_problem *problem, const attn_options *options,
                        attn_error *error)
{
    *d = (data){.args.struct_size = sizeof d->args, .random = {2 * spec->seed + 1}};
    const attn_problem *p = problem;
    const attn_shape *s = &p->shape;
    attn_args *args = &d->args;
    const attn_dtype storage = p->q.dtype ? p->q.dtype : ATTN_F32, compute = storage == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const lengths l = draw_lengths(d, spec, p);
    const int packed = p->mask.packed, beyond = p->op != ATTN_FORWARD;
    const int64_t batch = packed ? 1 : s->batch, tokens_q = packed ? l.total_q : s->len_q,
                  tokens_kv = packed ? l.total_kv : s->len_kv;
    const int64_t q[4] = {batch, s->heads_q, tokens_q, s->dim_qk}, o[4] = {batch, s->heads_q, tokens_q, s->dim_v};
    const int64_t k[4] = {batch, s->heads_kv, tokens_kv, problem_dim_k(p)}, v[4] = {batch, s->heads_kv, tokens_kv, s->dim_v};
    const int64_t rows[4] = {batch, s->heads_q, tokens_q, 1}, pairs[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};

    args->q = input(d, &p->q, storage, q);
    args->k = input(d, &p->k, storage, k);
    args->v = input(d, &p->v, storage, v);
    args->o = output(d, &p->o, storage, o);
    const int64_t scales[4] = {batch, s->heads_kv, tokens_kv, 1};
    if (p->k.dtype == ATTN_I8) args->k_scale = draw_scales(d, &p->quantised.k_scale, scales);
    if (p->v.dtype == ATTN_I8) args->v_scale = draw_scales(d, &p->quantised.v_scale, scales);
    if (p->want.lse || beyond) args->lse = output(d, &p->want.lse_layout, compute, rows);
    if (p->want.weights) args->weights = output(d, &p->want.weights_layout, compute, pairs);
    if (p->mask.boolean) args->mask = draw_mask(d, &p->mask.mask, pairs, spec->mask_drop);
    if (p->mask.block) {
        const int64_t blocks[4] = {s->batch, s->heads_q, problem_blocks(s->len_q, p->mask.block_q),
                                   problem_blocks(s->len_kv, p->mask.block_kv)};
        args->blocks = draw_mask(d, &p->mask.blocks, blocks, spec->block_drop);
    }
    if (p->bias.additive) args->bias = input(d, &p->bias.bias, compute, pairs);
    if (p->bias.alibi) args->slopes = draw_slopes(d, compute, p);
    const int64_t buckets = problem_buckets(&p->bias_table);
    if (p->bias_table.used) args->bias_table = few(d, compute, s->heads_q * buckets);
    const attn_relative *r = &p->relative;
    const int64_t of_keys = s->heads_q * r->rows * s->dim_qk, of_values = s->heads_q * r->rows * s->dim_v;
    if (r->keys) args->relative_keys = few(d, compute, of_keys);
    if (r->values) args->relative_values = few(d, compute, of_values);
    if (r->u) args->relative_u = few(d, compute, s->heads_q * s->dim_qk);
    if (r->v) args->relative_v = few(d, compute, s->heads_q * s->dim_qk);
    if (p->bias.sink) args->sink = few(d, compute, s->heads_q);
    if (p->score.scale_kind == ATTN_SCALE_PER_HEAD) args->scale = few(d, compute, s->heads_q);
    args->w = draw_weights(d, compute, p);
    args->dropout_seed = spec->seed;
    if (!beyond) return ATTN_OK;
    for (int f = 0; f < FLOWS; f++) {
        int64_t size[4];
        attn_problem copy = *p;
        const attn_layout *given = flow_layout((flow)f, &copy);
        const attn_layout layout = given ? *given : (attn_layout){0};
        if (!flow_used((flow)f, p)) continue;
        flow_size((flow)f, p, size);
        if (packed && flow_has_tokens((flow)f)) size[0] = 1, size[2] = flow_of_keys((flow)f) ? tokens_kv : tokens_q;
        const attn_dtype natural = flow_dtype((flow)f, p);
        if (f < FLOW_OUTPUTS) flow_point((flow)f, args, (void *)input(d, &layout, natural, size));
        else flow_point((flow)f, args, output(d, &layout, natural, size));
    }
    return run_forward(d, p, options, error);
}

void data_destroy(data *d)
{
    for (int k = 0; k < d->blocks; k++) fresh_release(d->block[k], d->block_bytes[k]);
    *d = (data){0};
}
