/* SPDX-License-Identifier: MIT
 * problem_values.c - reading and printing the values of words in problem strings. */
#include "problem_values.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparse.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

static const void *field_of(const problem_rule *rule, const problem_spec *spec) { return (const char *)spec + rule->field; }
static void *field_in(const problem_rule *rule, problem_spec *spec) { return (char *)spec + rule->field; }

/* ---- numbers ---- */

/* Both accept only a complete number: no blanks, no "inf", no hexadecimal. */
static int read_int(const char *text, const char *end, int64_t *value)
{
    const char *digits = text + (*text == '-');
    if (digits == end || strspn(digits, "0123456789") < (size_t)(end - digits)) return 0;
    char *stop;
    errno = 0;
    long long x = strtoll(text, &stop, 10);
    if (errno || stop != end) return 0;
    *value = x;
    return 1;
}

static int read_real(const char *text, const char *end, double *value)
{
    if (text == end || strspn(text, "0123456789+-.eE") < (size_t)(end - text)) return 0;
    char *stop;
    *value = strtod(text, &stop);
    return stop == end && isfinite(*value);
}

/* The shortest decimal form that reads back to the same number. */
static void print_real(double x, char *text, size_t size)
{
    char form[40];
    text[0] = 0;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(form, sizeof form, "%.*g", digits, x);
        if (strtod(form, NULL) == x && (!text[0] || strlen(form) < strlen(text))) snprintf(text, size, "%s", form);
    }
}

static attn_status need_value(const problem_rule *rule, attn_error *error)
{
    return failure(error, ATTN_ERR_ARGUMENT, "%s needs a value: %s=%s", rule->word.name, rule->word.name, rule->word.argument);
}

attn_status value_read_size(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    int64_t *field = field_in(rule, spec);
    if (!value || !*value) return failure(error, ATTN_ERR_ARGUMENT, "%s needs a number: %sN", rule->word.name, rule->word.name);
    if (!read_int(value, value + strlen(value), field) || *field < 0)
        return failure(error, ATTN_ERR_ARGUMENT, "%s%.40s: '%.40s' is not a size (an integer, 0 or more)", rule->word.name, value,
                       value);
    return ATTN_OK;
}

attn_status value_read_number(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    double *field = field_in(rule, spec);
    if (!value) return need_value(rule, error);
    if (!read_real(value, value + strlen(value), field))
        return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not a number", rule->word.name, value);
    if (*field < rule->low || *field > rule->high) {
        if (rule->high == HUGE_VAL)
            return failure(error, ATTN_ERR_ARGUMENT, "%s is %.40s; it must be %s", rule->word.name, value,
                           rule->low > 0 ? "above 0" : "at least 0");
        return failure(error, ATTN_ERR_ARGUMENT, "%s (%.40s) is not between %g and %g", rule->word.name, value, rule->low,
                       rule->high);
    }
    return ATTN_OK;
}

static int print_number_but(double off, const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    const double *field = field_of(rule, spec);
    print_real(*field, text, size);
    return *field != off;
}

int value_print_not_zero(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    return print_number_but(0, rule, spec, text, size);
}

int value_print_not_one(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    return print_number_but(1, rule, spec, text, size);
}

attn_status value_read_scale(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    spec->scale_heads = value && strcmp(value, "heads") == 0;
    spec->has_scale = !spec->scale_heads;
    spec->scale = 0;
    return spec->scale_heads ? ATTN_OK : value_read_number(rule, spec, value, error);
}

int value_print_scale(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    if (spec->scale_heads) snprintf(text, size, "heads");
    else print_real(spec->scale, text, size);
    return spec->has_scale || spec->scale_heads;
}

attn_status value_read_seed(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (!value) return need_value(rule, error);
    errno = 0;
    char *end;
    spec->seed = strtoull(value, &end, 10);
    if (!*value || strspn(value, "0123456789") != strlen(value) || errno)
        return failure(error, ATTN_ERR_ARGUMENT, "seed: '%.40s' is not an integer between 0 and 2^64 - 1", value);
    return ATTN_OK;
}

int value_print_seed(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    snprintf(text, size, "%" PRIu64, spec->seed);
    return spec->seed != 0;
}

attn_status value_read_offset(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    (void)rule;
    spec->offset = 0;
    spec->offset_kind = value ? SPEC_OFFSET_VALUE : SPEC_OFFSET_EACH;
    if (value && !read_int(value, value + strlen(value), &spec->offset))
        return failure(error, ATTN_ERR_ARGUMENT, "offset: '%.40s' is not an integer", value);
    return ATTN_OK;
}

int value_print_offset(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    text[0] = 0;
    if (spec->offset_kind == SPEC_OFFSET_VALUE) snprintf(text, size, "%" PRId64, spec->offset);
    return spec->offset_kind != SPEC_OFFSET_NONE;
}

attn_status value_read_window(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (!value) return need_value(rule, error);
    const char *comma = strchr(value, ',');
    if (!comma || !read_int(value, comma, &spec->window_left) || !read_int(comma + 1, value + strlen(value), &spec->window_right) ||
        spec->window_left < -1 || spec->window_right < -1)
        return failure(error, ATTN_ERR_ARGUMENT, "window: '%.40s' is not L,R (two integers of at least -1; -1 for no bound)",
                       value);
    spec->window = 1;
    return ATTN_OK;
}

attn_status value_read_count(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (!value) return need_value(rule, error);
    int64_t *count = field_in(rule, spec);
    if (!read_int(value, value + strlen(value), count) || *count < 0)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not a number of tokens (an integer above 0; 0 is off)",
                       rule->word.name, value);
    return ATTN_OK;
}

int value_print_count(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    const int64_t count = *(const int64_t *)field_of(rule, spec);
    snprintf(text, size, "%" PRId64, count);
    return count != 0;
}

attn_status value_read_clipped(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (!value) return need_value(rule, error);
    if (!read_int(value, value + strlen(value), &spec->clipped) || spec->clipped < 1)
        return failure(error, ATTN_ERR_ARGUMENT, "clipped: '%.40s' is not a distance (an integer above 0)", value);
    return ATTN_OK;
}

int value_print_clipped(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    snprintf(text, size, "%" PRId64, spec->clipped);
    return spec->clipped != 0;
}

int value_print_window(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    snprintf(text, size, "%" PRId64 ",%" PRId64, spec->window_left, spec->window_right);
    return spec->window;
}

/* ---- words ---- */

attn_status value_read_flag(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (value) return failure(error, ATTN_ERR_ARGUMENT, "%s takes no value, but has '%.40s'", rule->word.name, value);
    *(int *)field_in(rule, spec) = 1;
    return ATTN_OK;
}

int value_print_flag(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)size;
    text[0] = 0;
    return *(const int *)field_of(rule, spec);
}

static attn_status unknown_value(const problem_rule *rule, const char *value, attn_error *error)
{
    char hint[120];
    nearest near;
    nearest_init(&near, value);
    for (int k = 0; rule->choices[k]; k++) nearest_offer(&near, rule->choices[k]);
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "%s: unknown value '%.40s'%s", rule->word.name, value, hint);
}

attn_status value_read_choice(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    int *field = field_in(rule, spec);
    if (!value && rule->omitted) {
        *field = rule->omitted;
        return ATTN_OK;
    }
    if (!value) return need_value(rule, error);
    for (int k = 0; rule->choices[k]; k++) {
        if (strcmp(value, rule->choices[k]) == 0) {
            *field = rule->first + k;
            return ATTN_OK;
        }
    }
    return unknown_value(rule, value, error);
}

int value_print_choice(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    int value = *(const int *)field_of(rule, spec);
    text[0] = 0;
    if (value >= rule->first && value != rule->omitted) snprintf(text, size, "%s", rule->choices[value - rule->first]);
    return value != 0;
}

/* "both", "causal/64", "causal/64/256": keys, buckets and the distance beyond which all share one bucket. */
attn_status value_read_t5(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    const char *keys = value ? value : "both", *end = keys + strlen(keys), *slash = strchr(keys, '/'),
               *second = slash ? strchr(slash + 1, '/') : NULL;
    const size_t length = strcspn(keys, "/");
    spec->t5_buckets = spec->t5_distance = 0;
    spec->t5 = strncmp(keys, "both", length) == 0 && length == 4     ? SPEC_T5_BOTH
               : strncmp(keys, "causal", length) == 0 && length == 6 ? SPEC_T5_CAUSAL
                                                                     : SPEC_T5_NONE;
    if (spec->t5 && (!slash || (read_int(slash + 1, second ? second : end, &spec->t5_buckets) && spec->t5_buckets > 0)) &&
        (!second || (read_int(second + 1, end, &spec->t5_distance) && spec->t5_distance > 0)))
        return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT,
                   "%s: '%.40s' is not both or causal, KEYS/BUCKETS or KEYS/BUCKETS/DISTANCE (integers above 0)", rule->word.name,
                   value);
}

int value_print_t5(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    const int numbers = spec->t5_buckets != 0 || spec->t5_distance != 0;
    size_t used = 0;
    text[0] = 0;
    if (spec->t5 == SPEC_T5_CAUSAL || numbers)
        used = (size_t)snprintf(text, size, "%s", spec->t5 == SPEC_T5_CAUSAL ? "causal" : "both");
    if (numbers) used += (size_t)snprintf(text + used, size - used, "/%" PRId64, spec->t5_buckets);
    if (spec->t5_distance) snprintf(text + used, size - used, "/%" PRId64, spec->t5_distance);
    return spec->t5 != SPEC_T5_NONE;
}

/* A number of a pattern that is out of range. */
typedef struct bad_number {
    const char *word, *text; /* WIDTH, what is in its place */
    int word_length, text_length;
} bad_number;

/* Each word in capitals of the pattern matches an integer from 1 to 2^38, as printed.  0: no match; if only the numbers are wrong,
 * *bad gets the first. */
static int matches(const char *pattern, const char *value, bad_number *bad)
{
    static const int64_t most = (int64_t)1 << 38;
    bad_number wrong = {0};
    for (;;) {
        if (isupper((unsigned char)*pattern)) {
            const size_t word = strspn(pattern, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), length = strcspn(value, "/");
            int64_t number;
            if (!length) return 0;
            if (!wrong.word && (!read_int(value, value + length, &number) || number < 1 || number > most || *value == '0'))
                wrong = (bad_number){pattern, value, (int)word, (int)length};
            pattern += word;
            value += length;
        } else if (*pattern != *value) {
            return 0;
        } else if (!*pattern) {
            if (wrong.word) *bad = wrong;
            return !wrong.word;
        } else {
            pattern++, value++;
        }
    }
}

attn_status value_read_pattern(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    bad_number bad = {0};
    if (!value) return need_value(rule, error);
    for (int k = 0; rule->choices[k]; k++) {
        if (matches(rule->choices[k], value, &bad)) { /* so it is shorter than SPEC_NAME */
            snprintf(field_in(rule, spec), SPEC_NAME, "%s", strcmp(value, "dot") ? value : "");
            return ATTN_OK;
        }
    }
    if (!bad.word) return unknown_value(rule, value, error);
    return failure(error, ATTN_ERR_ARGUMENT, "%s=%.80s: %.*s (%.*s) is not an integer between 1 and 2^38", rule->word.name, value,
                   bad.word_length, bad.word, bad.text_length < 40 ? bad.text_length : 40, bad.text);
}

attn_status value_read_sparse(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (!value) return need_value(rule, error);
    if (strlen(value) >= sizeof spec->sparse)
        return failure(error, ATTN_ERR_ARGUMENT, "sparse: %zu characters are too many (at most %zu)", strlen(value),
                       sizeof spec->sparse - 1);
    sparse_masks *masks = need_memory(1, sizeof *masks);
    const attn_status status = sparse_parse(value, 0, masks, error);
    free(masks);
    if (status != ATTN_OK) return failure_about(error, "sparse");
    snprintf(spec->sparse, sizeof spec->sparse, "%s", value);
    return ATTN_OK;
}

int value_print_pattern(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    snprintf(text, size, "%s", (const char *)field_of(rule, spec));
    return text[0] != 0;
}

/* ---- masks and biases: axes of size 1 by name, "b1h1" ---- */

static const double BLOCK_DROP = 0.5; /* the default of block=Q,K */

static const char axis_letter[] = "bhqk"; /* in the order of the SPEC_ONE_ bits */

static int read_axes(const char *text, int *axes)
{
    *axes = 0;
    for (; *text; text += 2) {
        const char *at = strchr(axis_letter, text[0]);
        if (!at || text[1] != '1') return 0;
        *axes |= 1 << (at - axis_letter);
    }
    return 1;
}

static void print_axes(int axes, char *text)
{
    for (int k = 0; k < 4; k++) {
        if (!(axes & 1 << k)) continue;
        *text++ = axis_letter[k];
        *text++ = '1';
    }
    *text = 0;
}

/* "P/AXES": the fraction that is dropped, and the axes of size 1. */
static attn_status read_share(const problem_rule *rule, const char *value, double *drop, int *one, attn_error *error)
{
    const char *slash = strchr(value, '/');
    const char *end = slash ? slash : value + strlen(value);
    *one = 0;
    if (!read_real(value, end, drop) || *drop < 0 || *drop > 1)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not a fraction between 0 and 1", rule->word.name, value);
    if (slash && (!slash[1] || !read_axes(slash + 1, one)))
        return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' does not name axes of size 1, such as b1h1 (letters b h q k)",
                       rule->word.name, slash + 1);
    return ATTN_OK;
}

static void print_share(double drop, int one, char *text, size_t size)
{
    print_real(drop, text, size);
    if (!one) return;
    strcat(text, "/");
    print_axes(one, text + strlen(text));
}

attn_status value_read_mask(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (!value) return need_value(rule, error);
    spec->mask = 1;
    return read_share(rule, value, &spec->mask_drop, &spec->mask_one, error);
}

attn_status value_read_block(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    if (!value) return need_value(rule, error);
    const char *comma = strchr(value, ','), *end = value + strcspn(value, "/");
    if (!comma || comma > end || !read_int(value, comma, &spec->block_q) || !read_int(comma + 1, end, &spec->block_kv) ||
        spec->block_q < 1 || spec->block_kv < 1)
        return failure(error, ATTN_ERR_ARGUMENT, "block: '%.40s' is not Q,K (two integers above 0)", value);
    spec->block = 1;
    spec->block_one = 0;
    spec->block_drop = BLOCK_DROP;
    return *end ? read_share(rule, end + 1, &spec->block_drop, &spec->block_one, error) : ATTN_OK;
}

int value_print_block(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    size_t used = (size_t)snprintf(text, size, "%" PRId64 ",%" PRId64, spec->block_q, spec->block_kv);
    if (spec->block_drop != BLOCK_DROP || spec->block_one) {
        text[used++] = '/';
        print_share(spec->block_drop, spec->block_one, text + used, size - used);
    }
    return spec->block;
}

int value_print_mask(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule;
    print_share(spec->mask_drop, spec->mask_one, text, size);
    return spec->mask;
}

attn_status value_read_bias(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error)
{
    (void)rule;
    spec->bias_one = 0;
    if (value && (!*value || !read_axes(value, &spec->bias_one)))
        return failure(error, ATTN_ERR_ARGUMENT, "bias: '%.40s' does not name axes of size 1, such as b1h1 (letters b h q k)",
                       value);
    spec->bias = 1;
    return ATTN_OK;
}

int value_print_bias(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    (void)rule, (void)size;
    print_axes(spec->bias_one, text);
    return spec->bias;
}

/* ---- operation and type: always printed, even defaults ---- */

int value_print_word(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    snprintf(text, size, "%s", rule->choices[*(const int *)field_of(rule, spec)]);
    return 1;
}

/* Sizes at their defaults are omitted. */
int value_print_size(const problem_rule *rule, const problem_spec *spec, char *text, size_t size)
{
    const int64_t *field = field_of(rule, spec), *s = field;
    const attn_shape *shape = &spec->shape;
    snprintf(text, size, "%" PRId64, *s);
    if (*field < 0) return 0;
    if (field == &shape->batch || field == &shape->heads_q) return *field != 1;
    if (field == &shape->heads_kv) return *field != shape->heads_q;
    if (field == &shape->len_kv) return *field != shape->len_q;
    if (field == &shape->dim_v) return *field != shape->dim_qk;
    return 1;
}
