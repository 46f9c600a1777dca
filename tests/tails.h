/* SPDX-License-Identifier: MIT
 * tails.h - rules for every struct with struct_size: impossible sizes are rejected, fields of a newer program beyond our size must
 * be 0, and padding inside slots is ignored. */
#ifndef ATTN_TESTS_TAILS_H
#define ATTN_TESTS_TAILS_H

#include "test.h"

#include "attn/types.h"

typedef attn_status tails_run(const void *given, attn_error *error);

enum { TAILS_CAPACITY = 8192, TAILS_PADDING = offsetof(attn_input, dtype) + sizeof(attn_dtype) };

static inline void tails_rejected(const char *name, tails_run *run, const void *given, attn_status expected, const char *what,
                                  size_t n)
{
    attn_error error;
    memset(&error, 0xa5, sizeof error);
    const attn_status status = run(given, &error);
    if (status != expected || error.status != status || error.tensor != -1 || !strstr(error.message, name))
        fail_msg("%s, %s %zu: status %d: %s", name, what, n, (int)status, error.message);
}

/* `valid` is a struct of this size that the call accepts; slots: 1 if the struct ends in slots (attn_input, attn_output). */
static inline void expect_tails(const char *name, const void *valid, size_t size, int slots, tails_run *run)
{
    static _Alignas(16) unsigned char bytes[TAILS_CAPACITY];
    const size_t wrong[] = {0, 1, 4, size - 8, size + 1, size + 4, size + (slots ? 8 : 7), SIZE_MAX, ((size_t)1 << 20) + 8};
    const size_t longer = size + sizeof(attn_input);
    attn_error error;
    assert_true(longer + 8 <= sizeof bytes);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, valid, size);
        memcpy(bytes, &wrong[i], sizeof wrong[i]);
        tails_rejected(name, run, bytes, ATTN_ERR_ARGUMENT, "struct_size", wrong[i]);
    }
    for (size_t at = size; at <= longer; at++) {
        const size_t in_slot = at - size;
        const int padding = slots && in_slot >= TAILS_PADDING && in_slot < offsetof(attn_input, stride);
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, valid, size);
        memcpy(bytes, &longer, sizeof longer);
        bytes[at] = 1;
        if (at < longer && !padding) tails_rejected(name, run, bytes, ATTN_ERR_UNSUPPORTED, "a tail at byte", at);
        else if (run(bytes, &error) != ATTN_OK) fail_msg("%s, byte %zu: %s", name, at, error.message);
    }
}

/* The same for a struct that the call fills in: bytes after the caller's size stay untouched, bytes beyond ours become 0. */
static inline void expect_filled(const char *name, const void *valid, size_t size, tails_run *run)
{
    static _Alignas(16) unsigned char bytes[TAILS_CAPACITY];
    const size_t wrong[] = {0, 1, 4, size - 8, size + 1, SIZE_MAX, ((size_t)1 << 20) + 8};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memset(bytes, 0x5a, sizeof bytes);
        memcpy(bytes, valid, size);
        memcpy(bytes, &wrong[i], sizeof wrong[i]);
        tails_rejected(name, run, bytes, ATTN_ERR_ARGUMENT, "struct_size", wrong[i]);
        assert_memory_equal(bytes + sizeof wrong[i], (const char *)valid + sizeof wrong[i], size - sizeof wrong[i]);
    }
    for (size_t given = size; given < size + 24; given += 8) {
        attn_error error;
        memset(bytes, 0x5a, sizeof bytes);
        memcpy(bytes, valid, size);
        memcpy(bytes, &given, sizeof given);
        if (run(bytes, &error) != ATTN_OK) fail_msg("%s of %zu bytes: %s", name, given, error.message);
        assert_memory_equal(bytes, &given, sizeof given);
        for (size_t at = size; at < sizeof bytes; at++) assert_int_equal(bytes[at], at < given ? 0 : 0x5a);
    }
}

/* run_NAME: a call, as an expression of x, the struct that is cut, and e, the error. */
#define RUN(name, call)                                                                                                            \
    static attn_status run_##name(const void *x, attn_error *e) { return call; }
/* The same where x is what a field of `copy`, a copy of `valid`, points to. */
#define RUN_AT(name, type, valid, field, call)                                                                                     \
    static attn_status run_##name(const void *x, attn_error *e)                                                                    \
    {                                                                                                                              \
        type copy = (valid);                                                                                                       \
        copy.field = x;                                                                                                            \
        return call;                                                                                                               \
    }

/* One row of a test.  The test defines make(), which sets up its valid structs afresh. */
#define TAILS(type, valid, slots, run)                                                                                             \
    do {                                                                                                                           \
        const type *const of = &(valid);                                                                                           \
        make();                                                                                                                    \
        expect_tails(#type, of, sizeof *of, slots, run);                                                                           \
    } while (0)
#define FILLED(type, valid, run)                                                                                                   \
    do {                                                                                                                           \
        const type *const of = &(valid);                                                                                           \
        make();                                                                                                                    \
        expect_filled(#type, of, sizeof *of, run);                                                                                 \
    } while (0)

#endif
