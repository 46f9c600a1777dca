/* SPDX-License-Identifier: MIT
 * requested.c - requesting every output at once. */
#include "requested.h"

#include <math.h>

enum { GUARD = 64, PATTERN = 0xff };

static void set(requested *w, drawn *d, int dense, int which, const char *name, attn_dtype dtype, int64_t b, int64_t h, int64_t t,
                int64_t c)
{
    requested_output *o = &w->outputs[which];
    int64_t count = b * h * t * c;
    o->name = name;
    o->layout.dtype = dtype;
    o->shape[0] = b, o->shape[1] = h, o->shape[2] = t, o->shape[3] = c;
    int by_token = !dense && draw_below(d, 2);
    o->layout.stride[0] = h * t * c;
    o->layout.stride[1] = by_token ? c : t * c;
    o->layout.stride[2] = by_token ? h * c : c;
    o->layout.stride[3] = 1;
    o->bytes = (size_t)count * attn_dtype_size(dtype);
    o->data = draw_memory(d, (int64_t)o->bytes + GUARD, 1);
}

static void visit(void *context, const attn_rows *rows)
{
    requested *w = context;
    requested_output *o = &w->outputs[OUT_VIEW];
    int64_t row = (rows->batch * o->shape[1] + rows->head) * o->shape[2] + rows->first;
    size_t size = attn_dtype_size(rows->dtype), bytes = (size_t)rows->len_kv * size;
    if (rows->dtype != o->layout.dtype || rows->len_kv != o->shape[3]) return; /* the test then finds visits missing */
    for (int64_t i = 0; i < rows->count; i++) {
        memcpy((char *)o->data + (size_t)(row + i) * bytes, (const char *)rows->values + (size_t)(i * rows->stride) * size, bytes);
        w->visits[row + i]++;
    }
}

void requested_init(requested *w, drawn *d, int dense)
{
    const attn_shape *s = &d->problem.shape;
    const int64_t B = s->batch, H = s->heads_q, Sq = s->len_q, Skv = s->len_kv;
    attn_outputs *settings = &d->problem.outputs;
    attn_tensors *t = &d->tensors;
    int half = !dense && d->compute == ATTN_F32 && draw_below(d, 3) == 0;
    attn_dtype pairs = half ? (draw_below(d, 2) ? ATTN_F16 : ATTN_BF16) : d->compute;
    memset(w, 0, sizeof *w);

    settings->scores_stage = (attn_stage)draw_below(d, 4);
    settings->rows_stage = (attn_stage)draw_below(d, 4);
    settings->column_heads = (attn_columns)draw_below(d, 3);
    settings->column_queries = draw_below(d, 2) ? 0 : 1 + draw_below(d, Sq + 3);
    settings->topk = 1 + draw_below(d, draw_below(d, 2) ? 5 : 40);
    const int64_t sums = settings->column_heads == ATTN_COLUMNS_EACH    ? H
                         : settings->column_heads == ATTN_COLUMNS_GROUP ? s->heads_kv
                                                                        : 1;

    set(w, d, dense, OUT_O, "o", d->compute, B, H, Sq, s->dim_v);
    set(w, d, dense, OUT_LSE, "lse", d->compute, B, H, Sq, 1);
    set(w, d, dense, OUT_WEIGHTS, "weights", pairs, B, H, Sq, Skv);
    set(w, d, dense, OUT_SCORES, "scores", pairs, B, H, Sq, Skv);
    set(w, d, dense, OUT_KEEP, "dropout_keep", ATTN_BOOL, B, H, Sq, Skv);
    set(w, d, dense, OUT_ROW_MAX, "row_max", d->compute, B, H, Sq, 1);
    set(w, d, dense, OUT_ENTROPY, "entropy", d->compute, B, H, Sq, 1);
    set(w, d, dense, OUT_EFFECTIVE, "effective_keys", d->compute, B, H, Sq, 1);
    set(w, d, dense, OUT_COLUMNS, "column_sum", d->compute, B, sums, Skv, 1);
    set(w, d, dense, OUT_TOP_INDEX, "topk_index", draw_below(d, 2) ? ATTN_I32 : ATTN_I64, B, H, Sq, settings->topk);
    set(w, d, dense, OUT_TOP_WEIGHT, "topk_weight", d->compute, B, H, Sq, settings->topk);
    set(w, d, 1, OUT_VIEW, "rows", d->compute, B, H, Sq, Skv);
    w->visits = draw_memory(d, B * H * Sq, 1);

    attn_output *const slots[] = {[OUT_O] = &t->o,
                                  [OUT_LSE] = &t->lse,
                                  [OUT_WEIGHTS] = &t->weights,
                                  [OUT_SCORES] = &t->scores,
                                  [OUT_KEEP] = &t->dropout_keep,
                                  [OUT_ROW_MAX] = &t->row_max,
                                  [OUT_ENTROPY] = &t->entropy,
                                  [OUT_EFFECTIVE] = &t->effective_keys,
                                  [OUT_COLUMNS] = &t->column_sum,
                                  [OUT_TOP_INDEX] = &t->topk_index,
                                  [OUT_TOP_WEIGHT] = &t->topk_weight};
    for (int which = 0; which < OUT_VIEW; which++) {
        *slots[which] = attn_out(w->outputs[which].data);
        slots[which]->dtype = w->outputs[which].layout.dtype;
        memcpy(slots[which]->stride, w->outputs[which].layout.stride, sizeof slots[which]->stride);
    }
    d->call.visit_rows = visit;
    d->call.visit_context = w;
}

static int is_pattern(const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (((const unsigned char *)bytes)[i] != PATTERN) return 0;
    return 1;
}

void requested_run(requested *w, drawn *d, attn_isa isa, int threads)
{
    attn_options options = {.struct_size = sizeof options, .isa = isa, .threads = threads};
    attn_error error;
    attn_plan *plan;
    int64_t rows = d->problem.shape.batch * d->problem.shape.heads_q * d->problem.shape.len_q;
    if (attn_plan_create(&plan, &d->problem, &d->tensors, &options, &error) != ATTN_OK) fail_msg("%s: %s", d->text, error.message);
    size_t bytes = attn_plan_workspace_size(plan);
    unsigned char *workspace = malloc(bytes + GUARD);
    assert_non_null(workspace);
    memset(workspace, PATTERN, bytes + GUARD);
    memset(w->visits, 0, (size_t)rows);
    for (int k = 0; k < OUTS; k++) memset(w->outputs[k].data, PATTERN, w->outputs[k].bytes + GUARD);

    if (attn_execute(plan, &d->tensors, workspace, bytes, &error) != ATTN_OK) fail_msg("%s: %s", d->text, error.message);
    if (!is_pattern(workspace + bytes, GUARD)) fail_msg("%s: written past the workspace", d->text);
    for (int k = 0; k < OUTS; k++)
        if (!is_pattern((char *)w->outputs[k].data + w->outputs[k].bytes, GUARD))
            fail_msg("%s: written past %s", d->text, w->outputs[k].name);
    free(workspace);
    attn_plan_destroy(plan);
}

double requested_at(const requested *w, int which, int64_t b, int64_t h, int64_t t, int64_t c)
{
    const requested_output *o = &w->outputs[which];
    const int64_t *stride = o->layout.stride;
    return element_at(o->layout.dtype, o->data, b * stride[0] + h * stride[1] + t * stride[2] + c);
}

void requested_compare(const requested *w, int which, const double *expected, double tolerance, const char *text)
{
    const requested_output *o = &w->outputs[which];
    for (int64_t b = 0, at = 0; b < o->shape[0]; b++)
        for (int64_t h = 0; h < o->shape[1]; h++)
            for (int64_t t = 0; t < o->shape[2]; t++)
                for (int64_t c = 0; c < o->shape[3]; c++, at++) {
                    double x = requested_at(w, which, b, h, t, c), y = expected[at];
                    if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * (1 + fabs(y))) continue;
                    fail_msg("%s: %s[%d,%d,%d,%d] is %.9g instead of %.9g", text, o->name, (int)b, (int)h, (int)t, (int)c, x, y);
                }
}

int can_run(attn_isa isa)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    return isa <= cpu.isa && !isa_is_foreign((int)isa);
}
