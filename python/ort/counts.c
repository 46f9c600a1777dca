/* SPDX-License-Identifier: MIT
 * counts.c - runs of each operator, and nodes that were left to the runtime, by reason. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "shim.h"

enum { MAX_REASONS = 64, MAX_OPERATORS = 16 };

static _Atomic int64_t runs[MAX_OPERATORS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const operator* o;
    const char *reason;
    int64_t count;
} left[MAX_REASONS];

void count_run(const operator* o) { atomic_fetch_add_explicit(&runs[o - operators], 1, memory_order_relaxed); }

void count_left(const operator* o, const char *reason)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_REASONS; i++) {
        if (left[i].o && (left[i].o != o || strcmp(left[i].reason, reason))) continue;
        left[i].o = o;
        left[i].reason = reason;
        left[i].count++;
        break;
    }
    pthread_mutex_unlock(&lock);
}

/* For libattn.onnx.stats(): entry `index`, first of runs, then of nodes that were left, whose reason is not NULL.  -1 past the last
 * one. */
__attribute__((visibility("default"))) int attn_ort_count(int index, const char **name, const char **reason, int64_t *count);

int attn_ort_count(int index, const char **name, const char **reason, int64_t *count)
{
    int found = -1;
    if (index >= 0 && index < operator_count) {
        *name = operators[index].name;
        *reason = NULL;
        *count = atomic_load(&runs[index]);
        return 0;
    }
    pthread_mutex_lock(&lock);
    const int at = index - operator_count;
    if (at >= 0 && at < MAX_REASONS && left[at].o) {
        *name = left[at].o->name;
        *reason = left[at].reason;
        *count = left[at].count;
        found = 0;
    }
    pthread_mutex_unlock(&lock);
    return found;
}
