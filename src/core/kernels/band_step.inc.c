/* SPDX-License-Identifier: MIT
 *
 * band_step.inc.c - cuts a block of keys where the keys that a vector of queries sees begin or end: under a causal mask or a window
 * these form a band, and nothing outside it need be computed.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* Keys from the end of the previous segment up to `end`, which vectors first .. last-1 see in some lane; first == last: none
 * does. */
typedef struct segment {
    int64_t end;
    int first, last;
} segment;

enum { MAX_SEGMENTS = 2 * VF_VECTORS + 1 };

/* Returns the number of segments. */
static int segments_of(int width, int64_t n, const int32_t *low, const int32_t *high, segment *segments)
{
    int count = 0;
    for (int64_t j = 0; j < n;) {
        segment s = {n, width, width};
        for (int v = 0; v < width; v++) {
            int64_t from = low[v * VF_LANES], to = high[v * VF_LANES + VF_LANES - 1];
            if (from <= j && j < to) {
                if (s.first == width) s.first = v;
                s.last = v + 1;
                s.end = least(s.end, to);
            } else if (from > j && from < to) {
                s.end = least(s.end, from);
            }
        }
        if (s.first == width) s.last = width;
        segments[count++] = s;
        j = s.end;
    }
    return count;
}

/* Everything up to the last segment that all vectors see becomes one such segment.  Returns the number left. */
VF_INLINE int join_full_segments(int width, int count, segment *segments)
{
    int widest = count;
    while (widest > 0 && segments[widest - 1].last - segments[widest - 1].first < width) widest--;
    if (widest == 0) return count;
    segments[widest - 1].first = 0;
    for (int s = widest - 1; s < count; s++) segments[s - (widest - 1)] = segments[s];
    return count - (widest - 1);
}

#endif
