/* SPDX-License-Identifier: MIT
 *
 * decode_prefetch_step.inc.c - decode: keys and values that will be read soon are prefetched, and in which order.  Included by
 * decode.inc.c.
 */
#ifdef VF_LANES

/*
 * Prefetching: rows like the ones at hand, `distance` bytes behind them, will be read soon.  Where rows follow each other without
 * gaps they are prefetched from the first line to the last, which memory likes best: a step of a tile prefetches the next few
 * lines, wherever the tile itself reads.  Rows of f32, which are all that memory can bring, and pairs of bf16, which take the least
 * time, are prefetched in two pages at a time, two lines of each in turn: the CPU's own prefetcher starts anew in every page of 4
 * KB, and so has two of them at work.  All into the second level, since misses of the first level are few at a time.
 *
 * Prefetches that come faster than the second level takes them are dropped, and each is a wait later on.  So they stand between the
 * multiply-adds of a step instead of before them; and where few instructions lie between two lines, with long vectors or few rows,
 * each line of two pages is prefetched twice, if it is to come from memory: the arithmetic takes the time that is missing, and what
 * was dropped is repeated.  (lab/decode/README.md has what each of these brings.)
 */
typedef struct prefetch_order {
    uintptr_t distance, again; /* again: of what is prefetched once more */
    int dense, twice;          /* dense: rows follow each other without gaps */
    int64_t ld;                /* bytes from row to row, where they are not */
    uintptr_t turn, rest;      /* bits of an address: which of two pages, and what counts on within them; 0: one page at a time */
} prefetch_order;

enum { LINE = ATTN_LINE, TURN = 2 * LINE, PAGE = ATTN_PAGE, NEAR = 16 * PAGE };

/* Whether a step of so many rows has few instructions between two lines: multiply-adds, and what converts. */
VF_INLINE int few_between(const attn_dtype dtype, const int rows)
{
    const int vectors = LINE / (VF_LANES * (int)bytes_of(dtype)), converts = bytes_of(dtype) != sizeof(real);
    return (rows + converts) * vectors <= 4;
}

/* Whether it makes a difference where keys come from. */
VF_INLINE int heeds_far(const attn_dtype dtype) { return bytes_of(dtype) > 2 || few_between(dtype, 1); }

/* in_pages: two at a time. */
VF_INLINE prefetch_order prefetch_order_of(const int in_pages, uintptr_t distance, const int twice, int dense, int64_t ld)
{
    const int two = dense && in_pages;
    const uintptr_t again = distance < NEAR ? distance - 2 * PAGE : distance; /* what lies before it, where that was prefetched */
    return (prefetch_order){distance, again, dense, twice && two, ld, two ? TURN : 0, two ? 2 * PAGE - 2 * TURN : 0};
}

/* Bits 8 to 12 of an address move to 7 to 11, and bit 7 to 12: each line of two pages once. */
VF_INLINE void prefetch_line(const prefetch_order *next, uintptr_t at)
{
    __builtin_prefetch((const void *)((at & ~(next->turn | next->rest)) | (at & next->turn) << 5 | (at & next->rest) >> 1), 0, 2);
}

/* What place number `place` of `places` in a step prefetches: its share of `bytes` from p on. */
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

/* A step over n rows at p reads `bytes` of each, from byte `at` on: as many bytes are prefetched, each line once. */
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
