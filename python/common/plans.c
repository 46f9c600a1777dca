/* SPDX-License-Identifier: MIT
 * plans.c - plans kept between calls, in an array per thread, most recently used first: programs alternate between few shapes, so
 * comparing keys in this order is faster than hashing them. */
#include "plans.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    kept_plan kept;  /* first, so that a kept_plan is an entry */
    attn_plan *plan; /* one of the two */
    attn_linear_plan *linear;
    size_t key_size, workspace_size;
    int users; /* calls in progress; more than one if a callback of a call makes the same call */
    char *key; /* behind the entry, then the note */
} entry;

typedef struct cache {
    int count;
    int busy; /* the workspace is in use */
    void *workspace;
    size_t workspace_size;
    entry *entries[KEPT_PLANS];
} cache;

static _Thread_local cache *mine;
static pthread_key_t at_exit; /* of a thread */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int works;

static void entry_free(entry *e)
{
    attn_plan_destroy(e->plan);
    attn_linear_plan_destroy(e->linear);
    free(e);
}

static void cache_free(void *memory)
{
    cache *c = memory;
    for (int i = 0; i < c->count; i++) entry_free(c->entries[i]);
    free(c->workspace);
    free(c);
}

static void make_key(void) { works = !pthread_key_create(&at_exit, cache_free); }

/* The thread that ends the process runs no destructors of keys. */
__attribute__((destructor)) static void unload(void)
{
    if (!works) return;
    pthread_key_delete(at_exit);
    if (mine) cache_free(mine);
    mine = NULL;
}

static cache *cache_make(void)
{
    pthread_once(&once, make_key);
    if (!works) return NULL;
    cache *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    if (pthread_setspecific(at_exit, c)) {
        free(c);
        return NULL;
    }
    return mine = c;
}

/* Moves entry i to the front. */
static entry *to_front(cache *c, int i)
{
    entry *e = c->entries[i];
    memmove(c->entries + 1, c->entries, (size_t)i * sizeof *c->entries);
    return c->entries[0] = e;
}

kept_plan *kept_find(const void *key, size_t key_size)
{
    cache *c = mine;
    for (int i = 0; c && i < c->count; i++) {
        entry *e = c->entries[i];
        if (e->key_size != key_size || memcmp(e->key, key, key_size)) continue;
        if (i) to_front(c, i);
        e->users++;
        return &e->kept;
    }
    return NULL;
}

static void remove_at(cache *c, int i)
{
    entry *e = c->entries[i];
    memmove(c->entries + i, c->entries + i + 1, (size_t)(--c->count - i) * sizeof *c->entries);
    entry_free(e);
}

/* Makes space for one more; 0 if all are held. */
static int make_space(cache *c)
{
    for (int i = c->count - 1; c->count == KEPT_PLANS && i >= 0; i--)
        if (!c->entries[i]->users) remove_at(c, i);
    return c->count < KEPT_PLANS;
}

/* A new entry at the front, held once, without a plan; NULL if there is no memory. */
static entry *entry_new(const void *key, size_t key_size, size_t note_size)
{
    cache *c = mine ? mine : cache_make();
    const size_t note_at = (sizeof(entry) + key_size + 15) / 16 * 16;
    entry *e = c && make_space(c) ? calloc(1, note_at + note_size) : NULL;
    if (!e) return NULL;
    e->kept.note = (char *)e + note_at;
    e->key = (char *)(e + 1);
    e->key_size = key_size;
    e->users = 1;
    memcpy(e->key, key, key_size);
    c->entries[c->count++] = e;
    return to_front(c, c->count - 1);
}

kept_plan *kept_add(const void *key, size_t key_size, attn_plan *plan, size_t note_size)
{
    entry *e = entry_new(key, key_size, note_size);
    if (!e) return attn_plan_destroy(plan), NULL;
    e->plan = plan;
    e->workspace_size = attn_plan_workspace_size(plan);
    return &e->kept;
}

kept_plan *kept_add_linear(const void *key, size_t key_size, attn_linear_plan *plan, size_t note_size)
{
    entry *e = entry_new(key, key_size, note_size);
    if (!e) return attn_linear_plan_destroy(plan), NULL;
    e->linear = plan;
    e->workspace_size = attn_linear_plan_workspace_size(plan);
    return &e->kept;
}

/* This thread's workspace, or new memory if a call that is in progress uses it, or if it would be large to keep. */
static void *workspace(cache *c, size_t size)
{
    if (c->busy || size > KEPT_WORKSPACE) return malloc(size);
    if (size > c->workspace_size) {
        free(c->workspace);
        c->workspace = malloc(size);
        c->workspace_size = c->workspace ? size : 0;
    }
    return c->workspace;
}

static attn_status no_workspace(size_t size, attn_error *error)
{
    if (!error) return ATTN_ERR_MEMORY;
    *error = (attn_error){.status = ATTN_ERR_MEMORY, .tensor = -1, .other = -1};
    snprintf(error->message, sizeof error->message, "cannot allocate a workspace of %zu bytes", size);
    return ATTN_ERR_MEMORY;
}

/* One of the two kinds of tensors, with so large a workspace. */
static attn_status execute(const entry *e, size_t size, const attn_tensors *tensors, const attn_linear_tensors *linear,
                           attn_error *error)
{
    cache *c = mine;
    void *memory = size ? workspace(c, size) : NULL;
    const int shared = memory && memory == c->workspace;
    if (size && !memory) return no_workspace(size, error);
    if (shared) c->busy = 1;
    const attn_status status =
        e->plan ? attn_execute(e->plan, tensors, memory, size, error) : attn_linear_execute(e->linear, linear, memory, size, error);
    if (shared) c->busy = 0;
    else free(memory);
    return status;
}

attn_status kept_execute(kept_plan *kept, const attn_tensors *tensors, attn_error *error)
{
    const entry *e = (const entry *)kept;
    const attn_schedule *schedule = tensors->call ? tensors->call->schedule : NULL;
    const size_t most = e->workspace_size, less = schedule ? attn_schedule_workspace_size(schedule) : most;
    size_t size = less < most ? less : most;
    attn_status status = execute(e, size, tensors, NULL, error);
    /* This plan may have terms or outputs that the one that was scheduled lacks, and need more. */
    while (status == ATTN_ERR_MEMORY && size < most) {
        size = size == 0 || size > most / 2 ? most : 2 * size;
        status = execute(e, size, tensors, NULL, error);
    }
    return status;
}

attn_status kept_execute_linear(kept_plan *kept, const attn_linear_tensors *tensors, attn_error *error)
{
    const entry *e = (const entry *)kept;
    return execute(e, e->workspace_size, NULL, tensors, error);
}

const attn_plan *kept_attention(const kept_plan *kept) { return ((const entry *)kept)->plan; }

void kept_release(kept_plan *kept) { ((entry *)kept)->users--; }

void kept_drop(kept_plan *kept)
{
    cache *c = mine;
    for (int i = 0; i < c->count; i++)
        if (c->entries[i] == (entry *)kept) {
            remove_at(c, i);
            return;
        }
}

void kept_clear(void)
{
    cache *c = mine;
    if (!c) return;
    for (int i = c->count - 1; i >= 0; i--)
        if (!c->entries[i]->users) remove_at(c, i);
    if (c->busy) return;
    free(c->workspace);
    c->workspace = NULL;
    c->workspace_size = 0;
}
