/* SPDX-License-Identifier: MIT
 * linear.c - see linear.h. */
#include "linear.h"

#include <stdlib.h>
#include <string.h>

#include "cli/input/find.h"
#include "testing/problem/linear_problem.h"
#include "testing/text/failure.h"

int linear_is_requested(const problem_spec *spec) { return spec->linear; }

problem_spec linear_input_spec(const problem_spec *spec)
{
    problem_spec plain = *spec;
    plain.phi[0] = 0;
    plain.rule = plain.denominator = plain.form = 0;
    plain.epsilon = 0;
    return plain;
}

static void *own(linear_work *work, int64_t count, size_t size)
{
    return work->owned[work->owned_count++] = need_memory(count > 0 ? count : 1, size);
}

/* A tensor that only linear attention reads; NULL if the file has none. */
static const attn_archive_tensor *find(const linear_work *work, const input_settings *settings, int t)
{
    const attn_archive *file = work->input->file;
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
static attn_status read_tensor(linear_work *work, const input_settings *settings, int t, attn_error *error)
{
    const attn_archive_tensor *found = find(work, settings, t);
    const attn_dtype compute = work->tensors.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const char *name = linear_file_name(t);
    int64_t count = 1, got = 1, size[4];
    char text[SHAPE_TEXT], expected[SHAPE_TEXT];
    if (!found) return ATTN_OK;
    if (found->dtype < ATTN_F32 || found->dtype > ATTN_BF16)
        return failure(error, ATTN_ERR_ARGUMENT, "tensor '%s' is %s; expected f32, f64, f16 or bf16", name,
                       attn_dtype_name(found->dtype));
    size_of(&work->problem, t, size);
    for (int axis = 0; axis < 4; axis++) count *= size[axis];
    for (int axis = 0; axis < found->rank; axis++) got *= found->shape[axis];
    const int64_t last = found->rank > 0 ? found->shape[found->rank - 1] : 1;
    /* One number for each token may come without a last axis. */
    if (got != count || (size[3] > 1 && last != size[3]))
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' %.60s: expected the %lld numbers of %.60s", name,
                       shape_text(text, found->rank, found->shape), (long long)count, shape_text(expected, 4, size));
    void *copy = own(work, count, 8);
    (void)attn_convert(count, found->data, found->dtype, copy, compute, NULL);
    work->used[t] = found;
    *linear_slot(&work->tensors, t) = (attn_output){copy, compute, {0, 0, 0, 0}};
    return ATTN_OK;
}

/* The kind of decay: a number for each token, or for each token and feature. */
static int decay_of(const linear_work *work, const input_settings *settings, int64_t tokens, int64_t features)
{
    const attn_archive_tensor *t = find(work, settings, LINEAR(decay));
    if (!t) return SPEC_DECAY_NONE;
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype));
    return count == tokens * features && features > 1 ? SPEC_DECAY_CHANNEL : SPEC_DECAY_HEAD;
}

static attn_status read_tensors(linear_work *work, const input_settings *settings, attn_error *error)
{
    attn_linear_problem *p = &work->problem;
    attn_linear_tensors *all = &work->tensors;
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
        attn_status status = read_tensor(work, settings, rows[k].t, error);
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
    void *omega = own(work, p->random_features * p->shape.dim_qk, 8);
    const attn_output drawn = {omega, all->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32, {0, 0, 0, 0}};
    all->feature_matrix = attn_in(omega);
    return attn_random_features(ATTN_RANDOM_ROWS_ORTHOGONAL, p->random_features, p->shape.dim_qk, work->spec.seed, 0, &drawn,
                                error);
}

/* Requests the final states, and the gradients of the initial ones that are there. */
static void request_states(linear_work *work, int state)
{
    const attn_linear_problem *p = &work->problem;
    attn_linear_tensors *all = &work->tensors;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE, backward = p->op == ATTN_BACKWARD;
    all->final_state = all->final_sum = (attn_output){0};
    if (state) linear_request(all, LINEAR(final_state));
    if (state && sum) linear_request(all, LINEAR(final_sum));
    if (backward && all->initial_state.data) linear_request(all, LINEAR(grad_initial_state));
    if (backward && all->initial_sum.data) linear_request(all, LINEAR(grad_initial_sum));
}

/* Allocates outputs in the file; gradients of q, k and v in the shapes of these. */
static void *take(void *context, int t, const attn_tensor_plan *about)
{
    linear_work *work = context;
    const attention_input *input = work->input;
    const int primal = linear_about(t)->gradient_of;
    int64_t shape[ATTN_MAX_RANK];
    void *memory = NULL;
    attn_error error;
    if (t == LINEAR(denominators)) return own(work, about->bytes, 1);
    int rank = t == LINEAR(o) ? input_file_shape(input, TENSOR(o), about->shape, shape) : 4;
    if (t != LINEAR(o)) memcpy(shape, about->shape, 4 * sizeof *shape);
    if (primal >= LINEAR(q) && primal <= LINEAR(v)) {
        const attn_archive_tensor *like = input->used[primal - LINEAR(q) + TENSOR(q)].tensor;
        rank = like->rank;
        memcpy(shape, like->shape, sizeof like->shape);
    }
    if (attn_archive_allocate(work->out, linear_file_name(t), about->dtype, rank, shape, &memory, &error) != ATTN_OK) return NULL;
    return memory ? memory : ATTN_EMPTY;
}

static attn_status add_weights(linear_work *work, attn_error *error)
{
    const attn_shape *s = &work->problem.shape;
    const int64_t size[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
    const attn_dtype compute = work->tensors.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    int64_t shape[ATTN_MAX_RANK];
    if (!work->spec.weights) return ATTN_OK;
    const int rank = input_file_shape(work->input, TENSOR(weights), size, shape);
    return attn_archive_allocate(work->out, "weights", compute, rank, shape, &work->weights, error);
}

attn_status linear_work_begin(linear_work *work, const attention_input *input, const input_settings *settings, int state,
                              attn_archive *out, const common_settings *common, attn_error *error)
{
    *work = (linear_work){.input = input, .out = out, .description.struct_size = sizeof work->description};
    const attn_tensors *from = &input->tensors;
    attn_linear_problem *p = &work->problem;
    attn_linear_tensors *all = &work->tensors;
    attn_options options = options_for_library(common);
    /* `lengths` is of both sides here, and read as lengths_kv */
    const attn_archive_tensor *keys = input->used[TENSOR(lengths_kv)].tensor;
    const int one_side = !from->lengths_q.data != !from->lengths_kv.data && !(keys && strcmp(keys->name, "lengths") == 0);
    if (from->bias.data || from->mask.data || from->block_mask.data || one_side || from->dropout_given.data || from->sink.data ||
        from->scale.data)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "linear attention has no mask, bias, slopes, sink, scale of each head, or lengths of one side; --ignore "
                       "leaves a tensor out");
    work->spec = input->spec;
    work->spec.lengths = 0;
    work->spec.op = input->spec.op == SPEC_BACKWARD ? SPEC_LINEAR_BACKWARD : SPEC_LINEAR;
    memcpy(work->spec.phi, settings->spec.phi, sizeof work->spec.phi);
    work->spec.rule = settings->spec.rule;
    work->spec.denominator = settings->spec.denominator;
    work->spec.epsilon = settings->spec.epsilon;
    work->spec.form = settings->spec.form;
    const int order = work->spec.order;
    work->spec.order = SPEC_BHSD;
    work->spec.weights = 0;
    attn_status status = linear_problem_build(&work->spec, p, all, error);
    if (status != ATTN_OK) return status;
    const attn_shape *s = &p->shape;
    work->spec.decay = decay_of(work, settings, s->batch * s->heads_kv * s->len_kv,
                                attn_features_count(p->features, s->dim_qk, p->random_features));
    status = linear_problem_build(&work->spec, p, all, error);
    if (status != ATTN_OK) return status;
    work->spec.order = order;
    work->spec.weights = settings->spec.weights;
    all->q = from->q, all->k = from->k, all->v = from->v, all->o = from->o;
    all->lengths = from->lengths_kv;
    if (p->op == ATTN_BACKWARD) {
        all->grad_o = from->grad_o, all->grad_q = from->grad_q, all->grad_k = from->grad_k, all->grad_v = from->grad_v;
        all->grad_q.dtype = all->q.dtype, all->grad_k.dtype = all->k.dtype, all->grad_v.dtype = all->v.dtype;
    }
    status = read_tensors(work, settings, error);
    if (status == ATTN_OK) request_states(work, state);
    attn_linear_problem forward = *p;
    forward.op = ATTN_FORWARD;
    if (status == ATTN_OK) status = linear_plan(&work->plan, &forward, all, &options, take, work, error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(work->plan, &work->description, error);
    if (status == ATTN_OK) status = add_weights(work, error);
    if (status != ATTN_OK || p->op == ATTN_FORWARD) return status;
    return linear_plan(&work->backward, p, all, &options, take, work, error);
}

static attn_status execute(const linear_work *work, attn_op op, const attn_linear_plan *plan, attn_error *error)
{
    attn_linear_problem p = work->problem;
    p.op = op;
    const attn_linear_tensors tensors = linear_of_op(&p, &work->tensors);
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = need_memory((int64_t)size + 1, 1);
    const attn_status status = attn_linear_execute(plan, &tensors, workspace, size, error);
    free(workspace);
    return status;
}

/* The weights are the outputs with the identity as values and without a state: o is the sum of the values times these. */
static attn_status run_weights(const linear_work *work, const common_settings *common, attn_error *error)
{
    static const double unit = 1;
    linear_work one = *work; /* in which the identity is the values */
    attn_linear_problem *p = &one.problem;
    attn_linear_plan *plan = NULL;
    const attn_options options = options_for_library(common);
    const int64_t keys = p->shape.len_kv;
    const attn_dtype compute = one.tensors.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const size_t size = attn_dtype_size(compute);
    char *identity = need_memory(keys * keys + 1, size);
    memset(identity, 0, (size_t)(keys * keys) * size);
    for (int64_t j = 0; j < keys; j++)
        (void)attn_convert(1, &unit, ATTN_F64, identity + (size_t)(j * keys + j) * size, compute, NULL);
    p->op = ATTN_FORWARD;
    p->shape.dim_v = keys;
    one.tensors = linear_of_op(p, &one.tensors);
    one.tensors.initial_state = one.tensors.initial_sum = (attn_input){0};
    one.tensors.final_state = one.tensors.final_sum = one.tensors.denominators = (attn_output){0};
    one.tensors.v = (attn_input){identity, compute, {ATTN_BROADCAST, ATTN_BROADCAST, keys, 1}};
    one.tensors.o = (attn_output){work->weights, compute, {0, 0, 0, 0}};
    attn_status status = attn_linear_plan_create(&plan, p, &one.tensors, &options, error);
    if (status == ATTN_OK) status = execute(&one, ATTN_FORWARD, plan, error);
    attn_linear_plan_destroy(plan);
    free(identity);
    return status;
}

attn_status linear_work_run(const linear_work *work, const common_settings *common, attn_error *error)
{
    attn_status status = execute(work, ATTN_FORWARD, work->plan, error);
    if (status == ATTN_OK && work->weights) status = run_weights(work, common, error);
    if (status == ATTN_OK && work->backward) status = execute(work, ATTN_BACKWARD, work->backward, error);
    return status;
}

void linear_work_end(linear_work *work)
{
    attn_linear_plan_destroy(work->plan);
    attn_linear_plan_destroy(work->backward);
    for (int k = 0; k < work->owned_count; k++) free(work->owned[k]);
}
