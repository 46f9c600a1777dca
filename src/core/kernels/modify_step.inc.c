/* SPDX-License-Identifier: MIT
 *
 * modify_step.inc.c - modifiers of scores between the product and the softmax: intervals of keys, the caller's mask, the caller's
 * bias.  Included by forward.inc.c.
 */
#ifdef VF_LANES

static void step_keep_range(int width, int64_t n, void *S, const int32_t *low, const int32_t *high)
{
    const vf dropped = vf_set(-(real)INFINITY);
    for (int v = 0; v < width; v++) {
        const int32_t *first = low + v * VF_LANES, *end = high + v * VF_LANES;
        vf from = vf_of_i32(first), to = vf_of_i32(end); /* exact: a block has far fewer than 2^24 keys */
        /* Keys that every lane keeps need no work: inner_low <= j < inner_high. */
        int64_t inner_low = 0, inner_high = n;
        for (int i = 0; i < VF_LANES; i++) {
            if (inner_low < first[i]) inner_low = first[i];
            if (inner_high > end[i]) inner_high = end[i];
        }
        for (int64_t j = 0; j < n; j++) {
            if (j == inner_low && inner_low < inner_high) j = inner_high;
            if (j == n) break;
            real *s = (real *)S + j * TILE + v * VF_LANES;
            vf key = vf_set((real)j);
            vf_store(s, vf_select(vm_and(vf_ge(key, from), vf_gt(to, key)), vf_load(s), dropped));
        }
    }
}

/* The vectors side by side: a single chain of maxima would be bound by its latency. */
VF_INLINE void block_max_rows(const int width, int64_t n, const real *S, real *block_max)
{
    vf most[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) most[v] = vf_set(-(real)INFINITY);
    for (int64_t j = 0; j < n; j++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) most[v] = vf_max(vf_load(S + j * TILE + v * VF_LANES), most[v]);
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(block_max + v * VF_LANES, most[v]);
}

static void step_block_max(int width, int64_t n, const void *S, void *block_max)
{
    VF_EACH_WIDTH(block_max_rows, width, n, S, block_max);
}

static void step_drop_range(int width, int64_t n, void *S, void *block_max, const int32_t *low, const int32_t *high)
{
    const vf dropped = vf_set(-(real)INFINITY);
    for (int v = 0; v < width; v++) {
        const vf from = vf_of_i32(low + v * VF_LANES), to = vf_of_i32(high + v * VF_LANES);
        for (int64_t j = 0; j < n; j++) {
            real *s = (real *)S + j * TILE + v * VF_LANES;
            const vf key = vf_set((real)j);
            vf_store(s, vf_select(vm_and(vf_ge(key, from), vf_gt(to, key)), dropped, vf_load(s)));
        }
    }
    step_block_max(width, n, S, block_max);
}

/* One vector of scores under the mask or bias b.  A sum that overflows downwards stays finite, so that only a bias of -infinity
 * drops. */
VF_INLINE vf modified(const attn_dtype dtype, vf s, vf b)
{
    const vf dropped = vf_set(-(real)INFINITY);
    if (dtype == ATTN_BOOL) return vf_select(vf_bits(b), s, dropped);
    vf sum = vf_max(vf_set(REAL_LOWEST), vf_add(s, b));
    return vf_select(vm_or(vf_eq(s, dropped), vf_eq(b, dropped)), dropped, sum);
}

/* A square piece of the caller's block, whose rows run along the keys, transposed. */
VF_INLINE void load_piece(const attn_dtype dtype, int64_t first, int64_t rows, int64_t j, int64_t n, const void *base,
                          int64_t stride_q, vf *r)
{
    const int64_t count = least(n - j, VF_LANES);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) r[i] = load_some(dtype, base, least(first + i, rows - 1) * stride_q + j, count);
    vf_transpose(r);
}

/* r = s + r if no sum is -infinity or NaN; else returns 0: the cases must be told apart. */
VF_INLINE int simple_sums(const real *s, vf *r)
{
    vm simple = vf_eq(vf_zero(), vf_zero());
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) {
        r[i] = vf_add(vf_load(s + i * TILE), r[i]);
        simple = vm_and(simple, vf_gt(r[i], vf_set(-(real)INFINITY)));
    }
    return vm_all(simple);
}

VF_INLINE void modify_rows(const attn_dtype dtype, int width, int64_t rows, int64_t n, real *S, real *block_max, const void *base,
                           int64_t stride_q)
{
    for (int v = 0; v < width; v++) {
        vf most = vf_set(-(real)INFINITY), r[VF_LANES];
        for (int64_t j = 0; j < n; j += VF_LANES) {
            const int64_t count = least(n - j, VF_LANES);
            real *s = S + j * TILE + v * VF_LANES;
            load_piece(dtype, v * VF_LANES, rows, j, n, base, stride_q, r);
            if (dtype != ATTN_BOOL && count == VF_LANES) {
                if (simple_sums(s, r)) {
                    VF_UNROLL
                    for (int i = 0; i < VF_LANES; i++) vf_store(s + i * TILE, r[i]), most = vf_max(r[i], most);
                    continue;
                }
                load_piece(dtype, v * VF_LANES, rows, j, n, base, stride_q, r);
            }
            if (count == VF_LANES) {
                VF_UNROLL
                for (int i = 0; i < VF_LANES; i++) r[i] = modified(dtype, vf_load(s + i * TILE), r[i]);
                VF_UNROLL
                for (int i = 0; i < VF_LANES; i++) vf_store(s + i * TILE, r[i]), most = vf_max(r[i], most);
            } else {
                for (int i = 0; i < count; i++) {
                    vf x = modified(dtype, vf_load(s + i * TILE), r[i]);
                    vf_store(s + i * TILE, x), most = vf_max(x, most);
                }
            }
        }
        vf_store(block_max + v * VF_LANES, most);
    }
}

/* Any strides: scratch gets the block transposed, or one value per key if all queries share it. */
VF_INLINE void modify_any(const attn_dtype dtype, int width, int64_t rows, int64_t n, real *S, const attn_block *block,
                          real *scratch)
{
    const int shared = block->stride_q == 0;
    const int64_t lanes = shared ? 1 : (int64_t)width * VF_LANES;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < lanes; i++)
            scratch[j * lanes + i] = real_at(dtype, block->base, least(i, rows - 1) * block->stride_q + j * block->stride_k);
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++) {
            real *s = S + j * TILE + v * VF_LANES;
            vf b = shared ? vf_set(scratch[j]) : vf_load(scratch + j * lanes + v * VF_LANES);
            vf_store(s, modified(dtype, vf_load(s), b));
        }
}

VF_INLINE void modify(const attn_dtype dtype, int width, int64_t rows, int64_t n, real *S, real *block_max, const attn_block *block,
                      real *scratch)
{
    if (block->stride_k == 1 && block->stride_q != 0) {
        modify_rows(dtype, width, rows, n, S, block_max, block->base, block->stride_q);
    } else {
        modify_any(dtype, width, rows, n, S, block, scratch);
        step_block_max(width, n, S, block_max);
    }
}

static void step_keep_mask(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *mask, void *scratch)
{
    modify(ATTN_BOOL, width, rows, n, S, block_max, mask, scratch);
}

static void step_add_bias(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *bias, void *scratch)
{
    EACH_STORAGE(modify, bias->dtype, width, rows, n, S, block_max, bias, scratch);
}

#endif
