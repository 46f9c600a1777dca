/* SPDX-License-Identifier: MIT
 * ranks.c - see ranks.h. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "testing/random/random.h"

/* A message on its way, or a receive that waits for one. */
typedef struct message {
    struct message *next;
    int from, to, tag, done;
    void *data;
    size_t bytes;
} message;

typedef struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    message *sent; /* oldest first; not yet received */
    uint64_t delays;
    int64_t calls;
    int failed;
} world;

static int64_t fails_at = -1;
static const char *wrong;

void ranks_fail_at(int64_t number) { fails_at = number; }
const char *ranks_wrong(void) { return wrong; }

typedef struct rank {
    world *world;
    attn_transport transport;
    random_state random;
    int64_t bytes, messages;
    message *begun; /* receives that have not been waited for */
    int failed;     /* a function of this rank has */
    void (*body)(void *, const attn_transport *);
    void *context;
    pthread_t thread;
} rank;

static void delay(rank *r)
{
    if (!r->world->delays || random_below(&r->random, 3)) return;
    const struct timespec some = {0, (long)random_below(&r->random, 40000)};
    (void)nanosleep(&some, NULL);
}

/* A function is called: 1 if it fails.  The lock is held. */
static int fails(rank *r)
{
    if (r->world->calls++ == fails_at) r->world->failed = 1, pthread_cond_broadcast(&r->world->changed);
    return r->world->failed;
}

static int ends(rank *r, int failed)
{
    if (failed) r->failed = 1;
    return failed;
}

static int begin(const message *what, void **request)
{
    message *m = malloc(sizeof *m);
    if (!m) return 1;
    *m = *what;
    *request = m;
    return 0;
}

/* The message is copied: it has been sent when this returns. */
static int send_message(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    rank *r = context;
    world *w = r->world;
    void *copy = malloc(bytes + 1), *sent;
    if (!copy) return 1;
    memcpy(copy, data, bytes);
    delay(r);
    if (begin(&(message){.from = r->transport.rank, .to = to, .tag = tag, .data = copy, .bytes = bytes}, &sent)) return 1;
    pthread_mutex_lock(&w->lock);
    if (r->failed) wrong = "something is sent after a failure";
    message **last = &w->sent;
    while (*last) last = &(*last)->next;
    *last = sent;
    const int failed = fails(r);
    r->bytes += (int64_t)bytes;
    r->messages++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    *request = NULL;
    return ends(r, failed);
}

static int receive_message(void *context, int from, int tag, void *data, size_t bytes, void **request)
{
    rank *r = context;
    if (begin(&(message){.next = r->begun, .from = from, .to = r->transport.rank, .tag = tag, .data = data, .bytes = bytes},
              request))
        return 1;
    if (bytes > 0) memset(data, 0xA5, bytes); /* what was there before is lost */
    r->begun = *request;
    pthread_mutex_lock(&r->world->lock);
    if (r->failed) wrong = "something is received after a failure";
    const int failed = fails(r);
    pthread_mutex_unlock(&r->world->lock);
    return ends(r, failed);
}

static void end_receive(rank *r, message *m)
{
    message **at = &r->begun;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    free(m);
}

static message **find(world *w, const message *m)
{
    for (message **at = &w->sent; *at; at = &(*at)->next)
        if ((*at)->from == m->from && (*at)->to == m->to && (*at)->tag == m->tag) return at;
    return NULL;
}

static int wait_all(void *context, int64_t count, void **requests)
{
    rank *r = context;
    world *w = r->world;
    pthread_mutex_lock(&w->lock);
    int failed = fails(r) ? 3 : 0;
    pthread_mutex_unlock(&w->lock);
    for (int64_t n = 0; n < count; n++) {
        message *m = requests[n], **at;
        if (!m) continue;
        delay(r);
        pthread_mutex_lock(&w->lock);
        while (!(at = find(w, m)) && !w->failed) pthread_cond_wait(&w->changed, &w->lock);
        message *got = at ? *at : NULL;
        if (got) *at = got->next;
        pthread_mutex_unlock(&w->lock);
        if (!got) {
            end_receive(r, m);
            failed = 3;
            continue;
        }
        if (got->bytes != m->bytes) failed = 2;
        else memcpy(m->data, got->data, m->bytes);
        free(got->data), free(got);
        end_receive(r, m);
    }
    return ends(r, failed);
}

static int make_progress(void *context)
{
    rank *r = context;
    pthread_mutex_lock(&r->world->lock);
    const int failed = fails(r);
    pthread_mutex_unlock(&r->world->lock);
    return ends(r, failed);
}

static void *run(void *context)
{
    rank *r = context;
    r->body(r->context, &r->transport);
    return NULL;
}

void ranks_sent(const attn_transport *transport, int64_t *messages, int64_t *bytes)
{
    const rank *r = transport->context;
    *messages = r->messages;
    *bytes = r->bytes;
}

void ranks_run(int ranks, uint64_t delays, void (*body)(void *, const attn_transport *), void *context)
{
    static rank all[MAX_RANKS];
    world w = {.delays = delays};
    wrong = NULL;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.changed, NULL);
    for (int n = 0; n < ranks; n++) {
        all[n] = (rank){.world = &w, .body = body, .context = context, .random = random_from(delays + (uint64_t)n)};
        all[n].transport = (attn_transport){.struct_size = sizeof(attn_transport),
                                            .rank = n,
                                            .ranks = ranks,
                                            .context = &all[n],
                                            .send = send_message,
                                            .receive = receive_message,
                                            .wait = wait_all,
                                            .progress = n % 2 ? make_progress : NULL};
        if (pthread_create(&all[n].thread, NULL, run, &all[n])) abort();
    }
    for (int n = 0; n < ranks; n++) (void)pthread_join(all[n].thread, NULL);
    for (int n = 0; n < ranks; n++)
        for (; all[n].begun; end_receive(&all[n], all[n].begun)) wrong = "a receive has not been waited for";
    while (w.sent) { /* after a failure */
        message *left = w.sent;
        if (!w.failed) wrong = "a message has not been received";
        w.sent = left->next;
        free(left->data), free(left);
    }
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
}
