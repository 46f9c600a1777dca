/* SPDX-License-Identifier: MIT
 * axes.c - axes of arrays and axes of tensors.
 *
 * A tensor has four axes, [batch, head, token, channel] or the like.  Arrays of rows (q, lse, topk_index, ...) have them in the
 * order of the layout, and none where the tensor's last axis counts nothing.  All other arrays (mask, sink, page_table, ...) have
 * the axes that count something, or as many of the last of these as the caller likes: missing ones broadcast, as in NumPy. */
#include "core.h"

static const int order[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 1, 3, 0}};

const char *layout_name(axes_layout layout)
{
    static const char *const names[] = {"bhsd", "bshd", "thd"};
    return (unsigned)layout < 3 ? names[layout] : NULL;
}

void axes_make(tensor_row *row)
{
    const attn_axis *axes = row->about.axes;
    const int rows = axes[2] == ATTN_AXIS_QUERY || axes[2] == ATTN_AXIS_KEY;
    for (int axis = 0; axis < 4; axis++)
        if (axes[axis] != ATTN_AXIS_ONE) row->core[row->cores++] = axis;
    row->rule = !rows || axes[3] == ATTN_AXIS_LIST ? AXES_OTHER
                : axes[3] == ATTN_AXIS_KEY         ? AXES_PAIR
                : axes[3] == ATTN_AXIS_ONE         ? AXES_ROWS_ONE
                                                   : AXES_ROWS;
}

int axes_max(const tensor_row *row, axes_layout layout)
{
    if (row->rule >= AXES_PAIR) return row->cores;
    return (layout == LAYOUT_THD ? 3 : 4) - (row->rule == AXES_ROWS_ONE);
}

int axes_of(const tensor_row *row, axes_layout layout, int ndim, int axes[4])
{
    const int most = axes_max(row, layout);
    if (ndim > most || (layout == LAYOUT_THD && row->rule <= AXES_ROWS_ONE && ndim < most)) return 0;
    for (int i = 0; i < ndim; i++) {
        const int at = most - ndim + i;
        axes[i] = row->rule >= AXES_PAIR ? row->core[at] : order[layout][at];
    }
    return 1;
}

static int is_of_keys(const tensor_row *row) { return row->rule <= AXES_ROWS_ONE && row->about.axes[2] == ATTN_AXIS_KEY; }

axes_layout axes_layout_of(const call *c, const tensor_row *row)
{
    const int ragged = c->layout == LAYOUT_THD && !c->place[TENSOR(cu_seqlens_kv)];
    return ragged && is_of_keys(row) ? LAYOUT_BSHD : c->layout;
}

int axes_most(const call *c, const tensor_row *row)
{
    return axes_max(row, c->layout == LAYOUT_THD && is_of_keys(row) ? LAYOUT_BSHD : c->layout);
}

int64_t axes_tokens(const call *c, int number)
{
    const tensor_row *row = &c->state->rows_of[number];
    if (c->layout != LAYOUT_THD || row->rule > AXES_ROWS_ONE || axes_layout_of(c, row) != LAYOUT_THD) return -1;
    return row->about.axes[2] == ATTN_AXIS_KEY ? c->tokens_kv : c->tokens_q;
}

attn_input axes_slot(const call *c, const view *v)
{
    const tensor_row *row = &c->state->rows_of[v->number];
    attn_input slot = {v->data ? v->data : ATTN_LATER, v->dtype, {0, 0, 0, 0}};
    int axes[4] = {0, 1, 2, 3}, steps = 0;
    int64_t size = 1;
    axes_of(row, axes_layout_of(c, row), v->ndim, axes);
    for (int i = 0; i < v->ndim; i++) size *= v->shape[i];
    if (!size) {
        slot.data = ATTN_EMPTY;
        return slot;
    }
    for (int i = 0; i < v->ndim; i++) {
        slot.stride[axes[i]] = v->shape[i] == 1 ? 0 : v->stride[i];
        steps |= slot.stride[axes[i]] != 0;
    }
    /* Four zeros would mean dense; what counts one thing cannot broadcast. */
    if (!steps && row->cores > 1) slot.stride[0] = ATTN_BROADCAST;
    return slot;
}
