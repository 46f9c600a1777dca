/* SPDX-License-Identifier: MIT
 * operand.c - parses the strings of attn bench; their words are those of problem strings, and a few of layers. */
#include "operand.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/options.h"
#include "testing/text/failure.h"

static const char *const forms[LAYER_FORMS] = {"mha", "gqa", "mla"};

/* Words of problem strings that these take.  A word with a number has its name here. */
static const char of_matrix[] = "fwd f32 b hq hkv sq skv d dv causal scale seed";
static const char of_layer[] =
    "fwd bwd decode f32 f64 b hq hkv sq skv d dv causal window chunk softcap scale page ktype vtype rope seed";

typedef struct own_word {
    const char *name;
    int is_size; /* m4096; else rank=512 */
    size_t at;
} own_word;

static const own_word own_words[] = {{"m", 1, offsetof(operand, model)},
                                     {"rank", 0, offsetof(operand, rank)},
                                     {"rank-query", 0, offsetof(operand, rank_query)},
                                     {"rotary", 0, offsetof(operand, rotary)}};
enum { OWN_WORDS = sizeof own_words / sizeof *own_words };

/* The number of a word of this name; NULL: it is another word. */
static const char *number_of(const own_word *own, const char *word)
{
    const size_t length = strlen(own->name);
    if (strncmp(word, own->name, length) != 0) return NULL;
    if (own->is_size) return strchr("0123456789", word[length]) && word[length] ? word + length : NULL;
    return word[length] == '=' ? word + length + 1 : NULL;
}

static int is_taken(const char *words, const char *word)
{
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    if (options_has_word(words, name)) return 1;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "=0123456789"), word);
    return options_has_word(words, name);
}

/* A word of the operand itself: 1 if it is one, -1 if its number is wrong. */
static int read_own(operand *o, const char *word, attn_error *error)
{
    if (o->kind == OPERAND_LAYER && strcmp(word, "prefill") == 0) return o->prefill = 1;
    for (int k = 0; k < OWN_WORDS && o->kind == OPERAND_LAYER; k++) {
        const char *number = number_of(&own_words[k], word);
        int64_t *field = (int64_t *)(void *)((char *)o + own_words[k].at);
        if (!number) continue;
        if (*field) return failure(error, ATTN_ERR_ARGUMENT, "%s is given twice", own_words[k].name), -1;
        return option_int(own_words[k].name, number, 1, INT32_MAX, field, error) == ATTN_OK ? 1 : -1;
    }
    return 0;
}

/* The words after "layer:KIND:" or "matrix:", of which those of problem strings are parsed together. */
static attn_status parse_words(operand *o, const char *text, attn_error *error)
{
    char rest[512] = "", word[80];
    const int layer = o->kind == OPERAND_LAYER;
    if (strlen(text) >= sizeof rest)
        return failure(error, ATTN_ERR_ARGUMENT, "a string of %zu characters is too long", strlen(text));
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ":");
        if (length >= sizeof word)
            return failure(error, ATTN_ERR_ARGUMENT, "a word of %zu characters is too long: '%.40s...'", length, at);
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        const int own = read_own(o, word, error);
        if (own < 0) return error->status;
        if (!own) {
            const size_t used = strlen(rest);
            snprintf(rest + used, sizeof rest - used, "%s%s", used ? ":" : "", word);
        }
        at += length + (at[length] == ':');
    }
    const attn_status status = problem_parse(rest, &o->spec, error);
    if (status != ATTN_OK) return status;
    for (const char *at = rest; *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ":"), at);
        if (!is_taken(layer ? of_layer : of_matrix, word))
            return failure(error, ATTN_ERR_ARGUMENT, "%s takes no '%s' (its words: %s%s)", layer ? "a layer" : "matrix", word,
                           layer ? of_layer : of_matrix, layer ? " prefill m rank rank-query rotary" : "");
    }
    return ATTN_OK;
}

/* What a layer of this form needs, and defaults. */
static attn_status complete_layer(operand *o, attn_error *error)
{
    attn_shape *s = &o->spec.shape;
    const int latent = o->form == LAYER_MLA;
    if (o->prefill && o->spec.op != SPEC_FORWARD)
        return failure(error, ATTN_ERR_ARGUMENT, "prefill and %s are both set", problem_op_name(&o->spec));
    if (o->prefill) o->spec.op = SPEC_DECODE;
    if (o->spec.op == SPEC_DECODE) o->spec.causal = SPEC_CAUSAL_NONE; /* it always is, from the last key on */
    if (o->prefill && s->len_kv != s->len_q)
        return failure(error, ATTN_ERR_ARGUMENT, "prefill begins with an empty cache: skv is sq, and may be left out");
    if (o->spec.op == SPEC_DECODE && s->len_q > s->len_kv)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "sq (%" PRId64 ") is more than skv (%" PRId64 "), the keys in the cache once the sq new tokens are there",
                       s->len_q, s->len_kv);
    if (o->spec.op != SPEC_DECODE && s->len_kv != s->len_q)
        return failure(error, ATTN_ERR_ARGUMENT, "skv is for decode; a layer attends to its own sq tokens");
    if (o->spec.op != SPEC_DECODE && (o->spec.page || o->spec.k_type || o->spec.v_type))
        return failure(error, ATTN_ERR_ARGUMENT, "page, ktype and vtype are of a cache: they need decode or prefill");
    if (o->form == LAYER_MHA && s->heads_kv != s->heads_q)
        return failure(error, ATTN_ERR_ARGUMENT, "mha has a key head for each query head; hkv is for layer:gqa");
    if (latent && (s->heads_kv != s->heads_q || o->spec.rope || o->spec.v_type))
        return failure(error, ATTN_ERR_ARGUMENT,
                       "mla takes no hkv, rope and vtype: its heads share a latent (rank), and rotary channels rotate");
    if (!latent && (o->rank || o->rank_query || o->rotary))
        return failure(error, ATTN_ERR_ARGUMENT, "rank, rank-query and rotary are words of layer:mla");
    if (o->rotary % 2) return failure(error, ATTN_ERR_ARGUMENT, "rotary (%" PRId64 ") is odd; channels rotate in pairs", o->rotary);
    if (!o->model) o->model = s->heads_q * s->dim_qk;
    if (latent && !o->rank) o->rank = 4 * s->dim_qk; /* as DeepSeek-V2 */
    return ATTN_OK;
}

static attn_status parse_layer(const char *text, operand *o, attn_error *error)
{
    const size_t length = strcspn(text, ":");
    o->kind = OPERAND_LAYER;
    for (o->form = 0; o->form < LAYER_FORMS; o->form++)
        if (strlen(forms[o->form]) == length && strncmp(text, forms[o->form], length) == 0) break;
    if (o->form == LAYER_FORMS)
        return failure(error, ATTN_ERR_ARGUMENT, "unknown layer '%.*s' (known: mha, gqa, mla)", (int)(length < 40 ? length : 40),
                       text);
    const attn_status status = parse_words(o, text + length + (text[length] == ':'), error);
    return status == ATTN_OK ? complete_layer(o, error) : status;
}

attn_status operand_parse(const char *text, operand *o, attn_error *error)
{
    static const char matrix[] = "matrix:", layer[] = "layer:";
    *o = (operand){.kind = OPERAND_PROBLEM};
    if (strncmp(text, layer, sizeof layer - 1) == 0) return parse_layer(text + sizeof layer - 1, o, error);
    if (strncmp(text, matrix, sizeof matrix - 1) != 0) return problem_parse(text, &o->spec, error);
    o->kind = OPERAND_MATRIX;
    return parse_words(o, text + sizeof matrix - 1, error);
}

void operand_print(const operand *o, char *text, size_t size)
{
    char words[512];
    problem_print(&o->spec, words, sizeof words);
    const char *rest = words + strcspn(words, ":"); /* after the operation */
    if (o->kind == OPERAND_PROBLEM) snprintf(text, size, "%s", words);
    if (o->kind == OPERAND_MATRIX) snprintf(text, size, "matrix%s", rest);
    if (o->kind != OPERAND_LAYER) return;
    size_t used =
        (size_t)snprintf(text, size, "layer:%s:%s%s", forms[o->form], o->prefill ? "prefill" : problem_op_name(&o->spec), rest);
    for (int k = 0; k < OWN_WORDS && used < size; k++) {
        const own_word *own = &own_words[k];
        const int64_t number = *(const int64_t *)(const void *)((const char *)o + own->at);
        if (number) used += (size_t)snprintf(text + used, size - used, ":%s%s%" PRId64, own->name, own->is_size ? "" : "=", number);
    }
}
