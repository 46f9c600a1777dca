/* SPDX-License-Identifier: MIT
 *
 * transfer_step.inc.c - angles of rotary positions, and rows rotated, converted and quantised.  Included by transfer.inc.c.
 */
#ifdef VF_LANES

/* ---- angles ---- */

/* pi/2 in three parts; the first two have 33 bits, so that their products with turns below 2^20 are exact. */
static const double quarter[3] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};
static const double largest_angle = 1e6; /* beyond, and for what is not finite, libm */

/* sin r = r + r^3 S(r^2) and cos r = 1 - r^2/2 + r^4 C(r^2) for |r| up to pi/4: minimax polynomials, errors 2e-17 and 1.3e-18. */
static const double sine_terms[6] = {-0x1.5555555555555p-3, 0x1.1111111110bb2p-7,   -0x1.a01a019e838ffp-13,
                                     0x1.71de37965e0b7p-19, -0x1.ae600acd76998p-26, 0x1.5e0b04a9f3426p-33};
static const double cosine_terms[6] = {0x1.5555555555555p-5,   -0x1.6c16c16c16967p-10, 0x1.a01a019f4e9f7p-16,
                                       -0x1.27e4fa17c075ep-22, 0x1.1eeb68cb4bc68p-29,  -0x1.907d8bf22de24p-37};

/* To the nearest integer, for |x| below 2^51. */
VF_INLINE vf to_integer(vf x)
{
    const vf shift = vf_set(0x1.8p52);
    return vf_sub(vf_add(x, shift), shift);
}

VF_INLINE vf polynomial(const double *terms, vf z)
{
    vf sum = vf_set(terms[5]);
    VF_UNROLL
    for (int i = 4; i >= 0; i--) sum = vf_add(vf_mul(sum, z), vf_set(terms[i]));
    return sum;
}

/* Of angles up to largest_angle. */
VF_INLINE void cosine_and_sine(vf a, vf *cosine, vf *sine)
{
    const vf one = vf_set(1), turns = to_integer(vf_mul(a, vf_set(0x1.45f306dc9c883p-1))); /* quarter turns */
    vf r = a;
    VF_UNROLL
    for (int i = 0; i < 3; i++) r = vf_sub(r, vf_mul(turns, vf_set(quarter[i])));
    const vf z = vf_mul(r, r), s = vf_add(r, vf_mul(vf_mul(r, z), polynomial(sine_terms, z))),
             c = vf_add(vf_sub(one, vf_mul(vf_set(0.5), z)), vf_mul(vf_mul(z, z), polynomial(cosine_terms, z)));
    /* The quadrant, from -2 to 2: quarter turns exchange the two, and negate one or both. */
    const vf q = vf_sub(turns, vf_mul(vf_set(4), to_integer(vf_mul(vf_set(0.25), turns)))), square = vf_mul(q, q);
    const vm odd = vf_eq(square, one), half = vf_eq(square, vf_set(4));
    const vf C = vf_select(odd, s, c), S = vf_select(odd, c, s);
    *cosine = vf_select(vm_or(vf_eq(q, one), half), vf_sub(vf_zero(), C), C);
    *sine = vf_select(vm_or(vf_eq(q, vf_set(-1)), half), vf_sub(vf_zero(), S), S);
}

static void step_angles(int64_t pairs, double position, const double *frequencies, double magnitude, double *cosines, double *sines)
{
    const vf at = vf_set(position), factor = vf_set(magnitude), largest = vf_set(largest_angle);
    for (int64_t i = 0; i < pairs; i += VF_LANES) {
        const int64_t count = least(pairs - i, VF_LANES);
        const vf a = vf_mul(at, load_some(ATTN_F64, frequencies, i, count)), size = vf_max(a, vf_sub(vf_zero(), a));
        vf c, s;
        cosine_and_sine(a, &c, &s);
        store_some(ATTN_F64, cosines, i, vf_mul(factor, c), count);
        store_some(ATTN_F64, sines, i, vf_mul(factor, s), count);
        if (vm_all(vf_ge(largest, size))) continue;
        for (int64_t k = i; k < i + count; k++) { /* each for itself: its bits do not depend on its neighbours */
            const double angle = position * frequencies[k];
            if (fabs(angle) <= largest_angle) continue;
            cosines[k] = magnitude * cos(angle);
            sines[k] = magnitude * sin(angle);
        }
    }
}

/* ---- rows ---- */

enum { SOME = 128 }; /* channels at a time */

VF_INLINE void read_as(const attn_dtype dtype, const void *from, int64_t at, int64_t n, double *x)
{
    int64_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES) vf_store(x + c, vf_load_as(dtype, from, at + c));
    if (c < n) vf_store_part(x + c, load_some(dtype, from, at + c, n - c), n - c);
}

VF_INLINE void write_as(const attn_dtype dtype, void *to, int64_t at, int64_t n, const double *x)
{
    int64_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES) vf_store_as(dtype, to, at + c, vf_load(x + c));
    if (c < n) store_some(dtype, to, at + c, vf_load_part(x + c, n - c), n - c);
}

/* Elements at .. at+n-1 of a tensor. */
static void read_some(const void *from, attn_dtype dtype, int64_t at, int64_t n, double *x)
{
    EACH_STORAGE(read_as, dtype, from, at, n, x);
}
static void write_some(void *to, attn_dtype dtype, int64_t at, int64_t n, const double *x)
{
    EACH_STORAGE(write_as, dtype, to, at, n, x);
}

/* n pairs, whose second numbers are `apart` elements after the first ones, into x and y.  In vectors, since gcc 12 makes fused
 * operations of these sums in plain C, whatever -ffp-contract says. */
VF_INLINE void rotate_as(const attn_dtype dtype, const void *from, int64_t at, int64_t apart, int64_t n, const double *cosines,
                         const double *sines, double *x, double *y)
{
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES) {
        const vf c = vf_load(cosines + i), s = vf_load(sines + i);
        const vf a = vf_load_as(dtype, from, at + i), b = vf_load_as(dtype, from, at + apart + i);
        vf_store(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
        vf_store(y + i, vf_add(vf_mul(a, s), vf_mul(b, c)));
    }
    if (i == n) return;
    const vf c = vf_load_part(cosines + i, n - i), s = vf_load_part(sines + i, n - i);
    const vf a = load_some(dtype, from, at + i, n - i), b = load_some(dtype, from, at + apart + i, n - i);
    vf_store_part(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)), n - i);
    vf_store_part(y + i, vf_add(vf_mul(a, s), vf_mul(b, c)), n - i);
}

static void step_rotate(int64_t rows, int64_t pairs, int64_t apart, const double *cosines, const double *sines,
                        attn_transfer_rows from, attn_transfer_rows to)
{
    double x[2 * SOME], both[2 * SOME], *const y = x + SOME;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < pairs; i += SOME) {
            const int64_t n = least(pairs - i, SOME), in = row * from.stride, out = row * to.stride;
            if (apart == 1) {
                read_some(from.data, from.dtype, in + 2 * i, 2 * n, both);
                for (int64_t k = 0; k < n; k++) x[k] = both[2 * k], y[k] = both[2 * k + 1];
                rotate_as(ATTN_F64, x, 0, SOME, n, cosines + i, sines + i, x, y);
                for (int64_t k = 0; k < n; k++) both[2 * k] = x[k], both[2 * k + 1] = y[k];
                write_some(to.data, to.dtype, out + 2 * i, 2 * n, both);
            } else {
#ifdef ATTN_INFERENCE_ONLY /* 1 KB less for each instruction set */
                read_some(from.data, from.dtype, in + i, n, x);
                read_some(from.data, from.dtype, in + apart + i, n, y);
                rotate_as(ATTN_F64, x, 0, SOME, n, cosines + i, sines + i, x, y);
#else
                EACH_STORAGE(rotate_as, from.dtype, from.data, in + i, apart, n, cosines + i, sines + i, x, y);
#endif
                write_some(to.data, to.dtype, out + i, n, x);
                write_some(to.data, to.dtype, out + apart + i, n, y);
            }
        }
}

static void step_convert(int64_t rows, int64_t dim, attn_transfer_rows from, attn_transfer_rows to)
{
    double x[SOME];
    const int64_t size = bytes_of(from.dtype);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0, n; i < dim; i += n) {
            const int64_t in = row * from.stride + i, out = row * to.stride + i;
            if (from.dtype == to.dtype) {
                n = dim;
                memmove((char *)to.data + out * size, (const char *)from.data + in * size, (size_t)(n * size));
            } else {
                n = least(dim - i, SOME);
                read_some(from.data, from.dtype, in, n, x);
                write_some(to.data, to.dtype, out, n, x);
            }
        }
}

static void step_quantise(int64_t dim, const void *row, attn_dtype dtype, int8_t *values, float *scale)
{
    double x[SOME], lanes[2][VF_LANES], most = 0, rest = 0;
    vf largest = vf_zero(), nothing = vf_zero(); /* the second is NaN unless all are finite */
    for (int64_t i = 0, n; i < dim; i += n) {
        n = least(dim - i, SOME);
        read_some(row, dtype, i, n, x);
        for (int64_t c = 0; c < n; c += VF_LANES) {
            const vf v = load_some(ATTN_F64, x, c, n - c);
            largest = vf_max(vf_max(v, vf_sub(vf_zero(), v)), largest);
            nothing = vf_add(nothing, vf_sub(v, v));
        }
    }
    vf_store(lanes[0], largest);
    vf_store(lanes[1], nothing);
    for (int i = 0; i < VF_LANES; i++) {
        most = fmax(most, lanes[0][i]);
        rest += lanes[1][i];
    }
    *scale = rest == 0 ? (float)(most / 127) : NAN;
    const double step = (double)*scale;
    if (!(step > 0)) { /* also NaN */
        if (dim > 0) memset(values, 0, (size_t)dim);
        return;
    }
    for (int64_t i = 0, n; i < dim; i += n) {
        const double shift = 0x1.8p52; /* rounds to an integer */
        n = least(dim - i, SOME);
        read_some(row, dtype, i, n, x);
        for (int64_t c = 0; c < n; c++) {
            /* More than 127 steps if the scale was rounded down, or if f32 cannot represent an f64 row's. */
            const double steps = x[c] / step, bounded = steps > 127 ? 127 : steps < -127 ? -127 : steps;
            values[i + c] = (int8_t)(int32_t)(bounded + shift - shift);
        }
    }
}

#endif
