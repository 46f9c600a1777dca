/* SPDX-License-Identifier: MIT
 *
 * mask.c - `attn mask`: masks by name, as text or a picture, with what they keep and what attention skips. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/io.h"
#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/base/tensor_file.h"
#include "picture.h"
#include "testing/problem/pattern.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

enum { MAX_NAMES = 32, MAX_TEXT = 200, MAX_PIXELS = 1 << 14 };

static const char *mask_name(int n) { return pattern_word_at(n) ? pattern_word_at(n)->name : NULL; }

static void print_names(void)
{
    printf("\nMasks (of several, all must keep a key):\n");
    for (int w = 0; pattern_word_at(w); w++) {
        const pattern_word *word = pattern_word_at(w);
        int wide = printf("  %s%s%s", word->name, word->sizes[0] ? "/" : "", word->sizes);
        printf("%*s%s\n", wide < 24 ? 24 - wide : 1, "", word->help);
    }
}

static const command_usage usage = {
    .name = "mask",
    .synopsis = "NAME[/N...]... -n QUERIES [options]",
    .summary = "Prints a mask as text, a row for each query: # for a key that it sees, . for one that it\n"
               "does not; then how much is visible and how many tiles attention can skip.\n",
    .notes = "A mask of more than 200 queries or keys is printed as text only with --text.\n"
             "In a picture, visible is white and masked is black.\n"
             "\n"
             "Examples:\n"
             "  attn mask causal -n 8\n"
             "  attn mask longformer/4/2 causal -n 16\n"
             "  attn mask bigbird/64/3/2/3 -n 4096 --png bigbird.png\n"
             "  attn mask map/64/64 causal -n 1024 --map blocks.npy\n"
             "  attn mask causal -n 64 -o mask.safetensors && attn plot mask mask.safetensors -o mask.svg\n",
    .more = print_names,
    .word = mask_name,
    .operands = {"mask"},
    .example = "attn mask causal -n 8",
};

typedef struct mask_settings {
    int64_t queries, keys; /* keys -1: not given */
    int64_t tile_q, tile_kv;
    const char *png, *output, *map;
    int text;
} mask_settings;

static const option_row mask_options[] = {
    {"queries", 'n', "N", "number of queries (required)", WHOLE(mask_settings, queries, 0, 1 << 20), .needed = "--queries"},
    {"keys", 'm', "N", "number of keys (default: as many as queries)", WHOLE(mask_settings, keys, 0, 1 << 20)},
    {"text", 0, NULL, "print a mask of any size as text", FLAG(mask_settings, text)},
    {"png", 0, "FILE", "write a picture, .png, at least 256 pixels wide", OUTPUT(mask_settings, png, ".png")},
    {"output", 'o', "FILE", "write it as a tensor: .safetensors, .npz or .npy",
     OUTPUT(mask_settings, output, ".safetensors, .npz or .npy")},
    {"map", 0, "FILE", "blocks for map/Q/K: a tensor [rows, columns], 1 = keep", TEXT(mask_settings, map)},
    {"tile-q", 0, "N", "queries of a tile (default: those of this CPU's kernel for d64)", WHOLE(mask_settings, tile_q, 1, 1 << 20)},
    {"tile-kv", 0, "N", "keys of a tile, likewise", WHOLE(mask_settings, tile_kv, 1, 1 << 20)},
    {0},
};

/* The tiles of the kernel that a problem with these lengths would get. */
static attn_status default_tiles(mask_settings *s, const common_settings *common, attn_error *error)
{
    attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, s->queries, s->keys, 64, 64}};
    attn_plan_description d = {.struct_size = sizeof d};
    attn_options options = options_for_library(common);
    attn_plan *plan;
    const attn_tensors needed = tensors_needed(ATTN_FORWARD);
    attn_status status = attn_plan_create(&plan, &problem, &needed, &options, error);
    if (status != ATTN_OK) return status;
    status = attn_plan_describe(plan, &d, error);
    attn_plan_destroy(plan);
    if (s->tile_q < 0) s->tile_q = d.tile_q;
    if (s->tile_kv < 0) s->tile_kv = d.block_kv;
    return status;
}

static void print_rows(const attn_pattern_set *set, const mask_settings *s)
{
    for (int64_t i = 0; i < s->queries; i++) {
        for (int64_t j = 0; j < s->keys; j++) putchar(attn_pattern_set_sees(set, i, j) ? '#' : '.');
        putchar('\n');
    }
}

static attn_status write_png(const attn_pattern_set *set, const mask_settings *s, attn_error *error)
{
    if (s->queries < 1 || s->keys < 1 || s->queries > MAX_PIXELS || s->keys > MAX_PIXELS)
        return failure(error, ATTN_ERR_ARGUMENT, "a picture has 1 to %d queries and keys, not %" PRId64 " x %" PRId64, MAX_PIXELS,
                       s->queries, s->keys);
    unsigned char *pixels = malloc((size_t)(s->queries * s->keys));
    if (!pixels) return failure(error, ATTN_ERR_MEMORY, "cannot allocate memory for a picture");
    const attn_output seen = attn_out(pixels);
    attn_status status = attn_pattern_set_fill(set, &seen, error);
    for (int64_t n = 0; n < s->queries * s->keys && status == ATTN_OK; n++) pixels[n] = pixels[n] ? 255 : 0;
    const int scale = s->keys >= 256 ? 1 : (int)((256 + s->keys - 1) / s->keys);
    if (status == ATTN_OK) status = picture_write(s->png, pixels, s->queries, s->keys, scale, error);
    free(pixels);
    return status;
}

/* As `mask` [query, key], 1 for a visible key: input of `attn run` and `attn plot mask`. */
static attn_status make_tensor(const attn_pattern_set *set, const mask_settings *s, int count, char *const *names,
                               attn_archive **out, attn_error *error)
{
    const int64_t shape[] = {s->queries, s->keys};
    void *data;
    char *words = need_memory(1, 1);
    attn_status status = attn_archive_create(out, error);
    for (int k = 0; k < count; k++) {
        const size_t size = strlen(words) + strlen(names[k]) + 2;
        char *longer = need_memory((int64_t)size, 1);
        snprintf(longer, size, "%s%s%s", words, k ? " " : "", names[k]);
        free(words);
        words = longer;
    }
    if (status == ATTN_OK) status = attn_archive_allocate(*out, "mask", ATTN_BOOL, 2, shape, &data, error);
    if (status == ATTN_OK) status = attn_pattern_set_fill(set, &(attn_output){data, ATTN_BOOL, {0}}, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(*out, "attn_mask", words, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(*out, "attn_version", attn_version(), error);
    free(words);
    return status;
}

/* 1 if attention applies the mask within its walk. */
static int is_fused(const attn_pattern_set *set, const mask_settings *s)
{
    attn_error why;
    attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, s->queries, s->keys, 64, 64}};
    attn_tensors tensors = {.struct_size = sizeof tensors};
    return attn_pattern_set_apply(set, &problem, &tensors, &why) == ATTN_OK;
}

static char *compose_json(const attn_pattern_set *set, const mask_settings *s, const attn_pattern_set_counts *n, int argc,
                          char **argv, int first)
{
    cJSON *object = json_begin();
    cJSON *names = json_list(object, "mask");
    for (int k = first; k < argc; k++) cJSON_AddItemToArray(names, cJSON_CreateString(argv[k]));
    json_int(object, "queries", s->queries);
    json_int(object, "keys", s->keys);
    json_int(object, "count", n->pairs);
    json_number(object, "sparsity", n->sparsity);
    json_int(object, "empty_queries", n->queries_empty);
    cJSON *tile = json_object(object, "tile");
    json_int(tile, "queries", s->tile_q);
    json_int(tile, "keys", s->tile_kv);
    json_int(object, "tiles_total", n->tiles);
    json_int(object, "tiles_skipped", n->tiles_empty);
    json_flag(object, "fused", is_fused(set, s));
    if (s->png) json_text(object, "png", s->png);
    if (s->output) json_text(object, "output", s->output);
    return json_compose(object);
}

static void print_text(const attn_pattern_set *set, const mask_settings *s, const attn_pattern_set_counts *n)
{
    if (s->text || (s->queries <= MAX_TEXT && s->keys <= MAX_TEXT)) print_rows(set, s);
    printf("count     %" PRId64 " of %" PRId64 " pairs\n", n->pairs, s->queries * s->keys);
    printf("sparsity  %.2f %%\n", 100 * n->sparsity);
    if (n->queries_empty)
        printf("empty     %" PRId64 " %s no key\n", n->queries_empty, n->queries_empty == 1 ? "query sees" : "queries see");
    printf("tiles     %" PRId64 " of %" PRId64 " skipped (%.2f %%), of %" PRId64 " queries x %" PRId64 " keys\n", n->tiles_empty,
           n->tiles, n->tiles ? 100 * (double)n->tiles_empty / (double)n->tiles : 0, s->tile_q, s->tile_kv);
    if (is_fused(set, s)) printf("fused     yes: attention walks the tiles that are left\n");
    else printf("fused     no: attention needs it as a matrix of %" PRId64 " x %" PRId64 "; -o writes one\n", s->queries, s->keys);
}

/* The tensor of a file that is a map of blocks: the only one, or `blocks`. */
static attn_status find_map(const attn_archive *file, const mask_settings *s, const attn_pattern *pattern,
                            const attn_archive_tensor **found, attn_error *error)
{
    const attn_archive_tensor *t = attn_archive_count(file) == 1 ? attn_archive_at(file, 0) : attn_archive_find(file, "blocks");
    const int64_t q = pattern->size[0], k = pattern->size[1];
    if (!t)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: has %s", s->map,
                       attn_archive_count(file) ? "more than one tensor, and none named 'blocks'" : "no tensor");
    if (t->dtype != ATTN_BOOL && t->dtype != ATTN_U8)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: tensor '%.60s' is %s; expected bool or u8", s->map, t->name,
                       attn_dtype_name(t->dtype));
    const int64_t rows = q > 0 ? (s->queries + q - 1) / q : 0, columns = k > 0 ? (s->keys + k - 1) / k : 0;
    if (q > 0 && k > 0 && (t->rank != 2 || t->shape[0] != rows || t->shape[1] != columns))
        return failure(error, ATTN_ERR_SHAPE,
                       "%s: tensor '%.60s' is not [%" PRId64 ", %" PRId64 "], blocks of %" PRId64 " queries and %" PRId64 " keys",
                       s->map, t->name, rows, columns, q, k);
    *found = t;
    return ATTN_OK;
}

/* Masks of lengths are as long as the whole, or shorter. */
static attn_status check_lengths(const attn_pattern *pattern, const mask_settings *s, attn_error *error)
{
    static const char *const of[2] = {"queries", "keys"};
    const int64_t most[2] = {s->queries, s->keys};
    for (int side = 0; side < 2 && pattern->kind == ATTN_PATTERN_LENGTHS; side++)
        if (pattern->size[side] > most[side])
            return failure(error, ATTN_ERR_ARGUMENT, "lengths: %" PRId64 " %s; the mask has %" PRId64, pattern->size[side],
                           of[side], most[side]);
    return ATTN_OK;
}

/* Gives every map its blocks; *file stays open while they are used. */
static attn_status give_maps(attn_pattern *patterns, int count, const mask_settings *s, attn_archive **file, attn_error *error)
{
    tensor_text how = {"blocks", ATTN_F32, 0};
    int maps = 0;
    attn_status status = ATTN_OK;
    for (int k = 0; k < count && status == ATTN_OK; k++) {
        const attn_archive_tensor *t = NULL;
        if (patterns[k].kind != ATTN_PATTERN_BLOCK_MAP) continue;
        maps++;
        if (!s->map)
            return failure(error, ATTN_ERR_ARGUMENT, "map needs --map; for example: attn mask map/64/64 -n 1024 --map=blocks.npy");
        if (!*file) status = tensor_file_open(file, s->map, &how, error);
        if (status == ATTN_OK) status = find_map(*file, s, &patterns[k], &t, error);
        if (status == ATTN_OK) patterns[k].blocks = t->data;
    }
    if (status == ATTN_OK && s->map && !maps) return failure(error, ATTN_ERR_ARGUMENT, "--map needs a mask map/Q/K");
    return status;
}

static attn_status show(int argc, char **argv, int first, mask_settings *s, const common_settings *common, attn_error *error)
{
    static named_pattern named[MAX_NAMES];
    attn_pattern patterns[MAX_NAMES] = {{0}};
    attn_pattern_set *set = NULL;
    attn_archive *file = NULL, *out = NULL;
    attn_pattern_set_counts count = {.struct_size = sizeof count};
    attn_status status = file_check_distinct(s->output, s->map, error);
    if (status == ATTN_OK) status = file_check_distinct(s->png, s->map, error);
    if (status == ATTN_OK && s->png && s->output) status = file_check(s->output, error); /* before the picture is written */
    if (status == ATTN_OK) status = default_tiles(s, common, error);
    for (int k = first; k < argc && status == ATTN_OK; k++) {
        status = pattern_parse(argv[k], common->seed, &named[k - first], error);
        patterns[k - first] = named[k - first].pattern;
        if (status == ATTN_OK) status = check_lengths(&patterns[k - first], s, error);
    }
    if (status == ATTN_OK) status = give_maps(patterns, argc - first, s, &file, error);
    if (status == ATTN_OK) status = attn_pattern_set_create(&set, s->queries, s->keys, argc - first, patterns, error);
    if (status == ATTN_OK) status = attn_pattern_set_count(set, s->tile_q, s->tile_kv, &count, error);
    char *json = status == ATTN_OK && common->json ? compose_json(set, s, &count, argc, argv, first) : NULL;
    if (status == ATTN_OK && s->output) status = make_tensor(set, s, argc - first, argv + first, &out, error);
    if (status == ATTN_OK && s->png) status = write_png(set, s, error);
    status = file_finish(status, out, s->output, json, error);
    if (status == ATTN_OK && !common->json) print_text(set, s, &count);
    attn_archive_destroy(out);
    attn_pattern_set_destroy(set);
    attn_archive_destroy(file);
    return status;
}

int attn_cmd_mask(int argc, char **argv)
{
    common_settings common = {0};
    mask_settings settings = {.keys = -1, .tile_q = -1, .tile_kv = -1};
    const option_group groups[] = {{"Mask", mask_options, &settings}, {0}};
    int operands, exit = options_begin(&usage, groups, &common, argc, argv, MAX_NAMES, &operands);
    attn_error error;
    if (exit >= 0) return exit;
    if (settings.keys < 0) settings.keys = settings.queries;
    attn_status status = show(argc, argv, operands, &settings, &common, &error);
    return command_end(status, usage.name, NULL, &error);
}
