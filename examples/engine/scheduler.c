/* SPDX-License-Identifier: MIT
 *
 * scheduler.c - see scheduler.h. */
#include "scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int scheduler_make(scheduler *s, model *m, request *all, int64_t requests, int64_t places, int64_t budget, int64_t page_count,
                   int64_t page_size, attn_dtype dtype)
{
    int64_t longest = 1;
    *s = (scheduler){.m = m, .all = all, .requests = requests, .places = places, .budget = budget, .end = -1};
    for (int64_t n = 0; n < requests; n++) {
        all[n].place = -1;
        longest = all[n].most > longest ? all[n].most : longest;
    }
    s->counts = calloc((size_t)places, sizeof *s->counts);
    s->wanted = calloc((size_t)places, sizeof *s->wanted);
    s->holder = calloc((size_t)places, sizeof *s->holder);
    s->tokens = calloc((size_t)(budget + places), sizeof *s->tokens);
    s->logits = malloc((size_t)(places * model_words(m)) * sizeof *s->logits);
    if (!s->counts || !s->wanted || !s->holder || !s->tokens || !s->logits) return 0;
    for (int64_t i = 0; i < places; i++) s->holder[i] = -1;
    return model_make_pages(m, places, longest, page_count, page_size, dtype, dtype, &s->p);
}

void scheduler_free(scheduler *s)
{
    pages_free(&s->p);
    free(s->counts), free(s->wanted), free(s->holder), free(s->tokens), free(s->logits);
}

/* ---- who runs ---- */

static request *request_at(const scheduler *s, int64_t place) { return s->holder[place] < 0 ? NULL : &s->all[s->holder[place]]; }

/* How many tokens of a request have no keys and values yet; one: it writes. */
static int64_t unread(const scheduler *s, const request *r) { return r->count - pages_length(&s->p, r->place); }

static void leave(scheduler *s, request *r)
{
    pages_keep(&s->p, r->place, 0);
    s->counts[r->place] = s->wanted[r->place] = 0;
    s->holder[r->place] = -1;
    r->place = -1;
}

/* The oldest request that waits takes the first free place. */
static void admit(scheduler *s)
{
    int64_t place = 0;
    for (int64_t n = 0; n < s->requests; n++) {
        request *r = &s->all[n];
        if (r->done || r->place >= 0) continue;
        while (place < s->places && s->holder[place] >= 0) place++;
        if (place == s->places || s->p.unused_count == 0) return;
        s->holder[place] = n;
        r->place = place;
    }
}

/* Pages for some more tokens of a request; where there are none, the latest request that is younger gives its own up, and will be
 * read again.  0: there is none. */
static int reserve(scheduler *s, const request *r, int64_t tokens)
{
    while (!pages_reserve(&s->p, r->place, tokens)) {
        int64_t last = s->requests - 1;
        while (last >= 0 && (s->all[last].place < 0 || s->p.held[s->all[last].place] == 0)) last--;
        if (last < 0 || &s->all[last] <= r) return 0;
        leave(s, &s->all[last]);
        s->evicted++;
    }
    return 1;
}

/* How many tokens each place has in this step; returns the sum. */
static int64_t plan(scheduler *s)
{
    int64_t budget = s->budget, total = 0;
    memset(s->counts, 0, (size_t)s->places * sizeof *s->counts);
    memset(s->wanted, 0, (size_t)s->places * sizeof *s->wanted);
    for (int writes = 1; writes >= 0; writes--) /* first those that write, then prompts; older requests first */
        for (int64_t n = 0; n < s->requests; n++) {
            const request *r = &s->all[n];
            if (r->place < 0 || (unread(s, r) == 1) != writes) continue;
            const int64_t left = unread(s, r), count = writes || left < budget ? left : budget;
            if (count == 0 || !reserve(s, r, count)) continue;
            s->counts[r->place] = count;
            s->wanted[r->place] = count == left;
            if (!writes) budget -= count;
        }
    for (int64_t i = 0; i < s->places; i++) total += s->counts[i];
    return total;
}

/* ---- a step ---- */

static int most_likely(const float *logits, int64_t words)
{
    int64_t best = 0;
    for (int64_t i = 1; i < words; i++)
        if (logits[i] > logits[best]) best = i;
    return (int)best;
}

static void write_token(scheduler *s, request *r, const float *logits)
{
    r->tokens[r->count++] = most_likely(logits, model_words(s->m));
    s->written++;
    r->done = r->count == r->most || r->tokens[r->count - 1] == s->end;
    if (r->done) leave(s, r);
}

attn_status scheduler_step(scheduler *s, int64_t *left, attn_error *error)
{
    int *to = s->tokens;
    admit(s);
    if (plan(s) == 0) { /* the oldest request had all pages to itself; its last token needs none */
        const request *r = s->all;
        while (r->done) r++;
        const long long tokens = r->most - 1, needed = (tokens + s->p.page_size - 1) / s->p.page_size;
        *error = (attn_error){.status = ATTN_ERR_MEMORY};
        (void)snprintf(error->message, sizeof error->message,
                       "the pages are too few: the %lld tokens of a request need %lld, not %lld", tokens, needed,
                       (long long)s->p.caches[0].pages);
        return ATTN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < s->places; i++) {
        const request *r = request_at(s, i);
        if (!s->counts[i]) continue;
        memcpy(to, r->tokens + pages_length(&s->p, i), (size_t)s->counts[i] * sizeof *to);
        to += s->counts[i];
        s->read += s->counts[i];
    }
    const attn_status status = model_run(s->m, &s->p, 0, s->places, s->tokens, s->counts, s->wanted, s->logits, error);
    if (status != ATTN_OK) return status;
    s->steps++;
    const float *logits = s->logits;
    for (int64_t i = 0; i < s->places; i++) {
        if (!s->wanted[i]) continue;
        write_token(s, request_at(s, i), logits);
        logits += model_words(s->m);
    }
    *left = 0;
    for (int64_t n = 0; n < s->requests; n++) *left += !s->all[n].done;
    return ATTN_OK;
}
