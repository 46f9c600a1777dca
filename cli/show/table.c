/* SPDX-License-Identifier: MIT
 * table.c - a line of figures for each tensor. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/input/input.h"
#include "show.h"
#include "testing/text/failure.h"
#include "testing/text/shown.h"

enum { COLUMNS = 9, METADATA_WIDTH = 100 };

/* The cells of a tensor's line. */
typedef struct table_row {
    const char *name;
    char cell[COLUMNS - 1][SHAPE_TEXT];
} table_row;

static table_row row_of(const char *name, const tensor_view *v)
{
    const figures f = figures_of(v);
    const double numbers[] = {f.least, f.largest, f.mean, f.norm};
    table_row row = {.name = name};
    snprintf(row.cell[0], sizeof row.cell[0], "%s", attn_dtype_name(v->tensor->dtype));
    (void)shape_text(row.cell[1], v->rank, v->shape);
    for (int k = 0; k < 4; k++) snprintf(row.cell[2 + k], sizeof row.cell[0], isnan(numbers[k]) ? "-" : "%.6g", numbers[k]);
    snprintf(row.cell[6], sizeof row.cell[0], "%" PRId64, f.nan);
    snprintf(row.cell[7], sizeof row.cell[0], "%" PRId64, f.inf);
    return row;
}

static void print_table(const table_row *table, int64_t count)
{
    static const table_row head = {"name", {"type", "shape", "min", "max", "mean", "norm", "nan", "inf"}};
    int width[COLUMNS] = {0};
    for (int64_t k = -1; k < count; k++) {
        const table_row *row = k < 0 ? &head : &table[k];
        for (int c = 0; c < COLUMNS; c++) {
            const int needs = c ? (int)strlen(row->cell[c - 1]) : shown_width(row->name);
            if (needs > width[c]) width[c] = needs;
        }
    }
    for (int64_t k = -1; k < count; k++) {
        const table_row *row = k < 0 ? &head : &table[k];
        put_shown(stdout, row->name);
        printf("%*s", width[0] - shown_width(row->name), "");
        for (int c = 1; c < COLUMNS; c++) printf("  %*s", c < 3 ? -width[c] : width[c], row->cell[c - 1]);
        putchar('\n');
    }
}

static void print_metadata(const attn_archive *file)
{
    for (int64_t k = 0; k < attn_archive_metadata_count(file); k++) {
        const attn_metadata *entry = attn_archive_metadata_at(file, k);
        const size_t length = strlen(entry->value);
        size_t some = length < METADATA_WIDTH ? length : METADATA_WIDTH;
        while (some < length && some && ((unsigned char)entry->value[some] & 0xc0) == 0x80) some--; /* whole characters */
        char *value = need_text(entry->value, some);
        printf("  ");
        put_shown(stdout, entry->key);
        printf(": ");
        put_shown(stdout, value);
        if (some < length) printf(" ... (%zu bytes)", length);
        putchar('\n');
        free(value);
    }
}

void print_file(const char *path, const attn_archive *file)
{
    const int64_t count = attn_archive_count(file);
    table_row *table = need_memory(count + 1, sizeof *table);
    put_shown(stdout, path);
    printf(": %" PRId64 " tensor%s\n", count, count == 1 ? "" : "s");
    print_metadata(file);
    for (int64_t k = 0; k < count; k++) {
        const tensor_view v = tensor_view_of(attn_archive_at(file, k));
        table[k] = row_of(v.tensor->name, &v);
    }
    if (count) print_table(table, count);
    free(table);
}

void print_figures(const char *name, const tensor_view *v)
{
    const table_row row = row_of(name, v);
    print_table(&row, 1);
}
