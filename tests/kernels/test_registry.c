/* SPDX-License-Identifier: MIT
 *
 * test_registry.c - the rows of kernels.def, and that inherited parts fit a set's own: the parts of a kernel work on each other's
 * buffers, and a CPU that runs the set has all features that they need.
 */
#include <string.h>

#include "../../src/core/base/cpu.h"
#include "kernel_test.h"

/* 1 if a part of `size` bytes has every function from offset `from` on. */
static int is_whole(const char *part, size_t from, size_t size)
{
    void (*function)(void);
    for (size_t at = from; at < size; at += sizeof function) {
        memcpy(&function, part + at, sizeof function);
        if (!function) return 0;
    }
    return 1;
}

static int is_same(const attn_tile_shape *a, const attn_tile_shape *b)
{
    return a->lanes == b->lanes && a->vectors == b->vectors && a->fused == b->fused;
}

/* The offset of the first function of a part, after its tile shape. */
#define FUNCTIONS                                                                                                                  \
    (sizeof(struct {                                                                                                               \
         attn_tile_shape shape;                                                                                                    \
         void (*function)(void);                                                                                                   \
     }) -                                                                                                                          \
     sizeof(void (*)(void)))

/* Sets that leave small sequences to tiles have only the shape in these parts. */
static int may_be_empty(const char *part) { return strncmp(part, "small", 5) == 0; }

static void check_kernel(const attn_kernel_row *row)
{
    attn_kernel k;
    attn_kernel_assemble(row, &k);
    assert_true(attn_kernel_merge(row) == k.merge && attn_kernel_matrix(row) == k.matrix &&
                attn_kernel_transfer(row) == k.transfer);
    assert_in_range(k.lanes * k.vectors, 1, MAX_LANES);
    assert_in_range(k.vectors, 1, ATTN_MAX_VECTORS);
    assert_true(k.lanes == k.product->shape.lanes && k.vectors == k.product->shape.vectors);
#define SPECIAL(part, type)                                                                                                        \
    if (k.part) {                                                                                                                  \
        if (!is_same(&k.part->shape, &k.product->shape)) fail_msg("%s: " #part " has another tile shape", row->name);              \
        if (!may_be_empty(#part) && !is_whole((const char *)k.part, FUNCTIONS, sizeof(type)))                                      \
            fail_msg("%s: " #part " lacks a function", row->name);                                                                 \
    }
#define PART(part, type)                                                                                                           \
    if (!k.part) fail_msg("%s: " #part " is nowhere", row->name);                                                                  \
    SPECIAL(part, type)
#define SEPARATE(part, type)                                                                                                       \
    if (!k.part) fail_msg("%s: " #part " is nowhere", row->name);
#define WIDE(part, type)                                                                                                           \
    if (!k.part != (row->compute != ATTN_F64)) fail_msg("%s: " #part " is nowhere, or in float", row->name);
#include "../../src/core/kernels/parts.def"
    assert_true(is_whole((const char *)k.merge, 0, sizeof *k.merge));
    if (k.transfer) assert_true(is_whole((const char *)k.transfer, 0, sizeof *k.transfer));
    assert_true(k.product->block_kv(0, 0) > 0 && k.product->block_kv(1 << 20, 1 << 20) > 0);
    const int64_t block = k.decode->block_kv(64, 64);
    assert_true(block > 0 && block % k.decode->shape.lanes == 0);
    if (row->op == ATTN_FORWARD || row->op == ATTN_BACKWARD)
        assert_true(row->pairs == (row->decode ? k.decode_pairs != NULL : k.pairs != NULL));
    else assert_true(!row->pairs && !k.pairs);
}

void test_registry(void **state)
{
    int scalar = 0;
    (void)state;
    assert_null(attn_kernel_at(-1));
    for (int r = 0; attn_kernel_at(r); r++) {
        const attn_kernel_row *row = attn_kernel_at(r);
        const attn_kernel_set *set = row->set;
        check_kernel(row);
        assert_true(row->compute == ATTN_F32 || row->compute == ATTN_F64);
        assert_true(!row->decode || row->op == ATTN_FORWARD);
        assert_true(row->needs == set->needs);
        if (r) assert_true(row->isa <= attn_kernel_at(r - 1)->isa);
        assert_true((row->isa == ATTN_ISA_SCALAR) == (row->needs == 0));
        scalar += row->isa == ATTN_ISA_SCALAR;
        for (uint32_t bit = 1; bit; bit <<= 1) {
            char word[32];
            attn_cpu_feature_names(row->needs & bit, word, sizeof word);
            if ((row->needs & bit) && !*word) fail_msg("%s needs the feature %x, which has no name", row->name, (unsigned)bit);
        }
        for (; set->below; set = set->below)
            assert_true((set->needs & set->below->needs) == set->below->needs && set->needs != set->below->needs);
    }
    assert_int_equal(scalar, 14); /* six operations and decode, f32 and f64 */
}
