/* SPDX-License-Identifier: MIT
 *
 * prefetch_step.inc.c - prefetches the caller's next rows while products run.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* First prefetches a line of each page, all in a row: while the CPU translates the address of a page, nothing after that can
 * retire, but several translations run at the same time. */
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

/* Prefetches the next `lines` lines, into the level 2 cache: level 1 is full of the products' own data. */
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

/* The same while a register tile of `sums` vectors runs for `steps` steps: as many lines as memory delivers meanwhile. */
VF_INLINE void prefetch_during(attn_prefetch *a, int sums, int64_t steps)
{
    enum { BYTES_A_LINE = 1600 }; /* bytes of sums, times steps */
    prefetch_lines(a, steps * sums * (int64_t)sizeof(vf) / BYTES_A_LINE);
}

#endif
