/* SPDX-License-Identifier: MIT
 *
 * test_text.c - texts that were damaged at random, through the reader of tensors in text: each is read, with as many numbers as its
 * shape says, or refused with its line and column, and never read beyond its end.  tests/cli/text.py has the meaning of texts. */
#include "test.h"

#include "cli/base/tensor_file.h"
#include "testing/random/random.h"
#include "testing/text/failure.h"

static const char *const seeds[] = {
    "1 0; 0 1",
    "1.5,-2e-3,inf\n# rows\n\t0.25, nan ,7\r\n",
    "[[1, 0, 2], [3.5, -inf, 4]]",
    "[[[1 2]\n  [3 4]]\n [[5 6]\n  [7 8]]]",
    ("{\"q\": [[1, 0], [0, 1]], \"mask\": [[true, false]], \"lengths_kv\": [3], \"scale\": 0.5, \"tokens\": [\"a\", \"b\\u00e9\"],"
     " \"about\": {\"x\": [1, {\"y\": null}]}, \"note\": \"a \\\"word\\\"\"}"),
    "true false; false true",
    "[[], []]",
};
enum { SEEDS = sizeof seeds / sizeof *seeds };

/* A seed with some of its characters replaced, removed or doubled. */
static char *damaged(random_state *random)
{
    static const char letters[] = "0159.,;:-+eE[]{}\"\\ \n#truefalsnu\xc3";
    const char *from = seeds[random_below(random, SEEDS)];
    const size_t length = strlen(from);
    char *text = need_memory(2 * (int64_t)length + 1, 1);
    size_t used = 0;
    for (size_t k = 0; k < length; k++) {
        const int64_t what = random_below(random, (int64_t)length);
        if (what == 0) continue;
        text[used++] = what == 1 ? letters[random_below(random, (int64_t)sizeof letters - 1)] : from[k];
        if (what == 2) text[used++] = from[k];
    }
    char *exact = need_text(text, used); /* so that a read beyond its end is one beyond its block */
    free(text);
    return exact;
}

static void assert_archive(const attn_archive *archive)
{
    for (int64_t n = 0; n < attn_archive_count(archive); n++) {
        const attn_archive_tensor *t = attn_archive_at(archive, n);
        size_t bytes = attn_dtype_size(t->dtype);
        for (int axis = 0; axis < t->rank; axis++) bytes *= (size_t)t->shape[axis];
        assert_int_equal(t->bytes, bytes);
        for (size_t k = 0; t->dtype == ATTN_BOOL && k < bytes; k++) assert_true(((const unsigned char *)t->data)[k] <= 1);
    }
}

static void read_or_refused(void **state)
{
    random_state random = random_from(5);
    int read = 0, refused = 0;
    (void)state;
    for (int n = 0; n < CASES(40000); n++) {
        char *text = damaged(&random);
        attn_archive *archive = NULL;
        attn_error error = {0};
        tensor_text how = {n % 3 ? "q" : "mask", n % 2 ? ATTN_F32 : ATTN_F64, 0};
        if (tensor_text_read(&archive, "text", text, &how, &error) == ATTN_OK) {
            assert_archive(archive);
            attn_archive_destroy(archive);
            read++;
        } else {
            assert_null(archive);
            /* what the container refuses, a name given twice say, has no place in the text */
            if (strncmp(error.message, "text: line ", 11) != 0 && !strstr(error.message, "tensor") &&
                !strstr(error.message, "metadata"))
                fail_msg("%s: %s", text, error.message);
            refused++;
        }
        free(text);
    }
    assert_true(read > CASES(4000) && refused > CASES(4000));
}

static void seeds_are_read(void **state)
{
    (void)state;
    for (int n = 0; n < SEEDS; n++) {
        attn_archive *archive = NULL;
        attn_error error;
        tensor_text how = {"q", ATTN_F32, 0};
        if (tensor_text_read(&archive, "text", seeds[n], &how, &error) != ATTN_OK) fail_msg("%s: %s", seeds[n], error.message);
        assert_archive(archive);
        attn_archive_destroy(archive);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(seeds_are_read), cmocka_unit_test(read_or_refused)};
    return cmocka_run_group_tests_name("cli/text_damaged", tests, NULL, NULL);
}
