/* SPDX-License-Identifier: MIT
 *
 * fuzz_position.c - fuzzes the functions of positions (target.h; calls.h): rotations and their frequencies, sinusoids, learned
 * tables with their gradient, and resized tables with theirs; each against its definition in double. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn/position.h"
#include "calls.h"

const char *const target_cases = "calls with positions";

enum { ROPE, FREQUENCIES, SINUSOIDAL, ADD, ADD_BACKWARD, RESIZE, RESIZE_BACKWARD, KINDS };
enum { X, Y, TABLE, POSITIONS, ANGLES, COSINES, SINES, MAGNITUDE, BLOCKS };

static struct {
    draws *from;
    int kind, no_slot; /* no_slot: absent positions are passed as NULL */
    int64_t shape[4], rows, rows_y;
    double base;
    attn_rope_pairs order;
    attn_rope rope;
    int table_slots; /* cosines and sines are slots */
    attn_rope_scaling scaling;
    block blocks[BLOCKS];
    /* The call's arguments; in ADD_BACKWARD the table's block is the output grad_table. */
    attn_input x, table, positions;
    attn_output y, grad_table;
    const int64_t *shape_at;
    const attn_input *x_at, *table_at;
    const attn_output *y_at, *grad_at;
    double *frequencies, *magnitude;
    int64_t drawn[6]; /* shape, rows and rows_y */
} c;

void target_print(void)
{
    fprintf(stderr,
            "kind %d shape %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " rows %" PRId64 " to %" PRId64
            " base %g order %d rotary %" PRId64 " stretch %g magnitude %g inverse %d scaling %d dim %" PRId64
            " factor %g lengths %" PRId64 " %" PRId64 " turns %g %g\n",
            c.kind, c.shape[0], c.shape[1], c.shape[2], c.shape[3], c.rows, c.rows_y, c.base, (int)c.order, c.rope.dim_rotary,
            c.rope.stretch, c.rope.magnitude, c.rope.inverse, (int)c.scaling.kind, c.scaling.dim, c.scaling.factor,
            c.scaling.original_length, c.scaling.length, c.scaling.fast, c.scaling.slow);
    blocks_print(c.blocks, BLOCKS);
}

static attn_status call(attn_error *error)
{
    const attn_input *const at = c.no_slot && !c.blocks[POSITIONS].name ? NULL : &c.positions;
    switch (c.kind) {
    case ROPE:
        return attn_rope_apply(&c.rope, c.shape_at, c.x_at, at, c.y_at, error);
    case FREQUENCIES:
        return attn_rope_frequencies(&c.scaling, c.frequencies, c.magnitude, error);
    case SINUSOIDAL:
        return attn_sinusoidal(c.order, c.shape[2], c.shape[3], c.base, at, c.y_at, error);
    case ADD:
        return attn_position_add(c.rows, c.shape_at, c.x_at, c.table_at, at, c.y_at, error);
    case ADD_BACKWARD:
        return attn_position_add_backward(c.rows, c.shape_at, c.x_at, at, c.grad_at, error);
    case RESIZE:
        return attn_position_resize(c.shape[3], c.rows, c.rows_y, c.x_at, c.y_at, error);
    default:
        return attn_position_resize_backward(c.shape[3], c.rows, c.rows_y, c.x_at, c.y_at, error);
    }
}

static void *numbers(int at) { return c.blocks[at].name ? c.blocks[at].memory + c.blocks[at].first : NULL; }

static void place(void)
{
    memcpy(c.shape, c.drawn, sizeof c.shape);
    c.rows = c.drawn[4], c.rows_y = c.drawn[5];
    c.x = block_in(&c.blocks[X]), c.y = block_out(&c.blocks[Y]);
    c.table = block_in(&c.blocks[TABLE]), c.grad_table = block_out(&c.blocks[TABLE]);
    c.positions = block_in(&c.blocks[POSITIONS]);
    c.shape_at = c.shape, c.x_at = &c.x, c.y_at = &c.y, c.table_at = &c.table, c.grad_at = &c.grad_table;
    c.rope.frequencies = c.kind == ROPE ? numbers(ANGLES) : NULL;
    c.frequencies = numbers(ANGLES), c.magnitude = numbers(MAGNITUDE);
    const block *cosines = &c.blocks[COSINES], *sines = &c.blocks[SINES];
    c.rope.cosines = c.table_slots ? NULL : numbers(COSINES), c.rope.sines = c.table_slots ? NULL : numbers(SINES);
    c.rope.cos_table = c.table_slots ? block_in(cosines) : (attn_input){.data = NULL};
    c.rope.sin_table = c.table_slots ? block_in(sines) : (attn_input){.data = NULL};
}

static const calls all = {c.blocks, BLOCKS, call, place};

/* ---- drawing ---- */

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

/* A table of rows, perhaps with gaps between them. */
static void make_table(int at, const char *name, attn_dtype dtype, int output, int64_t rows)
{
    block b = block_of(name, dtype, output, 1, 1, rows, c.shape[3]);
    b.stride[2] += draw_one_in(c.from, 2) ? draw_below(c.from, 6) : 0;
    calls_make(&c.blocks[at], c.from, b, CALLS_DENSE);
}

static void make_positions(int64_t low, int64_t most)
{
    block *b = &c.blocks[POSITIONS];
    const attn_dtype dtype = draw_one_in(c.from, 2) ? ATTN_I64 : ATTN_I32;
    calls_make(b, c.from, block_of("positions", dtype, 0, c.shape[0], 1, c.shape[2], 1), CALLS_ANY);
    if (b->memory) memset(b->memory, 0x3C, b->bytes); /* gaps, too, since a hash of all bytes is compared */
    for (int64_t i = 0; i < c.shape[0]; i++)
        for (int64_t t = 0; t < c.shape[2]; t++)
            block_put(b, i, 0, t, 0, (double)(most > low ? low + draw_below(c.from, most - low) : low));
}

static void make_doubles(int at, const char *name, int output, int64_t rows, int64_t columns)
{
    calls_make(&c.blocks[at], c.from, block_of(name, ATTN_F64, output, 1, 1, rows, columns), CALLS_DENSE);
    if (!output) block_fill(&c.blocks[at], c.from, -1, 1, 0);
}

static void draw_rope(void)
{
    draws *d = c.from;
    attn_rope *r = &c.rope;
    const int64_t dim = c.shape[3];
    *r = (attn_rope){.struct_size = sizeof *r, .pairs = (attn_rope_pairs)draw_below(d, 2), .inverse = draw_one_in(d, 3)};
    if (dim % 2 || draw_one_in(d, 3)) r->dim_rotary = dim / 2 ? 2 + 2 * draw_below(d, dim / 2) : 0;
    if (dim % 2 && !r->dim_rotary) c.shape[3] = c.drawn[3] = 0; /* a single channel has no pair */
    if (draw_one_in(d, 3)) r->base = draw_real(d, 1.5, 1e6);
    if (draw_one_in(d, 3)) r->stretch = draw_real(d, 0.1, 8);
    if (draw_one_in(d, 3)) r->magnitude = draw_real(d, 0.1, 2);
    const int64_t pairs = (r->dim_rotary ? r->dim_rotary : c.shape[3]) / 2;
    if (draw_one_in(d, 3)) make_doubles(ANGLES, "frequencies", 0, 1, pairs);
    if (draw_one_in(d, 3)) {
        r->table_rows = c.shape[2] + draw_below(d, 4);
        c.table_slots = draw_one_in(d, 2);
        for (int at = COSINES; at <= SINES; at++) {
            const attn_dtype type = c.table_slots ? types[draw_below(d, 4)] : ATTN_F64;
            const block b = block_of(at == COSINES ? "cosines" : "sines", type, 0, 1, 1, r->table_rows, pairs);
            calls_make(&c.blocks[at], d, b, c.table_slots ? CALLS_ANY : CALLS_DENSE);
            block_fill(&c.blocks[at], d, -1, 1, 0);
        }
        if (draw_one_in(d, 2) && r->table_rows) make_positions(0, r->table_rows);
    } else if (draw_one_in(d, 2)) {
        make_positions(-1000, 5000);
    }
}

static void draw_scaling(void)
{
    draws *d = c.from;
    attn_rope_scaling *s = &c.scaling;
    *s = (attn_rope_scaling){.struct_size = sizeof *s,
                             .kind = (attn_rope_scaling_kind)draw_below(d, 5),
                             .dim = 4 + 2 * draw_below(d, 70),
                             .factor = draw_real(d, 1, 40),
                             .original_length = 1 + draw_below(d, 9000),
                             .length = draw_below(d, 90000)};
    if (draw_one_in(d, 2)) s->base = draw_real(d, 1.1, 1e6);
    if (draw_one_in(d, 3)) s->slow = draw_real(d, 0.1, 3.9);
    if (draw_one_in(d, 3)) s->fast = s->slow + draw_real(d, 1.1, 40);
    make_doubles(ANGLES, "frequencies", 1, 1, s->dim / 2);
    if (draw_one_in(d, 2)) make_doubles(MAGNITUDE, "magnitude", 1, 1, 1);
}

static void draw_case(void)
{
    draws *d = c.from;
    const int special = draw_one_in(d, 8);
    const attn_dtype one = types[draw_below(d, 4)], other = draw_one_in(d, 2) ? one : types[draw_below(d, 4)];
    c.kind = (int)draw_below(d, KINDS), c.no_slot = draw_one_in(d, 2), c.order = (attn_rope_pairs)draw_below(d, 2);
    c.drawn[0] = draw_one_in(d, 12) ? 0 : 1 + draw_below(d, 3), c.drawn[1] = draw_one_in(d, 12) ? 0 : 1 + draw_below(d, 3);
    c.drawn[2] = draw_below(d, 20), c.drawn[3] = draw_one_in(d, 4) ? draw_below(d, 130) : draw_below(d, 18);
    if (c.kind == SINUSOIDAL) c.drawn[0] = c.drawn[1] = 1;
    c.drawn[4] = c.drawn[2] + draw_below(d, 6), c.drawn[5] = draw_below(d, 25);
    memcpy(c.shape, c.drawn, sizeof c.shape);
    c.rows = c.drawn[4], c.rows_y = c.drawn[5];
    if (draw_one_in(d, 3)) c.base = draw_real(d, 1.5, 1e6);
    const int64_t *s = c.shape;
    switch (c.kind) {
    case ROPE:
        draw_rope();
        break;
    case FREQUENCIES:
        draw_scaling();
        break;
    case SINUSOIDAL:
        make_table(Y, "table", one, 1, s[2]);
        if (draw_one_in(d, 2)) make_positions(-1000, 100000);
        break;
    case ADD:
    case ADD_BACKWARD:
        if (draw_one_in(d, 2) && c.rows) make_positions(0, c.rows);
        make_table(TABLE, c.kind == ADD ? "table" : "grad_table", other, c.kind == ADD_BACKWARD, c.rows);
        if (c.kind == ADD) block_fill(&c.blocks[TABLE], d, -2, 2, special);
        break;
    default: {
        const attn_dtype x = one == ATTN_F64 ? ATTN_F64 : ATTN_F32, y = other == ATTN_F64 ? ATTN_F64 : ATTN_F32;
        if (c.rows == 0) c.rows_y = c.drawn[5] = 0;
        const int back = c.kind == RESIZE_BACKWARD;
        calls_make(&c.blocks[X], d, block_of("x", x, 0, 1, 1, back ? c.rows_y : c.rows, s[3]), CALLS_ANY);
        calls_make(&c.blocks[Y], d, block_of("y", y, 1, 1, 1, back ? c.rows : c.rows_y, s[3]), CALLS_ANY);
        break;
    }
    }
    if (c.kind == ROPE || c.kind == ADD || c.kind == ADD_BACKWARD)
        calls_make(&c.blocks[X], d, block_of("x", one, 0, s[0], s[1], s[2], s[3]), CALLS_ROWS);
    if (c.kind == ROPE || c.kind == ADD) calls_make(&c.blocks[Y], d, block_of("y", other, 1, s[0], s[1], s[2], s[3]), CALLS_ROWS);
    if (c.blocks[X].name) block_fill(&c.blocks[X], d, -2, 2, special);
    place();
}

/* ---- expected results ---- */

static double position_of(int64_t b, int64_t t)
{
    return c.blocks[POSITIONS].name ? block_get(&c.blocks[POSITIONS], b, 0, t, 0) : (double)t;
}

/* One row of y: rotated pairs a c - b s, with an error bound of `off` for cosine and sine; the other channels are x. */
static void rope_row(int64_t b, int64_t h, int64_t t)
{
    const attn_rope *r = &c.rope;
    const int64_t dim = r->dim_rotary ? r->dim_rotary : c.shape[3], half = dim / 2;
    const double magnitude = r->magnitude > 0 ? r->magnitude : 1, base = r->base > 0 ? r->base : 10000;
    for (int64_t k = 0; k < c.shape[3]; k++) {
        const int halves = r->pairs == ATTN_ROPE_PAIRS_HALVES;
        const double x = block_get(&c.blocks[X], b, h, t, k);
        if (k >= dim) {
            block_check(&c.blocks[Y], b, h, t, k, x, 0);
            continue;
        }
        const int64_t i = halves ? k % half : k / 2;
        const int second = halves ? k >= half : (int)(k % 2);
        const double pair = block_get(&c.blocks[X], b, h, t, halves ? (second ? k - half : k + half) : k ^ 1),
                     p = position_of(b, t);
        const double frequency =
            c.blocks[ANGLES].name ? block_get(&c.blocks[ANGLES], 0, 0, 0, i) : pow(base, -2.0 * (double)i / (double)dim);
        const double angle = p / (r->stretch > 0 ? r->stretch : 1) * frequency;
        double cosine = magnitude * cos(angle), sine = magnitude * sin(angle), off = 8 * 0x1p-53 * (1 + fabs(angle)) * magnitude;
        if (c.blocks[COSINES].name) {
            cosine = block_get(&c.blocks[COSINES], 0, 0, (int64_t)p, i), sine = block_get(&c.blocks[SINES], 0, 0, (int64_t)p, i);
            off = 8 * 0x1p-53;
        }
        if (r->inverse) sine = -sine;
        const double exact = second ? pair * sine + x * cosine : x * cosine - pair * sine, size = fabs(x) + fabs(pair);
        if (isfinite(size) && size < 1e30) block_check(&c.blocks[Y], b, h, t, k, exact, off * size);
    }
}

static void by_scaling(void)
{
    const attn_rope_scaling *s = &c.scaling;
    const double base = s->base > 0 ? s->base : 10000, dim = (double)s->dim, two_pi = 2 * acos(-1);
    const double length = (double)s->original_length;
    const int llama = s->kind == ATTN_ROPE_SCALING_LLAMA3;
    const double fast = s->fast > 0 ? s->fast : llama ? 4 : 32, slow = s->slow > 0 ? s->slow : 1;
    for (int64_t i = 0; i < s->dim / 2; i++) {
        const double part = (double)i / dim;
        double f = pow(base, -2 * part);
        if (s->kind == ATTN_ROPE_SCALING_LINEAR) f /= s->factor;
        double stretch = s->kind == ATTN_ROPE_SCALING_NTK ? s->factor : 1;
        if (s->kind == ATTN_ROPE_SCALING_NTK_DYNAMIC && s->length > s->original_length)
            stretch = s->factor * (double)s->length / length - (s->factor - 1);
        f *= pow(stretch, -2 * (double)i / (dim - 2));
        if (s->kind == ATTN_ROPE_SCALING_YARN) {
            double a = fmax(floor(dim * log(length / (two_pi * fast)) / (2 * log(base))), 0);
            double b = fmin(ceil(dim * log(length / (two_pi * slow)) / (2 * log(base))), dim - 1);
            if (a == b) b += 0.001;
            const double r = fmin(fmax(((double)i - a) / (b - a), 0), 1);
            f = (1 - r) * f + r * f / s->factor;
        }
        if (llama) {
            const double keep = fmin(fmax((length * f / two_pi - slow) / (fast - slow), 0), 1);
            f = (1 - keep) * f / s->factor + keep * f;
        }
        block_check(&c.blocks[ANGLES], 0, 0, 0, i, f, 1e-12 * f * s->factor);
    }
    block_check(&c.blocks[MAGNITUDE], 0, 0, 0, 0, s->kind == ATTN_ROPE_SCALING_YARN ? 0.1 * log(s->factor) + 1 : 1, 1e-14);
}

static void by_resizing(void)
{
    const int back = c.kind == RESIZE_BACKWARD;
    for (int64_t k = 0; k < c.shape[3]; k++) {
        double sums[64] = {0}, sizes[64] = {0};
        int wild = 0;
        for (int64_t t = 0; t < c.rows_y; t++) {
            const double at = fmax(((double)t + 0.5) * (double)c.rows / (double)c.rows_y - 0.5, 0);
            const int64_t first = at < (double)c.rows - 1 ? (int64_t)at : c.rows - 1,
                          second = first + 1 < c.rows ? first + 1 : first;
            const double part = first == second ? 0 : at - (double)first;
            const double x = block_get(&c.blocks[X], 0, 0, back ? t : first, k),
                         z = block_get(&c.blocks[X], 0, 0, back ? t : second, k);
            wild |= !(fabs(x) < 1e30 && fabs(z) < 1e30);
            if (back) {
                sums[first] += (1 - part) * x, sums[second] += part * x;
                sizes[first] += fabs(x), sizes[second] += fabs(x);
            } else if (fabs(x) < 1e30 && fabs(z) < 1e30) {
                block_check(&c.blocks[Y], 0, 0, t, k, (1 - part) * x + part * z, 64 * 0x1p-53 * (1 + at) * (fabs(x) + fabs(z)));
            }
        }
        for (int64_t p = 0; back && !wild && p < c.rows; p++)
            block_check(&c.blocks[Y], 0, 0, p, k, sums[p], 64 * 0x1p-53 * (double)(c.rows_y + c.rows) * sizes[p]);
    }
}

static void by_definition(void)
{
    const int64_t *s = c.shape;
    double sums[32 * 130] = {0}, sizes[32 * 130] = {0};
    if (c.kind == FREQUENCIES) by_scaling();
    if (c.kind == RESIZE || c.kind == RESIZE_BACKWARD) by_resizing();
    if (c.kind == FREQUENCIES || c.kind >= RESIZE) return;
    for (int64_t b = 0; b < s[0]; b++)
        for (int64_t h = 0; h < s[1]; h++)
            for (int64_t t = 0; t < s[2]; t++) {
                const double p = position_of(b, t);
                if (c.kind == ROPE) rope_row(b, h, t);
                for (int64_t k = 0; c.kind != ROPE && k < s[3]; k++) {
                    const int64_t sines = (s[3] + 1) / 2, i = c.order ? k % (sines ? sines : 1) : k / 2;
                    const double angle = p * pow(c.base > 0 ? c.base : 10000, -2.0 * (double)i / (double)s[3]);
                    const int sine = c.order ? k < sines : k % 2 == 0;
                    if (c.kind == SINUSOIDAL)
                        block_check(&c.blocks[Y], b, h, t, k, sine ? sin(angle) : cos(angle), 8 * 0x1p-53 * (1 + fabs(angle)));
                    if (c.kind == ADD) {
                        const double x = block_get(&c.blocks[X], b, h, t, k),
                                     row = block_get(&c.blocks[TABLE], 0, 0, (int64_t)p, k);
                        if (fabs(x) < 1e30 && fabs(row) < 1e30) block_check(&c.blocks[Y], b, h, t, k, x + row, 0);
                    }
                    if (c.kind != ADD_BACKWARD) continue;
                    const double grad = block_get(&c.blocks[X], b, h, t, k);
                    sums[(int64_t)p * s[3] + k] += grad, sizes[(int64_t)p * s[3] + k] += fabs(grad);
                }
            }
    for (int64_t p = 0; c.kind == ADD_BACKWARD && p < c.rows; p++)
        for (int64_t k = 0; k < s[3]; k++)
            if (sizes[p * s[3] + k] < 1e30)
                block_check(&c.blocks[TABLE], 0, 0, p, k, sums[p * s[3] + k], 256 * 0x1p-53 * sizes[p * s[3] + k]);
}

/* ---- invalid calls ---- */

static const char *corrupt_rope(void)
{
    static const double bad[] = {-1, NAN, INFINITY, -INFINITY, -1e-300};
    attn_rope *r = &c.rope;
    draws *d = c.from;
    switch (draw_below(d, 6)) {
    case 0:
        *(draw_one_in(d, 3) ? &r->base : draw_one_in(d, 2) ? &r->stretch : &r->magnitude) = bad[draw_below(d, 5)];
        return "an invalid number";
    case 1:
        r->dim_rotary = draw_one_in(d, 2) ? c.shape[3] + 1 + draw_below(d, 5) : -1 - draw_below(d, 3);
        return "more rotated channels than channels, or a negative number";
    case 2:
        r->reserved[draw_below(d, 4)] = draw_hostile(d) | 1;
        return "a reserved word";
    case 3:
        if (!c.blocks[COSINES].name || !c.blocks[X].bytes) return NULL;
        r->table_rows = c.blocks[POSITIONS].name ? 0 : c.shape[2] - 1;
        return "tables that end before the tokens";
    case 4:
        if (!c.table_slots) return NULL;
        memset(draw_one_in(d, 2) ? &r->cos_table : &r->sin_table, 0, sizeof r->cos_table);
        return "one of two tables";
    default:
        r->struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    }
}

static const char *corrupt_scaling(void)
{
    static const double bad[] = {-1, NAN, INFINITY, -INFINITY, 0.5};
    attn_rope_scaling *s = &c.scaling;
    draws *d = c.from;
    switch (draw_below(d, 5)) {
    case 0:
        *(draw_one_in(d, 2) ? &s->base : &s->factor) = bad[draw_below(d, 5)];
        return "an invalid number";
    case 1:
        s->dim = draw_one_in(d, 2) ? 2 * draw_below(d, 100) + 1 : calls_bad_size(d);
        return "an invalid dim";
    case 2:
        s->fast = draw_one_in(d, 2) ? draw_real(d, 0.1, 0.9) : 0;
        s->slow = s->fast > 0 && draw_one_in(d, 2) ? 0 : 50;
        return s->kind >= ATTN_ROPE_SCALING_YARN ? "fast turns not above the slow ones" : NULL;
    case 3:
        s->original_length = draw_one_in(d, 2) ? 0 : calls_bad_size(d);
        return s->original_length <= 0 && s->kind >= ATTN_ROPE_SCALING_NTK_DYNAMIC ? "no original length" : NULL;
    default:
        s->struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    }
}

/* The library cannot know that a size exceeds the memory, so only sizes that it must reject, unless there is nothing to do. */
static const char *corrupt_size(void)
{
    draws *d = c.from;
    const int at = (int)draw_below(d, 6);
    int64_t *const sizes[] = {&c.shape[0], &c.shape[1], &c.shape[2], &c.shape[3], &c.rows, &c.rows_y};
    const int read[KINDS] = {0xF, 0, 0xC, 0x1F, 0x1F, 0x38, 0x38};
    if (!(read[c.kind] >> at & 1)) return NULL;
    *sizes[at] = calls_bad_size(d);
    if (*sizes[at] < 0) return "a negative size";
    for (int i = 0; i < 6; i++)
        if (i != at && (read[c.kind] >> i & 1) && *sizes[i] == 0) return NULL; /* no elements */
    return "bytes that overflow 64 bits";
}

/* If there is nothing to do, these functions do not require the tensor. */
static int needed(int at) { return c.blocks[at].bytes > 0 || c.kind >= RESIZE; }

/* Sets one of the pointer arguments to NULL. */
static const char *corrupt_pointer(void)
{
    const int64_t at = draw_below(c.from, 3);
    if (c.kind == FREQUENCIES) c.frequencies = NULL;
    else if (at == 0 && c.kind != SINUSOIDAL) c.x_at = NULL;
    else if (at == 1 && c.kind != SINUSOIDAL && c.kind < RESIZE) c.shape_at = NULL;
    else if (at == 2 && c.kind == ADD) c.table_at = NULL;
    else if (c.kind == ADD_BACKWARD) c.grad_at = NULL;
    else c.y_at = NULL;
    return "NULL";
}

static void reject(void)
{
    draws *d = c.from;
    const attn_rope rope = c.rope;
    const attn_rope_scaling scaling = c.scaling;
    const char *must = NULL;
    switch (draw_below(d, 7)) {
    case 0:
        must = c.kind == ROPE ? corrupt_rope() : c.kind == FREQUENCIES ? corrupt_scaling() : corrupt_size();
        break;
    case 1:
        must = corrupt_size();
        break;
    case 2:
        must = calls_corrupt_input(&c.x, &c.blocks[X], d, needed(X));
        break;
    case 3:
        if (c.kind == ADD) must = calls_corrupt_input(&c.table, &c.blocks[TABLE], d, needed(TABLE));
        if (c.kind == ADD_BACKWARD) must = calls_corrupt(&c.grad_table, &c.blocks[TABLE], d, needed(TABLE), NULL);
        if (c.positions.data && c.kind >= ADD && c.blocks[X].bytes && draw_one_in(d, 2)) {
            block_put(&c.blocks[POSITIONS], 0, 0, 0, 0, draw_one_in(d, 2) ? -1 : (double)c.rows);
            must = "a position outside the table";
        }
        break;
    case 4:
        must = corrupt_pointer();
        break;
    case 5:
        must = calls_corrupt_input(&c.positions, &c.blocks[POSITIONS], d, 0);
        break;
    default: {
        const block *x = &c.blocks[X], *y = &c.blocks[Y];
        int same = x->dtype == y->dtype; /* y may be x with the same strides */
        for (int k = 0; k < 4; k++) same &= y->shape[k] < 2 || x->stride[k] == y->stride[k];
        must = calls_corrupt(&c.y, &c.blocks[Y], d, needed(Y), x->name && !same ? x : &c.blocks[POSITIONS]);
    }
    }
    calls_rejected(&all, must);
    c.rope = rope, c.scaling = scaling;
    place();
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    calls_first(&all);
    by_definition();
    calls_vary(&all, from, NULL, 0, reject);
    blocks_free(c.blocks, BLOCKS);
}
