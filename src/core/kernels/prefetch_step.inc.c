/* SPDX-License-Identifier: MIT
 *
 * prefetch_step.inc.c - rows of the caller's that come next are prefetched while products run.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* Prefetches a line of each page first, all in a row: while the processor looks up where a page lies, nothing behind that can
 * finish, but several are looked up at the same time. */
VF_INLINE void prefetch_pages(attn_prefetch *a)
{
    for (int k = 0; k < a->count && !a->begun; k++) {
        const struct attn_prefetch_rows *rows = &a->list[k];
        const uintptr_t end = rows->at + (uintptr_t)((rows->rows - 1) * rows->stride + rows->bytes);
        for (uintptr_t at = rows->at; at < end;) {
            __builtin_prefetch((const void *)at, 0, 2);
            if (rows->stride > ATTN_PAGE) at += (uintptr_t)rows->stride;
            else at = (at | (ATTN_PAGE - 1)) + 1;
        }
    }
    a->begun = 1;
}

/* Prefetches the next `lines` lines.  Into the second level: the first one is full of the products' own. */
VF_INLINE void prefetch_lines(attn_prefetch *a, int64_t lines)
{
    for (; lines > 0 && a->next < a->count; lines--) {
        struct attn_prefetch_rows *rows = &a->list[a->next];
        __builtin_prefetch((const void *)(rows->at + (uintptr_t)a->byte), 0, 2);
        a->byte += 64;
        if (a->byte < rows->bytes) continue;
        a->byte = 0;
        rows->at += (uintptr_t)rows->stride;
        if (--rows->rows == 0) a->next++;
    }
}

/* The same while a register tile of `sums` vectors runs over `steps` steps: as many lines as come from memory meanwhile. */
VF_INLINE void prefetch_during(attn_prefetch *a, int sums, int64_t steps)
{
    enum { BYTES_A_LINE = 1600 }; /* of sums, a step each */
    prefetch_lines(a, steps * sums * (int64_t)sizeof(vf) / BYTES_A_LINE);
}

#endif
