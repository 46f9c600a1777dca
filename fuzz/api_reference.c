/* SPDX-License-Identifier: MIT
 * api_reference.c - one batch entry at a time in the form of ref/: visibility, forward and backward. */
#include "api_case.h"
#include "testing/memory/format.h"

#include "attn_bound.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 30, ARRAYS = 48 };

typedef struct entry {
    ref_problem p;
    int64_t e, first[2], length[2]; /* of queries, of keys */
    int64_t q, kv;                  /* the origin */
    void *arrays[ARRAYS];
    int count;
} entry;

static void *array(entry *x, int64_t n, size_t size)
{
    void *memory = calloc((size_t)n + 1, size);
    if (!memory) abort();
    return x->arrays[x->count++] = memory;
}

static void entry_free(entry *x)
{
    while (x->count > 0) free(x->arrays[--x->count]);
}

static int64_t clamped(int64_t n) { return n > LARGEST ? LARGEST : n; }

static const block *tensor(const api_case *c, const char *name)
{
    const block *b = &c->blocks[case_find(c, name)];
    return b->name ? b : NULL;
}

static double element_of(const block *b, int64_t owner, int64_t h, int64_t token, int64_t k)
{
    const int blocks = format_is_blocks(b->dtype);
    const unsigned char *element = block_at(b, owner, h, token, blocks ? k / ATTN_BLOCK : k);
    return blocks ? format_get(element, b->dtype, k % ATTN_BLOCK) : number_get(element, b->dtype);
}

/* Channel k of key i of the entry, which is at `token` of the entry or page: in its group, or in the tail. */
static double key_by_channel(const api_case *c, const entry *x, const block *b, int64_t owner, int64_t h, int64_t token, int64_t i,
                             int64_t channels, int64_t k)
{
    int64_t key;
    if (i >= x->length[1] - x->length[1] % ATTN_BLOCK) return element_of(tensor(c, "k_tail"), x->e, h, i % ATTN_TAIL, k);
    const int64_t of = format_channel(channels, k, &key);
    return format_get(block_at(b, owner, h, token - i % ATTN_BLOCK + key, of), b->dtype, i % ATTN_BLOCK);
}

/* Heads x tokens x channels of the entry; packed tensors are read from the entry's first token on. */
static double *read(const api_case *c, entry *x, const char *name, int64_t heads, int64_t tokens, int64_t channels)
{
    const block *b = tensor(c, name), *pages = tensor(c, "page_table"), *lists = tensor(c, "page_index");
    if (!b) return NULL;
    const int t = case_find(c, name), packed = case_is_packed(c, t), side = c->about[t].axes[2] == ATTN_AXIS_KEY;
    const int paged = (pages || lists) && (name[0] == 'k' || name[0] == 'v');
    double *to = array(x, heads * tokens * channels, sizeof *to), *at = to;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < tokens; i++)
            for (int64_t k = 0; k < channels; k++, at++) {
                const int64_t size = c->problem.paging.page_size;
                int64_t owner = packed ? 0 : x->e, token = i + (packed ? x->first[side] : 0);
                if (paged && i >= x->length[1]) continue;
                if (paged) {
                    const int64_t page = pages ? read_index(block_at(pages, x->e, 0, 0, i / size), pages->dtype)
                                               : get_index(lists, get_index(tensor(c, "page_starts"), x->e) + i / size);
                    if (page < 0 || page >= c->problem.paging.pages) continue; /* behind a window, or the call would be rejected */
                    owner = page, token = i % size;
                }
                if (b->dtype == ATTN_Q4_1C && i >= x->length[1]) continue;
                *at = b->dtype == ATTN_Q4_1C ? key_by_channel(c, x, b, owner, h, token, i, channels, k)
                                             : element_of(b, owner, h, token, k);
            }
    return to;
}

/* Lengths and visibility.  Returns 0 if undecided. */
static int entry_masks(const api_case *c, entry *x, int64_t e)
{
    const attn_problem *p = &c->problem;
    const attn_mask *m = &p->mask;
    ref_problem *r = &x->p;
    memset(x, 0, sizeof *x);
    x->e = e;
    x->length[0] = p->shape.len_q, x->length[1] = p->shape.len_kv;
    for (int side = 0; side < 2; side++) {
        const block *starts = tensor(c, side ? "cu_seqlens_kv" : "cu_seqlens_q"),
                    *lengths = tensor(c, side ? "lengths_kv" : "lengths_q");
        if (starts) x->first[side] = get_index(starts, e), x->length[side] = get_index(starts, e + 1) - x->first[side];
        if (lengths) x->length[side] = get_index(lengths, e);
    }
    if (tensor(c, "lengths_last_page")) {
        const block *starts = tensor(c, "page_starts");
        const int64_t pages = get_index(starts, e + 1) - get_index(starts, e);
        x->length[1] = pages ? (pages - 1) * p->paging.page_size + get_index(tensor(c, "lengths_last_page"), e) : 0;
    }
    const int packed = case_has(c, "cu_seqlens_q"), packed_kv = case_has(c, "cu_seqlens_kv");
    r->B = 1, r->Hq = p->shape.heads_q, r->Hkv = p->shape.heads_kv, r->D = p->shape.dim_qk, r->Dv = p->shape.dim_v;
    r->Sq = packed ? x->length[0] : p->shape.len_q, r->Skv = packed_kv ? x->length[1] : p->shape.len_kv;
    if (r->Hq * r->Sq * r->Skv > 400000) return 0;
    int64_t *numbers = array(x, 3, sizeof *numbers);
    numbers[0] = x->length[0], numbers[1] = x->length[1];
    r->len_q = numbers, r->len_kv = numbers + 1, r->offset = numbers + 2;
    if (m->align == ATTN_ALIGN_BOTTOM_RIGHT) numbers[2] = x->length[1] - x->length[0];
    if (tensor(c, "offset_q")) numbers[2] = get_index(tensor(c, "offset_q"), e);
    if (numbers[2] > LARGEST || numbers[2] < -LARGEST) return 0;
    if (c->call.origin) {
        x->q = c->origin.q, x->kv = c->origin.kv;
        numbers[2] += x->q - x->kv;
        if (m->chunk || m->global_q || m->global_kv || tensor(c, "ranges")) return 0;
    }
    r->causal = m->causal, r->window = m->window;
    r->window_left = clamped(m->window_left), r->window_right = clamped(m->window_right);
    r->chunk = m->chunk, r->dilation = m->dilation, r->least_distance = m->least_distance, r->global_q = clamped(m->global_q),
    r->global_kv = clamped(m->global_kv);
    const block *ranges = tensor(c, "ranges"), *mask = tensor(c, "mask"), *blocks = tensor(c, "block_mask"),
                *starts = tensor(c, "block_starts"), *index = tensor(c, "block_index");
    if (ranges) {
        int64_t *to = array(x, r->Hq * r->Sq * 2, sizeof *to);
        r->ranges = to;
        for (int64_t h = 0; h < r->Hq; h++)
            for (int64_t i = 0; i < r->Sq; i++)
                for (int64_t k = 0; k < 2; k++) *to++ = read_index(block_at(ranges, e, h, i, k), ranges->dtype);
    }
    const block *tree = tensor(c, "tree");
    if (tree) {
        const int64_t words = (m->tree_keys + 63) / 64;
        uint64_t *to = array(x, r->Sq * words, sizeof *to);
        r->tree = to, r->tree_keys = m->tree_keys;
        for (int64_t i = 0; i < r->Sq; i++)
            for (int64_t k = 0; k < words; k++, to++)
                memcpy(to, block_at(tree, packed ? 0 : e, 0, i + (packed ? x->first[0] : 0), k), sizeof *to);
    }
    if (!mask && !blocks && !starts) return 1;
    unsigned char *keep = array(x, r->Hq * r->Sq * r->Skv, 1);
    r->keep = keep;
    for (int64_t h = 0; h < r->Hq; h++)
        for (int64_t i = 0; i < r->Sq; i++)
            for (int64_t j = 0; j < r->Skv; j++, keep++) {
                *keep = 1;
                if (mask && !*block_at(mask, e, h, i, j)) *keep = 0;
                if (blocks && !*block_at(blocks, e, h, i / m->block_q, j / m->block_kv)) *keep = 0;
                int listed = !starts;
                const int64_t before =
                    m->block_heads ? (e * r->Hkv + h / (r->Hq / r->Hkv)) * case_lists(c) / (p->shape.batch * r->Hkv) : 0;
                for (int64_t n = starts ? get_index(starts, before + i / m->block_q) : 0;
                     starts && n < get_index(starts, before + i / m->block_q + 1); n++)
                    listed |= get_index(index, n) == j / m->block_kv;
                if (!listed) *keep = 0;
            }
    return 1;
}

unsigned char *case_seen(const api_case *c, int64_t e)
{
    entry x;
    if (!entry_masks(c, &x, e)) {
        entry_free(&x);
        return NULL;
    }
    const ref_problem *r = &x.p;
    unsigned char *seen = calloc((size_t)(r->Hkv * r->Skv) + 1, 1);
    if (!seen) abort();
    for (int64_t h = 0; h < r->Hq; h++)
        for (int64_t i = 0; i < r->Sq; i++)
            for (int64_t j = 0; j < r->Skv; j++)
                seen[h / (r->Hq / r->Hkv) * r->Skv + j] |= (unsigned char)ref_visible(r, 0, h, i, j);
    entry_free(&x);
    return seen;
}

/* ---- scores ---- */

static double modified(void *context, int64_t b, int64_t h, int64_t i, int64_t j, double s, double *slope)
{
    const entry *x = context;
    (void)b, (void)h;
    *slope = 0.5;
    return 0.5 * s + (double)((i + x->q + j + x->kv) % 5) * 0.01;
}

/* Multiplies stored keys or values by their scales, if any. */
static void dequantise(const api_case *c, entry *x, const char *name, double *values, int64_t channels)
{
    double *scale = read(c, x, name, x->p.Hkv, x->p.Skv, 1);
    for (int64_t i = 0; scale && i < x->p.Hkv * x->p.Skv * channels; i++) values[i] *= scale[i / channels];
}

static int entry_scores(const api_case *c, entry *x)
{
    const attn_problem *p = &c->problem;
    ref_problem *r = &x->p;
    const int64_t dk = p->score.dim_k ? p->score.dim_k : r->D;
    if (p->mask.empty != ATTN_EMPTY_ZERO || p->dropout.probability >= 1 || r->Hq == 0) return 0;
    if (r->Hq * r->Sq * r->Skv * (r->D + r->Dv + 1) > 300000) return 0;
    double *k = read(c, x, "k", r->Hkv, r->Skv, dk), *v = read(c, x, "v", r->Hkv, r->Skv, r->Dv);
    dequantise(c, x, "k_scale", k, dk);
    dequantise(c, x, "v_scale", v, r->Dv);
    r->Q = read(c, x, "q", r->Hq, r->Sq, r->D), r->K = k, r->V = v;
    r->scale = p->score.scale_kind == ATTN_SCALE_VALUE       ? p->score.scale
               : p->score.kind == ATTN_SCORE_DOT && r->D > 0 ? 1 / sqrt((double)r->D)
                                                             : 1;
    r->scale_of_head = read(c, x, "scale", r->Hq, 1, 1);
    r->temperature = p->score.temperature, r->softcap = p->score.softcap;
    r->bias = read(c, x, "bias", r->Hq, r->Sq, r->Skv);
    r->slopes = read(c, x, "alibi_slopes", r->Hq, 1, 1);
    r->sink = read(c, x, "sink", r->Hq, 1, 1);
    r->normaliser = (ref_normaliser)p->score.normaliser, r->shift = p->score.shift;
    r->kind = (ref_kind)p->score.kind;
    if (c->call.modify_scores) r->modify = modified, r->modify_context = x;
    if (tensor(c, "score_matrix")) {
        const block *w = tensor(c, "score_matrix");
        r->W = read(c, x, "score_matrix", r->Hq, w->shape[2], w->shape[3]), r->W_of_each_head = 1;
        r->R = p->score.kind == ATTN_SCORE_GENERAL ? 0 : w->shape[2];
        r->Dk = p->score.kind == ATTN_SCORE_GENERAL ? dk : 0;
    }
    r->relative_of_each_head = 1, r->relative_first = p->relative.first, r->relative_rows = p->relative.rows;
    r->relative_keys = read(c, x, "relative_keys", r->Hq, p->relative.rows, r->D);
    r->relative_values = read(c, x, "relative_values", r->Hq, p->relative.rows, r->Dv);
    r->relative_u = read(c, x, "relative_u", r->Hq, 1, r->D), r->relative_v = read(c, x, "relative_v", r->Hq, 1, r->D);
    if (tensor(c, "bias_table")) {
        r->buckets = tensor(c, "bias_table")->shape[2], r->bias_table_of_each_head = 1;
        r->bias_table = read(c, x, "bias_table", r->Hq, r->buckets, 1);
        r->bucket_rule = p->bias_table.kind == ATTN_DISTANCE_CLIPPED ? REF_CLIPPED : p->bias_table.causal ? REF_T5_CAUSAL : REF_T5;
        r->reach = p->bias_table.max_distance ? p->bias_table.max_distance : 128;
    }
    if (p->dropout.probability > 0 || tensor(c, "dropout_given")) {
        const int64_t heads = c->call.origin && c->origin.heads ? c->origin.heads : r->Hq;
        double *given = read(c, x, "dropout_given", r->Hq, r->Sq, r->Skv), *z = array(x, r->Hq * r->Sq * r->Skv, sizeof *z);
        r->Z = z;
        for (int64_t h = 0; h < r->Hq; h++)
            for (int64_t i = 0; i < r->Sq; i++)
                for (int64_t j = 0; j < r->Skv; j++, z++) {
                    const int64_t head =
                        (x->e + (c->call.origin ? c->origin.batch : 0)) * heads + h + (c->call.origin ? c->origin.head : 0);
                    const int kept = given ? given[(h * r->Sq + i) * r->Skv + j] != 0
                                           : ref_dropout_keeps(c->call.dropout_seed, c->call.dropout_offset, head, i + x->q,
                                                               j + x->kv, p->dropout.probability);
                    *z = kept ? 1 / (1 - p->dropout.probability) : 0;
                }
    }
    return 1;
}

/* ---- checks ---- */

static double unit_of(attn_dtype t)
{
    return t == ATTN_F64 ? DBL_EPSILON / 2 : t == ATTN_F16 ? 0x1p-11 : t == ATTN_BF16 ? 0x1p-8 : (double)FLT_EPSILON / 2;
}

static double largest_of(attn_dtype t) { return t == ATTN_F64 ? DBL_MAX : t == ATTN_F16 ? 65504 : (double)FLT_MAX; }

/* The absolute rounding error of storing an arbitrarily small number. */
static double smallest_of(attn_dtype t) { return t == ATTN_F16 ? 0x1p-24 : t == ATTN_F64 ? 0x1p-1020 : 0x1p-126; }

static void check_output(const api_case *c, const entry *x, const char *name, int64_t heads, int64_t tokens, int64_t channels,
                         const double *exact, const double *bound)
{
    const block *b = tensor(c, name);
    if (!b) return;
    const int t = case_find(c, name), packed = case_is_packed(c, t), side = c->about[t].axes[2] == ATTN_AXIS_KEY;
    const double small = smallest_of(b->dtype);
    for (int64_t at = 0; at < heads * tokens * channels; at++) {
        const int64_t h = at / channels / tokens, i = at / channels % tokens, k = at % channels;
        const double got = block_get(b, packed ? 0 : x->e, h, i + (packed ? x->first[side] : 0), k);
        const double most = bound[at] + unit_of(b->dtype) * (fabs(exact[at]) + bound[at]) + small;
        if (!isfinite(most) || fabs(exact[at]) + most > largest_of(b->dtype)) {
            if (isnan(exact[at]) || isnan(bound[at]) || !isinf(exact[at]) || got == exact[at]) continue;
            if (isfinite(bound[at]) && isinf(exact[at]))
                finding("ref: %s[%lld,%lld,%lld,%lld] is %.9g, should be %.9g", name, (long long)x->e, (long long)h, (long long)i,
                        (long long)k, got, exact[at]);
            continue;
        }
        if (!(fabs(got - exact[at]) <= most))
            finding("ref: %s[%lld,%lld,%lld,%lld] is %.9g, should be %.9g, off by %.3g, bound %.3g", name, (long long)x->e,
                    (long long)h, (long long)i, (long long)k, got, exact[at], fabs(got - exact[at]), most);
    }
}

static void check_forward(const api_case *c, entry *x, const ref_arithmetic *a)
{
    const ref_problem *r = &x->p;
    const int64_t rows = r->Hq * r->Sq;
    double *o = array(x, rows * r->Dv, sizeof *o), *lse = array(x, rows, sizeof *lse), *s = array(x, rows * r->Skv, sizeof *s),
           *w = array(x, rows * r->Skv, sizeof *w);
    ref_bounds bounds;
    ref_forward(r, o, lse, s, w);
    ref_arithmetic with = *a;
    const attn_dtype keys = tensor(c, "k")->dtype;
    with.integer_keys = keys == ATTN_I8 || format_is_blocks(keys);
    if (tensor(c, "v")->dtype == ATTN_I8) with.value_scale = read(c, x, "v_scale", r->Hkv, r->Skv, 1);
    if (!ref_bound_forward(&bounds, r, &with)) abort();
    check_output(c, x, "o", r->Hq, r->Sq, r->Dv, o, bounds.O);
    check_output(c, x, "lse", r->Hq, r->Sq, 1, lse, bounds.lse);
    ref_bounds_free(&bounds);
}

/* Only the gradients of q, k and v are checked: they have no sums over the batch. */
static void check_backward(const api_case *c, entry *x, const ref_arithmetic *a)
{
    const ref_problem *r = &x->p;
    const int64_t rows = r->Hq * r->Sq, keys = r->Hkv * r->Skv, dk = c->problem.score.dim_k ? c->problem.score.dim_k : r->D;
    const int64_t tables = r->Hq * r->relative_rows;
    const double *w_rows = r->W;
    const block *w = tensor(c, "score_matrix");
    ref_gradients g = {.dO = read(c, x, "grad_o", r->Hq, r->Sq, r->Dv), .dlse = read(c, x, "grad_lse", r->Hq, r->Sq, 1)};
    g.dQ = array(x, rows * r->D, sizeof(double)), g.dK = array(x, keys * dk, sizeof(double));
    g.dV = array(x, keys * r->Dv, sizeof(double)), g.P = array(x, rows * r->Skv, sizeof(double));
    g.dS = array(x, rows * r->Skv, sizeof(double)), g.dscale = array(x, r->Hq, sizeof(double));
    g.dslopes = array(x, r->Hq, sizeof(double)), g.dsink = array(x, r->Hq, sizeof(double));
    if (w_rows) g.dW = array(x, r->Hq * w->shape[2] * w->shape[3], sizeof(double));
    if (r->relative_keys) g.drelative_keys = array(x, tables * r->D, sizeof(double));
    if (r->relative_values) g.drelative_values = array(x, tables * r->Dv, sizeof(double));
    if (r->relative_u) g.drelative_u = array(x, r->Hq * r->D, sizeof(double));
    if (r->relative_v) g.drelative_v = array(x, r->Hq * r->D, sizeof(double));
    if (r->bias_table) g.dbias_table = array(x, r->Hq * r->buckets, sizeof(double));
    double *lost = array(x, rows * r->Dv, sizeof *lost), *lse = array(x, rows, sizeof *lse),
           *s = array(x, rows * r->Skv, sizeof *s);
    ref_forward(r, lost, lse, s, g.P);
    for (int64_t i = 0; i < rows * r->Dv; i++)
        if (!(fabs(lost[i]) < largest_of(tensor(c, "o")->dtype))) return; /* an infinity was stored */
    for (int64_t i = 0; i < rows * r->Dv; i++)
        lost[i] = fabs(lost[i]) * unit_of(tensor(c, "o")->dtype) + smallest_of(tensor(c, "o")->dtype);
    ref_arithmetic with = *a;
    with.O_lost = lost;
    const ref_gradgrad flows = {.dO = g.dO, .dlse = g.dlse};
    ref_bounds bounds;
    ref_backward(r, &g);
    if (!ref_bound_backward(&bounds, r, &flows, &with)) abort();
    check_output(c, x, "grad_q", r->Hq, r->Sq, r->D, g.dQ, bounds.Q);
    check_output(c, x, "grad_k", r->Hkv, r->Skv, dk, g.dK, bounds.K);
    check_output(c, x, "grad_v", r->Hkv, r->Skv, r->Dv, g.dV, bounds.V);
    ref_bounds_free(&bounds);
}

int case_reference(api_case *c)
{
    if (c->problem.op > ATTN_BACKWARD) return 0;
    const int wide = c->tensors.q.dtype == ATTN_F64;
    const ref_arithmetic a = {.unit = unit_of(wide ? ATTN_F64 : ATTN_F32),
                              .normal = wide ? DBL_MIN : (double)FLT_MIN,
                              .denormal = wide ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN,
                              .flushed = wide ? DBL_MIN : (double)FLT_MIN,
                              .modifier_curvature = 1,
                              .modifier_shift = 1};
    for (int64_t e = 0; e < c->problem.shape.batch; e++) {
        entry x;
        if (entry_masks(c, &x, e) && entry_scores(c, &x))
            (c->problem.op == ATTN_FORWARD ? check_forward : check_backward)(c, &x, &a);
        entry_free(&x);
    }
    return 1;
}
