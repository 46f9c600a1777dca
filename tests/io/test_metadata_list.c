/* SPDX-License-Identifier: MIT
 *
 * test_metadata_list.c - the items of metadata that is a JSON list.
 */
#include "io_test.h"

static void lists_have_items(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *items[7]; /* and NULL */
    } lists[] = {
        {"[]", {0}},
        {" [ ] ", {0}},
        {"[\"the\", \"na\xC3\xAFve\",\"\"]", {"the", "na\xC3\xAFve", ""}},
        {"[-0,-2.5e+3 , true,false,null,10E05]", {"-0", "-2.5e+3", "true", "false", "null", "10E05"}},
        {"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]", {"\"\\/\b\f\n\r\t"}},
        {"[\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"]", {"A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"}},
        {"[[1,[\"]\"]], {\"a\": \"\\\"}\"}, 2]", {"[1,[\"]\"]]", "{\"a\": \"\\\"}\"}", "2"}},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        attn_archive *file = io_create();
        attn_metadata_list *list;
        attn_error error;
        int64_t count = 0;
        assert_int_equal(attn_archive_set_metadata(file, "list", lists[i].value, NULL), ATTN_OK);
        if (attn_metadata_list_create(&list, file, "list", &error)) fail_msg("%s", error.message);
        attn_archive_destroy(file); /* the list does not need it */
        while (lists[i].items[count]) count++;
        assert_int_equal(list->count, count);
        for (int64_t k = 0; k < count; k++) assert_string_equal(list->items[k], lists[i].items[k]);
        attn_metadata_list_destroy(list);
    }
}

static void says_what_is_no_list(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int byte;
    } wrong[] = {{"", 0},
                 {"the animal", 0},
                 {"{\"a\": 1}", 0},
                 {"[", 1},
                 {"[1", 2},
                 {"[1,", 3},
                 {"[1 2]", 3},
                 {"[,]", 1},
                 {"[1,]", 3},
                 {"[1]x", 3},
                 {"[tru]", 1},
                 {"[truee]", 1},
                 {"[\"a]", 4},
                 {"[\"\\x\"]", 3},
                 {"[\"\\u0000\"]", 3},
                 {"[\"\\u12\"]", 3},
                 {"[\"\\ud83d\"]", 8},
                 {"[\"\\ude00\"]", 8},
                 {"[\"\n\"]", 2},
                 {"[\"\\ud83d\\u0041\"]", 8},
                 {"[[1]", 4},
                 {"[{\"]\"}", 6},
                 {"[\"\\", 3},
                 {"[+1]", 1},
                 {"[1-2+e]", 1},
                 {"[-]", 1},
                 {"[01]", 1},
                 {"[1.]", 1},
                 {"[.5]", 1},
                 {"[1.2.3]", 1},
                 {"[1e]", 1},
                 {"[1e+]", 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        attn_archive *file = io_create();
        attn_metadata_list *list = NULL;
        char message[80];
        assert_int_equal(attn_archive_set_metadata(file, "list", wrong[i].value, NULL), ATTN_OK);
        snprintf(message, sizeof message, "metadata 'list': not a JSON list, from byte %d on", wrong[i].byte);
        FAILS(attn_metadata_list_create(&list, file, "list", &error), ATTN_ERR_FORMAT, message);
        assert_null(list);
        attn_archive_destroy(file);
    }
}

static void bad_arguments_are_rejected(void **state)
{
    (void)state;
    attn_archive *file = io_create();
    attn_metadata_list *list;
    FAILS(attn_metadata_list_create(NULL, file, "list", &error), ATTN_ERR_ARGUMENT, "list is NULL");
    FAILS(attn_metadata_list_create(&list, NULL, "list", &error), ATTN_ERR_ARGUMENT, "archive is NULL");
    FAILS(attn_metadata_list_create(&list, file, NULL, &error), ATTN_ERR_ARGUMENT, "key is NULL");
    FAILS(attn_metadata_list_create(&list, file, "list\n", &error), ATTN_ERR_ARGUMENT, "no metadata has the key 'list?'");
    assert_null(list);
    attn_metadata_list_destroy(NULL);
    attn_archive_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_have_items),
        cmocka_unit_test(says_what_is_no_list),
        cmocka_unit_test(bad_arguments_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
