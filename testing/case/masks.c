/* SPDX-License-Identifier: MIT
 * masks.c - see masks.h. */
#include "masks.h"

#include <stdlib.h>

#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* ---- for the library ---- */

int masks_place(check_call *call, const check_case *c, const sparse_mask *mask)
{
    static const int slots[] = {TENSOR(ranges), TENSOR(block_starts), TENSOR(block_index)};
    for (size_t n = 0; n < sizeof slots / sizeof *slots; n++) {
        const int t = slots[n], by_row = t == TENSOR(ranges);
        const int64_t *from = tensors_at(&mask->slots, t)->data;
        tensor *to = &call->in[t];
        if (!from || tensors_at(&call->tensors, t)->data == ATTN_EMPTY) continue;
        if (!place_tensor(to, call, t, c, -1)) return 0;
        const int64_t rows = tensor_count(to->size) == 0 ? 0
                             : by_row                    ? to->size[2]
                                                         : to->size[0],
                      columns = by_row ? to->size[3] : 1;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                element_write_index(to->layout.dtype, by_row ? tensor_at(to, 0, 0, i, j) : tensor_at(to, i, 0, 0, 0),
                                    from[i * columns + j]);
    }
    return 1;
}

void masks_hide(check_call *call, const sparse_mask *mask)
{
    const tensor *t = &call->in[TENSOR(mask)];
    if (!mask->rows) return;
    for (int64_t b = 0; b < t->size[0]; b++)
        for (int64_t h = 0; h < t->size[1]; h++)
            for (int64_t i = 0; i < t->size[2]; i++)
                for (int64_t j = 0; j < t->size[3]; j++)
                    if (!mask->keep[(mask->rows == 1 ? 0 : i) * t->size[3] + j]) *(unsigned char *)tensor_at(t, b, h, i, j) = 0;
}

/* ---- for the reference ---- */

static const ref_pattern_kind kinds[] = {[ATTN_PATTERN_WINDOW] = REF_WINDOW,
                                         [ATTN_PATTERN_SLIDING_WINDOW] = REF_SLIDING,
                                         [ATTN_PATTERN_RADIUS] = REF_RADIUS,
                                         [ATTN_PATTERN_LOCAL] = REF_LOCAL,
                                         [ATTN_PATTERN_BLOCK_DIAGONAL] = REF_DIAGONAL,
                                         [ATTN_PATTERN_STRIDED] = REF_STRIDED,
                                         [ATTN_PATTERN_COLUMNS] = REF_COLUMNS,
                                         [ATTN_PATTERN_DILATED] = REF_DILATED,
                                         [ATTN_PATTERN_FIXED] = REF_FIXED,
                                         [ATTN_PATTERN_GLOBAL_LOCAL] = REF_LONGFORMER,
                                         [ATTN_PATTERN_BIGBIRD] = REF_BIGBIRD,
                                         [ATTN_PATTERN_PREFIX] = REF_PREFIX,
                                         [ATTN_PATTERN_LENGTHS] = REF_LENGTHS,
                                         [ATTN_PATTERN_DOCUMENTS] = REF_DOCUMENTS};

/* What problem_build makes of the spec without sparse=, over the data of the call. */
static attn_status plain_of(const check_call *call, const check_case *c, attn_problem *problem, attn_tensors *tensors)
{
    problem_spec spec = c->spec;
    attn_tensors unused;
    spec.sparse[0] = 0;
    *tensors = call->tensors;
    tensors->ranges = tensors->block_starts = tensors->block_index = (attn_input){0};
    if (!spec.mask) tensors->mask = (attn_input){0};
    const attn_status status = problem_build(&spec, problem, &unused, NULL);
    problem->paging = (attn_paging){0};
    return status;
}

int masks_expect(check_call *call, const check_case *c)
{
    ref_pattern list[SPARSE_MOST];
    attn_problem problem;
    attn_tensors tensors;
    if (!c->spec.sparse[0]) return expectation_create(&call->expected, &call->problem, &call->tensors, NULL);
    sparse_masks *masks = need_memory(1, sizeof *masks);
    (void)sparse_parse(c->spec.sparse, c->spec.seed, masks, NULL); /* it was accepted before */
    for (int n = 0; n < masks->count; n++) {
        const attn_pattern *p = &masks->named[n].pattern;
        list[n] = (ref_pattern){kinds[p->kind], {p->size[0], p->size[1], p->size[2], p->size[3]}, p->seed, p->count, p->lengths_q};
    }
    const expected_patterns patterns = {masks->count, list};
    const int done =
        plain_of(call, c, &problem, &tensors) == ATTN_OK && expectation_create(&call->expected, &problem, &tensors, &patterns);
    free(masks);
    return done;
}
