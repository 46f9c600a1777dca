/* SPDX-License-Identifier: MIT
 * results.c - the outputs of a check case. */
#include <math.h>
#include <stdlib.h>

#include "call.h"
#include "testing/text/failure.h"

static double *doubles(const int64_t size[4]) { return need_memory(tensor_count(size) + 1, sizeof(double)); }

int check_outputs_create(check_outputs *out, check_call *call, const check_case *c)
{
    const attn_problem *p = &call->problem;
    const expectation *e = &call->expected;
    const int64_t B = p->shape.batch, q = e->begin_q ? e->begin_q[B] : -1, kv = e->begin_kv ? e->begin_kv[B] : -1;
    *out = (check_outputs){0};
    for (int t = 0; t < TENSORS; t++) {
        const int written = tensors_writes(&call->tensors, p->op, t), saved = t == TENSOR(o) || t == TENSOR(lse);
        int64_t size[4];
        if (!written && !(saved && tensors_has(&call->tensors, t))) continue;
        tensors_shape(p, &call->tensors, t, size);
        if (written) out->numbers[t] = doubles(size);
        if (place_tensor(&out->tensors[t], call, t, c, tensors_of_keys(t) ? kv : q)) continue;
        check_outputs_destroy(out);
        return 0;
    }
    return 1;
}

/* Like tensor_take, into [batch][head][token][channel], with `absent` past the end of a packed sequence. */
static int take(tensor *t, const int64_t *begin, const int64_t size[4], double absent, double *dst)
{
    if (!begin) return tensor_take(t, dst);
    double *packed = doubles(t->size);
    const int clean = tensor_take(t, packed);
    for (int64_t b = 0; b < size[0]; b++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t i = 0; i < size[2]; i++)
                for (int64_t c = 0; c < size[3]; c++) {
                    const int64_t token = begin[b] + i;
                    *dst++ = token < begin[b + 1] ? packed[(h * t->size[2] + token) * size[3] + c] : absent;
                }
    free(packed);
    return clean;
}

const char *check_outputs_take(check_outputs *out, const check_call *call)
{
    const expectation *e = &call->expected;
    const char *spilled = NULL;
    for (int t = 0; t < TENSORS; t++) {
        int64_t size[4];
        if (!out->numbers[t]) continue;
        tensors_shape(&call->problem, &call->tensors, t, size);
        const int64_t *begin = !tensors_packs(t) ? NULL : tensors_of_keys(t) ? e->begin_kv : e->begin_q;
        if (!take(&out->tensors[t], begin, size, t == TENSOR(lse) ? -INFINITY : 0, out->numbers[t]))
            spilled = tensors_about(t)->name;
    }
    return spilled;
}

void check_outputs_destroy(check_outputs *out)
{
    for (int t = 0; t < TENSORS; t++) tensor_destroy(&out->tensors[t]), free(out->numbers[t]);
    *out = (check_outputs){0};
}
