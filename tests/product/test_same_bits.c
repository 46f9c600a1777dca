/* SPDX-License-Identifier: MIT
 * test_same_bits.c - what changes no bit of a product: threads, who runs them, strides, the workspace, and the other rows. */
#include "product_case.h"

#include "on_threads.h"
#include "testing/random/random.h"

typedef struct size {
    int64_t rows, columns, inner;
} size;
static const size sizes[] = {{1, 700, 600},  {4, 300, 600}, {5, 300, 600}, {8, 600, 300}, {64, 64, 64},
                             {64, 100, 600}, {520, 97, 70}, {300, 500, 3}, {2, 2, 2}};
enum { SIZES = sizeof sizes / sizeof *sizes, WAYS = 8 };

static ref_matrices product_of(const size *s, int way)
{
    return (ref_matrices){.rows = s->rows,
                          .columns = s->columns,
                          .inner = s->inner,
                          .a_transposed = way & 1,
                          .b_transposed = way >> 1 & 1,
                          .add = way >> 2};
}

static void compute(product_case *c, const attn_options *options)
{
    attn_error error;
    case_reset(c);
    if (attn_product(&c->problem, &c->tensors, options, &error)) fail_msg("%s", error.message);
}

static void expect_same(const product_case *c, const void *kept, const char *what)
{
    const ref_matrices *p = &c->by_definition;
    if (memcmp(c->c.data, kept, case_bytes(c)) != 0)
        fail_msg("%s change a product of %d x %d x %d, turned %d %d", what, (int)p->rows, (int)p->columns, (int)p->inner,
                 p->a_transposed, p->b_transposed);
}

static void each_size(attn_dtype dtype, attn_isa isa)
{
    for (int s = 0; s < SIZES; s++)
        for (int way = s % EVERY(1); way < WAYS; way += EVERY(1)) {
            const ref_matrices p = product_of(&sizes[s], way);
            product_case *c = case_create(&p, dtype, (uint64_t)s);
            attn_options options = {.struct_size = sizeof options, .isa = isa, .threads = 1};
            void *kept = malloc(case_bytes(c));
            compute(c, &options);
            memcpy(kept, c->c.data, case_bytes(c));
            static const int threads[] = {2, 3, 8, 0};
            for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
                options.threads = threads[t];
                compute(c, &options);
                expect_same(c, kept, "threads");
            }
            options.threads = 7;
            options.parallel_for = on_threads;
            compute(c, &options);
            expect_same(c, kept, "threads of the caller");

            size_t bytes;
            options.parallel_for = NULL;
            options.threads = 3;
            attn_product_problem all = c->problem; /* one workspace fits all transpositions */
            all.add = 0;
            assert_int_equal(attn_product_workspace_size(&all, &bytes, &options, NULL), ATTN_OK);
            char *workspace = malloc(bytes + 9);
            memset(workspace + bytes + 1, 0x5a, 8);
            case_reset(c);
            assert_int_equal(attn_product_in(&c->problem, &c->tensors, workspace + 1, bytes, &options, NULL), ATTN_OK);
            expect_same(c, kept, "workspaces");
            for (int i = 0; i < 8; i++) assert_int_equal(workspace[bytes + 1 + (size_t)i], 0x5a);
            free(workspace), free(kept);
            case_free(c);
        }
}

static void test_threads(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int n = 0; isa_at(n, types[t]); n++) each_size(types[t], isa_at(n, types[t]));
}

/* A product of only the rows first .. first+rows-1, with other strides, has the same bits. */
static void expect_rows(const product_case *c, const attn_options *options, int64_t first, int64_t rows)
{
    const ref_matrices *whole = &c->by_definition;
    const int64_t wide = whole->columns + 3;
    ref_matrices part = *whole;
    float *result = calloc((size_t)(rows * wide), sizeof *result);
    assert_non_null(result);
    part.rows = rows;
    part.stride_c = wide;
    const float *a = (const float *)c->a.data + (whole->a_transposed ? first : first * whole->inner);
    const attn_product_problem p = matrices_problem(&part, ATTN_F32);
    const attn_product_tensors t = matrices_tensors(&part, a, c->b.data, result);
    assert_int_equal(attn_product(&p, &t, options, NULL), ATTN_OK);
    for (int64_t i = 0; i < rows; i++)
        if (memcmp(result + i * wide, (float *)c->c.data + (first + i) * whole->columns, (size_t)whole->columns * sizeof(float)) !=
            0)
            fail_msg("%d rows from %d on are not those of %d, turned %d %d", (int)rows, (int)first, (int)whole->rows,
                     whole->a_transposed, whole->b_transposed);
    free(result);
}

/* A row has the same bits whatever other rows there are.  An exception is A times B transposed: products of at most 4 rows agree
 * with each other, and with others only under options.invariant or reproducible. */
static void test_rows(void **state)
{
    static const size all[] = {{40, 64, 64}, {70, 200, 700}, {600, 90, 300}, {33, 50, 7}, {4, 130, 900}};
    (void)state;
    for (int n = 0; isa_at(n, ATTN_F32); n++)
        for (size_t s = 0; s < sizeof all / sizeof *all; s++)
            for (int way = 0; way < 8; way++) {
                attn_options options = {.struct_size = sizeof options, .isa = isa_at(n, ATTN_F32), .invariant = way >> 2};
                const ref_matrices p = product_of(&all[s], way & 3);
                product_case *c = case_create(&p, ATTN_F32, s);
                const int along = way == 2; /* few rows are summed in another order */
                compute(c, &options);
                if (options.invariant && options.isa != ATTN_ISA_SCALAR) options.invariant = 0, options.reproducible = 1;
                for (int64_t rows = 1; rows < p.rows; rows += EVERY(rows < 20 ? 1 : 37))
                    if (!along || (rows <= 4) == (p.rows <= 4)) {
                        expect_rows(c, &options, 0, rows);
                        expect_rows(c, &options, p.rows - rows, rows);
                    }
                case_free(c);
            }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_rows)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_threads"); /* the other test is about rows, not threads */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
