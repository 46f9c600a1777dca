/* SPDX-License-Identifier: MIT
 * test_embedded.c - the package for browsers in the command: there, or an error that says what was missing. */
#include <string.h>

#include "cli/base/embedded.h"
#include "test.h"

static int begins(const void *bytes, size_t size, const char *with)
{
    return size > strlen(with) && memcmp(bytes, with, strlen(with)) == 0;
}

static void test_package(void **state)
{
    embedded_package package;
    attn_error error = {.status = ATTN_OK};
    (void)state;
    const attn_status status = embedded_find(&package, &error);
    if (status == ATTN_OK) {
        assert_true(begins(package.wasm, package.wasm_bytes, "\x1f\x8b\x08")); /* gzip, deflate */
        assert_in_range(package.wasm_bytes, 100000, 460800);
        assert_true(begins(package.script, package.script_bytes, "// SPDX-License-Identifier: MIT\n// index.js"));
        assert_int_equal(package.script[package.script_bytes - 1], '\n');
        return;
    }
    static const char says[] = "this attn was built without WebAssembly; it was missing ";
    assert_int_equal(status, ATTN_ERR_UNSUPPORTED);
    assert_int_equal(error.status, ATTN_ERR_UNSUPPORTED);
    assert_true(begins(error.message, strlen(error.message), says));
    assert_null(package.wasm);
    assert_null(package.script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_package)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
