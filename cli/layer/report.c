/* SPDX-License-Identifier: MIT
 *
 * report.c - what `attn layer` says about its work: the tensors it read, the family of their names, what it wrote. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/input/listed.h"
#include "layer.h"
#include "testing/text/json.h"
#include "testing/text/shown.h"

void layer_tell(layer_work *w, const char *what)
{
    const size_t used = strlen(w->model.applied);
    (void)snprintf(w->model.applied + used, sizeof w->model.applied - used, "%s%s", used ? ", " : "", what);
}

/* 1 if one of `count` slots points into the tensor. */
static int slots_have(const attn_input *slots, int count, const attn_archive_tensor *t)
{
    for (int n = 0; n < count; n++) {
        const uintptr_t at = (uintptr_t)slots[n].data, from = (uintptr_t)t->data;
        if (slots[n].data && at >= from && at < from + t->bytes) return 1;
    }
    return 0;
}

/* 1 if this run reads the weight. */
static int is_read(const layer_work *w, weight_role role)
{
    switch (role) {
    case WEIGHT_NORM:
    case WEIGHT_NORM_BIAS:
        return w->normed[0] != NULL;
    case WEIGHT_NORM_QUERY:
    case WEIGHT_NORM_KEY:
    case WEIGHT_NORM_BIAS_QUERY:
    case WEIGHT_NORM_BIAS_KEY:
        return w->normed[1] != NULL;
    case WEIGHT_QUERY:
    case WEIGHT_KEY:
    case WEIGHT_VALUE:
        return !w->match.family->native && !w->match.found[WEIGHT_QKV];
    case WEIGHT_TABLE:
        return w->tensors.bias_table.data != NULL;
    case WEIGHT_OUTPUT:
    case WEIGHT_BIAS_OUTPUT:
        return !w->layer.no_output;
    default:
        return !w->match.family->native;
    }
}

/* 1 if a slot of the call points into the tensor, or an index array is a copy of it. */
static int is_used(const void *work, const attn_archive_tensor *t)
{
    const layer_work *w = work;
    const struct {
        const void *first;
        size_t bytes;
    } all[] = {{&w->tensors.q, sizeof w->tensors - offsetof(attn_tensors, q)},
               {&w->args.query, sizeof w->args - offsetof(attn_layer_tensors, query)},
               {&w->weights.query, sizeof w->weights - offsetof(attn_layer_weights, query)},
               {&w->latent_weights.query_down, sizeof w->latent_weights - offsetof(attn_latent_weights, query_down)},
               {&w->module_weights.w, sizeof w->module_weights - offsetof(attn_seq2seq_weights, w)}};
    const attn_archive_tensor *copy = w->converted ? attn_archive_find(w->own, t->name) : NULL; /* of 16-bit numbers */
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const int count = (int)(all[n].bytes / sizeof(attn_input));
        if (slots_have(all[n].first, count, t) || (copy && slots_have(all[n].first, count, copy))) return 1;
    }
    for (int i = 0; i < LAYER_INDICES; i++)
        if (w->index_from[i] == t) return 1;
    for (int r = 0; r < WEIGHT_ROLES; r++)
        if (w->match.found[r] == t && is_read(w, (weight_role)r)) return 1;
    if (t == w->embedding) return 1;
    return w->keep.tensor.name == t->name; /* of which the mask may be a copy */
}

static void compose_family(cJSON *object, const layer_work *w)
{
    json_text(object, "family", w->match.family->name);
    json_text(object, "prefix", w->match.root);
    json_text(object, "applied", w->model.applied);
    if (w->embedding) json_text(object, "x", layer_x_of_tokens);
    if (w->sizes.heads_kv) {
        json_int(object, "heads", w->sizes.heads);
        json_int(object, "heads_kv", w->sizes.heads_kv);
        json_int(object, "head_dim", w->sizes.head_dim);
        json_int(object, "head_dim_v", w->sizes.head_dim_v);
    }
    if (w->match.family->native) return;
    cJSON *roles = json_object(object, "weights");
    for (int r = 0; r < WEIGHT_ROLES; r++)
        if (w->match.found[r]) json_text(roles, weight_words[r], w->match.found[r]->name);
}

char *layer_compose(const layer_work *w, const char *path, double seconds, const difference *list, int count)
{
    cJSON *object = json_begin(), *written, *differences;
    const attn_archive *const files[2] = {w->file, w->weights_file};
    json_text(object, "input", path);
    json_text(object, "output", w->settings->output);
    command_json_warnings(object);
    json_text(object, "kind", w->kind->name);
    if (w->match.family) compose_family(object, w);
    json_int(object, "parameters", w->counts.parameters);
    json_number(object, "flops", w->counts.flops);
    json_int(object, "cache_per_token", w->counts.cache_per_token);
    json_number(object, "seconds", seconds);
    cJSON *used = json_list(object, "used");
    for (int f = 0; f < 2; f++)
        for (int64_t k = 0; files[f] && k < attn_archive_count(files[f]); k++)
            if (is_used(w, attn_archive_at(files[f], k))) listed_json(used, NULL, attn_archive_at(files[f], k));
    listed_unused_json(json_list(object, "unused"), w->file, is_used, w);
    written = json_list(object, "written");
    for (int64_t k = 0; k < attn_archive_count(w->out); k++)
        cJSON_AddItemToArray(written, cJSON_CreateString(attn_archive_at(w->out, k)->name));
    differences = count ? json_list(object, "differences") : NULL;
    for (int d = 0; d < count; d++) {
        cJSON *item = json_item(differences);
        json_text(item, "name", list[d].name);
        json_number(item, "largest", list[d].largest);
    }
    return json_compose(object);
}

static void print_family(const layer_work *w)
{
    if (!w->match.family) return;
    printf("family  %s", w->match.family->name);
    if (*w->match.root) printf(" at ");
    put_shown(stdout, w->match.root);
    if (w->sizes.heads_kv)
        printf(": %" PRId64 " heads of %" PRId64 " channels, %" PRId64 " of keys and values", w->sizes.heads, w->sizes.head_dim,
               w->sizes.heads_kv);
    printf("%s%s\n", *w->model.applied ? "; " : "", w->model.applied);
    if (w->embedding)
        printf("x       %s%s\n", layer_x_of_tokens,
               w->settings->layer > 0 ? "; this one gets the output of the layer before it" : "");
}

/* Their names, or of a whole model their number. */
static void print_unused(const layer_work *w)
{
    enum { FEW = 12 };
    int64_t unused = 0;
    for (int64_t k = 0; k < attn_archive_count(w->file); k++) unused += !is_used(w, attn_archive_at(w->file, k));
    if (unused <= FEW) listed_unused_print(w->file, is_used, w);
    else printf("unused  %" PRId64 " other tensors\n", unused);
}

void layer_print(const layer_work *w, const char *path, double seconds, const difference *list, int count,
                 const common_settings *common)
{
    if (options_tell(common)) {
        for (int64_t k = 0; k < attn_archive_count(w->file); k++)
            if (is_used(w, attn_archive_at(w->file, k))) listed_print("used", NULL, attn_archive_at(w->file, k), path);
        for (int64_t k = 0; w->weights_file && k < attn_archive_count(w->weights_file); k++)
            if (is_used(w, attn_archive_at(w->weights_file, k)))
                listed_print("used", NULL, attn_archive_at(w->weights_file, k), w->settings->weights_file);
        print_unused(w);
        print_family(w);
        printf("wrote ");
        put_shown(stdout, w->settings->output);
        printf(" in %.3g ms\n", 1e3 * seconds);
    }
    for (int d = 0; d < count; d++) printf("compare %-11s largest difference %.2g\n", list[d].name, list[d].largest);
}
