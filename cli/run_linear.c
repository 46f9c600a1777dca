/* SPDX-License-Identifier: MIT
 * run_linear.c - see run_linear.h. */
#include "run_linear.h"

#include <stdlib.h>
#include <string.h>

#include "bench/linear.h"
#include "failure.h"

static const char *const names[LINEAR_TENSORS] = {"decay",         "beta",        "erase",        "write",     "omega",
                                                  "initial_state", "initial_sum", "dfinal_state", "dfinal_sum"};

int linear_is_wanted(const problem_spec *spec)
{
    return spec->linear || spec->phi[0] || spec->rule || spec->denominator || spec->epsilon != 0 || spec->form;
}

problem_spec linear_input_spec(const problem_spec *spec)
{
    problem_spec plain = *spec;
    plain.phi[0] = 0;
    plain.rule = plain.linear = plain.denominator = plain.form = 0;
    plain.epsilon = 0;
    return plain;
}

static void *own(linear_work *work, int64_t count, size_t size)
{
    return work->owned[work->owned_count++] = need_memory(count > 0 ? count : 1, size);
}

static int is_ignored(const input_settings *settings, const char *name)
{
    for (int k = 0; k < settings->ignored_count; k++)
        if (strcmp(settings->ignored[k], name) == 0) return 1;
    return 0;
}

/* A tensor of `tokens` numbers times `width` for each head and batch entry; NULL in *numbers where the file has none. */
static attn_status read_tensor(linear_work *work, const input_settings *settings, int which, const int64_t size[4], int many,
                               const void **numbers, attn_error *error)
{
    const attn_tensor *t = work->input->file ? attn_tensors_find(work->input->file, names[which]) : NULL;
    const attn_dtype compute = work->problem.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    int64_t count = 1;
    char text[SHAPE_TEXT], wanted[SHAPE_TEXT];
    *numbers = NULL;
    if (!t || is_ignored(settings, names[which])) return ATTN_OK;
    if (t->dtype != ATTN_F32 && t->dtype != ATTN_F64 && t->dtype != ATTN_F16 && t->dtype != ATTN_BF16)
        return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%s' is %s; expected f32, f64, f16 or bf16", work->input->path,
                       names[which], attn_dtype_name(t->dtype));
    for (int axis = 0; axis < 4; axis++) count *= size[axis];
    int rank = t->rank;
    int64_t got = 1;
    for (int axis = 0; axis < rank; axis++) got *= t->shape[axis];
    const int64_t last = rank > 0 ? t->shape[rank - 1] : 1;
    /* One number for each token may have no last axis of its own. */
    if (got != count || (many && last != size[3]))
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%s' %.60s: expected the %lld numbers of %.60s", work->input->path,
                       names[which], shape_text(text, rank, t->shape), (long long)count, shape_text(wanted, 4, size));
    void *copy = own(work, count, 8);
    attn_convert(copy, compute, t->data, t->dtype, count);
    work->used[which] = t;
    *numbers = copy;
    return ATTN_OK;
}

/* A decay of one number for each token, or of one for each feature. */
static int decay_of(const linear_work *work, const input_settings *settings, int64_t tokens, int64_t features)
{
    const attn_tensor *t = work->input->file ? attn_tensors_find(work->input->file, names[LINEAR_DECAY]) : NULL;
    if (!t || is_ignored(settings, names[LINEAR_DECAY])) return SPEC_DECAY_NONE;
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype));
    return count == tokens * features && features > 1 ? SPEC_DECAY_CHANNEL : SPEC_DECAY_HEAD;
}

static attn_status read_tensors(linear_work *work, const input_settings *settings, attn_error *error)
{
    attn_linear_problem *p = &work->problem;
    const attn_shape *s = &p->shape;
    attn_linear_args *a = &work->args;
    const int64_t features = attn_features_count(p->features, s->dim_qk, p->random_features);
    const int64_t of_decay = p->decay == ATTN_DECAY_CHANNEL ? features : 1;
    const int backward = p->op == ATTN_BACKWARD, sum = p->denominator != ATTN_DENOMINATOR_NONE;
    const struct {
        int which, used, needed;
        int64_t size[4];
        const void **numbers;
    } rows[] = {
        {LINEAR_DECAY, p->decay != ATTN_DECAY_NONE, 0, {s->batch, s->heads_kv, s->len_kv, of_decay}, &a->decay},
        {LINEAR_BETA, p->rule == ATTN_RULE_DELTA, 1, {s->batch, s->heads_kv, s->len_kv, 1}, &a->beta},
        {LINEAR_ERASE, p->rule == ATTN_RULE_LOW_RANK, 1, {s->batch, s->heads_kv, s->len_kv, features}, &a->erase},
        {LINEAR_WRITE, p->rule == ATTN_RULE_LOW_RANK, 1, {s->batch, s->heads_kv, s->len_kv, features}, &a->write},
        {LINEAR_OMEGA, p->random_features > 0, 0, {1, 1, p->random_features, s->dim_qk}, &a->omega},
        {LINEAR_STATE, 1, 0, {s->batch, s->heads_kv, features, s->dim_v}, &a->initial_state},
        {LINEAR_SUM, sum, 0, {s->batch, s->heads_kv, features, 1}, &a->initial_sum},
        {LINEAR_GRAD_STATE, backward, 0, {s->batch, s->heads_kv, features, s->dim_v}, &a->grad_final_state},
        {LINEAR_GRAD_SUM, backward && sum, 0, {s->batch, s->heads_kv, features, 1}, &a->grad_final_sum},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (!rows[k].used) continue;
        attn_status status = read_tensor(work, settings, rows[k].which, rows[k].size, rows[k].size[3] > 1, rows[k].numbers, error);
        if (status != ATTN_OK) return status;
        if (rows[k].needed && !*rows[k].numbers)
            return failure(error, ATTN_ERR_ARGUMENT, "%.100s: rule=%s needs a tensor '%s'", work->input->path,
                           p->rule == ATTN_RULE_DELTA ? "delta" : "low-rank", names[rows[k].which]);
    }
    if (a->initial_state && !a->initial_sum && sum)
        return failure(error, ATTN_ERR_ARGUMENT, "%.100s: initial_state is there, and initial_sum, its sum of features, is not",
                       work->input->path);
    if (a->grad_final_state && !a->grad_final_sum && sum)
        return failure(error, ATTN_ERR_ARGUMENT, "%.100s: dfinal_state is there, and dfinal_sum, of the sum of features, is not",
                       work->input->path);
    p->initial_state = a->initial_state != NULL;
    p->grad_final_state = a->grad_final_state != NULL;
    if (p->random_features == 0 || a->omega) return ATTN_OK;
    void *omega = own(work, p->random_features * s->dim_qk, 8);
    a->omega = omega;
    return attn_random_features(ATTN_ROWS_ORTHOGONAL, p->random_features, s->dim_qk, work->spec.seed, 0, omega,
                                p->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32, error);
}

/* Outputs, in the order of the file. */
static attn_status add_outputs(linear_work *work, int state, attn_tensors *out, attn_error *error)
{
    const attention_input *input = work->input;
    attn_linear_problem *p = &work->problem;
    const attn_shape *s = &p->shape;
    attn_linear_args *a = &work->args;
    const attn_dtype stored = problem_dtype(&input->spec), compute = stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const int64_t features = attn_features_count(p->features, s->dim_qk, p->random_features);
    const int backward = input->spec.op == SPEC_BACKWARD, sum = p->denominator != ATTN_DENOMINATOR_NONE;
    const int64_t of_decay = p->decay == ATTN_DECAY_CHANNEL ? features : 1;
    int64_t like_q[ATTN_MAX_RANK];
    const int rank = input_output_shape(input, OUTPUT_LIKE_Q, s->dim_v, like_q);
    int64_t pairs[ATTN_MAX_RANK];
    const int rank_of_pairs = input_output_shape(input, OUTPUT_BY_ROW, 0, pairs) + 1;
    pairs[rank_of_pairs - 1] = s->len_kv;
    const struct {
        const char *name;
        int used, like; /* a role of the input, whose shape it has; or -1: `size`, -2: that of o, -3: queries x keys */
        attn_dtype dtype;
        int64_t size[4];
        void **data;
    } rows[] = {
        {"o", 1, -2, stored, {0}, &a->o},
        {"weights", work->spec.weights, -3, compute, {0}, &work->weights},
        {"final_state", state, -1, compute, {s->batch, s->heads_kv, features, s->dim_v}, &a->final_state},
        {"final_sum", state && sum, -1, compute, {s->batch, s->heads_kv, features, 1}, &a->final_sum},
        {"dq", backward, ROLE_Q, p->q.dtype, {0}, &a->grad_q},
        {"dk", backward, ROLE_K, p->k.dtype, {0}, &a->grad_k},
        {"dv", backward, ROLE_V, p->v.dtype, {0}, &a->grad_v},
        {"ddecay", backward && p->decay, -1, compute, {s->batch, s->heads_kv, s->len_kv, of_decay}, &a->grad_decay},
        {"dbeta", backward && a->beta, -1, compute, {s->batch, s->heads_kv, s->len_kv, 1}, &a->grad_beta},
        {"derase", backward && a->erase, -1, compute, {s->batch, s->heads_kv, s->len_kv, features}, &a->grad_erase},
        {"dwrite", backward && a->write, -1, compute, {s->batch, s->heads_kv, s->len_kv, features}, &a->grad_write},
        {"dinitial_state",
         backward && p->initial_state,
         -1,
         compute,
         {s->batch, s->heads_kv, features, s->dim_v},
         &a->grad_initial_state},
        {"dinitial_sum",
         backward && p->initial_state && sum,
         -1,
         compute,
         {s->batch, s->heads_kv, features, 1},
         &a->grad_initial_sum},
    };
    attn_status status = ATTN_OK;
    for (size_t k = 0; k < sizeof rows / sizeof *rows && status == ATTN_OK; k++) {
        const attn_tensor *like = rows[k].like >= 0 ? input->used[rows[k].like].tensor : NULL;
        if (!rows[k].used) continue;
        const int pair = rows[k].like == -3, row = rows[k].like == -2;
        status = attn_tensors_allocate(out, rows[k].name, rows[k].dtype,
                                       like   ? like->rank
                                       : pair ? rank_of_pairs
                                       : row  ? rank
                                              : 4,
                                       like   ? like->shape
                                       : pair ? pairs
                                       : row  ? like_q
                                              : rows[k].size,
                                       rows[k].data, error);
    }
    if (backward && sum) a->denominators = own(work, s->batch * s->heads_q * s->len_q, 8);
    return status;
}

attn_status linear_work_begin(linear_work *work, const attention_input *input, const input_settings *settings, int state,
                              attn_tensors *out, const common_settings *common, attn_error *error)
{
    *work =
        (linear_work){.input = input, .args.struct_size = sizeof work->args, .description.struct_size = sizeof work->description};
    const attn_problem *given = &input->problem;
    const attn_args *from = &input->args;
    attn_linear_problem *p = &work->problem;
    attn_options options = options_for_library(common);
    if (given->bias.additive || given->mask.boolean || given->mask.block || given->mask.lengths_q != given->mask.lengths_kv ||
        given->dropout.given || given->bias.sink || given->score.scale_kind == ATTN_SCALE_PER_HEAD)
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
    attn_status status = linear_problem_build(&work->spec, p, error);
    if (status != ATTN_OK) return status;
    const attn_shape *s = &p->shape;
    work->spec.decay = decay_of(work, settings, s->batch * s->heads_kv * s->len_kv,
                                attn_features_count(p->features, s->dim_qk, p->random_features));
    status = linear_problem_build(&work->spec, p, error);
    if (status != ATTN_OK) return status;
    work->spec.order = order;
    work->spec.weights = settings->spec.weights;
    p->q = given->q, p->k = given->k, p->v = given->v, p->o = given->o;
    p->grad_o = given->gradients.grad_o, p->grad_q = given->gradients.grad_q, p->grad_k = given->gradients.grad_k,
    p->grad_v = given->gradients.grad_v;
    p->grad_q.dtype = p->q.dtype, p->grad_k.dtype = p->k.dtype, p->grad_v.dtype = p->v.dtype;
    p->o.dtype = p->grad_o.dtype = problem_dtype(&input->spec);
    p->lengths = given->mask.lengths_kv;
    p->index_dtype = given->mask.index_dtype;
    work->args.q = from->q, work->args.k = from->k, work->args.v = from->v, work->args.grad_o = from->grad_o;
    work->args.lengths = from->lengths_kv;
    status = read_tensors(work, settings, error);
    if (status == ATTN_OK) status = add_outputs(work, state, out, error);
    attn_linear_problem forward = *p;
    forward.op = ATTN_FORWARD;
    forward.final_state = state;
    forward.grad_final_state = 0;
    forward.want_denominator = work->args.denominators != NULL;
    if (status == ATTN_OK) status = attn_linear_plan_create(&work->plan, &forward, &options, error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(work->plan, &work->description, error);
    if (status != ATTN_OK || p->op == ATTN_FORWARD) return status;
    p->final_state = 0;
    p->grad_initial_state = p->initial_state;
    return attn_linear_plan_create(&work->backward, p, &options, error);
}

static attn_status execute(const attn_linear_plan *plan, const attn_linear_args *args, attn_error *error)
{
    const size_t size = attn_linear_workspace_size(plan);
    void *workspace = need_memory((int64_t)size + 1, 1);
    const attn_status status = attn_linear_execute(plan, args, workspace, size, error);
    free(workspace);
    return status;
}

/* Weights are the outputs for the identity as values, without a state: o is the sum of values times these. */
static attn_status run_weights(const linear_work *work, const common_settings *common, attn_error *error)
{
    static const double one = 1;
    attn_linear_problem p = work->problem;
    attn_linear_args args = work->args;
    attn_linear_plan *plan;
    const attn_options options = options_for_library(common);
    const int64_t keys = p.shape.len_kv;
    const attn_dtype compute = p.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const size_t size = attn_dtype_size(compute);
    char *identity = need_memory(keys * keys + 1, size);
    memset(identity, 0, (size_t)(keys * keys) * size);
    for (int64_t j = 0; j < keys; j++) attn_convert(identity + (size_t)(j * keys + j) * size, compute, &one, ATTN_F64, 1);
    p.op = ATTN_FORWARD;
    p.shape.dim_v = keys;
    p.initial_state = p.final_state = p.grad_initial_state = p.grad_final_state = 0;
    p.v = (attn_layout){compute, {ATTN_BROADCAST, ATTN_BROADCAST, keys, 1}};
    p.o = (attn_layout){compute, {0}};
    args.v = identity, args.o = work->weights;
    attn_status status = attn_linear_plan_create(&plan, &p, &options, error);
    if (status == ATTN_OK) status = execute(plan, &args, error);
    attn_linear_plan_destroy(plan);
    free(identity);
    return status;
}

attn_status linear_work_run(const linear_work *work, const common_settings *common, attn_error *error)
{
    attn_status status = execute(work->plan, &work->args, error);
    if (status == ATTN_OK && work->weights) status = run_weights(work, common, error);
    if (status == ATTN_OK && work->backward) status = execute(work->backward, &work->args, error);
    return status;
}

void linear_work_end(linear_work *work)
{
    attn_linear_plan_destroy(work->plan);
    attn_linear_plan_destroy(work->backward);
    for (int k = 0; k < work->owned_count; k++) free(work->owned[k]);
}

int linear_work_uses(const linear_work *work, const attn_tensor *tensor)
{
    for (int k = 0; k < LINEAR_TENSORS; k++)
        if (work->used[k] == tensor) return 1;
    return 0;
}
