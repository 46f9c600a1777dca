/* SPDX-License-Identifier: MIT
 * operators.c - which operators there are, with which types; attributes of a node or of a kernel. */
#include <string.h>

#include "shim.h"

#define BIT(type) (1u << (type))
#define FLOATS    (BIT(ORT_FLOAT) | BIT(ORT_FLOAT16) | BIT(ORT_BFLOAT16) | BIT(ORT_DOUBLE))

const operator operators[] = {
    {"",
     "Attention",
     23,
     25,
     {{"T1", FLOATS}, {"T2", FLOATS}, {"U", FLOATS | BIT(ORT_BOOL)}},
     attention_read,
     attention_refuse,
     attention_compute},
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
