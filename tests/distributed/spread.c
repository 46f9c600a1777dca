/* SPDX-License-Identifier: MIT
 * spread.c - see spread.h. */
#include "spread.h"

#include <math.h>

#include "fnv.h"

/* ---- the whole ---- */

static attn_input *slot_of(attn_tensors *t, const spread_tensor *x) { return (attn_input *)(void *)((char *)t + x->about.offset); }

static int64_t elements(const int64_t shape[4]) { return shape[0] * shape[1] * shape[2] * shape[3]; }

static size_t bytes_of(const spread_tensor *x) { return (size_t)elements(x->shape) * attn_dtype_size(x->dtype); }

static int is_elementwise(attn_normaliser n) { return n == ATTN_NORMALISER_SIGMOID || n == ATTN_NORMALISER_RELU; }

int spread_has(const whole *w, const spread_more *more, attn_op op)
{
    return whole_has(w, op) && (op == ATTN_FORWARD || op == ATTN_BACKWARD || !is_elementwise(more->normaliser));
}

static const array *either(const array *first, const array *second) { return first->data ? first : second; }

static const array *input_of(const spread *s, const char *name)
{
    const whole *w = s->w;
    const struct {
        const char *name;
        const array *of;
    } all[] = {{"q", &w->q},
               {"k", &w->k},
               {"v", &w->v},
               {"mask", either(&s->more->mask, &w->mask)},
               {"bias", either(&s->more->bias, &w->bias)},
               {"block_mask", &w->block_mask},
               {"ranges", either(&s->more->ranges, &w->ranges)},
               {"alibi_slopes", either(&s->more->slopes, &w->slopes)},
               {"bias_table", &w->table},
               {"relative_keys", &w->relative_keys},
               {"relative_values", &w->relative_values},
               {"relative_u", &w->relative_u},
               {"relative_v", &w->relative_v},
               {"scale", &w->scale},
               {"grad_o", &w->grad_o},
               {"grad_lse", &w->grad_lse},
               {"tan_q", &w->tan_q},
               {"tan_k", &w->tan_k},
               {"tan_v", &w->tan_v},
               {"tan_bias", either(&s->more->tan_bias, &w->tan_bias)},
               {"sink", &s->more->sink},
               {"dropout_given", &s->more->given}};
    if (is_elementwise(s->more->normaliser) && !strcmp(name, "grad_lse")) return NULL;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (!strcmp(name, all[n].name)) return all[n].of->data ? all[n].of : NULL;
    return NULL;
}

static const int64_t *index_of(const spread *s, const char *name)
{
    const whole *w = s->w;
    if (s->more->documents && !strcmp(name, "cu_seqlens_q")) return s->more->starts_q;
    if (s->more->documents && !strcmp(name, "cu_seqlens_kv")) return s->more->starts_kv;
    if (w->has_lengths && !strcmp(name, "lengths_q")) return w->lengths_q;
    if (w->has_lengths && !strcmp(name, "lengths_kv")) return w->lengths_kv;
    return w->has_offset && !w->bottom_right && !strcmp(name, "offset_q") ? w->offset_q : NULL;
}

static int is_read(const spread *s, const char *name)
{
    for (int n = 0; n < s->count; n++)
        if (!strcmp(s->all[n].about.name, name)) return s->all[n].role == ATTN_ROLE_INPUT;
    return 0;
}

int spread_wants(const spread_more *more, const char *output)
{
    for (int n = 0; n < SPREAD_EXTRAS; n++)
        if (!strcmp(output, spread_outputs[n])) return more->outputs >> n & 1;
    return 0;
}

/* 1 for outputs that the operation has over parts. */
static int is_wanted(const spread *s, const spread_tensor *x)
{
    const char *name = x->about.name;
    if (s->problem.op == ATTN_FORWARD) {
        return !strcmp(name, "o") || !strcmp(name, "lse") || spread_wants(s->more, name);
    }
    if (!strncmp(name, "second_grad_", 12) && is_read(s, "tan_o")) return 0; /* they are known */
    if (s->problem.op == ATTN_JVP) return !strcmp(name, "tan_o") || !strcmp(name, "tan_lse");
    return x->about.gradient_of >= 0 && s->all[x->about.gradient_of].role == ATTN_ROLE_INPUT;
}

static char *filled(const void *from, size_t bytes)
{
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    if (from) memcpy(data, from, bytes);
    else memset(data, 0x5a, bytes);
    return data;
}

/* What is copied into an input, and *stored, its type, if that is another one; NULL: it is absent. */
static const void *data_of(const spread *s, const spread *forward, const char *name, attn_dtype *stored)
{
    const array *a = input_of(s, name);
    *stored = a ? a->dtype : ATTN_DTYPE_DEFAULT;
    if (a) return a->data;
    for (int n = 0; forward && n < forward->count; n++)
        if (!strcmp(name, forward->all[n].about.name) && forward->all[n].role == ATTN_ROLE_OUTPUT) return forward->all[n].data;
    return index_of(s, name);
}

static int is_shared_bias(const spread *s, const spread_tensor *x)
{
    const int *shares = s->more->shares;
    return (shares[0] || shares[1] || shares[2] || shares[3]) && !strcmp(x->about.name, "bias");
}

/* 1 if each packed sequence has its own slopes. */
static int is_own_slopes(const spread *s, const spread_tensor *x)
{
    return s->more->slopes.data && (!strcmp(x->about.name, "alibi_slopes") || !strcmp(x->about.name, "grad_alibi_slopes"));
}

/* Of a bias with so many rows; the stride of an axis is 0 where it is shared, and nowhere else. */
static void share_strides(const spread *s, int64_t rows, attn_input *slot)
{
    const int64_t *shape = s->more->bias.shape, sizes[4] = {shape[0], shape[1], rows, shape[3]};
    int64_t dense = 1;
    for (int axis = 3; axis >= 0; dense *= sizes[axis] > 1 ? sizes[axis] : 1, axis--)
        slot->stride[axis] = s->more->shares[axis] ? ATTN_BROADCAST : dense;
}

static void own_strides(const spread *s, attn_input *slot)
{
    const int64_t stride[4] = {s->problem.shape.heads_q, 1, 1, 1};
    memcpy(slot->stride, stride, sizeof stride);
}

/* The slots of the operation, without memory. */
static void find_tensors(spread *s, const spread *forward, attn_tensors *t)
{
    for (;; s->count++) {
        spread_tensor *x = &s->all[s->count];
        x->about.struct_size = sizeof x->about;
        if (attn_tensor_describe(ATTN_FAMILY_ATTENTION, s->count, &x->about, NULL) != ATTN_OK) break;
        attn_dtype stored;
        const void *data = data_of(s, forward, x->about.name, &stored);
        x->role = x->about.role[s->problem.op];
        if (x->role == ATTN_ROLE_INPUT && !data) x->role = ATTN_ROLE_NONE;
        if (x->role == ATTN_ROLE_OUTPUT && !is_wanted(s, x)) x->role = ATTN_ROLE_NONE;
        if (s->more->types[s->count]) stored = s->more->types[s->count];
        if (x->role == ATTN_ROLE_NONE) continue;
        *slot_of(t, x) = (attn_input){ATTN_LATER, stored, {0, 0, 0, 0}};
        if (is_shared_bias(s, x)) share_strides(s, s->more->bias.shape[2], slot_of(t, x));
        if (is_own_slopes(s, x)) own_strides(s, slot_of(t, x));
    }
}

/* Tokens of all ranks on an axis of a tensor. */
static int64_t tokens_of(const spread *s, int keys)
{
    const spread_more *m = s->more;
    if (m->documents) return keys ? m->starts_kv[m->documents] : m->starts_q[m->documents];
    return keys ? s->problem.shape.len_kv : s->problem.shape.len_q;
}

static int is_of(const spread_tensor *x, attn_axis axis) { return x->about.axes[2] == axis; }

/* 1 for what each packed sequence has for itself: all ranks have all of it. */
static int is_of_entry(const spread *s, const spread_tensor *x)
{
    return s->more->documents && is_of(x, ATTN_AXIS_QUERY) &&
           (x->about.axes[3] == ATTN_AXIS_KEY || x->about.axes[3] == ATTN_AXIS_LIST);
}

/* A slot with head before token, also for packed sequences, where the default is the reverse. */
static attn_input slot_with(const spread *s, const spread_tensor *x, int64_t rows, void *data)
{
    attn_input slot = {data, x->dtype, {0, 0, 0, 0}};
    if (is_shared_bias(s, x)) share_strides(s, rows, &slot);
    if (is_own_slopes(s, x)) own_strides(s, &slot);
    if (!s->more->documents || is_of_entry(s, x) || !(is_of(x, ATTN_AXIS_QUERY) || is_of(x, ATTN_AXIS_KEY))) return slot;
    const int64_t stride[4] = {0, rows * x->shape[3], x->shape[3], 1};
    memcpy(slot.stride, stride, sizeof stride);
    return slot;
}

static int64_t longest(const int64_t *starts, int64_t count)
{
    int64_t most = 0;
    for (int64_t b = 0; b < count; b++)
        if (starts[b + 1] - starts[b] > most) most = starts[b + 1] - starts[b];
    return most;
}

void spread_make(spread *s, const whole *w, const spread_more *more, attn_op op, const spread *forward)
{
    attn_tensors t = {.struct_size = sizeof t, .call = &s->call};
    attn_plan *plan;
    attn_error error;
    *s = (spread){.w = w, .more = more, .problem = w->problem, .call = w->call};
    s->problem.op = op;
    s->problem.score.normaliser = more->normaliser;
    if (op == ATTN_FORWARD) s->problem.outputs = more->how;
    s->problem.mask.empty = more->empty;
    if (w->bottom_right) s->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (s->call.modify_scores && op != ATTN_FORWARD) s->call.modify_slopes = cut_slopes;
    if (more->documents) {
        s->problem.shape.batch = more->documents;
        s->problem.shape.len_q = longest(more->starts_q, more->documents);
        s->problem.shape.len_kv = longest(more->starts_kv, more->documents);
    }
    find_tensors(s, forward, &t);
    if (attn_plan_create(&plan, &s->problem, &t, NULL, &error) != ATTN_OK) fail_msg("%s: %s", w->text, error.message);
    for (int n = 0; n < s->count; n++) {
        spread_tensor *x = &s->all[n];
        attn_tensor_plan planned = {.struct_size = sizeof planned};
        assert_int_equal(attn_plan_tensor(plan, n, &planned, NULL), ATTN_OK);
        if (x->role == ATTN_ROLE_NONE) continue;
        x->dtype = planned.dtype;
        memcpy(x->shape, planned.shape, sizeof x->shape);
        for (int axis = 0; axis < 4 && is_shared_bias(s, x); axis++)
            if (more->shares[axis]) x->shape[axis] = 1;
        if (is_of(x, ATTN_AXIS_QUERY) && !is_of_entry(s, x) && x->shape[2] == s->problem.shape.len_q) x->shape[2] = tokens_of(s, 0);
        if (is_of(x, ATTN_AXIS_KEY)) x->shape[2] = tokens_of(s, 1);
        if (!strcmp(x->about.name, "alibi_slopes") && more->documents && !more->slopes.data) x->shape[0] = 1; /* the default */
        attn_dtype stored;
        const void *from = x->role == ATTN_ROLE_INPUT ? data_of(s, forward, x->about.name, &stored) : NULL;
        const int converts = from && stored && stored != x->dtype;
        x->data = filled(converts ? NULL : from, bytes_of(x));
        if (converts) assert_int_equal(attn_convert(elements(x->shape), from, stored, x->data, x->dtype, NULL), ATTN_OK);
        *slot_of(&t, x) = slot_with(s, x, x->shape[2], x->data);
    }
    attn_plan_destroy(plan);
    if (attn_compute(&s->problem, &t, &error) != ATTN_OK) fail_msg("%s: %s", w->text, error.message);
}

void spread_free(spread *s)
{
    for (int n = 0; n < s->count; n++) free(s->all[n].data);
}

/* ---- ranks ---- */

/* What a tensor is cut along: 0: nothing. */
static int64_t cut_unit(const spread *s, const spread_tensor *x, int *keys)
{
    const char *name = x->about.name;
    *keys = x->about.axes[2] == ATTN_AXIS_KEY;
    if (is_of_entry(s, x)) return 0;
    if (s->more->shares[2] && (!strcmp(name, "bias") || !strcmp(name, "grad_bias") || !strcmp(name, "second_bias"))) return 0;
    if (x->about.axes[2] == ATTN_AXIS_QUERY || *keys) return 1;
    return x->about.axes[2] == ATTN_AXIS_BLOCK_Q ? s->problem.mask.block_q : 0;
}

/* Copies rows between a tensor of the whole and one of a rank. */
static void copy_rows(const spread_tensor *all, int64_t first, const spread_tensor *own, int64_t own_first, int64_t rows,
                      int to_own)
{
    const size_t row = (size_t)all->shape[3] * attn_dtype_size(all->dtype);
    for (int64_t n = 0; n < all->shape[0] * all->shape[1]; n++) {
        char *const a = all->data + (size_t)(n * all->shape[2] + first) * row, *const b =
                                                                                   own->data +
                                                                                   (size_t)(n * own->shape[2] + own_first) * row;
        memcpy(to_own ? b : a, to_own ? a : b, row * (size_t)rows);
    }
}

typedef struct job {
    const spread *s;
    const spread_way *way;
    spread *out;
    attn_error error[MAX_RANKS];
} job;

typedef struct own {
    spread_tensor all[SPREAD_TENSORS];
    int64_t parts[2][512], count[2], tokens[2];
} own;

static void copy_parts(const spread *s, const own *o, const spread_tensor *all, const spread_tensor *mine, int64_t step, int to_own)
{
    int keys;
    const int64_t unit = cut_unit(s, all, &keys), tokens = tokens_of(s, keys);
    int64_t at = 0;
    for (int64_t n = 0; n < o->count[keys]; n++) {
        const int64_t first = o->parts[keys][n] * step, end = first + step < tokens ? first + step : tokens;
        const int64_t rows = (end + unit - 1) / unit - first / unit;
        copy_rows(all, first / unit, mine, at, rows, to_own);
        at += rows;
    }
}

static void find_parts(const spread *s, const spread_way *way, int r, int keys, own *o)
{
    const attn_axis axis = keys ? ATTN_AXIS_KEY : ATTN_AXIS_QUERY;
    const int64_t tokens = tokens_of(s, keys);
    attn_split_description d = {.struct_size = sizeof d};
    assert_int_equal(attn_split_describe(&way->split, tokens, axis, r, way->ranks, &d, NULL), ATTN_OK);
    o->count[keys] = d.parts, o->tokens[keys] = d.tokens;
    for (int64_t n = 0; n < d.parts; n++) {
        attn_split_part x = {.struct_size = sizeof x};
        assert_int_equal(attn_split_part_describe(&way->split, tokens, axis, r, way->ranks, n, &x, NULL), ATTN_OK);
        o->parts[keys][n] = x.number;
    }
}

void spread_run_rank(const spread *s, const spread_way *way, const attn_transport *transport, spread *out, attn_error *error)
{
    const int r = transport->rank;
    const int64_t step = way->split.part;
    attn_tensors t = {.struct_size = sizeof t, .call = &s->call};
    attn_options options = {.struct_size = sizeof options, .threads = way->threads};
    attn_distributed_plan *plan;
    own *o = calloc(1, sizeof *o);
    out->shared[r] = FNV_START;
    assert_non_null(o);
    for (int keys = 0; keys < 2; keys++) find_parts(s, way, r, keys, o);
    for (int n = 0; n < s->count; n++) {
        const spread_tensor *all = &s->all[n];
        spread_tensor *x = &o->all[n];
        int keys;
        *x = *all;
        if (x->role == ATTN_ROLE_NONE) continue;
        const int64_t unit = cut_unit(s, all, &keys);
        if (unit) x->shape[2] = (o->tokens[keys] + unit - 1) / unit;
        x->data = filled(unit || x->role == ATTN_ROLE_OUTPUT ? NULL : all->data, bytes_of(x));
        if (unit && x->role == ATTN_ROLE_INPUT) copy_parts(s, o, all, x, step, 1);
        *slot_of(&t, x) = slot_with(s, x, x->shape[2], elements(x->shape) ? x->data : ATTN_EMPTY);
    }
    if (attn_distributed_plan_create(&plan, &s->problem, &t, &way->split, way->ranks == 1 ? NULL : transport, &options, error) ==
        ATTN_OK) {
        const size_t size = attn_distributed_workspace_size(plan);
        void *workspace = memset(filled(NULL, size), 0xff, size); /* NaN */
        attn_distributed_description d = {.struct_size = sizeof d};
        int64_t messages = 0, bytes = 0, messages_after = 0, bytes_after = 0;
        assert_int_equal(attn_distributed_describe(plan, &d, NULL), ATTN_OK);
        if (way->sent) way->sent(transport, &messages, &bytes);
        const attn_status done = attn_distributed_execute(plan, &t, workspace, size, error);
        if (way->sent) way->sent(transport, &messages_after, &bytes_after);
        if (done == ATTN_OK && way->sent && (d.bytes != bytes_after - bytes || d.messages != messages_after - messages)) {
            error->status = ATTN_ERR_IO;
            (void)snprintf(error->message, sizeof error->message, "%d bytes were sent in %d messages, not %d in %d",
                           (int)(bytes_after - bytes), (int)(messages_after - messages), (int)d.bytes, (int)d.messages);
        }
        free(workspace);
        attn_distributed_plan_destroy(plan);
    }
    for (int n = 0; n < s->count; n++) {
        spread_tensor *x = &o->all[n];
        int keys;
        if (x->role == ATTN_ROLE_NONE) continue;
        if (x->role == ATTN_ROLE_OUTPUT) {
            if (cut_unit(s, x, &keys)) copy_parts(s, o, &out->all[n], x, step, 0);
            else if (r == 0) memcpy(out->all[n].data, x->data, bytes_of(x));
            if (!cut_unit(s, x, &keys)) out->shared[r] = fnv_add(out->shared[r], x->data, bytes_of(x));
        }
        free(x->data);
    }
    free(o);
}

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    spread_run_rank(j->s, j->way, transport, j->out, &j->error[transport->rank]);
}

void spread_output(const spread *s, spread *out)
{
    *out = *s;
    for (int n = 0; n < s->count; n++) {
        out->all[n].data = NULL;
        if (s->all[n].role != ATTN_ROLE_OUTPUT) continue;
        out->all[n].data = calloc(bytes_of(&s->all[n]) + 1, 1);
        assert_non_null(out->all[n].data);
    }
}

void spread_run(const spread *s, const spread_way *given, spread *out)
{
    spread_way way = *given;
    job j = {.s = s, .way = &way, .out = out};
    way.sent = ranks_sent;
    spread_output(s, out);
    ranks_run(way.ranks, way.delays, on_rank, &j);
    for (int r = 0; r < way.ranks; r++)
        if (j.error[r].status != ATTN_OK) fail_msg("%s, rank %d of %d: %s", s->w->text, r, way.ranks, j.error[r].message);
    for (int r = 1; r < way.ranks; r++)
        if (out->shared[r] != out->shared[0]) fail_msg("%s: rank %d of %d has other shared gradients", s->w->text, r, way.ranks);
    if (ranks_wrong()) fail_msg("%s: %s", s->w->text, ranks_wrong());
}

/* ---- comparing ---- */

static double number(const spread_tensor *x, int64_t n)
{
    double value = 0;
    if (x->dtype == ATTN_I64) return (double)((const int64_t *)(const void *)x->data)[n];
    if (x->dtype == ATTN_BOOL) return x->data[n];
    (void)attn_convert(1, x->data + (size_t)n * attn_dtype_size(x->dtype), x->dtype, &value, ATTN_F64, NULL);
    return value;
}

static double unit(attn_dtype t) { return t == ATTN_F16 ? 0x1p-11 : t == ATTN_BF16 ? 0x1p-8 : 0; }

/* 1 if weight n of the largest ones is that of the one before or behind it, up to rounding: which key comes first is open, and it
 * may be one beyond the last. */
static int is_tie(const spread *s, int64_t n)
{
    const int64_t k = s->more->how.topk;
    for (int t = 0; t < s->count; t++) {
        const spread_tensor *x = &s->all[t];
        if (strcmp(x->about.name, "topk_weight") != 0 || x->role != ATTN_ROLE_OUTPUT) continue;
        const double here = number(x, n), most = 1e-5 * here;
        if (n % k > 0 && fabs(number(x, n - 1) - here) <= most) return 1;
        return n % k == k - 1 || fabs(number(x, n + 1) - here) <= most;
    }
    return 0;
}

double spread_compare(const spread *expected, const spread *got, double tolerance)
{
    double worst = 0;
    for (int n = 0; n < expected->count; n++) {
        const spread_tensor *a = &expected->all[n], *b = &got->all[n];
        if (a->role != ATTN_ROLE_OUTPUT) continue;
        for (int64_t k = 0; k < elements(a->shape); k++) {
            const double x = number(a, k), y = number(b, k);
            if (x == y) continue; /* infinities too */
            if (a->dtype == ATTN_I64 && is_tie(expected, k)) continue;
            const double off = fabs(x - y) / ((tolerance + 2 * unit(a->dtype)) * (1 + fabs(x)));
            if (!(off <= 1))
                fail_msg("%s: %s[%d] is %.9g over parts, and %.9g in one call", expected->w->text, a->about.name, (int)k, y, x);
            worst = fmax(worst, off);
        }
    }
    return worst;
}

int spread_same(const spread *a, const spread *b)
{
    for (int n = 0; n < a->count; n++)
        if (a->all[n].role == ATTN_ROLE_OUTPUT && memcmp(a->all[n].data, b->all[n].data, bytes_of(&a->all[n]))) return 0;
    return 1;
}
