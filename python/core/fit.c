/* SPDX-License-Identifier: MIT
 * fit.c - do the arrays have the shapes of a plan's tensors?  The library sees addresses and strides only, so a wrong shape would
 * read beyond an array. */
#include "core.h"

#include <stdio.h>

enum { TEXT = 128 };

static void text_of(const int64_t *shape, int count, char text[TEXT])
{
    int at = snprintf(text, TEXT, "(");
    for (int i = 0; i < count && at < TEXT - 24; i++)
        at += snprintf(text + at, TEXT - (size_t)at, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(text + at, TEXT - (size_t)at, count == 1 ? ",)" : ")");
}

static int mismatch(const call *c, const view *v, const int64_t want[4], int broadcasts)
{
    char have_text[TEXT], want_text[TEXT];
    int axes[4];
    int64_t wanted[4] = {0};
    const tensor_row *row = &c->state->rows_of[v->number];
    int most = axes_max(row, axes_layout_of(c, row));
    if (row->rule <= AXES_ROWS_ONE && c->layout != LAYOUT_THD) most -= 4 - c->rank;
    if (most < v->ndim) most = v->ndim;
    axes_of(row, axes_layout_of(c, row), most, axes);
    for (int i = 0; i < most; i++) wanted[i] = want[axes[i]];
    text_of(v->shape, v->ndim, have_text);
    text_of(wanted, most, want_text);
    PyErr_Format(PyExc_ValueError, "%s has the shape %s; it must be %s%s", tensor_name(c, v->number), have_text, want_text,
                 broadcasts ? ", or 1 on axes that broadcast" : "");
    return -1;
}

static int check(const call *c, const view *v, const attn_plan *plan)
{
    const tensor_row *row = &c->state->rows_of[v->number];
    const int rows = row->rule <= AXES_ROWS_ONE, broadcasts = !rows && !v->written && row->cores > 1;
    attn_tensor_plan of = {.struct_size = sizeof of};
    attn_error error;
    int64_t have[4] = {1, 1, 1, 1}, want[4];
    int axes[4], fits = 1;
    if (v->ndim < 0) return 0; /* still to be allocated */
    if (attn_plan_tensor(plan, v->number, &of, &error)) return call_fail(c, &error), -1;
    memcpy(want, of.shape, sizeof want);
    if ((int)v->dtype >= OF_NUMPY) want[3] *= ATTN_BLOCK; /* an element is a block */
    if (axes_layout_of(c, row) == LAYOUT_THD && rows) {
        want[0] = 1;
        want[2] = row->about.axes[2] == ATTN_AXIS_KEY ? c->tokens_kv : c->tokens_q;
    }
    axes_of(row, axes_layout_of(c, row), v->ndim, axes);
    for (int i = 0; i < v->ndim; i++) have[axes[i]] = v->shape[i];
    for (int axis = 0; axis < 4; axis++) fits &= have[axis] == want[axis] || (broadcasts && have[axis] == 1);
    return fits ? 0 : mismatch(c, v, want, broadcasts);
}

int fit_output(call *c, const view *v)
{
    char have[TEXT], want[TEXT];
    view right = {.number = v->number, .written = 1};
    if (!v->written) return 0;
    if (sizes_of_output(c, &right)) return -1;
    if (v->ndim == right.ndim && !memcmp(v->shape, right.shape, (size_t)v->ndim * sizeof *v->shape)) return 0;
    text_of(v->shape, v->ndim, have);
    text_of(right.shape, right.ndim, want);
    PyErr_Format(PyExc_ValueError, "%s has the shape %s; it must be %s", tensor_name(c, v->number), have, want);
    return -1;
}

int fit_check(call *c, const attn_plan *plan)
{
    for (int i = 0; i < c->count; i++)
        if (check(c, &c->views[i], plan)) return -1;
    return 0;
}
