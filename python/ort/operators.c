/* SPDX-License-Identifier: MIT
 * operators.c - which operators there are, with which types; attributes of a node or of a kernel. */
#include <string.h>

#include "shim.h"

#define BIT(type) (1u << (type))
#define HALVES    (BIT(ORT_FLOAT) | BIT(ORT_FLOAT16) | BIT(ORT_BFLOAT16))
#define FLOATS    (BIT(ORT_FLOAT) | BIT(ORT_FLOAT16) | BIT(ORT_BFLOAT16) | BIT(ORT_DOUBLE))

const operator operators[] = {
    {.domain = "",
     .name = "Attention",
     .first = 23,
     .last = 25,
     .types = {{"T1", FLOATS}, {"T2", FLOATS}, {"U", FLOATS | BIT(ORT_BOOL)}},
     .read = attention_read,
     .refuse = attention_refuse,
     .compute = attention_compute},
    {.domain = "com.microsoft",
     .name = "MultiHeadAttention",
     .first = 1,
     .last = 1,
     .types = {{"T", HALVES}, {"M", BIT(ORT_INT32)}},
     .read = multihead_read,
     .refuse = multihead_refuse,
     .compute = multihead_compute},
    {.domain = "com.microsoft",
     .name = "GroupQueryAttention",
     .first = 1,
     .last = 1,
     .types = {{"T", HALVES}, {"T_CACHE", HALVES}, {"M", BIT(ORT_INT32)}},
     .read = grouped_read,
     .refuse = grouped_refuse,
     .compute = grouped_compute},
    {.domain = "",
     .name = "LinearAttention",
     .first = 27,
     .last = 27,
     .types = {{"T", HALVES}, {"S", HALVES}},
     .read = linear_read,
     .refuse = linear_refuse,
     .compute = linear_compute},
    {.domain = "com.microsoft",
     .name = "LinearAttention",
     .first = 1,
     .last = 1,
     .types = {{"T", HALVES}, {"S", HALVES}},
     .read = linear_read,
     .refuse = linear_refuse,
     .compute = linear_compute},
};

const int operator_count = sizeof operators / sizeof *operators;

/* ---- attributes ------------------------------------------------------------------------------------------------ */

/* 1 if the status was success. */
static int succeeds(ort_status *status)
{
    if (status) ort->release_status(status);
    return !status;
}

/* The attribute of a node, which has this type; NULL if there is none. */
static int read_node(const ort_node *node, const char *name, int type, void *data, size_t size)
{
    const ort_attribute *found = NULL;
    size_t needed;
    return succeeds(ort->node_attribute(node, name, &found)) && found &&
           succeeds(ort->read_attribute(found, type, data, size, &needed));
}

/* Without a 0 at its end. */
static int read_string(const ort_node *node, const char *name, char *text, size_t *size)
{
    const ort_attribute *found = NULL;
    return succeeds(ort->node_attribute(node, name, &found)) && found &&
           succeeds(ort->read_attribute(found, ORT_ATTRIBUTE_STRING, text, *size, size));
}

int64_t source_int(const source *s, const char *name, int64_t otherwise)
{
    int64_t number;
    const int found = s->node ? read_node(s->node, name, ORT_ATTRIBUTE_INT, &number, sizeof number)
                              : succeeds(ort->kernel_int(s->kernel, name, &number));
    return found ? number : otherwise;
}

double source_float(const source *s, const char *name, double otherwise)
{
    float number;
    const int found = s->node ? read_node(s->node, name, ORT_ATTRIBUTE_FLOAT, &number, sizeof number)
                              : succeeds(ort->kernel_float(s->kernel, name, &number));
    return found ? (double)number : otherwise;
}

void source_string(const source *s, const char *name, char *text, size_t size)
{
    size_t needed = size - 1;
    const int found =
        s->node ? read_string(s->node, name, text, &needed) : succeeds(ort->kernel_string(s->kernel, name, text, &needed));
    text[found && needed < size ? needed : 0] = 0;
}
