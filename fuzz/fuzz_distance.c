/* SPDX-License-Identifier: MIT
 *
 * fuzz_distance.c - fuzzes biases by distance (target.h; calls.h): ALiBi slopes, buckets, table biases and their gradient, gates of
 * biases by queries and their gradients; each against its definition in double. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/position.h"
#include "calls.h"

const char *const target_cases = "calls with distances";

enum { SLOPES, FILL, FILL_BACKWARD, GATE, GATE_BACKWARD, KINDS };
/* FROM and TO are the table or bias that is read and written; a gate's blocks are in the order of its slots. */
enum { FROM, TO, Q, W, B, A, GATES, GRAD_GATES, GRAD_Q, GRAD_W, GRAD_B, GRAD_A, BLOCKS };
enum { SLOTS = BLOCKS - Q, WIDE = 40 };

static struct {
    draws *from;
    int kind, special;
    int64_t heads;
    attn_distance_bias rule, drawn_rule;
    attn_bias_gate gate, drawn_gate;
    attn_bias_gate_tensors tensors;
    block blocks[BLOCKS];
    attn_input read;
    attn_output written;
} c;

void target_print(void)
{
    const attn_distance_bias *r = &c.rule;
    fprintf(stderr,
            "kind %d heads %" PRId64 " of %d buckets %" PRId64 " most %" PRId64 " causal %d  %" PRId64 " x %" PRId64
            " from %" PRId64 "  gate of %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " width %" PRId64 "\n",
            c.kind, c.heads, (int)r->kind, r->buckets, r->max_distance, r->causal, r->len_q, r->len_kv, r->offset_q, c.gate.batch,
            c.gate.heads, c.gate.len_q, c.gate.dim, c.gate.width);
    blocks_print(c.blocks, BLOCKS);
}

static attn_status call(attn_error *error)
{
    switch (c.kind) {
    case SLOPES:
        return attn_alibi_slopes(c.heads, &c.written, error);
    case FILL:
        return attn_distance_bias_fill(&c.rule, &c.read, &c.written, error);
    case FILL_BACKWARD:
        return attn_distance_bias_backward(&c.rule, &c.read, &c.written, error);
    case GATE:
        return attn_bias_gate_forward(&c.gate, &c.tensors, error);
    default:
        return attn_bias_gate_backward(&c.gate, &c.tensors, error);
    }
}

static attn_output *slot_of(int at)
{
    return (attn_output *)(void *)((char *)&c.tensors + offsetof(attn_bias_gate_tensors, q)) + (at - Q);
}

static void place(void)
{
    c.rule = c.drawn_rule, c.gate = c.drawn_gate, c.heads = c.blocks[TO].shape[1];
    c.read = block_in(&c.blocks[FROM]), c.written = block_out(&c.blocks[TO]);
    c.tensors = (attn_bias_gate_tensors){.struct_size = sizeof c.tensors};
    for (int at = Q; at < BLOCKS; at++) {
        const attn_output slot = block_out(&c.blocks[at]);
        memcpy(slot_of(at), &slot, sizeof slot);
    }
}

static const calls all = {c.blocks, BLOCKS, call, place};

/* ---- drawing ---- */

static void make(int at, const char *name, int output, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    const attn_dtype dtype = draw_one_in(c.from, 2) ? ATTN_F64 : ATTN_F32;
    calls_make(&c.blocks[at], c.from, block_of(name, dtype, output, i0, i1, i2, i3), CALLS_ANY);
    if (!output) block_fill(&c.blocks[at], c.from, -2, 2, c.special);
}

static void draw_distance(void)
{
    draws *d = c.from;
    attn_distance_bias *r = &c.drawn_rule;
    *r = (attn_distance_bias){.struct_size = sizeof *r, .kind = (attn_distance_kind)draw_below(d, 2)};
    r->heads = draw_below(d, 4), r->len_q = draw_below(d, 24), r->len_kv = draw_below(d, 24);
    r->offset_q = draw_one_in(d, 3) ? draw_below(d, 61) - 30 : 0;
    if (r->kind == ATTN_DISTANCE_CLIPPED) {
        r->max_distance = draw_below(d, 20);
        if (draw_one_in(d, 2)) r->buckets = 2 * r->max_distance + 1;
    } else {
        r->causal = draw_one_in(d, 2);
        if (draw_one_in(d, 2)) r->buckets = 2 * (2 + draw_below(d, 40)) + (r->causal ? draw_below(d, 2) : 0);
        if (draw_one_in(d, 2)) r->max_distance = r->buckets + 1 + draw_below(d, 200);
        if (r->buckets > 100) r->max_distance = r->buckets + 50;
        if (!r->buckets && r->max_distance && r->max_distance < 33) r->max_distance = 33;
    }
    const int64_t buckets = attn_distance_buckets(r);
    if (buckets < 0) finding("a valid rule has no buckets");
    const int back = c.kind == FILL_BACKWARD;
    make(back ? TO : FROM, back ? "grad_table" : "table", back, 1, r->heads, buckets, 1);
    make(back ? FROM : TO, back ? "grad_bias" : "bias", !back, 1, r->heads, r->len_q, r->len_kv);
}

static void draw_gate(void)
{
    draws *d = c.from;
    attn_bias_gate *g = &c.drawn_gate;
    *g = (attn_bias_gate){.struct_size = sizeof *g};
    g->batch = draw_below(d, 4), g->heads = draw_below(d, 4), g->len_q = draw_below(d, 6);
    g->dim = draw_below(d, WIDE), g->width = draw_below(d, 6);
    const int back = c.kind == GATE_BACKWARD;
    make(Q, "q", 0, g->batch, g->heads, g->len_q, g->dim), make(W, "w", 0, 1, 1, g->dim, 2 * g->width);
    make(B, "b", 0, 1, 1, 1, 2 * g->width), make(A, "a", 0, 1, g->heads, 1, 1);
    make(back ? GRAD_GATES : GATES, back ? "grad_gates" : "gates", !back, g->batch, g->heads, g->len_q, 1);
    if (!back) return;
    if (!draw_one_in(d, 4)) make(GRAD_Q, "grad_q", 1, g->batch, g->heads, g->len_q, g->dim);
    if (!draw_one_in(d, 4)) make(GRAD_W, "grad_w", 1, 1, 1, g->dim, 2 * g->width);
    if (!draw_one_in(d, 4)) make(GRAD_B, "grad_b", 1, 1, 1, 1, 2 * g->width);
    if (!draw_one_in(d, 4)) make(GRAD_A, "grad_a", 1, 1, g->heads, 1, 1);
}

static void draw_case(void)
{
    c.kind = (int)draw_below(c.from, KINDS), c.special = draw_one_in(c.from, 8);
    if (c.kind == SLOPES) make(TO, "slopes", 1, 1, draw_below(c.from, 70), 1, 1);
    else if (c.kind <= FILL_BACKWARD) draw_distance();
    else draw_gate();
    place();
}

/* ---- expected results ---- */

static int64_t bucket_of(int64_t d)
{
    const attn_distance_bias *r = &c.rule;
    if (r->kind == ATTN_DISTANCE_CLIPPED)
        return (d > r->max_distance ? r->max_distance : d < -r->max_distance ? -r->max_distance : d) + r->max_distance;
    const int64_t buckets = r->buckets ? r->buckets : 32, most = r->max_distance ? r->max_distance : 128;
    const int64_t own = r->causal ? buckets : buckets / 2, exact = own / 2, side = !r->causal && d < 0 ? own : 0;
    const int64_t n = r->causal ? (d > 0 ? d : 0) : llabs(d);
    if (n < exact) return side + n;
    const double bucket = floor(log((double)n / (double)exact) / log((double)most / (double)exact) * (double)(own - exact));
    return side + (bucket < (double)(own - 1 - exact) ? exact + (int64_t)bucket : own - 1);
}

/* Whether the logarithm is so near an integer that rounding decides the bucket. */
static int near_a_step(int64_t d)
{
    const attn_distance_bias *r = &c.rule;
    const int64_t buckets = r->buckets ? r->buckets : 32, most = r->max_distance ? r->max_distance : 128;
    const int64_t own = r->causal ? buckets : buckets / 2, exact = own / 2;
    if (r->kind == ATTN_DISTANCE_CLIPPED || llabs(d) < exact || exact == 0) return 0;
    const double at = log((double)llabs(d) / (double)exact) / log((double)most / (double)exact) * (double)(own - exact);
    return fabs(at - nearbyint(at)) < 1e-9;
}

static void by_distance(void)
{
    const attn_distance_bias *r = &c.rule;
    const int64_t buckets = attn_distance_buckets(r);
    for (int64_t d = -40; d <= 40; d++) {
        const int64_t got = attn_distance_bucket(r, d), exact = bucket_of(d);
        if (got < 0 || got >= buckets)
            finding("distance %lld has bucket %lld of %lld", (long long)d, (long long)got, (long long)buckets);
        if (got != exact && !near_a_step(d))
            finding("distance %lld has bucket %lld, not %lld", (long long)d, (long long)got, (long long)exact);
    }
    const int64_t bucket = attn_distance_bucket(r, draw_hostile(c.from));
    if (bucket < 0 || bucket >= buckets)
        finding("an extreme distance has bucket %lld of %lld", (long long)bucket, (long long)buckets);
    for (int64_t h = 0; h < r->heads; h++) {
        double sums[256] = {0}, sizes[256] = {0};
        for (int64_t i = 0; i < r->len_q; i++)
            for (int64_t j = 0; j < r->len_kv; j++) {
                const int64_t n = attn_distance_bucket(r, i + r->offset_q - j);
                if (c.kind == FILL) {
                    const double x = block_get(&c.blocks[FROM], 0, h, n, 0);
                    if (fabs(x) < 1e30) block_check(&c.blocks[TO], 0, h, i, j, x, 0);
                } else {
                    const double x = block_get(&c.blocks[FROM], 0, h, i, j);
                    sums[n] += x, sizes[n] += fabs(x);
                }
            }
        for (int64_t n = 0; c.kind == FILL_BACKWARD && n < buckets; n++)
            if (sizes[n] < 1e30) block_check(&c.blocks[TO], 0, h, n, 0, sums[n], 1024 * 0x1p-53 * sizes[n]);
    }
}

static void by_slopes(void)
{
    int64_t power = 1;
    while (power * 2 <= c.heads) power *= 2;
    for (int64_t h = 0; h < c.heads; h++) {
        const double step = h < power ? (double)(h + 1) / (double)power : ((double)(h - power) + 0.5) / (double)power;
        block_check(&c.blocks[TO], 0, h, 0, 0, pow(2, -8 * step), 0x1p-50);
    }
}

/* For each query: u and r with the error bound of z, then the contribution to each gradient. */
static void by_gate(void)
{
    const attn_bias_gate *g = &c.gate;
    double dw[2][WIDE] = {{0}}, size_w[2][WIDE] = {{0}}, db[2] = {0}, size_b[2] = {0}, da[4] = {0}, size_a[4] = {0};
    const double many = 64 * 0x1p-53 * (double)(1 + g->dim) * (double)(1 + g->width);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t h = 0; h < g->heads; h++)
            for (int64_t i = 0; i < g->len_q; i++) {
                double half[2], off[2], dz[2];
                for (int part = 0; part < 2; part++) {
                    double z = 0, size = 1;
                    for (int64_t k = part * g->width; k < (part + 1) * g->width; k++) {
                        z += block_get(&c.blocks[B], 0, 0, 0, k), size += fabs(block_get(&c.blocks[B], 0, 0, 0, k));
                        for (int64_t x = 0; x < g->dim; x++) {
                            const double term = block_get(&c.blocks[Q], b, h, i, x) * block_get(&c.blocks[W], 0, 0, x, k);
                            z += term, size += fabs(term);
                        }
                    }
                    half[part] = 1 / (1 + exp(-z)), off[part] = many * size;
                }
                const double a = block_get(&c.blocks[A], 0, h, 0, 0), u = half[0], r = half[1], least = off[0] + off[1];
                if (c.blocks[GATES].name) block_check(&c.blocks[GATES], b, h, i, 0, u * (r * a - 1) + 2, least * (2 + fabs(a)));
                if (!c.blocks[GRAD_GATES].name) continue;
                const double grad = block_get(&c.blocks[GRAD_GATES], b, h, i, 0),
                             size = fabs(grad) * (1 + fabs(a)) * (least + many);
                dz[0] = grad * (r * a - 1) * u * (1 - u), dz[1] = grad * u * a * r * (1 - r);
                da[h] += grad * u * r, size_a[h] += size;
                for (int64_t x = 0; x < g->dim; x++) {
                    const double q = block_get(&c.blocks[Q], b, h, i, x);
                    double dq = 0, size_q = 0;
                    for (int64_t k = 0; k < 2 * g->width; k++) {
                        const double w = block_get(&c.blocks[W], 0, 0, x, k);
                        dq += dz[k >= g->width] * w, size_q += size * fabs(w);
                    }
                    if (c.blocks[GRAD_Q].name) block_check(&c.blocks[GRAD_Q], b, h, i, x, dq, 4 * size_q);
                    for (int part = 0; part < 2; part++) dw[part][x] += dz[part] * q, size_w[part][x] += size * fabs(q);
                }
                for (int part = 0; part < 2; part++) db[part] += dz[part], size_b[part] += size;
            }
    for (int64_t k = 0; c.kind == GATE_BACKWARD && k < 2 * g->width; k++) {
        const int part = k >= g->width;
        block_check(&c.blocks[GRAD_B], 0, 0, 0, k, db[part], 4 * size_b[part]);
        for (int64_t x = 0; x < g->dim; x++) block_check(&c.blocks[GRAD_W], 0, 0, x, k, dw[part][x], 4 * size_w[part][x]);
    }
    for (int64_t h = 0; c.kind == GATE_BACKWARD && h < g->heads; h++)
        block_check(&c.blocks[GRAD_A], 0, h, 0, 0, da[h], 4 * size_a[h]);
}

/* ---- invalid calls ---- */

static const char *corrupt_rule(void)
{
    draws *d = c.from;
    attn_distance_bias *r = &c.rule;
    switch (draw_below(d, 5)) {
    case 0:
        r->kind = (attn_distance_kind)(2 + draw_below(d, 9));
        return "an unknown kind";
    case 1:
        r->struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    case 2:
        *(draw_one_in(d, 2) ? &r->buckets : &r->max_distance) = -1 - draw_below(d, 9);
        return "a negative number of buckets or maximum distance";
    case 3:
        r->offset_q = draw_one_in(d, 2) ? INT64_MAX : INT64_MIN;
        return "an offset beyond 2^60";
    default: {
        const int at = (int)draw_below(d, 3);
        int64_t *const size = at == 0 ? &r->heads : at == 1 ? &r->len_q : &r->len_kv;
        *size = calls_bad_size(d);
        if (*size < 0) return "a negative size";
        /* A bias with another size of 0 has no elements; a table still has some. */
        return at == 0 || (r->heads && (at == 1 ? r->len_kv : r->len_q)) ? "bytes that overflow 64 bits" : NULL;
    }
    }
}

static const char *corrupt_gate(void)
{
    draws *d = c.from;
    attn_bias_gate *g = &c.gate;
    int64_t *const sizes[] = {&g->batch, &g->heads, &g->len_q, &g->dim, &g->width};
    switch (draw_below(d, 3)) {
    case 0:
        g->struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    case 1:
        *sizes[draw_below(d, 5)] = -1 - draw_below(d, 9);
        return "a negative size";
    default:
        *sizes[draw_below(d, 5)] = calls_bad_size(d);
        for (int i = 0; i < 5; i++)
            if (*sizes[i] < 0) return "a negative size";
        if (g->heads > 100 || g->dim > 100 || g->width > 100) return "bytes that overflow 64 bits";
        return g->batch && g->heads && g->len_q ? "bytes that overflow 64 bits" : NULL;
    }
}

static void reject(void)
{
    draws *d = c.from;
    const char *must = NULL;
    const int at = Q + (int)draw_below(d, SLOTS);
    if (c.kind >= GATE) {
        must = draw_one_in(d, 3) ? corrupt_gate() : calls_corrupt(slot_of(at), &c.blocks[at], d, at < GRAD_Q, NULL);
        if (!must && !c.blocks[at].name && draw_one_in(d, 2)) {
            *slot_of(at) = (attn_output){c.blocks[Q].memory, ATTN_F64, {1, 1, 1, 1}};
            if (at == GATES || at == GRAD_GATES || c.kind == GATE) must = "an unused tensor";
            else memset(slot_of(at), 0, sizeof(attn_output));
        }
    } else if (c.kind != SLOPES && draw_one_in(d, 2)) {
        must = draw_one_in(d, 2) ? corrupt_rule() : calls_corrupt_input(&c.read, &c.blocks[FROM], d, 1);
    } else if (c.kind == SLOPES && draw_one_in(d, 3)) {
        c.heads = calls_bad_size(d);
        must = "an invalid number of heads";
    } else {
        must = calls_corrupt(&c.written, &c.blocks[TO], d, 1, c.blocks[FROM].name ? &c.blocks[FROM] : NULL);
    }
    calls_rejected(&all, must);
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    calls_first(&all);
    if (c.kind == SLOPES) by_slopes();
    else if (c.kind <= FILL_BACKWARD) by_distance();
    else if (!c.special) by_gate();
    calls_vary(&all, from, NULL, 0, reject);
    blocks_free(c.blocks, BLOCKS);
}
