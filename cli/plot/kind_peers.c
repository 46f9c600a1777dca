/* SPDX-License-Identifier: MIT
 *
 * kind_peers.c - how many times longer other libraries take for the same calls: bars from 0, with libattn's own time at 1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "color.h"
#include "kinds.h"
#include "testing/text/failure.h"

enum { MAX_ROWS = 64, MAX_RATIO = 6, BAR = 12, GAP = 9, SCALE = 420, TOP = 22, MARGIN = 10 };

typedef struct peers {
    const char *names[COLOR_SERIES];
    int count;
    double most; /* where the axis ends, and longer bars are cut */
} peers;

static attn_status find_rows(const source *from, const cJSON **rows, attn_error *error)
{
    *rows = from->json ? cJSON_GetObjectItemCaseSensitive(from->json, "rows") : NULL;
    if (*rows && cJSON_IsArray(*rows) && (*rows)->child && cJSON_GetArraySize(*rows) <= MAX_ROWS) return ATTN_OK;
    return failure(error, ATTN_ERR_FORMAT, "%.100s: no list 'rows' of 1 to %d entries; such files are in bench/results", from->path,
                   MAX_ROWS);
}

/* Checks every row, and collects the names in them, in the order of first appearance. */
static attn_status read_peers(const source *from, const cJSON *rows, peers *all, attn_error *error)
{
    const cJSON *row, *ratio;
    double longest = 1;
    cJSON_ArrayForEach(row, rows)
    {
        const cJSON *words = cJSON_GetObjectItemCaseSensitive(row, "words");
        const cJSON *ratios = cJSON_GetObjectItemCaseSensitive(row, "ratios");
        if (!cJSON_IsString(words) || !cJSON_IsObject(ratios))
            return failure(error, ATTN_ERR_FORMAT, "%.100s: a row has no 'words' or no 'ratios'", from->path);
        cJSON_ArrayForEach(ratio, ratios)
        {
            if (!cJSON_IsNumber(ratio) || !(ratio->valuedouble > 0) || !isfinite(ratio->valuedouble))
                return failure(error, ATTN_ERR_FORMAT, "%.100s: %.80s: '%.40s' is not a number above 0", from->path,
                               words->valuestring, ratio->string);
            longest = fmax(longest, ratio->valuedouble);
            int k = 0;
            while (k < all->count && strcmp(all->names[k], ratio->string) != 0) k++;
            if (k < all->count) continue;
            if (k == COLOR_SERIES)
                return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: more than %d names in 'ratios'", from->path, COLOR_SERIES);
            all->names[all->count++] = ratio->string;
        }
    }
    all->most = fmin(ceil(longest), MAX_RATIO);
    return ATTN_OK;
}

/* The words of a row without backticks, for which a picture has no use. */
static const char *plain_words(const cJSON *row, char text[200])
{
    size_t length = 0;
    for (const char *c = cJSON_GetObjectItemCaseSensitive(row, "words")->valuestring; *c && length < 199; c++)
        if (*c != '`') text[length++] = *c;
    text[length] = '\0';
    return text;
}

static void draw_row(figure *f, const cJSON *row, const peers *all, double x, double y, int bars)
{
    char words[200];
    figure_text(f, "end", x - 8, y + (double)BAR * bars / 2 + 4, "%s", plain_words(row, words));
    for (int k = 0; k < all->count; k++) {
        const cJSON *ratio = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(row, "ratios"), all->names[k]);
        if (!ratio) continue;
        const double value = ratio->valuedouble, width = SCALE * fmin(value, all->most) / all->most;
        char class[8], hover[300];
        snprintf(class, sizeof class, "f%d", k);
        snprintf(hover, sizeof hover, "%.160s, %.60s: %.3g times", words, all->names[k], value);
        figure_box(f, class, x, y, width, BAR - 1, hover);
        figure_text(f, "quiet", x + width + 5, y + BAR - 2, "%.3g%s", value, value > all->most ? " (cut)" : "");
        y += BAR;
    }
}

static void draw_axis(figure *f, const peers *all, double x, double top, double bottom)
{
    for (int n = 0; n <= (int)all->most; n++) {
        const double at = x + SCALE * n / all->most;
        figure_line(f, n == 1 ? "mark" : "grid", at, top, at, bottom);
        if (n == 1) figure_text(f, "middle", at, bottom + 16, "libattn = 1");
        else figure_text(f, "quiet middle", at, bottom + 16, "%d", n);
    }
}

static void draw_key(figure *f, const source *from, const peers *all, double x, double y)
{
    const cJSON *versions = cJSON_GetObjectItemCaseSensitive(from->json, "versions");
    for (int k = 0; k < all->count; k++) {
        const cJSON *version = cJSON_GetObjectItemCaseSensitive(versions, all->names[k]);
        char class[8], text[160];
        snprintf(class, sizeof class, "f%d", k);
        snprintf(text, sizeof text, "%.80s%s%.40s", all->names[k], cJSON_IsString(version) ? " " : "",
                 cJSON_IsString(version) ? version->valuestring : "");
        figure_box(f, class, x, y, 11, 11, NULL);
        figure_text(f, "", x + 16, y + 10, "%s", text);
        x += 16 + figure_text_width(text) + 20;
    }
}

static const char *text_of(const source *from, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from->json, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

attn_status plot_peers(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    const cJSON *rows = NULL, *row;
    peers all = {.count = 0};
    double label = 0, height = TOP, x, y;
    char words[200];
    attn_status status = find_rows(from, &rows, error);
    if (status == ATTN_OK) status = read_peers(from, rows, &all, error);
    if (status != ATTN_OK) return status;
    cJSON_ArrayForEach(row, rows)
    {
        label = fmax(label, figure_text_width(plain_words(row, words)));
        height += BAR * cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(row, "ratios")) + GAP;
    }
    figure_place(task->figure, label + MARGIN + SCALE + 80, height + 24, &x, &y);
    draw_key(task->figure, from, &all, x, y);
    draw_axis(task->figure, &all, x + label + MARGIN, y + TOP - 4, y + height);
    y += TOP;
    cJSON_ArrayForEach(row, rows)
    {
        const int bars = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(row, "ratios"));
        draw_row(task->figure, row, &all, x + label + MARGIN, y, bars);
        y += BAR * bars + GAP;
    }
    snprintf(task->title, sizeof task->title, "How many times longer the same call takes than in libattn, at the median");
    const cJSON *threads = cJSON_GetObjectItemCaseSensitive(from->json, "threads");
    snprintf(task->about, sizeof task->about, "%.120s, %.20s, %d thread%s, %.20s: %.120s", text_of(from, "cpu"),
             text_of(from, "isa"), cJSON_IsNumber(threads) ? threads->valueint : 1,
             cJSON_IsNumber(threads) && threads->valueint == 1 ? "" : "s", text_of(from, "date"), text_of(from, "command"));
    return ATTN_OK;
}
