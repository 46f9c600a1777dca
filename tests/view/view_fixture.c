/* SPDX-License-Identifier: MIT
 *
 * view_fixture.c - writes one of a few known pages: view_fixture KIND FILE.  test_page.py knows the same weights and tokens:
 *
 *      weight(s,l,h,i,j) = a / (sum of a over j within the length),   a = 1 + (7s + 5l + 3h + 2i + jj + ij) mod 13,
 *      plus len_k if i = j
 */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    const char *kind;
    int64_t sequences, layers, heads, len_q, len_k;
    const view_sequence *sequence;
    const int64_t *layer_numbers, *head_numbers;
    const char *title;
} fixture;

static const char *const cat[] = {"the", "cat", "sat", "down"};
static const char *const dog[] = {"dogs", "bark"};
static const char *const frames[] = {"f0", "f1", "f2", "f3", "f4"};
static const char *const hostile[] = {
    "</script><script>pwned()</script>", "<img src=x onerror=pwned()>", "\"'&amp;<!--", "a\nb\tc", "", "שלום", "\xff\xfe broken",
    "\xe2\x80\xa8😀 \\u003c ${pwned()}"};

static const view_sequence small_sequence[] = {{.len_q = 4, .len_k = 4, .queries = cat, .keys = cat}};
static const view_sequence batch_sequence[] = {{.len_q = 4, .len_k = 4, .queries = cat, .keys = cat},
                                               {.name = "two dogs", .len_q = 2, .len_k = 2, .queries = dog, .keys = dog},
                                               {.name = "nobody", .len_q = 0, .len_k = 0}};
static const view_sequence cross_sequence[] = {{.len_q = 2, .len_k = 5, .first_query = 3, .queries = dog, .keys = frames}};
static const view_sequence hostile_sequence[] = {{.len_q = 8, .len_k = 8, .queries = hostile, .keys = hostile}};
static const int64_t cross_layers[] = {4, 7};
static const int64_t cross_heads[] = {2, 3, 11};

static const fixture fixtures[] = {
    {"small", 1, 2, 3, 4, 4, small_sequence, NULL, NULL, "A small page"},
    {"batch", 3, 1, 2, 4, 4, batch_sequence, NULL, NULL, NULL},
    {"cross", 1, 2, 3, 2, 5, cross_sequence, cross_layers, cross_heads, "Cross attention"},
    {"hostile", 1, 1, 2, 8, 8, hostile_sequence, NULL, NULL, "</title><script>pwned()</script>"},
    {"large", 1, 2, 12, 320, 320, NULL, NULL, NULL, "More than fits"},
    {"invalid", 1, 1, 1, 4, 4, small_sequence, NULL, NULL, "Not numbers"},
};

static void fill(const fixture *f, float *weights)
{
    for (int64_t s = 0; s < f->sequences; s++) {
        int64_t len_k = f->sequence ? f->sequence[s].len_k : f->len_k;
        for (int64_t l = 0; l < f->layers; l++)
            for (int64_t h = 0; h < f->heads; h++)
                for (int64_t i = 0; i < f->len_q; i++) {
                    double sum = 0;
                    for (int64_t j = 0; j < f->len_k; j++) {
                        int64_t a = 1 + (7 * s + 5 * l + 3 * h + 2 * i + j * j + i * j) % 13 + (i == j ? len_k : 0);
                        weights[j] = (float)a;
                        if (j < len_k) sum += (double)a;
                    }
                    /* Padding holds a number that must never be shown. */
                    for (int64_t j = 0; j < f->len_k; j++) weights[j] = j < len_k ? (float)(weights[j] / sum) : 77;
                    weights += f->len_k;
                }
    }
}

int main(int argc, char **argv)
{
    static const view_fact facts[] = {{"model", "none <at all>"}, {"layout", "[layer, head, query, key]"}};
    const fixture *f = NULL;
    for (size_t n = 0; argc == 3 && n < sizeof fixtures / sizeof fixtures[0]; n++)
        if (!strcmp(argv[1], fixtures[n].kind)) f = &fixtures[n];
    FILE *file = f ? fopen(argv[2], "wb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: view_fixture KIND FILE, with a FILE that can be written\n");
        return 2;
    }
    float *weights = malloc((size_t)(f->sequences * f->layers * f->heads * f->len_q * f->len_k) * sizeof *weights);
    if (!weights) return 2;
    fill(f, weights);
    if (!strcmp(f->kind, "invalid")) {
        weights[1] = NAN;
        for (int j = 0; j < 4; j++) weights[4 + j] = 0;
        weights[8] = INFINITY;
        for (int j = 0; j < 4; j++) weights[12 + j] = 0.5f;
    }
    view_sequence sequence[3];
    const int64_t each = f->layers * f->heads * f->len_q * f->len_k;
    for (int64_t s = 0; s < f->sequences; s++) {
        sequence[s] = f->sequence ? f->sequence[s] : (view_sequence){.len_q = f->len_q, .len_k = f->len_k};
        sequence[s].rows = f->len_q, sequence[s].columns = f->len_k;
        sequence[s].weights = weights + s * each;
        sequence[s].summary = view_summarise(sequence + s, f->layers, f->heads);
    }
    view_data data = {.title = f->title,
                      .sources = {"made by view_fixture"},
                      .attribution = "nobody's data",
                      .sequences = f->sequences,
                      .layers = f->layers,
                      .heads = f->heads,
                      .sequence = sequence,
                      .layer_numbers = f->layer_numbers,
                      .head_numbers = f->head_numbers,
                      .facts = facts,
                      .facts_count = 2};
    attn_error error;
    text_buffer out = {0};
    attn_status status = view_write(&out, &data, &error);
    if (status == ATTN_OK && fwrite(out.bytes, 1, out.count, file) != out.count) status = ATTN_ERR_IO;
    if (fclose(file) != 0) status = ATTN_ERR_IO;
    text_free(&out);
    for (int64_t s = 0; s < f->sequences; s++) {
        for (int64_t k = 0; k < f->layers * f->heads; k++) summary_free((view_summary *)sequence[s].summary + k);
        free((view_summary *)sequence[s].summary);
    }
    free(weights);
    if (status != ATTN_OK) fprintf(stderr, "%s\n", error.message);
    return status == ATTN_OK ? 0 : 1;
}
