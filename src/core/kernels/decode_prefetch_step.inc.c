/* SPDX-License-Identifier: MIT
 *
 * decode_prefetch_step.inc.c - decode: which keys and values are prefetched, and in which order.  Included by decode.inc.c.
 */
#ifdef VF_LANES

/*
 * Prefetching: rows like the current ones, `distance` bytes after them, will be read soon.  Rows without gaps between them are
 * prefetched from the first line to the last, which suits memory best: a step of a tile prefetches the next few lines, wherever the
 * tile itself reads.  Rows of f32, which saturate memory bandwidth, and pairs of bf16, which take the least time, are prefetched in
 * two pages at a time, two lines of each in turn: the CPU's own prefetcher starts anew in every page of 4 KB, and so works on two
 * of them at once.  Everything goes into the level 2 cache, since few misses of level 1 can be outstanding.
 *
 * Prefetches that come faster than level 2 takes them are dropped, and each costs a wait later on.  So they stand between the
 * multiply-adds of a step instead of before them; and where there are few instructions between two lines, with long vectors or few
 * rows, each line of two pages is prefetched twice if it comes from memory: the arithmetic fills the missing time, and dropped
 * prefetches are repeated.  (lab/decode/README.md has the gain of each of these.)
 */
typedef struct prefetch_order {
    uintptr_t distance, again; /* again: distance of the second prefetch */
    int dense, twice;          /* dense: no gaps between rows */
    int64_t ld;                /* bytes from row to row, if not dense */
    uintptr_t turn, rest;      /* address bits: which of two pages, and the position within them; 0: one page at a time */
} prefetch_order;

enum { LINE = ATTN_LINE, TURN = 2 * LINE, PAGE = ATTN_PAGE, NEAR = 16 * PAGE };

/* Whether a step of so many rows has few instructions (multiply-adds and conversions) between two lines. */
VF_INLINE int few_instructions_between(const attn_dtype dtype, const int rows)
{
    const int vectors = LINE / (VF_LANES * (int)bytes_of(dtype)), converts = bytes_of(dtype) != sizeof(real);
    return (rows + converts) * vectors <= 4;
}

/* Whether it matters if keys come from memory. */
VF_INLINE int streaming_matters(const attn_dtype dtype) { return bytes_of(dtype) > 2 || few_instructions_between(dtype, 1); }

/* in_pages: two at a time. */
VF_INLINE prefetch_order prefetch_order_of(const int in_pages, uintptr_t distance, const int twice, int dense, int64_t ld)
{
    const int two = dense && in_pages;
    const uintptr_t again = distance < NEAR ? distance - 2 * PAGE : distance; /* two pages earlier: prefetched once */
    return (prefetch_order){distance, again, dense, twice && two, ld, two ? TURN : 0, two ? 2 * PAGE - 2 * TURN : 0};
}

/* Bits 8 to 12 of an address move to 7 to 11, and bit 7 to 12: reaches each line of two pages once. */
VF_INLINE void prefetch_line(const prefetch_order *next, uintptr_t at)
{
    __builtin_prefetch((const void *)((at & ~(next->turn | next->rest)) | (at & next->turn) << 5 | (at & next->rest) >> 1), 0, 2);
}

/* What place `place` of `places` in a step prefetches: its share of `bytes` from p on. */
VF_INLINE void prefetch_share(const prefetch_order *next, uintptr_t p, const int bytes, const int place, const int places)
{
    const int lines = (bytes + LINE - 1) / LINE;
    VF_UNROLL
    for (int i = place * lines / places; i < (place + 1) * lines / places; i++) {
        prefetch_line(next, p + next->distance + (uintptr_t)(i * LINE));
        if (next->twice) prefetch_line(next, p + next->again + (uintptr_t)(i * LINE));
    }
}

VF_INLINE void prefetch(const prefetch_order *next, uintptr_t p, const int bytes) { prefetch_share(next, p, bytes, 0, 1); }

/* A step over n rows at p reads `bytes` of each, from byte `at` on: prefetches as many bytes, each line once. */
VF_INLINE void prefetch_in_step(const prefetch_order *next, const char *p, int64_t at, const int n, const int bytes,
                                const int place, const int places)
{
    if (next->dense) {
        if (n * bytes >= LINE || at * n % LINE == 0)
            prefetch_share(next, (uintptr_t)p + (uintptr_t)(at * n), n * bytes, place, places);
    } else if (bytes >= LINE || at % LINE == 0) {
        VF_UNROLL
        for (int k = place * n / places; k < (place + 1) * n / places; k++)
            prefetch(next, (uintptr_t)p + (uintptr_t)(at + k * next->ld), bytes);
    }
}

#endif
