/* SPDX-License-Identifier: MIT
 * valid_call.c - a small valid problem for every tensor. */
#include "valid_call.h"

attn_tensor_description table[VALID_TENSORS];
int tensors_of_table;

void valid_call_table(void)
{
    while (tensors_of_table < VALID_TENSORS) {
        attn_tensor_description *row = &table[tensors_of_table];
        row->struct_size = sizeof *row;
        if (attn_tensor_describe(ATTN_FAMILY_ATTENTION, tensors_of_table, row, NULL) != ATTN_OK) break;
        tensors_of_table++;
    }
    assert_in_range(tensors_of_table, 60, VALID_TENSORS - 1);
}

int tensor_number(const char *name)
{
    for (int n = 0; n < tensors_of_table; n++)
        if (strcmp(table[n].name, name) == 0) return n;
    fail_msg("no tensor is named %s", name);
    return 0;
}

attn_input slot_get(const attn_tensors *t, int n)
{
    attn_input slot;
    memcpy(&slot, (const char *)t + table[n].offset, sizeof slot);
    return slot;
}

void slot_set(attn_tensors *t, int n, attn_input slot) { memcpy((char *)t + table[n].offset, &slot, sizeof slot); }

/* A tail has more rows than other tensors have bytes. */
static const uint16_t tail[VALID_B * VALID_HKV * ATTN_TAIL * ATTN_BLOCK];

void slot_fill(valid_call *s, int n)
{
    slot_set(&s->tensors, n, strcmp(table[n].name, "k_tail") == 0 ? attn_in(tail) : attn_in(s->memory[n]));
}
void slot_clear(valid_call *s, int n) { slot_set(&s->tensors, n, (attn_input){0}); }

static void numbers(valid_call *s, const char *name, int64_t a, int64_t b, int64_t c)
{
    const int64_t values[] = {a, b, c};
    memcpy(s->memory[tensor_number(name)], values, sizeof values);
}

void valid_call_make(valid_call *s, attn_op op)
{
    memset(s, 0, sizeof *s);
    s->problem.struct_size = sizeof s->problem;
    s->problem.op = op;
    s->problem.shape = (attn_shape){VALID_B, VALID_HQ, VALID_HKV, VALID_SQ, VALID_SKV, VALID_D, VALID_DV};
    s->tensors.struct_size = sizeof s->tensors;
    s->call.struct_size = sizeof s->call;
    s->options = (attn_options){.struct_size = sizeof s->options, .threads = 1};
    for (int n = 0; n < tensors_of_table; n++) {
        if (table[n].role[op] == ATTN_ROLE_OUTPUT) memset(s->memory[n], VALID_PATTERN, VALID_BYTES);
        if (table[n].need[op] == ATTN_NEED_ALWAYS) slot_fill(s, n);
    }
    if (op == ATTN_DOUBLE_BACKWARD) slot_fill(s, tensor_number("second_grad_o")); /* without tan_o */
    numbers(s, "lengths_q", 3, 2, 0), numbers(s, "lengths_kv", 5, 4, 0);
    numbers(s, "cu_seqlens_q", 0, 3, 3), numbers(s, "cu_seqlens_kv", 0, 5, 5);
    numbers(s, "block_starts", 0, 1, 1);
    numbers(s, "page_starts", 0, 3, 6), numbers(s, "lengths_last_page", 1, 1, 0);
    memcpy(s->before, s->memory, sizeof s->before);
}

static int starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static void use_named(valid_call *s, const char *name) { slot_fill(s, tensor_number(name)); }

void valid_call_use(valid_call *s, int n)
{
    const char *name = table[n].name;
    attn_mask *m = &s->problem.mask;
    if (table[n].gradient_of >= 0) valid_call_use(s, table[n].gradient_of);
    slot_fill(s, n);
    if (strcmp(name, "k_scale") == 0) s->tensors.k.dtype = ATTN_I8;
    if (strcmp(name, "v_scale") == 0) s->tensors.v.dtype = ATTN_I8;
    if (strcmp(name, "k_tail") == 0) /* fewer entries, so that queries of a block of channels fit */
        s->tensors.k.dtype = ATTN_Q4_1C, s->problem.shape.dim_qk = ATTN_BLOCK, s->problem.shape.batch = 1;
    if (strcmp(name, "score_matrix") == 0) s->problem.score.kind = ATTN_SCORE_GENERAL;
    if (starts_with(name, "page_") || strcmp(name, "lengths_last_page") == 0)
        s->problem.paging.page_size = 2, s->problem.paging.pages = 4;
    if (strcmp(name, "page_starts") == 0) use_named(s, "page_index"), s->problem.paging.page_entries = 6;
    if (strcmp(name, "page_index") == 0) use_named(s, "page_starts"), s->problem.paging.page_entries = 6;
    if (strcmp(name, "lengths_last_page") == 0) valid_call_use(s, tensor_number("page_starts"));
    if (starts_with(name, "dropout_")) s->problem.dropout.probability = 0.5;
    if (starts_with(name, "topk_")) s->problem.outputs.topk = 2;
    if (starts_with(name, "block_")) m->block_q = m->block_kv = 2;
    if (strcmp(name, "block_starts") == 0) use_named(s, "block_index"), m->block_entries = 1;
    if (strcmp(name, "block_index") == 0) use_named(s, "block_starts"), m->block_entries = 1;
    if (strcmp(name, "tree") == 0) m->tree_keys = 3;
    if (strcmp(name, "cu_seqlens_q") == 0) use_named(s, "cu_seqlens_kv");
    if (strcmp(name, "cu_seqlens_kv") == 0) use_named(s, "cu_seqlens_q");
    if (s->problem.op == ATTN_DOUBLE_BACKWARD && (strcmp(name, "tan_o") == 0 || strcmp(name, "tan_lse") == 0)) {
        use_named(s, strcmp(name, "tan_o") == 0 ? "tan_lse" : "tan_o");
        s->tensors.second_grad_o = (attn_output){0};
    }
    if (starts_with(name, "relative_")) s->problem.relative.first = -4, s->problem.relative.rows = 9;
    if (strcmp(name, "relative_u") == 0 || strcmp(name, "relative_v") == 0) use_named(s, "relative_keys");
}

void valid_call_with(valid_call *s, attn_op op, int n)
{
    valid_call_make(s, op);
    valid_call_use(s, n);
}

attn_status valid_call_plan(const valid_call *s, attn_plan **plan, attn_error *error)
{
    *plan = (attn_plan *)(uintptr_t)s; /* must become NULL on failure */
    attn_status status = attn_plan_create(plan, &s->problem, &s->tensors, &s->options, error);
    assert_int_equal(error->status, status);
    if (status != ATTN_OK) assert_null(*plan);
    if (status == ATTN_OK) assert_true(error->tensor == -1 && error->other == -1 && error->message[0] == 0);
    return status;
}

attn_status valid_call_execute(const attn_plan *plan, const attn_tensors *tensors, attn_error *error)
{
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    assert_non_null(workspace);
    attn_status status = attn_execute(plan, tensors, workspace, size, error);
    assert_int_equal(error->status, status);
    if (status == ATTN_OK) assert_true(error->tensor == -1 && error->other == -1 && error->message[0] == 0);
    free(workspace);
    return status;
}

attn_status valid_call_compute(const valid_call *s, attn_error *error)
{
    attn_plan *plan;
    attn_status status = valid_call_plan(s, &plan, error);
    if (status == ATTN_OK) status = valid_call_execute(plan, &s->tensors, error);
    attn_plan_destroy(plan);
    return status;
}

int valid_call_untouched(const valid_call *s) { return memcmp(s->memory, s->before, sizeof s->memory) == 0; }

static const char *named(int n) { return n < 0 ? "none" : n < tensors_of_table ? table[n].name : "?"; }

static void expect(const valid_call *s, attn_status got, const attn_error *error, attn_status status, int n, const char *what)
{
    if (got != status || error->tensor != n)
        fail_msg("op %d, %s of %s: status %d and tensor %s, but got %d and %s: %s", (int)s->problem.op, what, named(n), (int)status,
                 named(n), (int)got, named(error->tensor), error->message);
    if (!strstr(error->message, table[n].name))
        fail_msg("op %d, %s of %s: the message does not name it: %s", (int)s->problem.op, what, named(n), error->message);
    if (!valid_call_untouched(s)) fail_msg("op %d, %s of %s: something was written", (int)s->problem.op, what, named(n));
}

void expect_no_plan(const valid_call *s, attn_status status, int n, const char *what)
{
    attn_error error;
    attn_plan *plan;
    attn_status got = valid_call_plan(s, &plan, &error);
    attn_plan_destroy(plan);
    expect(s, got, &error, status, n, what);
    assert_int_equal(attn_compute(&s->problem, &s->tensors, NULL), status);
    got = attn_compute(&s->problem, &s->tensors, &error);
    expect(s, got, &error, status, n, what);
}

void expect_no_execute(const valid_call *s, attn_status status, int n, const char *what)
{
    attn_error error;
    attn_plan *plan;
    attn_status got = valid_call_plan(s, &plan, &error);
    if (got != ATTN_OK) fail_msg("op %d, %s of %s: no plan: %s", (int)s->problem.op, what, named(n), error.message);
    got = valid_call_execute(plan, &s->tensors, &error);
    expect(s, got, &error, status, n, what);
    attn_plan_destroy(plan);
    got = attn_compute(&s->problem, &s->tensors, &error);
    expect(s, got, &error, status, n, what);
}
