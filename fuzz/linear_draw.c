/* SPDX-License-Identifier: MIT
 * linear_draw.c - random problems of linear attention, mostly valid. */
#include <string.h>

#include "linear_case.h"

attn_output *linear_slot(attn_linear_tensors *tensors, const linear_case *c, int t)
{
    return (void *)((char *)tensors + c->about[t].offset);
}

int64_t linear_length(const linear_case *c, int64_t e)
{
    return linear_has(c, L_LENGTHS) ? (int64_t)block_get(&c->blocks[L_LENGTHS], e, 0, 0, 0) : c->problem.shape.len_kv;
}

static int64_t draw_size(draws *d, int64_t most)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    const int64_t size = draw_one_in(d, 3) ? sizes[draw_below(d, 16)] : draw_one_in(d, 3) ? draw_below(d, most) : draw_below(d, 20);
    return size < most ? size : most;
}

static void draw_problem(linear_case *c)
{
    draws *d = c->from;
    attn_linear_problem *p = &c->problem;
    attn_shape *s = &p->shape;
    p->struct_size = sizeof *p;
    p->op = draw_one_in(d, 2) ? ATTN_BACKWARD : ATTN_FORWARD;
    p->features = (attn_features)draw_below(d, 7);
    p->causal = !draw_one_in(d, 4);
    s->batch = draw_one_in(d, 30) ? 0 : 1 + draw_below(d, 3);
    s->heads_kv = draw_one_in(d, 40) ? 0 : 1 + draw_below(d, 2);
    const int64_t group = draw_below(d, 40); /* rarely no query heads, with key heads or without */
    s->heads_q = s->heads_kv * (group == 39 ? 0 : 1 + group % 3);
    s->len_kv = draw_size(d, draw_one_in(d, 6) ? 400 : 130);
    s->len_q = p->causal ? s->len_kv : draw_size(d, 130);
    s->dim_qk = draw_size(d, 70), s->dim_v = draw_size(d, 90);
    if (s->len_kv > 130) s->dim_qk %= 20, s->dim_v %= 20;
    if (p->features >= ATTN_FEATURES_FAVOR) p->random_features = 1 + draw_size(d, 60);
    if (p->causal) p->rule = (attn_linear_rule)draw_below(d, 3);
    p->denominator = p->rule != ATTN_LINEAR_RULE_ADD ? ATTN_DENOMINATOR_NONE : (attn_denominator)draw_below(d, 3);
    p->form = (attn_linear_form)draw_below(d, 4);
    if (p->form == ATTN_LINEAR_FORM_RECURRENT && !p->causal) p->form = ATTN_LINEAR_FORM_AUTO;
    if (p->rule == ATTN_LINEAR_RULE_LOW_RANK && p->form != ATTN_LINEAR_FORM_RECURRENT) p->form = ATTN_LINEAR_FORM_AUTO;
    if (draw_one_in(d, 2)) p->chunk = draw_one_in(d, 20) ? INT64_MAX : 1 + draw_below(d, 60);
    if (draw_one_in(d, 3)) p->scale_kind = ATTN_SCALE_VALUE, p->scale = 0.7;
    if (draw_one_in(d, 3)) p->epsilon = (double)(1 + draw_below(d, 300)) / 10;
}

/* Sizes whose results can be held to a bound, as in tests/linear/test_random.c. */
static void make_gentle(linear_case *c, int decays)
{
    attn_linear_problem *p = &c->problem;
    attn_shape *s = &p->shape;
    c->gentle = 1;
    const int positive = p->features != ATTN_FEATURES_IDENTITY && p->features < ATTN_FEATURES_FOURIER;
    if (!positive) p->denominator = ATTN_DENOMINATOR_NONE;
    if (p->rule == ATTN_LINEAR_RULE_DELTA) p->features = ATTN_FEATURES_SOFTMAX, p->random_features = 0;
    if (s->dim_qk == 0) s->dim_qk = 1;
    if (p->denominator != ATTN_DENOMINATOR_NONE || p->features == ATTN_FEATURES_SOFTMAX) s->dim_qk += 8;
    if (p->denominator != ATTN_DENOMINATOR_NONE && p->random_features) p->random_features += 8;
    if (p->rule != ATTN_LINEAR_RULE_LOW_RANK) return;
    if (!decays) s->len_kv = s->len_q = s->len_kv % 12;
    s->dim_qk = 1 + s->dim_qk % 9;
    if (p->features == ATTN_FEATURES_SOFTMAX) s->dim_qk += 8;
    if (p->random_features > 9) p->random_features = 9;
}

/* Chooses which tensors are present. */
static void draw_presence(linear_case *c, int decays)
{
    draws *d = c->from;
    const attn_linear_problem *p = &c->problem;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE, back = p->op == ATTN_BACKWARD;
    int present[L_TENSORS] = {0};
    present[L_Q] = present[L_K] = present[L_V] = 1;
    present[L_O] = !back || sum;
    present[L_N] = sum && (back || draw_one_in(d, 2));
    present[L_OMEGA] = p->features >= ATTN_FEATURES_FAVOR;
    present[L_DECAY] = decays;
    present[L_BETA] = p->rule == ATTN_LINEAR_RULE_DELTA;
    present[L_ERASE] = present[L_WRITE] = p->rule == ATTN_LINEAR_RULE_LOW_RANK;
    present[L_LENGTHS] = draw_one_in(d, 3);
    present[L_S0] = draw_one_in(d, 2);
    present[L_S1] = !back && draw_one_in(d, 2);
    if (back) {
        present[L_DO] = present[L_DQ] = present[L_DK] = present[L_DV] = 1;
        present[L_DS1] = draw_one_in(d, 2);
        present[L_DS0] = present[L_S0] && draw_one_in(d, 2);
        present[L_DDECAY] = present[L_DECAY], present[L_DBETA] = present[L_BETA];
        present[L_DERASE] = present[L_DWRITE] = present[L_ERASE];
    }
    present[L_Z0] = sum && present[L_S0], present[L_Z1] = sum && present[L_S1];
    present[L_DZ1] = sum && present[L_DS1], present[L_DZ0] = sum && present[L_DS0];
    for (int t = 0; t < L_TENSORS; t++)
        if (present[t]) linear_slot(&c->tensors, c, t)->data = ATTN_LATER;
}

static void draw_types(linear_case *c)
{
    static const attn_dtype queries[] = {ATTN_DTYPE_DEFAULT, ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    static const int free_types[] = {L_K, L_V, L_O, L_DECAY, L_BETA, L_ERASE, L_WRITE, L_DO, L_DQ, L_DK, L_DV};
    draws *d = c->from;
    const attn_dtype q = c->tensors.q.dtype = queries[draw_below(d, 5)];
    for (size_t i = 0; i < sizeof free_types / sizeof *free_types; i++) {
        attn_output *slot = linear_slot(&c->tensors, c, free_types[i]);
        const attn_dtype type = queries[2 + draw_below(d, 3)];
        /* decay, beta, erase and write may be of any float type, whatever q is */
        const int any = free_types[i] >= L_DECAY && free_types[i] <= L_WRITE;
        if (slot->data && draw_one_in(d, 4) && (any || (type == ATTN_F64) == (q == ATTN_F64))) slot->dtype = type;
    }
    if (c->tensors.lengths.data && draw_one_in(d, 2)) c->tensors.lengths.dtype = ATTN_I32;
}

static void make_hostile(linear_case *c)
{
    draws *d = c->from;
    attn_linear_problem *p = &c->problem;
    attn_output *slot = linear_slot(&c->tensors, c, (int)draw_below(d, L_TENSORS));
    c->hostile = 1, c->gentle = 0;
    switch (draw_below(d, 12)) {
    case 0:
        (&p->shape.batch)[draw_below(d, 7)] = draw_hostile(d);
        return;
    case 1:
        c->plan_only = 1;
        draw_vast_fields(d, &p->shape.batch, 7);
        if (draw_one_in(d, 2)) p->shape.heads_kv = p->shape.heads_q;
        if (p->causal) p->shape.len_q = p->shape.len_kv;
        return;
    case 2:
        p->random_features = draw_hostile(d);
        return;
    case 3:
        p->chunk = draw_hostile(d);
        return;
    case 4:
        p->struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return;
    case 5:
        c->tensors.struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return;
    case 6:
        *(int *)(draw_one_in(d, 2) ? (void *)&p->features : (void *)&p->rule) = (int)draw_hostile(d);
        return;
    case 7:
        (&p->pool)[draw_below(d, 2 + (int64_t)(sizeof p->reserved / sizeof *p->reserved))] =
            draw_hostile(d); /* or snapshots, reserved */
        return;
    case 8:
        memset(slot, 0, sizeof *slot); /* a required tensor is missing, or nothing changes */
        return;
    case 9:
        slot->data = draw_one_in(d, 2) ? ATTN_MISSING : ATTN_LATER; /* or an unused tensor is present */
        return;
    case 10:
        slot->dtype = (attn_dtype)draw_below(d, 16);
        return;
    default:
        slot->stride[draw_below(d, 4)] = draw_hostile(d);
        return;
    }
}

attn_linear_plan *linear_plan(const linear_case *c, const attn_linear_problem *problem, const attn_linear_tensors *tensors,
                              const attn_options *options, attn_error *error)
{
    attn_linear_plan *plan = NULL;
    memset(error, 0x55, sizeof *error);
    const attn_status status = attn_linear_plan_create(&plan, problem, tensors, options, error);
    check_error(status, error);
    if ((status == ATTN_OK) != (plan != NULL)) finding("status %d with plan %p", (int)status, (void *)plan);
    if (error->tensor < -1 || error->tensor >= L_TENSORS + L_MORE) finding("error names tensor %d", error->tensor);
    if (status != ATTN_OK && !c->hostile) finding("a valid problem is rejected: %s", error->message);
    return plan;
}

/* Blocks of the plan's tensors, dense or with random strides. */
static int make_blocks(linear_case *c, const attn_linear_plan *plan)
{
    draws *d = c->from;
    for (int t = 0; t < L_TENSORS; t++) {
        attn_tensor_plan about = {.struct_size = sizeof about};
        if (attn_linear_plan_tensor(plan, t, &about, NULL)) finding("attn_linear_plan_tensor(%d) rejects", t);
        if (about.role == ATTN_ROLE_NONE) continue;
        block *b = &c->blocks[t];
        *b = block_of(c->about[t].name, about.dtype, about.role == ATTN_ROLE_OUTPUT, about.shape[0], about.shape[1], about.shape[2],
                      about.shape[3]);
        const int dense = t == L_OMEGA || t == L_LENGTHS;
        const int last = t != L_DECAY && t != L_BETA && t != L_N && t != L_Z0 && t != L_Z1 && t != L_DZ0 && t != L_DZ1 &&
                         t != L_DDECAY && t != L_DBETA && t != L_DS1;
        if (!dense && draw_one_in(d, 2)) block_draw_strides(b, d, last || t == L_DS1);
        if (!block_allocate(b)) return 0;
        *linear_slot(&c->tensors, c, t) = block_out(b);
        if (dense) memset(linear_slot(&c->tensors, c, t)->stride, 0, sizeof b->stride);
    }
    return 1;
}

static void fill(linear_case *c)
{
    draws *d = c->from;
    for (int t = 0; t < L_TENSORS; t++) {
        const block *b = &c->blocks[t];
        double low = -1, high = 1;
        if (!linear_has(c, t) || b->output) continue;
        if (t == L_DECAY) low = -1, high = 0;
        if (t == L_BETA) low = 0;
        if (t == L_ERASE || t == L_WRITE) low = -0.3, high = 0.3;
        if (t == L_Z0) low = 0, high = 2;
        if (t == L_OMEGA) low = -1.7, high = 1.7;
        if (t != L_LENGTHS) block_fill(b, d, low, high, c->special);
        for (int64_t e = 0; t == L_LENGTHS && e < b->shape[0]; e++)
            block_put(b, e, 0, 0, 0, (double)draw_below(d, c->problem.shape.len_kv + 1));
    }
}

attn_linear_plan *linear_draw(linear_case *c)
{
    draws *d = c->from;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    if (attn_cpu_describe(&cpu, NULL)) finding("no CPU");
    for (int t = 0; t < L_TENSORS; t++) {
        c->about[t].struct_size = sizeof *c->about;
        if (attn_tensor_describe(ATTN_FAMILY_LINEAR, t, &c->about[t], NULL)) finding("tensor %d is in no table", t);
    }
    if (strcmp(c->about[L_DO].name, "grad_o") != 0 || strcmp(c->about[L_DZ0].name, "grad_initial_sum") != 0)
        finding("tensors are in another order");
    c->tensors.struct_size = sizeof c->tensors;
    c->options.struct_size = sizeof c->options;
    c->options.threads = 1 + (int)draw_below(d, 3);
    c->options.isa = (attn_isa)draw_below(d, 4);
    if (c->options.isa > cpu.isa) c->options.isa = ATTN_ISA_DEFAULT;
    c->special = draw_one_in(d, 8);
    draw_problem(c);
    const int decay = c->problem.causal ? (int)draw_below(d, 3) : 0;
    if (decay > 1) c->problem.decay_kind = ATTN_DECAY_CHANNEL;
    if (!c->special && draw_one_in(d, 2)) make_gentle(c, decay);
    draw_presence(c, decay > 0);
    draw_types(c);
    if (draw_one_in(d, 20)) make_hostile(c);
    attn_error error;
    attn_linear_plan *plan = linear_plan(c, &c->problem, &c->tensors, &c->options, &error);
    if (!plan) return NULL;
    const int capacity = !c->plan_only && make_blocks(c, plan);
    attn_linear_plan_destroy(plan);
    if (!capacity) return NULL;
    fill(c);
    return linear_plan(c, &c->problem, &c->tensors, &c->options, &error);
}
