/* SPDX-License-Identifier: MIT
 * translate.c - applies the tables of an adapter to a case, and brings every tensor into the library's order of axes. */
#include "translate.h"

#include <math.h>
#include <string.h>

#include "testing/memory/element.h"

/* 1 if name equals pattern, which may end in * to match any end. */
static int matches(const char *pattern, const char *name)
{
    const size_t length = strlen(pattern);
    if (length && pattern[length - 1] == '*') return strncmp(pattern, name, length - 1) == 0;
    return strcmp(pattern, name) == 0;
}

int adapter_matches(const adapter *rules, const char *suite, const char *op)
{
    return strcmp(rules->suite, suite) == 0 && matches(rules->op, op);
}

/* ---- the tables ---- */

static void apply_params(translation *t, const param_rule *rules)
{
    const cJSON *params = cJSON_GetObjectItemCaseSensitive(t->json, "params");
    if (!params) params = cJSON_GetObjectItemCaseSensitive(t->json, "attributes");
    const cJSON *value;
    cJSON_ArrayForEach(value, params)
    {
        const param_rule *rule = rules;
        while (rule->name && strcmp(rule->name, value->string) != 0) rule++;
        if (rule->name) rule->apply(t, rule, value);
        else skip_case(t, "attribute %.60s is not known", value->string);
    }
}

static void apply_tensors(translation *t, const tensor_rule *rules, const attn_archive *tensors)
{
    for (int64_t i = 0; i < attn_archive_count(tensors); i++) {
        const attn_archive_tensor *tensor = attn_archive_at(tensors, i);
        const tensor_rule *rule = rules;
        while (rule->name && strcmp(rule->name, tensor->name) != 0) rule++;
        if (rule->name) t->raw[rule->role] = view_of(tensor);
        else skip_case(t, "tensor %.60s is not known", tensor->name);
    }
}

/* ---- axes ---- */

/* [batch, head, token, channel] of q, k, v or o. */
static int to_bhsd(translation *t, const view *raw, int64_t heads, const char *name, view *out)
{
    view v = *raw;
    if (t->layout == LAYOUT_CHANNELS) {
        view split;
        v = view_to_rank(t->pool, &v, 3);
        if (heads < 1) heads = 1;
        if (!view_split(&v, heads, &split)) {
            fail_case(t, "%s: %lld channels do not split into %lld heads", name, (long long)v.size[2], (long long)heads);
            return 0;
        }
        *out = view_swap(&split, 1, 2);
    } else {
        v = view_to_rank(t->pool, &v, 4);
        *out = t->layout == LAYOUT_BSHD ? view_swap(&v, 1, 2) : v;
    }
    return 1;
}

/* A mask or bias as [batch, heads_q, len_q, len_kv], broadcast by NumPy's rules against the axes of the original q. */
static int to_pairs(translation *t, const view *raw, const int64_t size[4], view *out)
{
    const view *q = &t->raw[ROLE_Q];
    if (raw->rank > 4 && t->layout == LAYOUT_BHSD && q->rank > 4) {
        int64_t whole[ATTN_MAX_RANK];
        view same = view_to_rank(t->pool, raw, q->rank), full;
        memcpy(whole, q->size, sizeof whole);
        whole[q->rank - 1] = size[3];
        if (!view_expand(&same, whole, &full)) return 0;
        *out = view_to_rank(t->pool, &full, 4);
        return 1;
    }
    if (raw->rank > 4) return 0;
    const view four = view_to_rank(t->pool, raw, 4);
    return view_expand(&four, size, out);
}

static void join_past(translation *t)
{
    const case_role past[] = {ROLE_PAST_K, ROLE_PAST_V}, present[] = {ROLE_PRESENT_K, ROLE_PRESENT_V};
    view *now[] = {&t->k, &t->v};
    for (int i = 0; i < 2; i++) {
        const view *old = &t->raw[past[i]], *expected = &t->raw[present[i]];
        if (view_present(old)) {
            view whole;
            if (old->rank != 4 || !view_join(t->pool, old, now[i], 2, &whole)) {
                fail_case(t, "past and present keys or values do not fit each other");
                return;
            }
            *now[i] = whole;
        }
        if (!view_present(expected)) continue;
        int same = view_count(expected) == view_count(now[i]);
        const double unit = !t->added_first                ? 0
                            : expected->dtype == ATTN_F16  ? 0x1p-10
                            : expected->dtype == ATTN_BF16 ? 0x1p-7
                                                           : 0x1p-23;
        for (int64_t n = 0; same && n < view_count(expected); n++) {
            const double expected_value = view_get(expected, n);
            same = fabs(view_get(now[i], n) - expected_value) <= unit * fabs(expected_value);
        }
        if (!same) fail_case(t, "present %s are not the past and new ones joined", i ? "values" : "keys");
    }
}

/* A mask, bias or dropout mask, which broadcasts to the scores. */
static void set_pairs(translation *t, case_role role, const int64_t size[4], const char *name)
{
    view given = t->raw[role];
    if (!view_present(&given)) return;
    const int boolean = given.dtype == ATTN_BOOL || given.dtype == ATTN_U8;
    const int number = given.dtype == ATTN_F32 || given.dtype == ATTN_F64 || given.dtype == ATTN_F16 || given.dtype == ATTN_BF16;
    view *to = role == ROLE_KEEP ? &t->keep : boolean ? &t->mask : &t->bias;
    given.dtype = boolean ? ATTN_BOOL : given.dtype;
    if (!(boolean || number) || (role == ROLE_KEEP && !boolean) || (role == ROLE_BIAS && boolean) || view_present(to))
        skip_case(t, "a %s of type %s is not known here", name, attn_dtype_name(given.dtype));
    else if (!to_pairs(t, &given, size, to)) fail_case(t, "the %s does not broadcast to the scores", name);
}

/* ---- expected numbers ---- */

/* [batch, head, query, key] without broadcasting. */
static void set_all_pairs(translation *t, case_role role, const int64_t size[4], const char *name, view *out)
{
    view same;
    if (!view_present(&t->raw[role])) return;
    *out = view_to_rank(t->pool, &t->raw[role], 4);
    if (!view_expand(out, size, &same) || view_count(out) != size[0] * size[1] * size[2] * size[3])
        fail_case(t, "the shape of the %s is not that of the problem", name);
}

static void set_expected(translation *t, const int64_t size[4])
{
    const int64_t rows[3] = {size[0], size[1], size[2]};
    if (view_present(&t->raw[ROLE_O])) {
        if (!to_bhsd(t, &t->raw[ROLE_O], t->heads_q ? t->heads_q : size[1], "output", &t->o)) return;
        if (t->o.size[0] != size[0] || t->o.size[1] != size[1] || t->o.size[2] != size[2] || t->o.size[3] != t->v.size[3])
            fail_case(t, "the output's shape is not that of the problem");
    }
    if (view_present(&t->raw[ROLE_LSE])) {
        t->lse = view_to_rank(t->pool, &t->raw[ROLE_LSE], 3);
        view same;
        if (!view_expand(&t->lse, rows, &same) || view_count(&t->lse) != size[0] * size[1] * size[2])
            fail_case(t, "the lse's shape is not that of the problem");
    }
    set_all_pairs(t, ROLE_WEIGHTS, size, "weights", &t->weights);
    set_all_pairs(t, ROLE_SCORES, size, "scores", t->stage == ATTN_STAGE_WEIGHTS ? &t->weights : &t->scores);
}

/* Gradients and tangents in the library's shapes, as far as known here: batch, heads and lengths are checked against q, k and v. */
static void set_flow(translation *t, int f)
{
    const view *raw = &t->raw[ROLE_FLOW + f], *like = tensors_of_keys(f) ? &t->k : &t->q;
    const char *name = tensors_about(f)->name;
    const attn_axis *axes = tensors_about(f)->axes;
    view *to = &t->flow[f];
    if (!view_present(raw)) return;
    if (tensors_packs(f) && axes[3] == ATTN_AXIS_ONE) {
        *to = view_to_rank(t->pool, raw, 3);
        to->size[3] = to->stride[3] = 1;
        to->rank = 4;
    } else if (tensors_packs(f)) {
        if (!to_bhsd(t, raw, tensors_of_keys(f) ? t->heads_kv : t->heads_q, name, to)) return;
    } else if (axes[3] == ATTN_AXIS_KEY) {
        *to = view_to_rank(t->pool, raw, 4);
    } else { /* a number for each head, or for each batch entry and head */
        *to = view_to_rank(t->pool, raw, 2);
        to->size[2] = to->size[3] = to->stride[2] = to->stride[3] = 1;
        to->rank = 4;
    }
    if (!tensors_packs(f)) return;
    if (to->size[0] != like->size[0] || to->size[1] != like->size[1] || to->size[2] != like->size[2])
        fail_case(t, "the shape of %s is not that of the problem", name);
}

/* A tensor with one batch entry broadcasts to all. */
static int widen(view *v, int64_t batch)
{
    const int64_t size[4] = {batch, v->size[1], v->size[2], v->size[3]};
    return view_expand(v, size, v);
}

static void set_tensors(translation *t)
{
    view *part[] = {&t->q, &t->k, &t->v};
    static const char *const names[] = {"query", "key", "value"};
    for (int i = 0; i < 3; i++) {
        if (!view_present(&t->raw[ROLE_Q + i])) {
            skip_case(t, "no tensor for the %s", names[i]);
            return;
        }
        if (!to_bhsd(t, &t->raw[ROLE_Q + i], i ? t->heads_kv : t->heads_q, names[i], part[i])) return;
    }
    join_past(t);
    if (t->wrong[0]) return;
    int64_t batch = 1;
    for (int i = 0; i < 3; i++)
        if (part[i]->size[0] != 1) batch = part[i]->size[0];
    if (!widen(&t->q, batch) || !widen(&t->k, batch) || !widen(&t->v, batch) || t->q.size[3] != t->k.size[3] ||
        t->k.size[2] != t->v.size[2] || t->k.size[1] != t->v.size[1]) {
        fail_case(t, "query, key and value do not fit each other");
        return;
    }
    if (t->rounded_to)
        for (int i = 0; i < 3; i++) *part[i] = view_convert(t->pool, part[i], t->rounded_to);
    if (t->value_factor != 0) t->v = view_scale(t->pool, &t->v, t->value_factor);
    const int64_t size[4] = {batch, t->q.size[1], t->q.size[2], t->k.size[2]};
    set_pairs(t, ROLE_MASK, size, "mask");
    set_pairs(t, ROLE_BIAS, size, "bias");
    set_pairs(t, ROLE_KEEP, size, "dropout mask");
    if (t->dropout > 0 && !view_present(&t->keep))
        skip_case(t, "dropout without the mask that was drawn: every system draws its own (semantics: dropout)");
    set_expected(t, size);
    for (int f = 0; f < TENSORS; f++) set_flow(t, f);

    view *arrays[] = {&t->slopes, &t->sink, &t->scales};
    static const char *const array_names[] = {"slopes", "sinks", "scales"};
    for (int i = 0; i < 3; i++) {
        const view *raw = &t->raw[ROLE_SLOPES + i];
        const int by_batch = raw->rank == 2 && i == 0 && raw->size[0] == batch;
        if (!view_present(raw)) continue;
        if (!(by_batch || raw->rank == 1) || raw->size[raw->rank - 1] != size[1])
            fail_case(t, "the %s do not have one number for each head", array_names[i]);
        *arrays[i] = *raw;
    }
    const view *lengths[] = {&t->raw[ROLE_LENGTHS_Q], &t->raw[ROLE_LENGTHS_KV]};
    for (int i = 0; i < 2; i++) {
        if (!view_present(lengths[i])) continue;
        if (lengths[i]->rank != 1 || lengths[i]->size[0] != batch)
            fail_case(t, "the lengths do not have one number for each batch entry");
        *(i ? &t->lengths_kv : &t->lengths_q) = *lengths[i];
    }
}

/* 1 if some operation writes tensor f. */
static int is_expected(int f)
{
    int any = 0;
    for (int op = 0; op < ATTN_OPERATIONS; op++) any |= tensors_about(f)->role[op] == ATTN_ROLE_OUTPUT;
    return any;
}

void translate(translation *t, const adapter *rules, const cJSON *json, const attn_archive *tensors)
{
    t->json = json;
    apply_params(t, rules->params);
    apply_tensors(t, rules->tensors, tensors);
    if (t->skip[0] || t->wrong[0]) return;
    if (rules->finish) rules->finish(t);
    if (t->skip[0] || t->wrong[0]) return;
    set_tensors(t);
    int any = view_present(&t->o) || view_present(&t->lse) || view_present(&t->weights) || view_present(&t->scores);
    for (int f = 0; f < TENSORS; f++) any |= is_expected(f) && view_present(&t->flow[f]);
    if (!any) skip_case(t, "no output to compare");
}
