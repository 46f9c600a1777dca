/* SPDX-License-Identifier: MIT
 *
 * labels.c - what the axes of a file mean: layers, batch entries, tokens. */
#include "labels.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"
#include "testing/text/json.h"

/* ---- tokens ---- */

static void add_word(token_list *list, const char *text, size_t length)
{
    if ((list->count & (list->count - 1)) == 0) { /* full at every power of two */
        char **more = need_memory(list->count ? 2 * list->count : 1, sizeof *more);
        if (list->count) memcpy(more, list->word, (size_t)list->count * sizeof *more);
        free(list->word);
        list->word = more;
    }
    list->word[list->count++] = need_text(text, length);
}

attn_status labels_read_file(token_list *list, const char *path, attn_error *error)
{
    FILE *file = fopen(path, "r");
    if (!file) return failure(error, ATTN_ERR_IO, "%.150s: %s", path, strerror(errno));
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, file)) >= 0) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) length--;
        add_word(list, line, (size_t)length);
    }
    int bad = ferror(file);
    free(line);
    fclose(file);
    return bad ? failure(error, ATTN_ERR_IO, "%.150s: cannot be read", path) : ATTN_OK;
}

static attn_status read_lines(labels *l, const char *path, attn_error *error)
{
    l->lists = 1;
    l->list = need_memory(1, sizeof *l->list);
    return labels_read_file(&l->list[0], path, error);
}

static int add_words(token_list *list, const cJSON *array)
{
    const cJSON *item;
    if (!cJSON_IsArray(array)) return 0;
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsString(item)) return 0;
        add_word(list, item->valuestring, strlen(item->valuestring));
    }
    return 1;
}

static attn_status read_metadata_tokens(labels *l, const attention_input *input, const char *text, attn_error *error)
{
    cJSON *json = cJSON_Parse(text);
    int nested = cJSON_IsArray(json) && cJSON_IsArray(json->child), good = cJSON_IsArray(json);
    l->lists = !good ? 0 : nested ? cJSON_GetArraySize(json) : 1;
    l->list = need_memory(l->lists, sizeof *l->list);
    if (good && !nested) good = add_words(&l->list[0], json);
    const cJSON *item = good && nested ? json->child : NULL;
    for (int64_t k = 0; item && good; item = item->next) good = add_words(&l->list[k++], item);
    cJSON_Delete(json);
    return good ? ATTN_OK
                : failure(error, ATTN_ERR_FORMAT, "%.100s: metadata 'tokens' is not a JSON list of words, or of lists of words",
                          input->path);
}

/* Splits the tokens of all packed sequences, one after the other, into a list for each. */
static void split_list(labels *l, const attention_input *input)
{
    token_list all = l->list[0];
    free(l->list);
    l->lists = input->spec.shape.batch;
    l->list = need_memory(l->lists, sizeof *l->list);
    for (int64_t b = 0; b < l->lists; b++)
        for (int64_t i = input->begins_kv[b]; i < input->begins_kv[b + 1]; i++)
            add_word(&l->list[b], all.word[i], strlen(all.word[i]));
    for (int64_t w = 0; w < all.count; w++) free(all.word[w]);
    free(all.word);
}

static attn_status check_lists(const labels *l, const attention_input *input, const char *where, attn_error *error)
{
    const attn_shape *s = &input->spec.shape;
    if (l->lists > 1 && l->lists != l->entries)
        return failure(error, ATTN_ERR_SHAPE, "%.100s: %" PRId64 " lists of tokens for %" PRId64 " batch entries", where, l->lists,
                       l->entries);
    for (int64_t k = 0; k < l->lists; k++)
        if (l->list[k].count > s->len_q && l->list[k].count > s->len_kv)
            return failure(error, ATTN_ERR_SHAPE, "%.100s: %" PRId64 " tokens for %" PRId64 " queries and %" PRId64 " keys", where,
                           l->list[k].count, s->len_q, s->len_kv);
    return ATTN_OK;
}

/* ---- axes ---- */

static const char *metadata(const attention_input *input, const char *key)
{
    return input->file ? attn_archive_get_metadata(input->file, key) : NULL;
}

/* The axis named layer in the first bracket of `layout` that names as many axes as q has; -1: it is not named; -2: no such bracket.
 */
static int layer_axis_of(const char *layout, int rank)
{
    for (const char *open = strchr(layout, '['); open; open = strchr(open + 1, '[')) {
        size_t length = strcspn(open, "]");
        int axis = 0, found = -1;
        for (const char *at = open + 1; at < open + length; axis++) {
            at += strspn(at, " ");
            if (strncmp(at, "layer", 5) == 0) found = axis;
            at += strcspn(at, ",]");
            if (*at == ',') at++;
        }
        if (axis == rank) return found;
    }
    return -2;
}

static void read_axes(labels *l, const attention_input *input)
{
    const char *layout = metadata(input, "layout");
    int axis = layout ? layer_axis_of(layout, input->used[TENSOR(q)].tensor->rank) : -2;
    int per_entry = l->lists > 1 && input->leading == 1;
    if (axis == -2) axis = input->leading > 0 && !per_entry ? 0 : -1;
    if (axis >= input->leading || input->begins_q) axis = -1; /* packed sequences are entries */
    l->has_layers = axis >= 0;
    l->layer_axis = axis;
    l->layers = l->entries = l->inner = 1;
    for (int k = 0; k < input->leading; k++) {
        if (k == axis) l->layers = input->lead[k];
        else l->entries *= input->lead[k];
        if (k > axis) l->inner *= input->lead[k];
    }
}

/* `layers` is a JSON list with a number for each; `layer` is the number of a single one. */
static void read_layer_numbers(labels *l, const attention_input *input)
{
    l->layer_number = need_memory(l->layers, sizeof *l->layer_number);
    const char *text = metadata(input, "layers") ? metadata(input, "layers") : l->layers == 1 ? metadata(input, "layer") : NULL;
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    const int is_list = json && cJSON_IsArray(json);
    const cJSON *item = is_list ? json->child : json;
    int good = item && (is_list ? cJSON_GetArraySize(json) == l->layers : l->layers == 1);
    for (int64_t k = 0; good && k < l->layers; k++, item = item->next) {
        good = item && cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e9 &&
               (k == 0 || item->valuedouble > (double)l->layer_number[k - 1]);
        if (good) l->layer_number[k] = (int64_t)item->valuedouble;
    }
    for (int64_t k = 0; !good && k < l->layers; k++) l->layer_number[k] = k;
    cJSON_Delete(json);
}

attn_status labels_read(labels *l, const attention_input *input, const char *tokens_path, attn_error *error)
{
    *l = (labels){0};
    const char *tokens = metadata(input, "tokens"), *where = tokens_path ? tokens_path : input->path;
    attn_status status = ATTN_OK;
    if (tokens_path) status = read_lines(l, tokens_path, error);
    else if (tokens) status = read_metadata_tokens(l, input, tokens, error);
    if (status == ATTN_OK && input->begins_kv && l->lists == 1 && l->list[0].count == input->total_kv) split_list(l, input);
    read_axes(l, input);
    read_layer_numbers(l, input);
    return status == ATTN_OK ? check_lists(l, input, where, error) : status;
}

void labels_free(labels *l)
{
    for (int64_t k = 0; k < l->lists; k++) {
        for (int64_t w = 0; w < l->list[k].count; w++) free(l->list[k].word[w]);
        free(l->list[k].word);
    }
    free(l->list);
    free(l->layer_number);
}

attn_status labels_write(attn_archive *out, const token_list *list, int64_t lists, attn_error *error)
{
    json_need_memory();
    cJSON *all = cJSON_CreateArray();
    for (int64_t k = 0; k < lists; k++) {
        cJSON *words = lists > 1 ? cJSON_CreateArray() : all;
        if (words != all) cJSON_AddItemToArray(all, words);
        for (int64_t n = 0; n < list[k].count; n++) cJSON_AddItemToArray(words, cJSON_CreateString(list[k].word[n]));
    }
    char *const text = json_compose(all);
    const attn_status status = attn_archive_set_metadata(out, "tokens", text, error);
    free(text);
    return status;
}

int64_t labels_batch(const labels *l, int64_t layer, int64_t entry)
{
    return (entry / l->inner * l->layers + layer) * l->inner + entry % l->inner;
}

/* ---- labels ---- */

static const char *word_at(const labels *l, int64_t entry, int64_t position)
{
    if (!l->lists) return NULL;
    const token_list *list = &l->list[l->lists > 1 ? entry : 0];
    return position >= 0 && position < list->count ? list->word[position] : NULL;
}

static int64_t count_of(const labels *l, int64_t entry) { return l->lists ? l->list[l->lists > 1 ? entry : 0].count : 0; }

/* 1 if queries and keys are tokens of the same text. */
static int one_text(const attention_input *input)
{
    const attn_problem *p = &input->problem;
    return p->shape.len_q == p->shape.len_kv || p->mask.causal || p->mask.window || p->mask.align || input->tensors.offset_q.data;
}

int labels_aligned(const attention_input *input, int64_t b, int64_t *offset)
{
    const attn_problem *p = &input->problem;
    const int64_t *given = input->tensors.offset_q.data;
    *offset = 0;
    if (!one_text(input)) return 0;
    if (p->shape.len_q == p->shape.len_kv) return 1;
    if (p->mask.align == ATTN_ALIGN_BOTTOM_RIGHT) *offset = p->shape.len_kv - p->shape.len_q;
    if (given) *offset = given[b];
    return *offset <= p->shape.len_kv && *offset >= -p->shape.len_q;
}

const char *labels_query(const labels *l, const attention_input *input, int64_t entry, int64_t i)
{
    int64_t offset;
    const int aligned = labels_aligned(input, labels_batch(l, 0, entry), &offset);
    if (!aligned && (one_text(input) || count_of(l, entry) != input->problem.shape.len_q)) return NULL;
    return word_at(l, entry, i + offset);
}

const char *labels_key(const labels *l, const attention_input *input, int64_t entry, int64_t j)
{
    if (!one_text(input) && count_of(l, entry) != input->problem.shape.len_kv) return NULL;
    return word_at(l, entry, j);
}

const char *label_or_number(const char *label, int64_t number, char text[LABEL_NUMBER])
{
    if (label) return label;
    snprintf(text, LABEL_NUMBER, "#%" PRId64, number);
    return text;
}

int label_is_special(const char *label)
{
    size_t length = strlen(label);
    if (length > 2 && ((label[0] == '[' && label[length - 1] == ']') || (label[0] == '<' && label[length - 1] == '>'))) return 1;
    for (const char *c = label; *c; c++)
        if (!ispunct((unsigned char)*c)) return 0;
    return 1;
}

/* ---- choosing ---- */

attn_status labels_unknown(const char *option, int64_t number, const int64_t *known, int64_t count, attn_error *error)
{
    char text[120];
    const int64_t first = known && count ? known[0] : 0, last = known && count ? known[count - 1] : count - 1;
    if (count == 0) return failure(error, ATTN_ERR_ARGUMENT, "--%s: nothing to choose from", option);
    if (count == 1) snprintf(text, sizeof text, "%" PRId64, first);
    else snprintf(text, sizeof text, "%" PRId64 " to %" PRId64, first, last);
    if (last - first != count - 1) { /* with gaps, as layers may have: as many as fit */
        size_t used = 0;
        for (int64_t k = 0; k < count; k++) {
            if (used + 2 * LABEL_NUMBER > sizeof text) {
                snprintf(text + used, sizeof text - used, ", ...");
                break;
            }
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, k ? ", " : "", known[k]);
        }
    }
    return failure(error, ATTN_ERR_ARGUMENT, "--%s: there is no %" PRId64 ", only %s", option, number, text);
}

static int64_t index_of(const int64_t *known, int64_t count, int64_t number)
{
    for (int64_t k = 0; k < count; k++)
        if ((known ? known[k] : k) == number) return k;
    return -1;
}

/* "5" or "3-5", up to *end; 0 if it is neither. */
static int read_range(const char *text, char **end, long long *first, long long *last)
{
    errno = 0;
    if (!isdigit((unsigned char)*text)) return 0;
    *first = *last = strtoll(text, end, 10);
    if (**end != '-') return !errno;
    if (!isdigit((unsigned char)(*end)[1])) return 0;
    *last = strtoll(*end + 1, end, 10);
    return !errno;
}

static attn_status choose(const char *option, int one_range, const char *text, const int64_t *known, int64_t count,
                          int64_t **chosen, int64_t *chosen_count, attn_error *error)
{
    char *selected = need_memory(count, 1);
    attn_status status = ATTN_OK;
    if (!text) memset(selected, 1, (size_t)count);
    for (const char *at = text; at && status == ATTN_OK;) {
        char *end;
        long long first, last;
        if (!read_range(at, &end, &first, &last) || (*end && (*end != ',' || one_range))) {
            status = failure(error, ATTN_ERR_ARGUMENT, "--%s: '%.40s' is not %s", option, text,
                             one_range ? "one number or range, such as 100-199" : "a list of numbers, such as 0,3-5");
            break;
        }
        if (last < first)
            status = failure(error, ATTN_ERR_ARGUMENT, "--%s: %lld-%lld ends before it begins; did you mean %lld-%lld?", option,
                             first, last, last, first);
        for (int64_t number = first; number <= last && status == ATTN_OK; number++) {
            int64_t k = index_of(known, count, number);
            if (k < 0) status = labels_unknown(option, number, known, count, error);
            else selected[k] = 1;
        }
        at = *end ? end + 1 : NULL;
    }
    *chosen = need_memory(count, sizeof **chosen);
    *chosen_count = 0;
    for (int64_t k = 0; k < count; k++)
        if (selected[k]) (*chosen)[(*chosen_count)++] = k;
    free(selected);
    return status;
}

attn_status labels_choose(const char *option, const char *text, const int64_t *known, int64_t count, int64_t **chosen,
                          int64_t *chosen_count, attn_error *error)
{
    return choose(option, 0, text, known, count, chosen, chosen_count, error);
}

attn_status labels_choose_range(const char *option, const char *text, int64_t count, int64_t **chosen, int64_t *chosen_count,
                                attn_error *error)
{
    return choose(option, 1, text, NULL, count, chosen, chosen_count, error);
}
