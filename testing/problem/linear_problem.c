/* SPDX-License-Identifier: MIT
 *
 * linear_problem.c - from a spec to the library's description of a linear attention problem. */
#include "linear_problem.h"

#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

int linear_problem_is(const problem_spec *spec) { return spec->op == SPEC_LINEAR || spec->op == SPEC_LINEAR_BACKWARD; }

/* "favor/256": the map, and the number of rows of omega. */
static void set_map(attn_linear_problem *p, const char *phi)
{
    static const struct {
        const char *name;
        attn_features kind;
    } maps[] = {{"elu1", ATTN_FEATURES_ELU1},
                {"identity", ATTN_FEATURES_IDENTITY},
                {"relu", ATTN_FEATURES_RELU},
                {"softmax", ATTN_FEATURES_SOFTMAX},
                {"favor/", ATTN_FEATURES_FAVOR},
                {"fourier/", ATTN_FEATURES_FOURIER},
                {"trigonometric/", ATTN_FEATURES_TRIGONOMETRIC}};
    for (size_t k = 0; k < sizeof maps / sizeof *maps; k++)
        if (strncmp(phi, maps[k].name, strlen(maps[k].name)) == 0 && phi[0]) p->features = maps[k].kind;
    if (p->features >= ATTN_FEATURES_FAVOR) p->random_features = strtoll(strchr(phi, '/') + 1, NULL, 10);
    /* Features of either sign have no denominator. */
    if (p->features == ATTN_FEATURES_IDENTITY || p->features >= ATTN_FEATURES_FOURIER || p->rule)
        p->denominator = ATTN_DENOMINATOR_NONE;
}

/* The tensors of the problem. */
static attn_linear_tensors request_tensors(const problem_spec *spec, const attn_linear_problem *p)
{
    attn_linear_tensors all = {.struct_size = sizeof all, .q.dtype = problem_dtype(spec)};
    const int backward = p->op == ATTN_BACKWARD, divided = p->denominator != ATTN_DENOMINATOR_NONE;
    const int delta = p->rule == ATTN_LINEAR_RULE_DELTA, low_rank = p->rule == ATTN_LINEAR_RULE_LOW_RANK;
    /* A single token means decoding: the state is read and written. */
    const int decodes = p->causal && p->shape.len_kv == 1 && !backward;
    const struct {
        int t, grad, present;
    } requests[] = {{LINEAR(q), LINEAR(grad_q), 1},
                    {LINEAR(k), LINEAR(grad_k), 1},
                    {LINEAR(v), LINEAR(grad_v), 1},
                    {LINEAR(o), LINEAR(grad_o), 1},
                    {LINEAR(decay), LINEAR(grad_decay), spec->decay},
                    {LINEAR(beta), LINEAR(grad_beta), delta},
                    {LINEAR(erase), LINEAR(grad_erase), low_rank},
                    {LINEAR(write), LINEAR(grad_write), low_rank},
                    {LINEAR(feature_matrix), -1, p->random_features > 0},
                    {LINEAR(denominators), -1, backward && divided},
                    {LINEAR(initial_state), -1, decodes},
                    {LINEAR(final_state), -1, decodes},
                    {LINEAR(initial_sum), -1, decodes && divided},
                    {LINEAR(final_sum), -1, decodes && divided}};
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++) {
        if (!requests[k].present) continue;
        linear_request(&all, requests[k].t);
        if (backward && requests[k].grad >= 0) linear_request(&all, requests[k].grad);
    }
    return all;
}

attn_status linear_problem_build(const problem_spec *given, attn_linear_problem *problem, attn_linear_tensors *tensors,
                                 attn_error *error)
{
    problem_spec spec = *given, plain;
    char text[512], known[512];
    attn_status status = problem_check(&spec, error);
    if (status != ATTN_OK) return status;
    /* Words that do not apply to linear attention are found by printing the string with and without them. */
    problem_init(&plain);
    plain.op = spec.op, plain.dtype = spec.dtype, plain.shape = spec.shape, plain.seed = spec.seed;
    plain.causal = spec.causal, plain.has_scale = spec.has_scale, plain.scale = spec.scale;
    plain.decay = spec.decay, plain.rule = spec.rule;
    plain.denominator = spec.denominator, plain.epsilon = spec.epsilon, plain.form = spec.form;
    memcpy(plain.phi, spec.phi, sizeof plain.phi);
    problem_print(&spec, text, sizeof text);
    problem_print(&plain, known, sizeof known);
    if (strcmp(text, known) != 0 || (spec.causal != SPEC_CAUSAL_NONE && spec.causal != SPEC_CAUSAL_TOP_LEFT))
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "linear attention takes sizes, causal, scale, phi, decay, rule, denominator, epsilon, form and seed, and no "
                       "other words");
    attn_linear_problem p = {.struct_size = sizeof p, .shape = spec.shape};
    if (spec.dtype == SPEC_INT8) return failure(error, ATTN_ERR_UNSUPPORTED, "linear attention does not support int8");
    p.op = spec.op == SPEC_LINEAR_BACKWARD ? ATTN_BACKWARD : ATTN_FORWARD;
    p.causal = spec.causal != SPEC_CAUSAL_NONE;
    if (spec.has_scale) p.scale_kind = ATTN_SCALE_VALUE, p.scale = spec.scale;
    p.decay_kind = spec.decay == SPEC_DECAY_CHANNEL ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD;
    p.rule = (attn_linear_rule)spec.rule;
    set_map(&p, spec.phi);
    if (spec.denominator) p.denominator = (attn_denominator)(spec.denominator - 1);
    p.epsilon = spec.epsilon;
    p.form = (attn_linear_form)spec.form;
    *problem = p;
    *tensors = request_tensors(&spec, &p);
    return ATTN_OK;
}
