/* SPDX-License-Identifier: MIT
 * linear_input.c - see linear_input.h. */
#include "linear_input.h"

#include <stdlib.h>
#include <string.h>

#include "cli/input/find.h"
#include "cli/input/share.h"
#include "testing/problem/linear_problem.h"
#include "testing/text/failure.h"

int linear_is_requested(const problem_spec *spec) { return spec->linear; }

problem_spec linear_plain_spec(const problem_spec *spec)
{
    problem_spec plain = *spec;
    plain.phi[0] = 0;
    plain.rule = plain.denominator = plain.form = 0;
    plain.epsilon = 0;
    return plain;
}

void *linear_input_own(linear_input *l, int64_t count, size_t size)
{
    return l->owned[l->owned_count++] = need_memory(count > 0 ? count : 1, size);
}

attn_dtype linear_compute(const linear_input *l) { return l->tensors.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

/* A tensor that only linear attention reads; NULL if the file has none. */
static const attn_archive_tensor *find(const linear_input *l, const input_settings *settings, int t)
{
    const attn_archive *file = l->input->file;
    return file ? input_named(file, settings->ignored, linear_file_name(t), linear_about(t)->name) : NULL;
}

/* The sizes of tensor t in the library. */
static void size_of(const attn_linear_problem *p, int t, int64_t size[4])
{
    const attn_shape *s = &p->shape;
    const int64_t features = attn_features_count(p->features, s->dim_qk, p->random_features);
    for (int axis = 0; axis < 4; axis++) {
        const attn_axis one = linear_about(t)->axes[axis];
        size[axis] = one == ATTN_AXIS_FEATURE ? features : one == ATTN_AXIS_LIST ? p->random_features : tensors_axis(s, one);
    }
    if (t == LINEAR(decay)) size[3] = p->decay_kind == ATTN_DECAY_CHANNEL ? features : 1;
}

/* Reads tensor t, converted to the compute type. */
static attn_status read_tensor(linear_input *l, const input_settings *settings, int t, attn_error *error)
{
    const attn_archive_tensor *found = find(l, settings, t);
    const attn_dtype compute = linear_compute(l);
    const char *name = linear_file_name(t);
    share_layout layout;
    int64_t count = 1, got = 1, size[4];
    char text[SHAPE_TEXT], expected[SHAPE_TEXT];
    if (!found) return ATTN_OK;
    if (found->dtype < ATTN_F32 || found->dtype > ATTN_BF16)
        return failure(error, ATTN_ERR_ARGUMENT, "tensor '%s' is %s; expected f32, f64, f16 or bf16", name,
                       attn_dtype_name(found->dtype));
    size_of(&l->problem, t, size);
    for (int axis = 0; axis < 4; axis++) count *= size[axis];
    for (int axis = 0; axis < found->rank; axis++) got *= found->shape[axis];
    const int64_t last = found->rank > 0 ? found->shape[found->rank - 1] : 1;
    /* One number for each token may come without a last axis. */
    if (got != count || (size[3] > 1 && last != size[3]))
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' %.60s: expected the %lld numbers of %.60s", name,
                       shape_text(text, found->rank, found->shape), (long long)count, shape_text(expected, 4, size));
    const void *data = found->data;
    if (linear_lay(l, t, 4, size, found->dtype, &layout)) {
        const int64_t rows = layout.outer * share_rows(&l->input->share, &layout);
        void *some = linear_input_own(l, rows, layout.row);
        share_take(&l->input->share, &layout, data, some);
        data = some;
        count = rows * size[3];
    }
    void *copy = linear_input_own(l, count, 8);
    (void)attn_convert(count, data, found->dtype, copy, compute, NULL);
    l->used[t] = found;
    *linear_slot(&l->tensors, t) = (attn_output){copy, compute, {0, 0, 0, 0}};
    return ATTN_OK;
}

/* The kind of decay: a number for each token, or for each token and feature. */
static int decay_of(const linear_input *l, const input_settings *settings, int64_t tokens, int64_t features)
{
    const attn_archive_tensor *t = find(l, settings, LINEAR(decay));
    if (!t) return SPEC_DECAY_NONE;
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype));
    return count == tokens * features && features > 1 ? SPEC_DECAY_CHANNEL : SPEC_DECAY_HEAD;
}

static attn_status read_tensors(linear_input *l, const input_settings *settings, attn_error *error)
{
    attn_linear_problem *p = &l->problem;
    attn_linear_tensors *all = &l->tensors;
    const int backward = p->op == ATTN_BACKWARD, sum = p->denominator != ATTN_DENOMINATOR_NONE;
    const struct {
        int t, used, needed;
    } rows[] = {{LINEAR(decay), all->decay.data != NULL, 0},
                {LINEAR(beta), all->beta.data != NULL, 1},
                {LINEAR(erase), all->erase.data != NULL, 1},
                {LINEAR(write), all->write.data != NULL, 1},
                {LINEAR(feature_matrix), p->random_features > 0, 0},
                {LINEAR(initial_state), 1, 0},
                {LINEAR(initial_sum), sum, 0},
                {LINEAR(grad_final_state), backward, 0},
                {LINEAR(grad_final_sum), backward && sum, 0}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (!rows[k].used) continue;
        linear_slot(all, rows[k].t)->data = NULL;
        attn_status status = read_tensor(l, settings, rows[k].t, error);
        if (status != ATTN_OK) return status;
        if (rows[k].needed && !linear_slot(all, rows[k].t)->data)
            return failure(error, ATTN_ERR_ARGUMENT, "rule=%s needs a tensor '%s'",
                           p->rule == ATTN_LINEAR_RULE_DELTA ? "delta" : "low-rank", linear_file_name(rows[k].t));
    }
    if (all->initial_state.data && !all->initial_sum.data && sum)
        return failure(error, ATTN_ERR_ARGUMENT, "initial_state is present, but initial_sum, its sum of features, is missing");
    if (all->grad_final_state.data && !all->grad_final_sum.data && sum)
        return failure(error, ATTN_ERR_ARGUMENT, "dfinal_state is present, but dfinal_sum, of the sum of features, is missing");
    if (!all->initial_state.data) all->initial_sum = (attn_input){0};
    if (!all->grad_final_state.data) all->grad_final_sum = (attn_input){0};
    if (p->random_features == 0 || all->feature_matrix.data) return ATTN_OK;
    void *omega = linear_input_own(l, p->random_features * p->shape.dim_qk, 8);
    const attn_output drawn = {omega, linear_compute(l), {0, 0, 0, 0}};
    all->feature_matrix = attn_in(omega);
    return attn_random_features(ATTN_RANDOM_ROWS_ORTHOGONAL, p->random_features, p->shape.dim_qk, l->spec.seed, 0, &drawn, error);
}

/* Requests the final states, and the gradients of the initial ones that are there. */
static void request_states(linear_input *l, int state)
{
    const attn_linear_problem *p = &l->problem;
    attn_linear_tensors *all = &l->tensors;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE, backward = p->op == ATTN_BACKWARD;
    all->final_state = all->final_sum = (attn_output){0};
    if (state) linear_request(all, LINEAR(final_state));
    if (state && sum) linear_request(all, LINEAR(final_sum));
    if (backward && all->initial_state.data) linear_request(all, LINEAR(grad_initial_state));
    if (backward && all->initial_sum.data) linear_request(all, LINEAR(grad_initial_sum));
}

attn_status linear_input_read(linear_input *l, const attention_input *input, const input_settings *settings, int state,
                              attn_error *error)
{
    *l = (linear_input){.input = input};
    const attn_tensors *from = &input->tensors;
    attn_linear_problem *p = &l->problem;
    attn_linear_tensors *all = &l->tensors;
    /* `lengths` is of both sides here, and read as lengths_kv */
    const attn_archive_tensor *keys = input->used[TENSOR(lengths_kv)].tensor;
    const int one_side = !from->lengths_q.data != !from->lengths_kv.data && !(keys && strcmp(keys->name, "lengths") == 0);
    if (from->bias.data || from->mask.data || from->block_mask.data || one_side || from->dropout_given.data || from->sink.data ||
        from->scale.data)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "linear attention has no mask, bias, slopes, sink, scale of each head, or lengths of one side; --ignore "
                       "leaves a tensor out");
    for (int t = LINEAR(cu_seqlens); t <= LINEAR(final_slots); t++) {
        attn_status status = input_refuse(input->file, settings->ignored, linear_file_name(t), error);
        if (status != ATTN_OK) return status;
    }
    l->spec = input->spec;
    l->spec.lengths = 0;
    l->spec.op = input->spec.op == SPEC_BACKWARD ? SPEC_LINEAR_BACKWARD : SPEC_LINEAR;
    memcpy(l->spec.phi, settings->spec.phi, sizeof l->spec.phi);
    l->spec.rule = settings->spec.rule;
    l->spec.denominator = settings->spec.denominator;
    l->spec.epsilon = settings->spec.epsilon;
    l->spec.form = settings->spec.form;
    const int order = l->spec.order;
    l->spec.order = SPEC_BHSD;
    l->spec.weights = 0;
    attn_status status = linear_problem_build(&l->spec, p, all, error);
    if (status != ATTN_OK) return status;
    const attn_shape *s = &p->shape;
    l->spec.decay =
        decay_of(l, settings, s->batch * s->heads_kv * s->len_kv, attn_features_count(p->features, s->dim_qk, p->random_features));
    status = linear_problem_build(&l->spec, p, all, error);
    if (status != ATTN_OK) return status;
    l->spec.order = order;
    l->spec.weights = settings->spec.weights;
    all->q = from->q, all->k = from->k, all->v = from->v, all->o = from->o;
    all->lengths = from->lengths_kv;
    if (p->op == ATTN_BACKWARD) {
        all->grad_o = from->grad_o, all->grad_q = from->grad_q, all->grad_k = from->grad_k, all->grad_v = from->grad_v;
        all->grad_q.dtype = all->q.dtype, all->grad_k.dtype = all->k.dtype, all->grad_v.dtype = all->v.dtype;
    }
    status = read_tensors(l, settings, error);
    if (status == ATTN_OK) request_states(l, state);
    return status;
}

void linear_input_free(linear_input *l)
{
    for (int k = 0; k < l->owned_count; k++) free(l->owned[k]);
}

/* ---- shapes and rows ---- */

int linear_shape(const linear_input *l, int t, const int64_t size[4], int64_t shape[ATTN_MAX_RANK])
{
    const attention_input *input = l->input;
    const int primal = linear_about(t)->gradient_of;
    if (t == LINEAR(o)) return input_file_shape(input, TENSOR(o), size, shape);
    if (primal >= LINEAR(q) && primal <= LINEAR(v)) {
        const attn_archive_tensor *like = input->used[primal - LINEAR(q) + TENSOR(q)].tensor;
        memcpy(shape, like->shape, sizeof like->shape);
        return like->rank;
    }
    memcpy(shape, size, 4 * sizeof *shape);
    return 4;
}

int linear_weights_shape(const linear_input *l, int64_t size[4], int64_t shape[ATTN_MAX_RANK])
{
    const attn_shape *s = &l->problem.shape;
    const int64_t sizes[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
    memcpy(size, sizes, sizeof sizes);
    return input_file_shape(l->input, TENSOR(weights), size, shape);
}

int linear_lay(const linear_input *l, int t, int rank, const int64_t *shape, attn_dtype dtype, share_layout *layout)
{
    const attn_tensor_description *about = linear_about(t);
    const int primal = about->gradient_of, like = primal >= 0 ? primal : t, keys = about->axes[2] == ATTN_AXIS_KEY;
    if (!l->input->is_shared || (about->axes[2] != ATTN_AXIS_QUERY && !keys)) return 0;
    if (like >= LINEAR(q) && like <= LINEAR(v))
        return share_lay(l->input, like - LINEAR(q) + TENSOR(q), rank, shape, dtype, layout);
    if (like == LINEAR(o)) return share_lay(l->input, TENSOR(o), rank, shape, dtype, layout);
    *layout = (share_layout){keys, 1, shape[0] * shape[1], shape[2], (size_t)shape[3] * attn_dtype_size(dtype)};
    return 1;
}

/* ---- weights ---- */

/* Rows of the identity: of all keys, or of those that the process has. */
static void *identity_of(const linear_input *l)
{
    static const double unit = 1;
    const attention_input *input = l->input;
    const attn_dtype compute = linear_compute(l);
    const size_t size = attn_dtype_size(compute);
    const int64_t keys = l->problem.shape.len_kv, rows = input->is_shared ? input->share.tokens[1] : keys;
    const token_range all = {0, keys}, *ranges = input->is_shared ? input->share.ranges[1] : &all;
    char *identity = need_memory(rows * keys + 1, size), *row = identity;
    for (int64_t n = 0; n < (input->is_shared ? input->share.count[1] : 1); n++)
        for (int64_t j = 0; j < ranges[n].tokens; j++, row += (size_t)keys * size)
            (void)attn_convert(1, &unit, ATTN_F64, row + (size_t)(ranges[n].first + j) * size, compute, NULL);
    return identity;
}

attn_linear_tensors linear_for_weights(const linear_input *l, void *weights, attn_linear_problem *problem, void **memory)
{
    const int64_t keys = l->problem.shape.len_kv;
    const attn_dtype compute = linear_compute(l);
    *problem = l->problem;
    problem->op = ATTN_FORWARD;
    problem->shape.dim_v = keys;
    attn_linear_tensors t = linear_of_op(problem, &l->tensors);
    t.initial_state = t.initial_sum = (attn_input){0};
    t.final_state = t.final_sum = t.denominators = (attn_output){0};
    *memory = identity_of(l);
    t.v = (attn_input){*memory, compute, {ATTN_BROADCAST, ATTN_BROADCAST, keys, 1}};
    t.o = (attn_output){weights, compute, {0, 0, 0, 0}};
    return t;
}
