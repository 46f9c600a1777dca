/* SPDX-License-Identifier: MIT
 *
 * test_container.c - the container: tensors and metadata come out sorted by name, and every rejection has its message.
 */
#include "io_test.h"

static void finds_what_was_added(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    const char *names[] = {"v", "k", "q", "zebra", "Q", "k.weight", "\xE7\x8B\x97"};
    const char *sorted[] = {"Q", "k", "k.weight", "q", "v", "zebra", "\xE7\x8B\x97"};
    const int64_t shape[] = {2, 3};
    float data[6];
    io_fill(ATTN_F32, data, 6);
    for (int i = 0; i < 7; i++) assert_int_equal(attn_archive_add(tensors, names[i], ATTN_F32, 2, shape, data, NULL), ATTN_OK);
    assert_int_equal(attn_archive_count(tensors), 7);
    for (int i = 0; i < 7; i++) {
        assert_string_equal(attn_archive_at(tensors, i)->name, sorted[i]);
        assert_ptr_equal(attn_archive_find(tensors, sorted[i]), attn_archive_at(tensors, i));
        assert_ptr_equal(attn_archive_at(tensors, i)->data, data);
        io_assert_counts(tensors, names[i], ATTN_F32, 2, shape);
    }
    assert_null(attn_archive_at(tensors, -1));
    assert_null(attn_archive_at(tensors, 7));
    assert_null(attn_archive_find(tensors, "kv"));
    assert_null(attn_archive_find(tensors, NULL));
    attn_archive_destroy(tensors);
}

static void keeps_pointers_while_it_grows(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    char name[16] = "m";
    io_add_counting(tensors, name, ATTN_I8, 0, NULL);
    const attn_archive_tensor *first = attn_archive_find(tensors, "m");
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "%d", i * 7919 % 100);
        io_add_counting(tensors, name, ATTN_U16, 1, &(int64_t){3});
    }
    assert_ptr_equal(attn_archive_find(tensors, "m"), first);
    assert_string_equal(first->name, "m");
    assert_int_equal(attn_archive_count(tensors), 101);
    attn_archive_destroy(tensors);
}

static void allocates_zeros(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    unsigned char zeros[24] = {0};
    void *data = NULL;
    assert_int_equal(attn_archive_allocate(tensors, "o", ATTN_F64, 1, &(int64_t){3}, &data, NULL), ATTN_OK);
    assert_memory_equal(data, zeros, sizeof zeros);
    assert_ptr_equal(attn_archive_find(tensors, "o")->data, data);
    assert_int_equal(attn_archive_allocate(tensors, "none", ATTN_F64, 2, (int64_t[]){0, 5}, &data, NULL), ATTN_OK);
    assert_non_null(data);
    attn_archive_destroy(tensors);
}

static void removes(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    void *data;
    io_add_counting(tensors, "a", ATTN_U16, 1, &(int64_t){3});
    io_add_counting(tensors, "c", ATTN_U16, 1, &(int64_t){5});
    assert_int_equal(attn_archive_allocate(tensors, "b", ATTN_F64, 1, &(int64_t){3}, &data, NULL), ATTN_OK);
    assert_int_equal(attn_archive_remove(tensors, "b", NULL), ATTN_OK);
    assert_int_equal(attn_archive_count(tensors), 2);
    assert_null(attn_archive_find(tensors, "b"));
    assert_int_equal(attn_archive_find(tensors, "c")->shape[0], 5);
    assert_ptr_equal(attn_archive_at(tensors, 1), attn_archive_find(tensors, "c"));
    FAILS(attn_archive_remove(tensors, "b", &error), ATTN_ERR_ARGUMENT, "no tensor has the name 'b'");
    FAILS(attn_archive_remove(tensors, NULL, &error), ATTN_ERR_ARGUMENT, "name is NULL");
    FAILS(attn_archive_remove(NULL, "b", &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    assert_int_equal(attn_archive_allocate(tensors, "b", ATTN_F64, 1, &(int64_t){3}, &data, NULL), ATTN_OK);
    attn_archive_destroy(tensors);
}

static void keeps_metadata(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    assert_int_equal(attn_archive_metadata_count(tensors), 0);
    assert_null(attn_archive_get_metadata(tensors, "tokens"));
    assert_int_equal(attn_archive_set_metadata(tensors, "tokens", "[\"it\"]", NULL), ATTN_OK);
    assert_int_equal(attn_archive_set_metadata(tensors, "layer", "3", NULL), ATTN_OK);
    assert_int_equal(attn_archive_set_metadata(tensors, "tokens", "[]", NULL), ATTN_OK);
    assert_int_equal(attn_archive_metadata_count(tensors), 2);
    assert_string_equal(attn_archive_metadata_at(tensors, 0)->key, "layer");
    assert_string_equal(attn_archive_metadata_at(tensors, 0)->value, "3");
    assert_string_equal(attn_archive_get_metadata(tensors, "tokens"), "[]");
    assert_null(attn_archive_metadata_at(tensors, 2));
    assert_null(attn_archive_metadata_at(tensors, -1));
    attn_archive_destroy(tensors);
}

static const struct {
    const char *name;
    int dtype, rank;
    int64_t shape[3];
    attn_status status;
    const char *message;
} rejected[] = {
    {NULL, ATTN_F32, 1, {1}, ATTN_ERR_ARGUMENT, "name is NULL"},
    {"", ATTN_F32, 1, {1}, ATTN_ERR_ARGUMENT, "a tensor has an empty name"},
    {"caf\xE9\n", ATTN_F32, 1, {1}, ATTN_ERR_ARGUMENT, "tensor name 'caf?\?' is not UTF-8"},
    {"__metadata__", ATTN_F32, 1, {1}, ATTN_ERR_ARGUMENT, "no tensor can have the name '__metadata__'"},
    {"taken", ATTN_F32, 1, {1}, ATTN_ERR_ARGUMENT, "tensor 'taken': the name is taken"},
    {"q", 0, 1, {1}, ATTN_ERR_ARGUMENT, "tensor 'q': dtype 0 is not a type"},
    {"q", 99, 1, {1}, ATTN_ERR_ARGUMENT, "tensor 'q': dtype 99 is not a type"},
    {"q", ATTN_Q8_0, 1, {1}, ATTN_ERR_UNSUPPORTED, "tensor 'q': files have no tensors of q8_0"},
    {"q", ATTN_F32, -1, {1}, ATTN_ERR_ARGUMENT, "tensor 'q': rank -1 is not between 0 and 8"},
    {"q", ATTN_F32, 9, {1}, ATTN_ERR_ARGUMENT, "tensor 'q': rank 9 is not between 0 and 8"},
    {"q", ATTN_F32, 2, {2, -3}, ATTN_ERR_SHAPE, "tensor 'q': no tensor of f32 can have the shape [2, -3]"},
    {"q",
     ATTN_F32,
     2,
     {1LL << 31, 1LL << 31},
     ATTN_ERR_SHAPE,
     "tensor 'q': no tensor of f32 can have the shape [2147483648, 2147483648]"},
    {"q",
     ATTN_F64,
     3,
     {0, INT64_MAX, 2},
     ATTN_ERR_SHAPE,
     "tensor 'q': no tensor of f64 can have the shape [0, 9223372036854775807, 2]"},
};

static void rejects_what_is_no_tensor(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    double data[4] = {0};
    void *owned;
    io_add_counting(tensors, "taken", ATTN_F32, 1, &(int64_t){1});
    for (size_t i = 0; i < sizeof rejected / sizeof rejected[0]; i++) {
        attn_dtype dtype = (attn_dtype)rejected[i].dtype;
        FAILS(attn_archive_add(tensors, rejected[i].name, dtype, rejected[i].rank, rejected[i].shape, data, &error),
              rejected[i].status, rejected[i].message);
        owned = data;
        FAILS(attn_archive_allocate(tensors, rejected[i].name, dtype, rejected[i].rank, rejected[i].shape, &owned, &error),
              rejected[i].status, rejected[i].message);
        assert_null(owned);
    }
    const int64_t one = 1;
    FAILS(attn_archive_add(tensors, "q", ATTN_F32, 1, &one, NULL, &error), ATTN_ERR_ARGUMENT, "tensor 'q': data is NULL");
    FAILS(attn_archive_add(tensors, "q", ATTN_F32, 1, NULL, data, &error), ATTN_ERR_ARGUMENT, "tensor 'q': shape is NULL");
    FAILS(attn_archive_add(tensors, "q", ATTN_F32, 1, &one, (char *)data + 2, &error), ATTN_ERR_ARGUMENT,
          "tensor 'q': data is not aligned to an element of f32");
    FAILS(attn_archive_add(NULL, "q", ATTN_F32, 1, &one, data, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    FAILS(attn_archive_allocate(tensors, "q", ATTN_F32, 1, &one, NULL, &error), ATTN_ERR_ARGUMENT, "data is NULL");
    FAILS(attn_archive_create(NULL, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    assert_int_equal(attn_archive_add(tensors, "none", ATTN_F32, 1, &(int64_t){0}, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_archive_count(tensors), 2);
    attn_archive_destroy(tensors);
}

static void rejects_what_is_no_text(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    FAILS(attn_archive_set_metadata(NULL, "a", "b", &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    FAILS(attn_archive_set_metadata(tensors, NULL, "b", &error), ATTN_ERR_ARGUMENT, "key is NULL");
    FAILS(attn_archive_set_metadata(tensors, "a", NULL, &error), ATTN_ERR_ARGUMENT, "value is NULL");
    /* Unicode table 3-7: lone continuation, overlong, surrogate, beyond U+10FFFF, cut short. */
    const char *broken[] = {
        "\x80", "\xC0\x80", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"};
    for (int i = 0; i < 8; i++) {
        FAILS(attn_archive_set_metadata(tensors, "note", broken[i], &error), ATTN_ERR_ARGUMENT, "metadata 'note' is not UTF-8");
        assert_int_equal(attn_archive_set_metadata(tensors, broken[i], "b", NULL), ATTN_ERR_ARGUMENT);
    }
    const char *whole[] = {"\xC2\x80",         "\xE0\xA0\x80",     "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "\x7F",         ""};
    for (int i = 0; i < 8; i++) assert_int_equal(attn_archive_set_metadata(tensors, whole[i], whole[i], NULL), ATTN_OK);
    assert_int_equal(attn_archive_metadata_count(tensors), 8);
    attn_archive_destroy(tensors);
}

static void is_nothing_where_there_is_no_container(void **state)
{
    (void)state;
    attn_archive_destroy(NULL);
    assert_int_equal(attn_archive_count(NULL), 0);
    assert_int_equal(attn_archive_metadata_count(NULL), 0);
    assert_null(attn_archive_at(NULL, 0));
    assert_null(attn_archive_find(NULL, "q"));
    assert_null(attn_archive_metadata_at(NULL, 0));
    assert_null(attn_archive_get_metadata(NULL, "q"));
}

/* A message keeps the end of a long path and the beginning of a long name, and is one line of complete characters. */
static void shortens_long_names(void **state)
{
    (void)state;
    attn_error error;
    attn_archive *tensors;
    char path[400] = "";
    for (int i = 0; i < 30; i++) strcat(path, "folder/\xC3\xA4\n");
    strcat(path, "file.npy");
    assert_int_equal(attn_archive_read(&tensors, path, &error), ATTN_ERR_IO);
    assert_string_equal(
        error.message,
        "...folder/\xC3\xA4?folder/\xC3\xA4?folder/\xC3\xA4?folder/\xC3\xA4?folder/\xC3\xA4?folder/\xC3\xA4?file.npy: "
        "cannot open: No such file or directory");
    tensors = io_create();
    char name[200];
    memset(name, 'n', 199);
    name[199] = '\0';
    assert_int_equal(attn_archive_add(tensors, name, ATTN_F32, 9, NULL, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "tensor 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...': "
                                       "rank 9 is not between 0 and 8");
    attn_archive_destroy(tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_added),    cmocka_unit_test(keeps_pointers_while_it_grows),
        cmocka_unit_test(allocates_zeros),         cmocka_unit_test(removes),
        cmocka_unit_test(keeps_metadata),          cmocka_unit_test(rejects_what_is_no_tensor),
        cmocka_unit_test(rejects_what_is_no_text), cmocka_unit_test(is_nothing_where_there_is_no_container),
        cmocka_unit_test(shortens_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
