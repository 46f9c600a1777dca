/* SPDX-License-Identifier: MIT
 *
 * test_linear.c - linear attention over ranks: the bits of one call for every number of ranks, with all rules, decays, features,
 * denominators and types, forward and backward; the messages and bytes that the description says. */
#include "linear/linear_case.h"

#include "attn/distributed_linear.h"
#include "testing/ranks/ranks.h"

#include <math.h>

enum { BATCH = 2, HEADS = 2, LEN = 43, PART = 8, D = 6, DV = 5, RANDOM = 4, MOST_RANKS = 8 };

/* ---- one execution ---- */

typedef struct job {
    linear_case *c; /* the whole: ranks read and write rows of its tensors */
    attn_op op;
    attn_split split;
    int with_states;                   /* 0: neither begins with states nor asks for them */
    void *states[MOST_RANKS][TENSORS]; /* of each rank: those that all of them get */
    char message[MOST_RANKS][300];     /* "": successful */
    attn_distributed_linear_description of[MOST_RANKS];
} job;

static const int shared[] = {T_S1, T_Z1, T_DS0, T_DZ0};

/* Rows `first` .. of a tensor of the whole, of which the slot is dense. */
static void cut(attn_input *slot, const attn_tensor_description *d, const linear_case *c, int64_t first, int64_t tokens)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int64_t f = attn_features_count(p->features, s->dim_qk, p->random_features);
    const int64_t len = d->axes[2] == ATTN_AXIS_QUERY ? s->len_q : s->len_kv,
                  heads = d->axes[1] == ATTN_AXIS_HEAD_Q ? s->heads_q : s->heads_kv;
    int64_t width = d->axes[3] == ATTN_AXIS_DIM_QK    ? s->dim_qk
                    : d->axes[3] == ATTN_AXIS_DIM_V   ? s->dim_v
                    : d->axes[3] == ATTN_AXIS_FEATURE ? f
                                                      : 1;
    if (strstr(d->name, "decay") && p->decay_kind == ATTN_DECAY_HEAD) width = 1;
    const int of_type = strcmp(d->name, "q") == 0 || strcmp(d->name, "k") == 0 || strcmp(d->name, "v") == 0 ||
                        strcmp(d->name, "o") == 0 || strncmp(d->name, "grad_o", 6) == 0 || strcmp(d->name, "grad_q") == 0 ||
                        strcmp(d->name, "grad_k") == 0 || strcmp(d->name, "grad_v") == 0;
    const attn_dtype type = of_type ? c->dtype : c->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const int64_t stride[4] = {heads * len * width, len * width, width, 1};
    slot->dtype = type;
    if (tokens == 0) {
        slot->data = ATTN_EMPTY;
        return;
    }
    memcpy(slot->stride, stride, sizeof stride);
    slot->data = (const char *)slot->data + first * width * (int64_t)attn_dtype_size(type);
}

/* What a rank passes. */
static void tensors_of(const job *j, int rank, int ranks, attn_linear_tensors *t)
{
    const linear_case *c = j->c;
    attn_tensor_description d = {.struct_size = sizeof d};
    linear_case_tensors(c, j->op, t);
    for (int i = 0; attn_tensor_describe(ATTN_FAMILY_LINEAR, i, &d, NULL) == ATTN_OK; i++) {
        attn_input *slot = (attn_input *)(void *)((char *)t + d.offset);
        const int queries = d.axes[2] == ATTN_AXIS_QUERY;
        if (d.axes[2] == ATTN_AXIS_FEATURE && !j->with_states) *slot = (attn_input){.data = NULL};
        if (!slot->data || (!queries && d.axes[2] != ATTN_AXIS_KEY)) continue;
        attn_split_description own = {.struct_size = sizeof own};
        attn_split_part part = {.struct_size = sizeof part};
        const int64_t len = queries ? c->problem.shape.len_q : c->problem.shape.len_kv;
        const attn_axis axis = queries ? ATTN_AXIS_QUERY : ATTN_AXIS_KEY;
        (void)attn_split_describe(&j->split, len, axis, rank, ranks, &own, NULL);
        (void)attn_split_part_describe(&j->split, len, axis, rank, ranks, 0, &part, NULL);
        cut(slot, &d, c, part.first, own.tokens);
    }
    void *const *own = j->states[rank];
    if (t->final_state.data) t->final_state.data = own[T_S1];
    if (t->final_sum.data) t->final_sum.data = own[T_Z1];
    if (t->grad_initial_state.data) t->grad_initial_state.data = own[T_DS0];
    if (t->grad_initial_sum.data) t->grad_initial_sum.data = own[T_DZ0];
}

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    const int me = transport->rank;
    attn_linear_problem problem = j->c->problem;
    attn_linear_tensors t;
    attn_error error = {.status = ATTN_OK};
    attn_distributed_linear_plan *plan;
    attn_distributed_linear_description *d = &j->of[me];
    const attn_options options = {.struct_size = sizeof options, .threads = 1 + me % 2};
    int64_t messages, bytes, sent, sent_bytes;
    problem.op = j->op;
    tensors_of(j, me, transport->ranks, &t);
    if (attn_distributed_linear_plan_create(&plan, &problem, &t, &j->split, transport, &options, &error) == ATTN_OK) {
        d->struct_size = sizeof *d;
        (void)attn_distributed_linear_describe(plan, d, NULL);
        const size_t size = attn_distributed_linear_workspace_size(plan);
        unsigned char *workspace = malloc(size + 65);
        memset(workspace, 0xff, size + 65); /* NaN everywhere: nothing may be read before it is written */
        ranks_sent(transport, &messages, &bytes);
        (void)attn_distributed_linear_execute(plan, &t, workspace + me, size, &error);
        ranks_sent(transport, &sent, &sent_bytes);
        for (size_t n = size + (size_t)me; n < size + 65 && error.status == ATTN_OK; n++)
            if (workspace[n] != 0xff) snprintf(error.message, sizeof error.message, "writes past its workspace");
        if (!*error.message && (sent - messages != d->messages || sent_bytes - bytes != d->bytes))
            snprintf(error.message, sizeof error.message, "sends %d messages of %d bytes, and describes %d of %d",
                     (int)(sent - messages), (int)(sent_bytes - bytes), (int)d->messages, (int)d->bytes);
        free(workspace);
        attn_distributed_linear_plan_destroy(plan);
    }
    snprintf(j->message[me], sizeof j->message[me], "%s", error.message);
}

static size_t bytes_of(const linear_case *c, int t) { return (size_t)c->count[t] * attn_dtype_size(linear_case_type(c, t)); }

static void run(job *j, int ranks, const char *what)
{
    const linear_case *c = j->c;
    for (int r = 0; r < ranks; r++)
        for (size_t n = 0; n < sizeof shared / sizeof *shared; n++) {
            j->states[r][shared[n]] = malloc(bytes_of(c, shared[n]) + 1);
            memset(j->states[r][shared[n]], 0xff, bytes_of(c, shared[n]));
        }
    ranks_run(ranks, 0, on_rank, j);
    if (ranks_wrong()) fail_msg("%s on %d ranks: %s", what, ranks, ranks_wrong());
    for (int r = 0; r < ranks; r++)
        if (*j->message[r]) fail_msg("%s on %d ranks: rank %d: %s", what, ranks, r, j->message[r]);
}

/* Outputs of forward (or backward) alone. */
static int is_output(attn_op op, int t) { return op == ATTN_FORWARD ? t >= T_O && t <= T_Z1 : t >= T_DQ; }
static int is_shared(int t) { return t == T_S1 || t == T_Z1 || t == T_DS0 || t == T_DZ0; }

static void end(job *j, int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (size_t n = 0; n < sizeof shared / sizeof *shared; n++) free(j->states[r][shared[n]]);
}

/* ---- what is expected ---- */

/* Copies of outputs. */
typedef struct kept {
    void *of[TENSORS];
} kept;

static void keep(kept *k, const linear_case *c, attn_op op)
{
    for (int t = 0; t < TENSORS; t++) {
        if (!is_output(op, t)) continue;
        k->of[t] = malloc(bytes_of(c, t) + 1);
        memcpy(k->of[t], c->data[t], bytes_of(c, t));
    }
}

static void drop(kept *k)
{
    for (int t = 0; t < TENSORS; t++) free(k->of[t]);
}

static void wipe(const linear_case *c, attn_op op)
{
    for (int t = 0; t < TENSORS; t++)
        if (is_output(op, t)) memset(c->data[t], 0xff, bytes_of(c, t));
}

/* One call of the library, in the form that ranks use. */
static void one_call(const job *j, const attn_distributed_linear_description *d)
{
    attn_linear_problem p = j->c->problem;
    attn_linear_tensors t;
    attn_error error;
    attn_tensor_description about = {.struct_size = sizeof about};
    p.op = j->op, p.form = d->form;
    p.chunk = d->form == ATTN_LINEAR_FORM_RECURRENT ? 0 : d->chunk;
    linear_case_tensors(j->c, j->op, &t);
    for (int i = 0; attn_tensor_describe(ATTN_FAMILY_LINEAR, i, &about, NULL) == ATTN_OK; i++)
        if (about.axes[2] == ATTN_AXIS_FEATURE && !j->with_states) memset((char *)&t + about.offset, 0, sizeof(attn_input));
    if (attn_linear_compute(&p, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
}

static void compare(const job *j, int ranks, const kept *expected, int t, const char *what)
{
    const size_t bytes = bytes_of(j->c, t);
    if (is_shared(t) && !j->with_states) return;
    for (int r = 0; r < (is_shared(t) ? ranks : 1); r++)
        if (memcmp(is_shared(t) ? j->states[r][t] : j->c->data[t], expected->of[t], bytes) != 0)
            fail_msg("%s on %d ranks: %s differs on rank %d", what, ranks, linear_tensor_names[t], r);
}

/* A scan adds in another order than one call: what is wrong is further off by orders of magnitude.  (Denominators may be near 0
 * with features of both signs.) */
static void compare_near(const job *j, const kept *scanned, const kept *whole, int t, const char *what)
{
    const attn_linear_problem *p = &j->c->problem;
    const attn_dtype type = linear_case_type(j->c, t);
    const double unit = j->c->dtype == ATTN_F64 ? 1e-9 : j->c->dtype == ATTN_F32 ? 1e-3 : 5e-2;
    const int positive = p->features != ATTN_FEATURES_IDENTITY && p->features < ATTN_FEATURES_FOURIER;
    const int64_t count = j->c->count[t];
    double most = 0, worst = 0, *x = malloc((size_t)(2 * count + 1) * sizeof *x);
    if (positive || p->denominator == ATTN_DENOMINATOR_NONE) {
        (void)attn_convert(count, scanned->of[t], type, x, ATTN_F64, NULL);
        (void)attn_convert(count, whole->of[t], type, x + count, ATTN_F64, NULL);
        for (int64_t n = 0; n < count; n++) most = fmax(most, fabs(x[count + n])), worst = fmax(worst, fabs(x[n] - x[count + n]));
        if (!(worst <= unit * (1 + most)))
            fail_msg("%s: %s is off by %g, and its largest is %g", what, linear_tensor_names[t], worst, most);
    }
    free(x);
}

/* One operation on 1 to 8 ranks. */
static void check_op(job *j, attn_op op, int step, const char *what)
{
    linear_case *c = j->c;
    kept first = {{NULL}}, whole = {{NULL}};
    j->op = op;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks += step) {
        wipe(c, op);
        run(j, ranks, what);
        if (ranks > 1) {
            for (int t = 0; t < TENSORS; t++)
                if (is_output(op, t)) compare(j, ranks, &first, t, what);
        } else {
            const attn_distributed_linear_description *d = &j->of[0];
            for (size_t n = 0; n < sizeof shared / sizeof *shared && j->with_states; n++)
                if (is_output(op, shared[n])) memcpy(c->data[shared[n]], j->states[0][shared[n]], bytes_of(c, shared[n]));
            keep(&first, c, op);
            wipe(c, op);
            one_call(j, d);
            keep(&whole, c, op);
            const int in_pieces = j->split.part % d->chunk != 0 && d->form == ATTN_LINEAR_FORM_CHUNKED;
            const int by_sums = c->decays && c->problem.decay_kind == ATTN_DECAY_HEAD && c->problem.rule == ATTN_LINEAR_RULE_ADD &&
                                d->form == ATTN_LINEAR_FORM_CHUNKED;
            for (int t = 0; t < TENSORS && j->split.way == ATTN_WAY_DIRECT; t++)
                if (is_output(op, t) && !(is_shared(t) && !j->with_states)) compare_near(j, &first, &whole, t, what);
            for (int t = 0; t < TENSORS && !in_pieces && j->split.way != ATTN_WAY_DIRECT; t++)
                if (is_output(op, t) && !(is_shared(t) && !j->with_states) && !(t == T_DDECAY && by_sums) &&
                    memcmp(first.of[t], whole.of[t], bytes_of(c, t)) != 0)
                    fail_msg("%s: %s is not that of one call", what, linear_tensor_names[t]);
            for (int t = 0; t < TENSORS; t++) /* backward reads what forward has left */
                if (is_output(op, t)) memcpy(c->data[t], first.of[t], bytes_of(c, t));
        }
        end(j, ranks);
    }
    drop(&first), drop(&whole);
}

/* ---- problems ---- */

/* What a problem consists of; the rest is drawn. */
typedef struct kind {
    int features, rule, decay, denominator, causal; /* decay 0: none */
} kind;

static int exists(const kind *k)
{
    if (k->rule != ATTN_LINEAR_RULE_ADD && k->denominator != ATTN_DENOMINATOR_NONE) return 0;
    return k->causal || (k->rule == ATTN_LINEAR_RULE_ADD && !k->decay);
}

static void draw(linear_case *c, const kind *k, random_state *r)
{
    static const attn_linear_form forms[] = {ATTN_LINEAR_FORM_AUTO, ATTN_LINEAR_FORM_CHUNKED, ATTN_LINEAR_FORM_RECURRENT,
                                             ATTN_LINEAR_FORM_QUADRATIC};
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F64, ATTN_F16};
    static const int64_t chunks[] = {0, PART / 2, PART, 5};
    attn_linear_problem *p = &c->problem;
    *p = (attn_linear_problem){.features = (attn_features)k->features,
                               .rule = (attn_linear_rule)k->rule,
                               .denominator = (attn_denominator)k->denominator,
                               .causal = k->causal,
                               .random_features = k->features >= ATTN_FEATURES_FAVOR ? RANDOM : 0,
                               .decay_kind = k->decay == 2 ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD,
                               .shape = {BATCH, 2 * HEADS, HEADS, LEN, k->causal ? LEN : LEN - 12, D, DV}};
    c->decays = k->decay > 0;
    c->dtype = types[random_below(r, 4)];
    p->form = forms[random_below(r, 4)];
    p->chunk = chunks[random_below(r, 4)];
    if (!k->causal && p->form == ATTN_LINEAR_FORM_RECURRENT) p->form = ATTN_LINEAR_FORM_AUTO;
    if (k->rule == ATTN_LINEAR_RULE_LOW_RANK) p->form = ATTN_LINEAR_FORM_AUTO;
}

static void check(const kind *k, attn_way way, uint64_t seed)
{
    static const int64_t lengths[BATCH] = {LEN / 2, 9};
    random_state r = random_from(seed);
    linear_case c = {.dtype = ATTN_F32};
    char what[200];
    job j = {.c = &c, .with_states = random_below(&r, 4) > 0, .split = {.struct_size = sizeof j.split, .part = PART}};
    j.split.way = way;
    if (!exists(k)) return;
    draw(&c, k, &r);
    linear_case_draw(&c, c.dtype, seed);
    if (random_below(&r, 2)) c.args.lengths = attn_in(lengths);
    snprintf(what, sizeof what, "features %d, rule %d, decay %d, denominator %d, causal %d, form %d, chunk %d, type %d, lengths %d",
             k->features, k->rule, k->decay, k->denominator, k->causal, (int)c.problem.form, (int)c.problem.chunk, (int)c.dtype,
             c.args.lengths.data != NULL);
    check_op(&j, ATTN_FORWARD, 1 + (int)random_below(&r, 3), what);
    check_op(&j, ATTN_BACKWARD, 1 + (int)random_below(&r, 3), what);
    linear_case_free(&c);
}

static void check_all(attn_way way, uint64_t seed)
{
    kind k;
    for (k.features = 0; k.features <= ATTN_FEATURES_TRIGONOMETRIC; k.features++)
        for (k.rule = 0; k.rule <= ATTN_LINEAR_RULE_LOW_RANK; k.rule++)
            for (k.decay = 0; k.decay < 3; k.decay++)
                for (k.denominator = 0; k.denominator <= ATTN_DENOMINATOR_NONE; k.denominator++)
                    for (k.causal = 0; k.causal < 2; k.causal++, seed++)
                        if (seed % EVERY(1) == 0) check(&k, way, seed);
}

static void test_chain(void **state)
{
    (void)state;
    check_all(ATTN_WAY_AUTO, 0);
    check_all(ATTN_WAY_RING, 1000);
}

static void test_scan(void **state)
{
    (void)state;
    check_all(ATTN_WAY_DIRECT, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chain), cmocka_unit_test(test_scan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
