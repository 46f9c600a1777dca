/* SPDX-License-Identifier: MIT
 *
 * roles.c - what heads do, as a table or as JSON. */
#include "roles.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/progress.h"
#include "cli/compute/copying.h"
#include "cli/compute/roles.h"
#include "cli/compute/weights.h"
#include "testing/text/failure.h"

void roles_print(void)
{
    printf("\nNumbers of --roles:\n");
    for (int r = 0; r < HEAD_ROLES; r++)
        printf("  %-14s %s (%s)\n", head_role_table[r].name, head_role_table[r].line, head_role_table[r].source);
    printf("  %-14s %s (%s)\n", "copying", "share of positive eigenvalues of wv wo, if IN has them", "Elhage et al. 2021");
}

attn_status roles_check(const roles_settings *settings, attn_error *error)
{
    if (!settings->content || settings->roles) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--content is for --roles: it leaves separators out of them");
}

/* ---- numbers ---- */

static void read_text(head_text *text, const attention_input *input, const labels *l, int64_t entry, int content)
{
    const attn_shape *s = &input->problem.shape;
    const char **words = need_memory(s->len_kv, sizeof *words);
    *text = (head_text){.queries = s->len_q, .keys = s->len_kv, .content = content};
    text->aligned = labels_aligned(input, labels_batch(l, 0, entry), &text->offset);
    for (int64_t j = 0; j < s->len_kv; j++) words[j] = labels_key(l, input, entry, j);
    head_text_words(text, words);
    free(words);
}

/* The roles of all heads of a layer. */
static attn_status read_layer(weight_reader *reader, int64_t b, const head_text *text, head_sums *const *sums, head_roles *roles,
                              attn_error *error)
{
    const int64_t heads = reader->input->problem.shape.heads_q, keys = text->keys;
    float *weights = need_memory(heads * keys, sizeof *weights);
    uint8_t *visible = need_memory(heads * keys, 1);
    attn_status status = ATTN_OK;
    for (int64_t h = 0; h < heads; h++) head_sums_clear(sums[h]);
    for (int64_t i = 0; i < text->queries && status == ATTN_OK; i++) {
        status = weights_read(reader, b, i, weights, error);
        if (status == ATTN_OK) weights_visible(reader, b, i, visible);
        for (int64_t h = 0; h < heads && status == ATTN_OK; h++) head_sums_add(sums[h], i, weights + h * keys, visible + h * keys);
    }
    for (int64_t h = 0; h < heads; h++) head_sums_finish(sums[h], &roles[h]);
    free(weights);
    free(visible);
    return status;
}

/* ---- a table ---- */

static int width_of(int role)
{
    return (int)strlen(head_role_table[role].heading) < 6 ? 6 : (int)strlen(head_role_table[role].heading);
}

static void print_heading(const labels *l)
{
    printf("%slayer  head", l->entries > 1 ? "entry  " : "");
    for (int r = 0; r < HEAD_ROLES; r++) printf("  %*s", width_of(r), head_role_table[r].heading);
    printf("  copying  roles\n");
}

static void print_place(const labels *l, int64_t layer, int64_t entry)
{
    if (l->entries > 1) printf("%5" PRId64 "  ", entry);
    printf("%5" PRId64 "  ", l->layer_number[layer]);
}

static void print_number(int width, double x)
{
    if (isnan(x)) printf("  %*s", width, "-");
    else printf("  %*.3f", width, x);
}

/* Ends with what uniform rows score, and how many rows count: the same for all heads, unless they have masks of their own. */
static void print_layer(const labels *l, int64_t layer, int64_t entry, const head_roles *roles, const double *copying,
                        int64_t heads)
{
    for (int64_t h = 0; h < heads; h++) {
        int badges = 0;
        print_place(l, layer, entry);
        printf("%4" PRId64, h);
        for (int r = 0; r < HEAD_ROLES; r++) print_number(width_of(r), roles[h].number[r].score);
        print_number(7, copying[h]);
        for (int r = 0; r < HEAD_ROLES; r++)
            if (head_role_badge(&roles[h], (head_role)r)) printf("%s%s", badges++ ? ", " : "  ", head_role_table[r].name);
        printf("\n");
    }
    if (!heads) return;
    print_place(l, layer, entry);
    printf("uniform");
    for (int r = 0; r < HEAD_ROLES; r++) {
        const int narrower = r == 0 ? (int)strlen("uniform") - 4 : 0; /* the word is wider than the column of heads */
        print_number(width_of(r) - narrower, roles->number[r].baseline);
    }
    printf("\n");
    print_place(l, layer, entry);
    printf("rows");
    for (int r = 0; r < HEAD_ROLES; r++) printf("  %*" PRId64, width_of(r), roles->number[r].rows);
    printf("\n");
}

/* ---- JSON ---- */

static void add_item(cJSON *item, const head_roles *roles, double copying)
{
    for (int r = 0; r < HEAD_ROLES; r++) json_number(item, head_role_table[r].name, roles->number[r].score);
    json_number(item, "copying", copying);
    if (roles->sink_key >= 0) json_int(item, "sink_key", roles->sink_key);
    cJSON *list = json_list(item, "roles"), *uniform = json_object(item, "uniform"), *rows = json_object(item, "rows");
    for (int r = 0; r < HEAD_ROLES; r++) {
        if (head_role_badge(roles, (head_role)r)) cJSON_AddItemToArray(list, cJSON_CreateString(head_role_table[r].name));
        json_number(uniform, head_role_table[r].name, roles->number[r].baseline);
        json_int(rows, head_role_table[r].name, roles->number[r].rows);
    }
}

/* ---- all ---- */

attn_status analyze_roles(const attention_input *input, const labels *l, const roles_settings *settings,
                          const common_settings *common, cJSON *object, attn_error *error)
{
    const int64_t heads = input->problem.shape.heads_q;
    head_sums **sums = need_memory(heads, sizeof(head_sums *));
    head_roles *roles = need_memory(heads, sizeof *roles);
    double *copying = need_memory(l->layers * heads, sizeof *copying);
    ov_weights circuits;
    cJSON *item = object ? cJSON_GetObjectItemCaseSensitive(object, "heads")->child : NULL;
    weight_reader reader;
    progress bar;
    int64_t done = 0;
    attn_status status = weights_begin_visible(&reader, input, 1, common, error);
    progress_begin(&bar, "roles", common->quiet);
    ov_find(&circuits, input, l);
    for (int64_t n = 0; n < l->layers * heads && status == ATTN_OK; n++) copying[n] = ov_copying(&circuits, n / heads, n % heads);
    if (status == ATTN_OK && !object) print_heading(l);
    for (int64_t e = 0; e < l->entries && status == ATTN_OK; e++) {
        head_text text;
        read_text(&text, input, l, e, settings->content);
        for (int64_t h = 0; h < heads; h++) sums[h] = head_sums_make(&text);
        for (int64_t y = 0; y < l->layers && status == ATTN_OK; y++) {
            status = read_layer(&reader, labels_batch(l, y, e), &text, sums, roles, error);
            for (int64_t h = 0; h < heads && status == ATTN_OK && item; h++, item = item->next)
                add_item(item, &roles[h], copying[y * heads + h]);
            if (status == ATTN_OK && !object) print_layer(l, y, e, roles, copying + y * heads, heads);
            progress_show(&bar, ++done, l->entries * l->layers);
        }
        for (int64_t h = 0; h < heads; h++) head_sums_free(sums[h]);
        head_text_end(&text);
    }
    progress_end(&bar);
    weights_end(&reader);
    if (status == ATTN_OK && !circuits.value && object) json_text(object, "copying_reason", circuits.reason);
    if (status == ATTN_OK && !circuits.value && !object) printf("%s\n", circuits.reason);
    free(sums);
    free(roles);
    free(copying);
    return status;
}
