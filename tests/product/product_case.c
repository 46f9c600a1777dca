/* SPDX-License-Identifier: MIT
 * product_case.c - see product_case.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "product_case.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "testing/random/random.h"

attn_isa isa_at(int index, attn_dtype dtype)
{
    static const attn_isa all[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON, ATTN_ISA_WASM128};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const ref_matrices nothing = {0};
        const attn_product_problem p = matrices_problem(&nothing, dtype);
        const attn_product_tensors t = matrices_tensors(&nothing, NULL, NULL, NULL);
        const attn_options options = {.struct_size = sizeof options, .isa = all[i]};
        if (attn_product(&p, &t, &options, NULL) == ATTN_OK && index-- == 0) return all[i];
    }
    return ATTN_ISA_DEFAULT;
}

static void put(matrix *m, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F64) ((double *)m->data)[i] = x;
    else ((float *)m->data)[i] = (float)x;
}

static double get(const matrix *m, attn_dtype dtype, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)m->data)[i] : (double)((const float *)m->data)[i];
}

static matrix make(int64_t rows, int64_t columns, int64_t stride, attn_dtype dtype, random_state *random)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    matrix m = {.elements = rows > 0 ? (rows - 1) * stride + columns : 0};
    const size_t bytes = (size_t)m.elements * attn_dtype_size(dtype), whole = (bytes + page - 1) / page * page;
    m.map_bytes = whole + page;
    m.map = mmap(NULL, m.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m.map != MAP_FAILED);
    assert_int_equal(mprotect((char *)m.map + whole, page, PROT_NONE), 0);
    m.data = (char *)m.map + whole - bytes;
    m.exact = malloc((size_t)m.elements * sizeof(double) + 1);
    assert_non_null(m.exact);
    for (int64_t i = 0; i < m.elements; i++) {
        put(&m, dtype, i, random_signed(random));
        m.exact[i] = get(&m, dtype, i);
    }
    return m;
}

static double *copy(const double *from, int64_t count, int absolute)
{
    double *to = malloc((size_t)count * sizeof *to + 1);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++) to[i] = absolute ? fabs(from[i]) : from[i];
    return to;
}

product_case *case_create(const ref_matrices *product, attn_dtype dtype, uint64_t seed)
{
    product_case *c = calloc(1, sizeof *c);
    random_state random = random_from(seed);
    assert_non_null(c);
    ref_matrices *const p = &c->by_definition;
    *p = *product;
    matrices_dense(p);
    c->a = make(p->a_transposed ? p->inner : p->rows, matrices_row_a(p), p->stride_a, dtype, &random);
    c->b = make(p->b_transposed ? p->columns : p->inner, matrices_row_b(p), p->stride_b, dtype, &random);
    c->c = make(p->rows, p->columns, p->stride_c, dtype, &random);
    c->problem = matrices_problem(p, dtype);
    c->tensors = matrices_tensors(p, c->a.data, c->b.data, c->c.data);
    c->expected = copy(c->c.exact, c->c.elements, 0);
    c->bound = copy(c->c.exact, c->c.elements, 1);
    ref_product(p, c->a.exact, c->b.exact, c->expected);
    double *const a = copy(c->a.exact, c->a.elements, 1), *const b = copy(c->b.exact, c->b.elements, 1);
    ref_product(p, a, b, c->bound);
    free(a), free(b);
    return c;
}

void case_free(product_case *c)
{
    matrix *const all[] = {&c->a, &c->b, &c->c};
    for (int i = 0; i < 3; i++) {
        (void)munmap(all[i]->map, all[i]->map_bytes);
        free(all[i]->exact);
    }
    free(c->expected), free(c->bound), free(c);
}

void case_reset(product_case *c)
{
    for (int64_t i = 0; i < c->c.elements; i++) put(&c->c, c->problem.dtype, i, c->c.exact[i]);
}

double case_error(const product_case *c)
{
    const ref_matrices *p = &c->by_definition;
    const int64_t stride = p->stride_c;
    const attn_dtype dtype = c->problem.dtype;
    const double unit = dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24,
                 roundings = 5 + fmin((double)p->inner, 256) + (double)p->inner / 256 + p->add;
    double most = 0;
    for (int64_t i = 0; i < c->c.elements; i++) {
        const double got = get(&c->c, dtype, i), off = fabs(got - c->expected[i]);
        if (i % stride >= p->columns) {
            if (got != c->c.exact[i]) fail_msg("element %d, between the rows of C, was written", (int)i);
        } else {
            const double share = off / (roundings * unit * c->bound[i] + 1e-300);
            if (!(share <= most)) most = share;
        }
    }
    return most;
}

size_t case_bytes(const product_case *c) { return (size_t)c->c.elements * attn_dtype_size(c->problem.dtype); }
