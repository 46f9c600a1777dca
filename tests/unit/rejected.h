/* SPDX-License-Identifier: MIT
 *
 * rejected.h - a valid call, invalidated in one place: checks its status, its exact message, and that outputs are untouched. */
#ifndef ATTN_TESTS_UNIT_REJECTED_H
#define ATTN_TESTS_UNIT_REJECTED_H

#include "named.h"
#include "small.h"

/* Plans and executes; the error is that of the first that rejects. */
static inline attn_status attempt(small *s, attn_error *error)
{
    attn_plan *plan = (attn_plan *)s; /* must become NULL on failure */
    attn_status status = attn_plan_create(&plan, &s->problem, &s->tensors, &s->options, error);
    if (status != ATTN_OK) {
        assert_null(plan);
        return status;
    }
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    assert_non_null(workspace);
    status = attn_execute(plan, &s->tensors, workspace, size, error);
    free(workspace);
    attn_plan_destroy(plan);
    return status;
}

/* If a message begins with a tensor, as in `v.dtype is ...`, error.tensor is that tensor.  (mask.causal is not a tensor.) */
static inline void expect_tensor(const attn_error *error, int line)
{
    static const char *const after[] = {".dtype ", ".stride[", "[", " is set", " is missing", " needs ", " is NULL", " overlaps "};
    attn_tensor_description d = {.struct_size = sizeof d};
    for (int i = 0; attn_tensor_describe(ATTN_FAMILY_ATTENTION, i, &d, NULL) == ATTN_OK; i++) {
        const char *rest = error->message + strlen(d.name);
        int begins = 0;
        if (strncmp(error->message, d.name, strlen(d.name)) != 0) continue;
        for (size_t n = 0; n < sizeof after / sizeof *after; n++) begins |= strncmp(rest, after[n], strlen(after[n])) == 0;
        if (begins && error->tensor != i)
            fail_msg("line %d: the error's tensor is %d, not that of: %s", line, error->tensor, error->message);
    }
}

static inline void expect(small *s, attn_status status, const char *message, int line)
{
    static const attn_options defaults = {.struct_size = sizeof(attn_options)};
    attn_error error;
    attn_status got = attempt(s, &error);
    if (got != status || error.status != status || strcmp(error.message, message) != 0)
        fail_msg("line %d:\n  expected status %d: %s\n  got status %d: %s", line, (int)status, message, (int)got, error.message);
    expect_tensor(&error, line);
    expect_named(&error, ATTN_FAMILY_ATTENTION, line);
    assert_int_equal(attempt(s, NULL), status);
    if (memcmp(&s->options, &defaults, sizeof defaults) == 0) {
        assert_int_equal(attn_compute(&s->problem, &s->tensors, &error), status);
        assert_string_equal(error.message, message);
    }
    if (!small_holds_only(s->guard, sizeof s->guard, UNTOUCHED)) fail_msg("line %d: written past the outputs", line);
    if (status != ATTN_OK && !small_outputs_untouched(s)) fail_msg("line %d: an output was written", line);
}

/* One row of the table: after `change`, a valid call is rejected. */
#define REJECTED(change, status, message)                                                                                          \
    do {                                                                                                                           \
        small s;                                                                                                                   \
        small_init(&s);                                                                                                            \
        change;                                                                                                                    \
        expect(&s, status, message, __LINE__);                                                                                     \
    } while (0)

/* Rows that a rule must accept. */
#define ACCEPTED(change) REJECTED(change, ATTN_OK, "")

static inline void sets(int64_t stride[4], int64_t b, int64_t h, int64_t t, int64_t c)
{
    stride[0] = b, stride[1] = h, stride[2] = t, stride[3] = c;
}

#endif
