/* SPDX-License-Identifier: MIT
 *
 * channels_step.inc.c - groups of keys that are quantised by channel: as rows, which are transposed, and their scores, for which
 * keys lie in the lanes, channel after channel, so that nothing is transposed.  Included by decode.inc.c.  A
 * layer may have a vf_of_steps and a vf_load_heads of its own (avx512_channels.h).
 */
#ifdef VF_LANES

/* A vector of the keys of a block of one channel, from key t on.  Products are exact, as in unpack_blocks. */
VF_INLINE vf keys_of_channel(const uint8_t *block, int64_t t)
{
    uint16_t d, m;
    memcpy(&d, block, sizeof d);
    memcpy(&m, block + 2, sizeof m);
    return vf_fma(vf_of_half(d), vf_of_nibbles(block + 4 + t % 16, t >= 16), vf_of_half(m));
}

/* Vectors of keys, transposed to vectors of channels. */
static void step_load_channels(int64_t first, int64_t n, int64_t dim, const void *group, int64_t stride, void *dst, int64_t ld)
{
    const int64_t size = bytes_of(ATTN_Q4_1C), blocks = dim / ATTN_BLOCK, skip = (stride - blocks) * size;
    for (int64_t t = first / VF_LANES * VF_LANES; t < first + n; t += VF_LANES) {
        const uint8_t *block = group;
        const int64_t low = t < first ? first - t : 0, high = least(first + n - t, VF_LANES);
        for (int64_t c = 0, of_key = 0; c < dim; c += VF_LANES) {
            vf r[VF_LANES];
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++, block += size) {
                if (of_key == blocks) of_key = 0, block += skip;
                of_key++;
                r[i] = keys_of_channel(block, t);
            }
            vf_transpose(r);
            real *const to = (real *)dst + (t - first) * ld + c;
            if (low == 0 && high == VF_LANES) {
                VF_UNROLL
                for (int i = 0; i < VF_LANES; i++) vf_store(to + i * ld, r[i]);
            } else {
                for (int64_t i = low; i < high; i++) vf_store(to + i * ld, r[i]);
            }
        }
    }
}

#ifndef VF_OF_STEPS
/* d * q + m of the lower and of the upper bits of VF_LANES bytes. */
VF_INLINE void vf_of_steps(const uint8_t *p, vf d, vf m, vf *x)
{
    x[0] = vf_fma(d, vf_of_nibbles(p, 0), m);
    x[1] = vf_fma(d, vf_of_nibbles(p, 1), m);
}
#endif

/* Bytes of a block in a register tile, in vectors, each with two keys; its rows; the channels whose scales are converted at a time.
 */
enum { BYTE_VECTORS = VF_LANES >= 8 ? 16 / VF_LANES : 2, CHANNEL_ROWS = VF_LANES == 16 ? 4 : 2, SOME_CHANNELS = 256 };

/* The scales and the minima of n channels, a multiple of 16, from a block on that is block of_key of its key's place. */
VF_INLINE void load_heads(int64_t n, const uint8_t *block, int64_t of_key, int64_t blocks, int64_t skip, real *d, real *m)
{
    const int64_t size = bytes_of(ATTN_Q4_1C);
    uint16_t halves[2][SOME_CHANNELS];
#ifdef VF_OF_STEPS
    if (skip == 0) {
        for (int64_t c = 0; c < n; c += VF_LANES) vf_load_heads(block + c * size, d + c, m + c);
        return;
    }
#endif
    for (int64_t c = 0; c < n; c++, of_key++, block += size) {
        if (of_key == blocks) of_key = 0, block += skip;
        memcpy(&halves[0][c], block, 2);
        memcpy(&halves[1][c], block + 2, 2);
    }
    for (int64_t c = 0; c < n; c += VF_LANES) {
        vf_store(d + c, vf_load_as(ATTN_F16, halves[0], c));
        vf_store(m + c, vf_load_as(ATTN_F16, halves[1], c));
    }
}

/* The keys of BYTE_VECTORS vectors of bytes from byte t on, and those 16 keys further, of which [first, first + n) are stored. Each
 * score is one chain over the channels. */
VF_INLINE void channel_tile(const int rows, int64_t t, int64_t first, int64_t n, int64_t dim, const real *Q, int64_t ldq,
                            const uint8_t *block, int64_t stride, real *S, int64_t lds)
{
    const int64_t size = bytes_of(ATTN_Q4_1C), blocks = dim / ATTN_BLOCK, skip = (stride - blocks) * size;
    const int64_t run = skip == 0 ? dim : blocks; /* blocks without a gap */
    real d[SOME_CHANNELS], m[SOME_CHANNELS];
    vf acc[CHANNEL_ROWS][2 * BYTE_VECTORS];
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int v = 0; v < 2 * BYTE_VECTORS; v++) acc[r][v] = vf_zero();
    }
    for (int64_t start = 0, of_key = 0; start < dim; start += SOME_CHANNELS) {
        const int64_t some = least(SOME_CHANNELS, dim - start);
        load_heads(some, block, of_key, run, skip, d, m);
        for (int64_t c = 0; c < some;) {
            if (of_key == run) of_key = 0, block += skip;
            const int64_t end = c + least(run - of_key, some - c);
            of_key += end - c;
            VF_ROLLED
            for (; c < end; c++, block += size) {
                vf x[2 * BYTE_VECTORS];
                VF_UNROLL
                for (int v = 0; v < BYTE_VECTORS; v++)
                    vf_of_steps(block + 4 + t + v * VF_LANES, vf_set(d[c]), vf_set(m[c]), x + 2 * v);
                VF_UNROLL
                for (int r = 0; r < rows; r++) {
                    const vf y = vf_set(Q[r * ldq + start + c]);
                    VF_UNROLL
                    for (int v = 0; v < 2 * BYTE_VECTORS; v++) acc[r][v] = vf_fma(x[v], y, acc[r][v]);
                }
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        real sums[2 * BYTE_VECTORS * VF_LANES];
        VF_UNROLL
        for (int v = 0; v < BYTE_VECTORS; v++) {
            vf_store(sums + v * VF_LANES, acc[r][2 * v]);
            vf_store(sums + (BYTE_VECTORS + v) * VF_LANES, acc[r][2 * v + 1]);
        }
        for (int half = 0; half < 2; half++) {
            const int64_t at = t + 16 * half, low = at > first ? at : first, high = least(first + n, at + BYTE_VECTORS * VF_LANES);
            const real *from = sums + half * BYTE_VECTORS * VF_LANES + low - at;
            if (low < high) memcpy(S + r * lds + low - first, from, (size_t)(high - low) * sizeof *sums);
        }
    }
}

static void step_channel_dots(int64_t rows, int64_t first, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *group,
                              int64_t stride, void *S, int64_t lds)
{
    for (int64_t t = 0; t < 16; t += BYTE_VECTORS * VF_LANES)
        for (int64_t r = 0; r < rows; r += rows == 1 ? 1 : CHANNEL_ROWS) {
            const real *q = (const real *)Q + r * ldq;
            real *s = (real *)S + r * lds;
            if (rows == 1) channel_tile(1, t, first, n, dim, q, ldq, group, stride, s, lds);
            else channel_tile(CHANNEL_ROWS, t, first, n, dim, q, ldq, group, stride, s, lds);
        }
}

#endif
