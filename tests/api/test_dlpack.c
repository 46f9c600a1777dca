/* SPDX-License-Identifier: MIT
 * test_dlpack.c - DLTensors as slots: strides, pages, types, and what is refused, with the slot unchanged. */
#include "test.h"

#include "attn/attn.h"
#include "attn/dlpack.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#else /* as there */
typedef struct {
    int32_t device_type, device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;
#endif

enum { CPU = 1, FLOAT = 2 };

static double memory[64];

/* f32 over the memory. */
static DLTensor tensor_of(int ndim, int64_t *shape, int64_t *strides)
{
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = memory;
    memcpy(&t.device, &(int32_t){CPU}, sizeof(int32_t)); /* an enum in some versions */
    t.ndim = ndim;
    t.dtype.code = FLOAT, t.dtype.bits = 32, t.dtype.lanes = 1;
    t.shape = shape, t.strides = strides;
    return t;
}

static void test_views(void **state)
{
    static const struct {
        int ndim;
        int64_t shape[8], strides[8]; /* strides[0] -99: NULL */
        const char *axes;
        int64_t expected[4], first;
    } rows[] = {
        {4, {2, 3, 5, 7}, {-99}, "bhtc", {105, 35, 7, 1}, 0},
        {4, {2, 5, 3, 7}, {-99}, "bthc", {105, 7, 21, 1}, 0},
        {3, {5, 3, 7}, {30, 10, 1}, "thc", {0, 10, 30, 1}, 0}, /* packed, a slice of longer rows */
        {5, {2, 4, 16, 3, 8}, {-99}, "0bthc", {384, 8, 24, 1}, 0},
        {5, {2, 4, 16, 3, 8}, {-99}, "1bthc", {384, 8, 24, 1}, 1536},
        {5, {4, 2, 16, 3, 8}, {-99}, "b1thc", {768, 8, 24, 1}, 384},
        {2, {3, 6}, {-6, 1}, "bc", {-6, 0, 0, 1}, 0}, /* backwards */
        {1, {4}, {1}, "b", {1, 0, 0, 0}, 0},
        {4, {1, 3, 1, 7}, {99, 7, 99, 1}, "bhtc", {0, 7, 0, 1}, 0},
        {2, {4, 4}, {0, 0}, "tc", {ATTN_BROADCAST, 0, 0, 0}, 0},
        {0, {0}, {-99}, "", {ATTN_BROADCAST, 0, 0, 0}, 0},
    };
    (void)state;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        int64_t shape[8], strides[8];
        attn_input in = {0};
        attn_output out = {0};
        attn_error error;
        memcpy(shape, rows[n].shape, sizeof shape), memcpy(strides, rows[n].strides, sizeof strides);
        DLTensor t = tensor_of(rows[n].ndim, shape, strides[0] == -99 ? NULL : strides);
        t.byte_offset = 8;
        if (attn_dlpack_input(&t, rows[n].axes, NULL, &in, &error) != ATTN_OK) fail_msg("row %d: %s", (int)n, error.message);
        assert_int_equal(attn_dlpack_output(&t, rows[n].axes, NULL, &out, NULL), ATTN_OK);
        assert_memory_equal(&out, &in, sizeof in);
        assert_int_equal(in.dtype, ATTN_F32);
        assert_int_equal((uintptr_t)in.data, (uintptr_t)memory + 8 + 4 * (uintptr_t)rows[n].first);
        assert_memory_equal(in.stride, rows[n].expected, sizeof in.stride);
    }
}

/* Every type, and those that resemble one. */
static void test_types(void **state)
{
    static const attn_dtype expected[18][4] = {/* 8, 16, 32, 64 bits */
                                               [0] = {ATTN_I8, ATTN_I16, ATTN_I32, ATTN_I64},
                                               [1] = {ATTN_U8, ATTN_U16, ATTN_U32, ATTN_U64},
                                               [2] = {0, ATTN_F16, ATTN_F32, ATTN_F64},
                                               [4] = {0, ATTN_BF16, 0, 0},
                                               [6] = {ATTN_BOOL, 0, 0, 0},
                                               [10] = {ATTN_F8_E4M3, 0, 0, 0},
                                               [12] = {ATTN_F8_E5M2, 0, 0, 0}};
    (void)state;
    for (int code = 0; code < 18; code++)
        for (int k = 0; k < 4; k++) {
            DLTensor t = tensor_of(0, NULL, NULL);
            attn_input slot = {0};
            attn_error error;
            char message[128];
            t.dtype.code = (uint8_t)code, t.dtype.bits = (uint8_t)(8 << k);
            const attn_status status = attn_dlpack_input(&t, "", NULL, &slot, &error);
            assert_int_equal(slot.dtype, expected[code][k]);
            assert_int_equal(status, slot.dtype ? ATTN_OK : ATTN_ERR_UNSUPPORTED);
            (void)snprintf(message, sizeof message,
                           "the DLTensor has elements of type code %d with %d bits, which libattn does not have", code, 8 << k);
            assert_string_equal(error.message, status ? message : "");
        }
}

/* kDLCPU, kDLCUDAHost and kDLROCMHost. */
static void test_devices(void **state)
{
    (void)state;
    for (int32_t device = -1; device < 20; device++) {
        DLTensor t = tensor_of(0, NULL, NULL);
        attn_input slot;
        memcpy(&t.device, &device, sizeof device);
        const int on_host = device == 1 || device == 3 || device == 11;
        assert_int_equal(attn_dlpack_input(&t, "", NULL, &slot, NULL), on_host ? ATTN_OK : ATTN_ERR_ARGUMENT);
    }
}

static void test_rejected(void **state)
{
    static const struct {
        int device, lanes, ndim, no_shape, no_data, offset;
        const char *axes;
        attn_status status;
        const char *message;
    } rows[] = {
        {2, 1, 2, 0, 0, 0, "tc", ATTN_ERR_ARGUMENT,
         "the DLTensor is on a device of type 2; libattn computes on the CPU (types 1, 3 and 11)"},
        {1, 4, 2, 0, 0, 0, "tc", ATTN_ERR_UNSUPPORTED, "the DLTensor has elements of 4 lanes; they must have 1"},
        {1, 1, 2, 0, 0, 0, "tt", ATTN_ERR_ARGUMENT,
         "axes is \"tt\"; it has at most 8 of the letters b, h, t and c, each once, and digits"},
        {1, 1, 2, 0, 0, 0, "tx", ATTN_ERR_ARGUMENT,
         "axes is \"tx\"; it has at most 8 of the letters b, h, t and c, each once, and digits"},
        {1, 1, 2, 0, 0, 0, "000000000000", ATTN_ERR_ARGUMENT,
         "axes is \"000000000000\"; it has at most 8 of the letters b, h, t and c, each once, and digits"},
        {1, 1, 3, 0, 0, 0, "tc", ATTN_ERR_SHAPE, "the DLTensor has 3 axes, and \"tc\" has 2"},
        {1, 1, -1, 0, 0, 0, "", ATTN_ERR_SHAPE, "the DLTensor has -1 axes, and \"\" has 0"},
        {1, 1, 2, 1, 0, 0, "tc", ATTN_ERR_ARGUMENT, "the DLTensor has 2 axes, and its shape is NULL"},
        {1, 1, 3, 0, 0, 0, "btc", ATTN_ERR_SHAPE, "axis 2 of the DLTensor has size -1"},
        {1, 1, 2, 0, 0, 0, "t3", ATTN_ERR_SHAPE, "axis 1 of the DLTensor has size 3, and \"t3\" takes index 3"},
        {1, 1, 2, 0, 0, 0, "hc", ATTN_ERR_SHAPE, "axis h of the DLTensor has size 2; it must have 1"},
        {1, 1, 2, 0, 1, 0, "tc", ATTN_ERR_ARGUMENT, "the DLTensor has elements, and its data is NULL"},
        {1, 1, 2, 0, 0, 2, "tc", ATTN_ERR_ARGUMENT, "the DLTensor is not aligned to its elements of 4 bytes"},
    };
    static const int64_t wanted[4] = {1, 1, 2, 3};
    int64_t shape[3] = {2, 3, -1};
    attn_input slot, untouched;
    attn_error error;
    (void)state;
    memset(&slot, 0x5a, sizeof slot);
    untouched = slot;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        DLTensor t = tensor_of(rows[n].ndim, rows[n].no_shape ? NULL : shape, NULL);
        attn_output out;
        const int64_t *sizes = strcmp(rows[n].axes, "hc") == 0 ? wanted : NULL;
        memcpy(&t.device, &rows[n].device, sizeof(int32_t));
        t.dtype.lanes = (uint16_t)rows[n].lanes;
        t.byte_offset = (uint64_t)rows[n].offset;
        if (rows[n].no_data) t.data = NULL;
        const attn_status status = attn_dlpack_input(&t, rows[n].axes, sizes, &slot, &error);
        if (status != rows[n].status || strcmp(error.message, rows[n].message) != 0)
            fail_msg("row %d: expected %d: %s\n  got %d: %s", (int)n, (int)rows[n].status, rows[n].message, (int)status,
                     error.message);
        assert_memory_equal(&slot, &untouched, sizeof slot);
        memcpy(&out, &slot, sizeof out);
        assert_int_equal(attn_dlpack_output(&t, rows[n].axes, sizes, &out, NULL), status);
        assert_memory_equal(&out, &untouched, sizeof out);
    }
    const DLTensor t = tensor_of(2, shape, NULL);
    assert_int_equal(attn_dlpack_input(&t, "tc", wanted, &slot, NULL), ATTN_OK);
    assert_int_equal(attn_dlpack_input(NULL, "tc", NULL, &slot, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "tensor is NULL");
    assert_int_equal(attn_dlpack_input(&t, NULL, NULL, &slot, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "axes is NULL");
    assert_int_equal(attn_dlpack_input(&t, "tc", NULL, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "slot is NULL");
    assert_int_equal(attn_dlpack_output(&t, "tc", NULL, NULL, &error), ATTN_ERR_ARGUMENT);
}

/* Nothing to read; and one number, which is not taken for a dense tensor of whatever the problem says. */
static void test_extremes(void **state)
{
    static const attn_problem one = {.struct_size = sizeof one, .shape = {1, 1, 1, 1, 1, 1, 1}},
                              more = {.struct_size = sizeof more, .shape = {1, 1, 1, 4, 1, 1, 1}};
    int64_t shape[4] = {2, 0, 3, 4};
    attn_tensors t = {.struct_size = sizeof t};
    attn_error error;
    (void)state;
    DLTensor x = tensor_of(4, shape, NULL);
    x.data = NULL;
    assert_int_equal(attn_dlpack_input(&x, "bhtc", NULL, &t.q, NULL), ATTN_OK);
    assert_ptr_equal(t.q.data, ATTN_EMPTY);
    shape[0] = shape[1] = shape[2] = shape[3] = 1;
    x = tensor_of(4, shape, NULL);
    attn_input *const inputs[] = {&t.q, &t.k, &t.v};
    for (int i = 0; i < 3; i++) assert_int_equal(attn_dlpack_input(&x, "bhtc", NULL, inputs[i], NULL), ATTN_OK);
    x.byte_offset = 4;
    assert_int_equal(attn_dlpack_output(&x, "bhtc", NULL, &t.o, NULL), ATTN_OK);
    assert_int_equal(attn_compute(&one, &t, &error), ATTN_OK);
    assert_int_equal(attn_compute(&more, &t, &error), ATTN_ERR_STRIDE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_views), cmocka_unit_test(test_types), cmocka_unit_test(test_devices),
                                       cmocka_unit_test(test_rejected), cmocka_unit_test(test_extremes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
