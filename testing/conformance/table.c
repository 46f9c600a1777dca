/* SPDX-License-Identifier: MIT
 * table.c - finds and runs cases of the tables. */
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "table_case.h"

static const table_row *find(const char *suite, const char *op)
{
    static const table_row *const tables[] = {table_mask_rows, table_mechanism_rows, table_model_rows, table_position_rows,
                                              table_score_rows};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const table_row *row = tables[t]; row->suite; row++)
            if (strcmp(row->suite, suite) == 0 && strncmp(row->op, op, strlen(row->op)) == 0) return row;
    return NULL;
}

int table_case_is(const char *suite, const char *op) { return find(suite, op) != NULL; }

/* Skips a case with an attribute that its row does not list. */
static void check_params(table_case *c, const table_row *row)
{
    const cJSON *value;
    cJSON_ArrayForEach(value, c->params)
    {
        char word[80];
        snprintf(word, sizeof word, " %.70s ", value->string);
        if (!strstr(row->params, word)) conclude(c->result, CHECK_SKIPPED, "attribute %.60s is not known", value->string);
    }
}

static void run(table_case *c, const table_row *row, attn_dtype dtype)
{
    c->dtype = dtype;
    row->make(c);
    for (int64_t t = 0; t < attn_archive_count(c->tensors); t++)
        if (!c->known[t]) conclude(c->result, CHECK_SKIPPED, "tensor %.60s is not known", attn_archive_at(c->tensors, t)->name);
    pool_empty(&c->pool);
}

void table_case_evaluate(evaluation *e, const char *suite, const cJSON *json, const attn_archive *tensors)
{
    const char *op = text_in(json, "op");
    const table_row *row = find(suite, op);
    view_pool pool = {0};
    table_case c = {.result = e,
                    .op = op,
                    .notes = text_in(json, "notes"),
                    .params = cJSON_GetObjectItemCaseSensitive(json, "params"),
                    .tensors = tensors};
    if (!row) {
        conclude(e, CHECK_SKIPPED, "the operation is not known");
        return;
    }
    if (!c.params) c.params = cJSON_GetObjectItemCaseSensitive(json, "attributes");
    c.known = pool_take(&pool, attn_archive_count(tensors), 1);
    memset(c.known, 0, (size_t)attn_archive_count(tensors));
    c.rtol = tolerance_in(json, "rtol", "rel", 0);
    c.atol = tolerance_in(json, "atol", "abs", 0);
    check_params(&c, row);
    run(&c, row, ATTN_F64);
    if (row->typed) { /* f32 meets rtol 1e-5, atol 1e-6, even if the suite's own tolerance is tighter */
        c.rtol = fmax(c.rtol, 1e-5);
        c.atol = fmax(c.atol, 1e-6);
        run(&c, row, ATTN_F32);
    }
    pool_empty(&pool);
}
