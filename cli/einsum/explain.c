/* SPDX-License-Identifier: MIT
 * explain.c - what a contraction computes, in words and in JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "contraction.h"
#include "testing/text/json.h"

static double elements(const contraction *c, const char *indices)
{
    double product = 1;
    for (; *indices; indices++) product *= (double)c->size[(unsigned char)*indices];
    return product;
}

const char *contraction_shape(const contraction *c, const char *indices, char text[SHAPE_OF_ALL])
{
    size_t used = (size_t)snprintf(text, SHAPE_OF_ALL, "[");
    for (const char *at = indices; *at; at++) {
        const int64_t size = c->size[(unsigned char)*at];
        const char *gap = at == indices ? "" : ", ";
        if (size) used += (size_t)snprintf(text + used, SHAPE_OF_ALL - used, "%s%c=%" PRId64, gap, *at, size);
        else used += (size_t)snprintf(text + used, SHAPE_OF_ALL - used, "%s%c", gap, *at);
    }
    (void)snprintf(text + used, SHAPE_OF_ALL - used, "]");
    return text;
}

/* "b h i j" */
static const char *spaced(const char *indices, char *text)
{
    size_t used = 0;
    for (const char *at = indices; *at; at++) {
        if (used) text[used++] = ' ';
        text[used++] = *at;
    }
    text[used] = 0;
    return used ? text : "none";
}

void contraction_print(const contraction *c, const char *meaning, int sized)
{
    char text[SHAPE_OF_ALL], other[2 * LETTERS];
    printf("%s\n", c->text);
    if (meaning) printf("  %s\n", meaning);
    for (int k = 0; k < c->count; k++) printf("  tensor %d      %s\n", k + 1, contraction_shape(c, c->inputs[k], text));
    printf("  output        %s\n", c->output[0] ? contraction_shape(c, c->output, text) : "one number");
    printf("  free indices  %s\n", spaced(c->free_indices, text));
    printf("  summed over   %s\n", spaced(c->summed, text));
    printf("  in words      for every %s: ", c->output[0] ? spaced(c->output, text) : "output");
    if (c->summed[0]) printf("the sum over %s of ", spaced(c->summed, other));
    printf("the product of %d number%s\n", c->count, c->count == 1 ? "" : "s");
    printf("  cost          %d multiplication%s for each of %s", c->count - 1, c->count == 2 ? "" : "s",
           contraction_shape(c, strcat(strcpy(other, c->free_indices), c->summed), text));
    if (sized) printf(": %.6g", (c->count - 1) * elements(c, other));
    printf("\n");
    if (sized) printf("  numbers out   %.6g\n", elements(c, c->output));
}

void contraction_json(cJSON *object, const contraction *c, const char *meaning, int sized)
{
    cJSON *inputs;
    char all[2 * LETTERS], one[2] = {0};
    json_text(object, "contraction", c->text);
    if (meaning) json_text(object, "meaning", meaning);
    inputs = json_list(object, "inputs");
    for (int k = 0; k < c->count; k++) cJSON_AddItemToArray(inputs, cJSON_CreateString(c->inputs[k]));
    json_text(object, "output", c->output);
    for (int k = 0; k < 2; k++) {
        cJSON *list = json_list(object, k ? "summation_indices" : "free_indices");
        for (const char *at = k ? c->summed : c->free_indices; *at; at++) {
            one[0] = *at;
            cJSON_AddItemToArray(list, cJSON_CreateString(one));
        }
    }
    if (sized) {
        json_number(object, "multiplications", (c->count - 1) * elements(c, strcat(strcpy(all, c->free_indices), c->summed)));
        json_number(object, "numbers_out", elements(c, c->output));
    }
}
