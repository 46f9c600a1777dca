/* SPDX-License-Identifier: MIT
 * hopfield.c - runs cases of the modern Hopfield network. */
#include "hopfield.h"

#include <math.h>
#include <string.h>

#include "attn/hopfield.h"
#include "attn_ref.h"
#include "testing/text/failure.h"

enum { STATE, PATTERNS, GRAD_OUTPUT, GRAD_ENERGY, INPUTS, OUTPUT = INPUTS, ENERGY, GRAD_STATE, GRAD_PATTERNS, ALL };
static const char *const names[ALL] = {"in.state",   "in.patterns", "in.grad_output", "in.grad_energy",
                                       "out.output", "out.energy",  "out.grad_state", "out.grad_patterns"};

int hopfield_case_is(const char *suite, const cJSON *json)
{
    return strcmp(suite, "mechanism_grad") == 0 && strcmp(text_in(json, "op"), "modern_hopfield") == 0;
}

static void define(view_pool *pool, const double *const in[INPUTS], double *exact[ALL], int64_t count, int64_t M, int64_t N,
                   double beta)
{
    double *p = pool_take(pool, M, sizeof *p);
    for (int64_t i = 0; i < count; i++) {
        exact[ENERGY][i] = ref_hopfield_update(M, N, beta, in[PATTERNS], in[STATE] + i * N, p, exact[OUTPUT] + i * N);
        ref_hopfield_backward(M, N, beta, in[PATTERNS], in[STATE] + i * N, p, in[GRAD_OUTPUT] + i * N, in[GRAD_ENERGY][i],
                              exact[GRAD_STATE] + i * N, exact[GRAD_PATTERNS]);
    }
}

void hopfield_case_evaluate(evaluation *e, const cJSON *json, const attn_archive *tensors)
{
    const double beta = number_in(cJSON_GetObjectItemCaseSensitive(json, "params"), "beta", 1),
                 rtol = tolerance_in(json, "rtol", "rel", 1e-5), atol = tolerance_in(json, "atol", "abs", 1e-6);
    view_pool pool = {0};
    view given[ALL];
    double *numbers[ALL], *exact[ALL] = {0};
    for (int t = 0; t < ALL; t++) {
        given[t] = view_of(attn_archive_find(tensors, names[t]));
        if (!view_present(&given[t])) {
            conclude(e, CHECK_SKIPPED, "tensor %s is missing", names[t]);
            pool_empty(&pool);
            return;
        }
        numbers[t] = (double *)view_convert(&pool, &given[t], ATTN_F64).data;
        exact[t] = pool_take(&pool, view_count(&given[t]), sizeof(double));
    }
    const int64_t count = given[STATE].size[0], M = given[PATTERNS].size[0], N = given[PATTERNS].size[1];
    define(&pool, (const double *const *)numbers, exact, count, M, N, beta);
    for (int wide = 0; wide < 2; wide++) {
        const attn_dtype type = wide ? ATTN_F64 : ATTN_F32;
        const void *in[INPUTS];
        void *out[ALL];
        attn_error error;
        for (int t = 0; t < INPUTS; t++) in[t] = view_convert(&pool, &given[t], type).data;
        for (int t = INPUTS; t < ALL; t++) out[t] = pool_take(&pool, view_count(&given[t]), 8);
        const attn_hopfield memory = {
            .struct_size = sizeof memory, .dtype = type, .stored = M, .dim = N, .beta = beta, .patterns = attn_in(in[PATTERNS])};
        const attn_hopfield_tensors forward = {.struct_size = sizeof forward,
                                               .states = attn_in(in[STATE]),
                                               .updated = attn_out(out[OUTPUT]),
                                               .energy = attn_out(out[ENERGY])};
        const attn_hopfield_tensors backward = {.struct_size = sizeof backward,
                                                .states = attn_in(in[STATE]),
                                                .grad_updated = attn_in(in[GRAD_OUTPUT]),
                                                .grad_energy = attn_in(in[GRAD_ENERGY]),
                                                .grad_states = attn_out(out[GRAD_STATE]),
                                                .grad_patterns = attn_out(out[GRAD_PATTERNS])};
        if (attn_hopfield_update(&memory, count, &forward, &error) != ATTN_OK ||
            attn_hopfield_update_backward(&memory, count, &backward, &error) != ATTN_OK) {
            end_if_out_of_memory(&error);
            conclude(e, CHECK_FAILED, "%s: %s", attn_dtype_name(type), error.message);
        }
        for (int t = INPUTS; t < ALL; t++) {
            const int64_t n = view_count(&given[t]);
            double *got = pool_take(&pool, n, sizeof *got);
            const double into = fmax(1, largest_of(numbers[PATTERNS], M * N)) * fmax(1, largest_of(numbers[STATE], count * N)) *
                                fmax(1, largest_of(exact[t], n));
            const double bound = (wide ? 0x1p-53 : 0x1p-24) * (16 + (double)(M + N)) * into;
            (void)attn_convert(n, out[t], type, got, ATTN_F64, NULL);
            for (int64_t i = 0; i < n; i++) {
                const double close = atol + rtol * fabs(numbers[t][i]);
                if (!(fabs(exact[t][i] - numbers[t][i]) <= close))
                    conclude(e, CHECK_FAILED, "%s: the reference does not agree with the suite", names[t]);
                if (!(fabs(got[i] - numbers[t][i]) <= close)) conclude(e, CHECK_FAILED, "%s: not the expected numbers", names[t]);
                if (!(fabs(got[i] - exact[t][i]) <= bound)) conclude(e, CHECK_FAILED, "%s: beyond the bound", names[t]);
                e->bound_fraction = fmax(e->bound_fraction, fabs(got[i] - exact[t][i]) / bound);
                if (t == OUTPUT) e->max_error = fmax(e->max_error, fabs(got[i] - numbers[t][i]));
            }
        }
    }
    pool_empty(&pool);
}
