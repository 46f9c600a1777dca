/* SPDX-License-Identifier: MIT
 *
 * matrix_step.inc.c - the steps of a matrix product: packing, and tiles of the result from packed rows and a packed panel. Included
 * by product.inc.c.
 */
#ifdef VF_LANES

/* Rows that are packed side by side: whole vectors, and at least the rows of a full tile. */
enum { GROUP_VECTORS = (VF_ROWS(VF_VECTORS) + VF_LANES - 1) / VF_LANES, GROUP = GROUP_VECTORS * VF_LANES };

/* One vector of a panel, for all steps: its lanes are `lanes` rows of X, ld apart. */
VF_INLINE void transpose_lanes(int64_t lanes, int64_t steps, const real *X, int64_t ld, real *panel, const int stride)
{
    int64_t k = 0;
    if (lanes == VF_LANES) {
        for (; k + VF_LANES <= steps; k += VF_LANES) {
            vf r[VF_LANES];
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++) r[i] = vf_load(X + i * ld + k);
            vf_transpose(r);
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++) vf_store(panel + (k + i) * stride, r[i]);
        }
    }
    for (; k < steps; k += VF_LANES) {
        const int64_t n = least(VF_LANES, steps - k);
        vf r[VF_LANES];
        for (int i = 0; i < VF_LANES; i++) r[i] = i < lanes ? vf_load_part(X + i * ld + k, n) : vf_zero();
        vf_transpose(r);
        for (int64_t i = 0; i < n; i++) vf_store(panel + (k + i) * stride, r[i]);
    }
}

VF_INLINE void pack_transposed(const int vectors, int64_t count, int64_t steps, const real *X, int64_t ld, real *panel)
{
    for (int v = 0; v < vectors && v * VF_LANES < count; v++)
        transpose_lanes(least(VF_LANES, count - v * VF_LANES), steps, X + v * VF_LANES * ld, ld, panel + v * VF_LANES,
                        vectors * VF_LANES);
}

VF_INLINE void pack_rows(const int vectors, int64_t count, int64_t steps, const real *X, int64_t ld, real *panel)
{
    const int64_t whole = count / VF_LANES, part = count % VF_LANES;
    for (int64_t k = 0; k < steps; k++) {
        const real *x = X + k * ld;
        real *p = panel + k * vectors * VF_LANES;
        if (whole == vectors) {
            VF_UNROLL
            for (int v = 0; v < vectors; v++) vf_store(p + v * VF_LANES, vf_load(x + v * VF_LANES));
        } else {
            for (int64_t v = 0; v < whole; v++) vf_store(p + v * VF_LANES, vf_load(x + v * VF_LANES));
            if (part) vf_store(p + whole * VF_LANES, vf_load_part(x + whole * VF_LANES, part));
        }
    }
}

static void step_pack(int panel, int64_t count, int64_t steps, const void *X, int64_t ld, int transposed, void *packed)
{
    if (panel && transposed) pack_transposed(VF_VECTORS, count, steps, X, ld, packed);
    else if (panel) pack_rows(VF_VECTORS, count, steps, X, ld, packed);
    else if (transposed) pack_transposed(GROUP_VECTORS, count, steps, X, ld, packed);
    else pack_rows(GROUP_VECTORS, count, steps, X, ld, packed);
}

/* C = acc, or C += acc with `add`; the last vector has `part` lanes. */
VF_INLINE void put_tile(const int rows, const int width, vf (*acc)[VF_VECTORS], int64_t part, int add, real *C, int64_t ldc)
{
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        real *c = C + i * ldc;
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            if (v == width - 1 && part < VF_LANES) {
                const vf sum = add ? vf_add(vf_load_part(c + v * VF_LANES, part), acc[i][v]) : acc[i][v];
                vf_store_part(c + v * VF_LANES, sum, part);
            } else {
                vf_store(c + v * VF_LANES, add ? vf_add(vf_load(c + v * VF_LANES), acc[i][v]) : acc[i][v]);
            }
        }
    }
}

VF_INLINE void multiply_rows(const int rows, const int width, int64_t steps, const real *A, const real *B, int64_t part, int add,
                             real *C, int64_t ldc, prefetch_stream *next)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) __builtin_prefetch(C + i * ldc + v * VF_LANES, 1);
    }
    product(rows, width, steps, A, 1, GROUP, B, next, acc);
    put_tile(rows, width, acc, part, add, C, ldc);
}

VF_INLINE void multiply_panel(const int width, int64_t part, int64_t rows, int64_t steps, const real *A, const real *B, int add,
                              real *C, int64_t ldc)
{
    enum { FULL = VF_ROWS(VF_VECTORS) };
    for (int64_t first = 0; first < rows; first += GROUP) {
        const real *group = A + first * steps;
        const int64_t n = least(GROUP, rows - first);
        prefetch_stream next = {.at = (uintptr_t)(group + GROUP * steps), .hop = 64};
        int64_t i = 0;
#define MULTIPLY_ROWS(count)                                                                                                       \
    do {                                                                                                                           \
        multiply_rows(count, width, steps, group + i, B, part, add, C + (first + i) * ldc, ldc, &next);                            \
        i += (count);                                                                                                              \
    } while (0)
        while (i + FULL <= n) MULTIPLY_ROWS(FULL);
        if (VF_TAILS && FULL > 4 && n - i >= 4) MULTIPLY_ROWS(4);
        if (VF_TAILS && n - i >= 2) MULTIPLY_ROWS(2);
        while (n - i >= 1) MULTIPLY_ROWS(1);
#undef MULTIPLY_ROWS
    }
}

static void step_multiply(int64_t rows, int64_t columns, int64_t steps, const void *A, const void *B, int add, void *C, int64_t ldc)
{
    const int width = (int)((columns + VF_LANES - 1) / VF_LANES);
    const int64_t part = columns - (width - 1) * VF_LANES;
    VF_EACH_WIDTH(multiply_panel, width, part, rows, steps, A, B, add, C, ldc);
}

/* ---- small matrices, not packed ---- */

VF_INLINE void place_rows(const int rows, const int width, int64_t steps, const real *A, int64_t row, int64_t step, const real *B,
                          int64_t ldb, int add, real *C, int64_t ldc)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    product_rows(rows, width, steps, A, row, step, B, ldb, acc);
    put_tile(rows, width, acc, VF_LANES, add, C, ldc);
}

VF_INLINE void place_panel(const int width, int64_t rows, int64_t steps, const real *A, int64_t row, int64_t step, const real *B,
                           int64_t ldb, int add, real *C, int64_t ldc)
{
    int64_t i = 0;
#define PLACE_ROWS(count)                                                                                                          \
    do {                                                                                                                           \
        place_rows(count, width, steps, A + i * row, row, step, B, ldb, add, C + i * ldc, ldc);                                    \
        i += (count);                                                                                                              \
    } while (0)
    while (i + VF_ROWS(width) <= rows) PLACE_ROWS(VF_ROWS(width));
    if (VF_TAILS && VF_ROWS(width) > 8 && rows - i >= 8) PLACE_ROWS(8);
    while (VF_TAILS && VF_ROWS(width) > 4 && rows - i >= 4) PLACE_ROWS(4);
    if (VF_TAILS && rows - i >= 2) PLACE_ROWS(2);
    while (rows - i >= 1) PLACE_ROWS(1);
#undef PLACE_ROWS
}

/* One row of many vectors, or several rows of fewer: enough sums to hide latency. */
VF_INLINE void wide_tile(const int rows, const int width, int64_t part, int64_t steps, const real *A, int64_t row, int64_t step,
                         const real *B, int64_t ldb, int add, real *C, int64_t ldc)
{
    vf acc[4][8];
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) acc[i][v] = vf_zero();
    }
    for (int64_t k = 0; k < steps; k++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            const vf b = part < VF_LANES ? vf_load_part(B + k * ldb + v * VF_LANES, part) : vf_load(B + k * ldb + v * VF_LANES);
            VF_UNROLL
            for (int i = 0; i < rows; i++) acc[i][v] = vf_fma(VF_ELEMENT(A + i * row + k * step), b, acc[i][v]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *c = C + i * ldc + v * VF_LANES;
            if (part < VF_LANES) vf_store_part(c, add ? vf_add(vf_load_part(c, part), acc[i][v]) : acc[i][v], part);
            else vf_store(c, add ? vf_add(vf_load(c), acc[i][v]) : acc[i][v]);
        }
    }
}

VF_INLINE void wide_rows(const int rows, int64_t columns, int64_t steps, const real *A, int64_t row, int64_t step, const real *B,
                         int64_t ldb, int add, real *C, int64_t ldc)
{
    int64_t j = 0;
#define WIDE_TILE(width, part)                                                                                                     \
    do {                                                                                                                           \
        wide_tile(rows, width, part, steps, A, row, step, B + j, ldb, add, C + j, ldc);                                            \
        j += (width)*VF_LANES;                                                                                                     \
    } while (0)
    while (columns - j >= 8 / rows * VF_LANES) WIDE_TILE(8 / rows, VF_LANES);
    if (rows == 1 && columns - j >= 4 * VF_LANES) WIDE_TILE(4, VF_LANES);
    if (rows <= 2 && columns - j >= 2 * VF_LANES) WIDE_TILE(2, VF_LANES);
    if (columns - j >= VF_LANES) WIDE_TILE(1, VF_LANES);
    if (columns > j) WIDE_TILE(1, columns - j);
#undef WIDE_TILE
}

static void unpacked_rows(int64_t rows, int64_t columns, int64_t steps, const real *A, int64_t row, int64_t step, const real *B,
                          int64_t ldb, int add, real *C, int64_t ldc)
{
    for (int64_t i = 0; i < rows;) {
        const real *a = A + i * row;
        const int n = rows - i >= 4 ? 4 : rows - i >= 2 ? 2 : 1;
        if (n == 4) wide_rows(4, columns, steps, a, row, step, B, ldb, add, C + i * ldc, ldc);
        else if (n == 2) wide_rows(2, columns, steps, a, row, step, B, ldb, add, C + i * ldc, ldc);
        else wide_rows(1, columns, steps, a, row, step, B, ldb, add, C + i * ldc, ldc);
        i += n;
    }
}

static void step_in_place(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t row, int64_t step, const void *B,
                          int64_t ldb, int add, void *C, int64_t ldc)
{
    const int64_t vectors = rows > 4 ? columns / VF_LANES : 0, done = vectors * VF_LANES;
    for (int64_t v = 0; v < vectors;) {
        /* 4 vectors are 2 + 2, not 3 + 1 */
        const int width = (int)(vectors - v == 4 && VF_VECTORS == 3 ? 2 : least(VF_VECTORS, vectors - v));
        const real *b = (const real *)B + v * VF_LANES;
        real *c = (real *)C + v * VF_LANES;
        VF_EACH_WIDTH(place_panel, width, rows, steps, A, row, step, b, ldb, add, c, ldc);
        v += width;
    }
    if (done < columns)
        unpacked_rows(rows, columns - done, steps, A, row, step, (const real *)B + done, ldb, add, (real *)C + done, ldc);
}

/* ---- few rows of a large B, or few steps: C row by row ---- */

/* s + sum_u x[u] B[u][j]. */
VF_INLINE vf sweep_sum(const int steps, vf s, const vf *x, const real *B, int64_t ldb)
{
    VF_UNROLL
    for (int u = 0; u < steps; u++) s = vf_fma(x[u], vf_load(B + u * ldb), s);
    return s;
}

VF_INLINE void sweep_row(const int steps, int64_t columns, const real *A, int64_t step, const real *B, int64_t ldb, int go_on,
                         int add, real *S)
{
    vf x[ATTN_SWEEP_STEPS];
    int64_t j = 0;
    VF_UNROLL
    for (int u = 0; u < steps; u++) x[u] = vf_set(A[u * step]);
    VF_ROLLED
    for (; j + VF_LANES <= columns; j += VF_LANES) {
        const vf s = sweep_sum(steps, go_on ? vf_load(S + j) : vf_zero(), x, B + j, ldb);
        vf_store(S + j, add ? vf_add(vf_load(S + j), s) : s);
    }
    if (j < columns) {
        const int64_t n = columns - j;
        vf s = go_on ? vf_load_part(S + j, n) : vf_zero();
        for (int u = 0; u < steps; u++) s = vf_fma(x[u], vf_load_part(B + u * ldb + j, n), s);
        vf_store_part(S + j, add ? vf_add(vf_load_part(S + j, n), s) : s, n);
    }
}

/* Vectors of B at a time, and at most: longer rows of C are far apart, and better written one by one. */
enum { RANK_ONE_VECTORS = 4, RANK_ONE_MAX_VECTORS = 32 };

/* One step: B stays in registers, and each row of C is a multiple of it. */
VF_INLINE void rank_one_columns(const int width, int64_t rows, const real *A, int64_t row, const real *B, int add, real *C,
                                int64_t ldc)
{
    vf b[RANK_ONE_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) b[v] = vf_load(B + v * VF_LANES);
    for (int64_t i = 0; i < rows; i++) {
        const vf x = vf_set(A[i * row]);
        real *c = C + i * ldc;
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            const vf s = vf_fma(x, b[v], vf_zero());
            vf_store(c + v * VF_LANES, add ? vf_add(vf_load(c + v * VF_LANES), s) : s);
        }
    }
}

/* Returns the number of columns done: whole vectors. */
static int64_t rank_one_update(int64_t rows, int64_t columns, const real *A, int64_t row, const real *B, int add, real *C,
                               int64_t ldc)
{
    int64_t j = 0;
    for (; columns - j >= RANK_ONE_VECTORS * VF_LANES; j += RANK_ONE_VECTORS * VF_LANES)
        if (add) rank_one_columns(RANK_ONE_VECTORS, rows, A, row, B + j, 1, C + j, ldc);
        else rank_one_columns(RANK_ONE_VECTORS, rows, A, row, B + j, 0, C + j, ldc);
    for (; columns - j >= VF_LANES; j += VF_LANES) rank_one_columns(1, rows, A, row, B + j, add, C + j, ldc);
    return j;
}

static void step_sweep(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t row, int64_t step, const void *B,
                       int64_t ldb, int go_on, int add, void *S, int64_t lds)
{
    if (steps == 1 && !go_on && columns <= RANK_ONE_MAX_VECTORS * VF_LANES) {
        const int64_t done = rank_one_update(rows, columns, A, row, B, add, S, lds);
        if (done == columns) return;
        columns -= done;
        B = (const real *)B + done;
        S = (real *)S + done;
    }
    for (int64_t k = 0; k < steps;) {
        const real *a = (const real *)A + k * step, *b = (const real *)B + k * ldb;
        const int n = (int)least(ATTN_SWEEP_STEPS, steps - k);
#define SWEEP(count)                                                                                                               \
    case count:                                                                                                                    \
        for (int64_t i = 0; i < rows; i++) sweep_row(count, columns, a + i * row, step, b, ldb, go_on, add, (real *)S + i * lds);  \
        break
        switch (n) {
            SWEEP(1);
            SWEEP(2);
            SWEEP(3);
            SWEEP(4);
            SWEEP(5);
            SWEEP(6);
            SWEEP(7);
            SWEEP(ATTN_SWEEP_STEPS);
        }
#undef SWEEP
        k += n;
        go_on = 1;
    }
}

static void step_join(int64_t count, const void *S, int add, void *C)
{
    const real *s = S;
    real *c = C;
    for (int64_t j = 0; j < count; j += VF_LANES) {
        const int64_t n = least(VF_LANES, count - j);
        const vf sum = vf_load_part(s + j, n);
        vf_store_part(c + j, add ? vf_add(vf_load_part(c + j, n), sum) : sum, n);
    }
}

/* ---- few rows by columns of B: both are contiguous along the sums ---- */

/* The sums of `rows` rows and VF_DOT_SUMS / rows columns; lanes are terms. */
VF_INLINE void dot_tile(const int rows, int64_t columns, int64_t steps, const real *A, int64_t lda, const real *B, int64_t ldb,
                        int add, real *C, int64_t ldc)
{
    enum { MAX_SUMS = VF_DOT_SUMS };
    const int tile = MAX_SUMS / rows;
    const real *a[4], *b[MAX_SUMS];
    vf acc[MAX_SUMS];
    real sums[MAX_SUMS];
    int64_t k = 0;
    for (int i = 0; i < rows; i++) a[i] = A + i * lda;
    VF_UNROLL
    for (int j = 0; j < tile; j++) b[j] = B + least(j, columns - 1) * ldb;
    VF_UNROLL
    for (int s = 0; s < MAX_SUMS; s++) acc[s] = vf_zero();
    VF_ROLLED
    for (; k + VF_LANES <= steps; k += VF_LANES) {
        vf x[4];
        VF_UNROLL
        for (int i = 0; i < rows; i++) x[i] = vf_load(a[i] + k);
        VF_UNROLL
        for (int j = 0; j < tile; j++) {
            const vf y = vf_load(b[j] + k);
            VF_UNROLL
            for (int i = 0; i < rows; i++) acc[j * rows + i] = vf_fma(x[i], y, acc[j * rows + i]);
        }
    }
    if (k < steps) {
        for (int j = 0; j < tile; j++) {
            const vf y = vf_load_part(b[j] + k, steps - k);
            for (int i = 0; i < rows; i++) acc[j * rows + i] = vf_fma(vf_load_part(a[i] + k, steps - k), y, acc[j * rows + i]);
        }
    }
    VF_UNROLL
    for (int s = 0; s < MAX_SUMS; s += VF_LANES) {
        const vf sum = vf_sums(acc + s);
        if (rows == 1 && columns >= tile) vf_store(C + s, add ? vf_add(vf_load(C + s), sum) : sum);
        else vf_store(sums + s, sum);
    }
    if (rows == 1 && columns >= tile) return;
    for (int j = 0; j < tile && j < columns; j++)
        for (int i = 0; i < rows; i++) C[i * ldc + j] = add ? C[i * ldc + j] + sums[j * rows + i] : sums[j * rows + i];
}

VF_INLINE void dot_rows(const int rows, int64_t columns, int64_t steps, const real *A, int64_t lda, const real *B, int64_t ldb,
                        int add, real *C, int64_t ldc)
{
    for (int64_t j = 0; j < columns; j += VF_DOT_SUMS / rows)
        dot_tile(rows, columns - j, steps, A, lda, B + j * ldb, ldb, add, C + j, ldc);
}

static void step_dots(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t lda, const void *B, int64_t ldb, int add,
                      void *C, int64_t ldc)
{
    for (int64_t i = 0; i < rows;) {
        const real *a = (const real *)A + i * lda;
        real *c = (real *)C + i * ldc;
        const int n = rows - i >= 4 ? 4 : rows - i >= 2 ? 2 : 1;
        if (n == 4) dot_rows(4, columns, steps, a, lda, B, ldb, add, c, ldc);
        else if (n == 2) dot_rows(2, columns, steps, a, lda, B, ldb, add, c, ldc);
        else dot_rows(1, columns, steps, a, lda, B, ldb, add, c, ldc);
        i += n;
    }
}

#endif
