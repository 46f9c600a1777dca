/* SPDX-License-Identifier: MIT
 * ceiling.c - runs the loops of loops.h on all threads. */
#include "ceiling.h"

#include <math.h>
#include <string.h>

#include "clock.h"
#include "memory.h"
#include "workers.h"

static const double fma_seconds = 0.5e-3; /* of one sample */
static const double stale_after = 0.1;
/* The memory stream reads a buffer of this many last-level caches, so none of it is still cached. */
enum { CACHES_OF_MEMORY = 4 };
static const size_t min_memory = (size_t)256 << 20, max_memory = (size_t)2 << 30;
static const size_t memory_sample = (size_t)32 << 20; /* bytes of one sample, all threads together */
static const size_t cache_sample = (size_t)32 << 20;

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t full_steps(size_t bytes) { return bytes / READ_STEP * READ_STEP; }

/* ---- sampling ---- */

typedef struct reading {
    attn_isa isa;
    unsigned char *memory;
    size_t part, from, bytes;
    int passes;
} reading;

static void compute_body(void *context, int thread)
{
    const ceiling *c = context;
    (void)thread;
    c->loop->run(c->rounds);
}

static void read_body(void *context, int thread)
{
    const reading *r = context;
    for (int pass = 0; pass < r->passes; pass++) read_loop(r->isa, r->memory + (size_t)thread * r->part + r->from, r->bytes);
}

static void touch_body(void *context, int thread)
{
    const reading *r = context;
    memset(r->memory + (size_t)thread * r->part, 1, r->part);
}

static double read_rate(ceilings *all, const ceiling *c)
{
    reading r = {c->isa, all->memory, all->part, 0, c->bytes, 1};
    if (c->kind == CEILING_MEMORY) {
        r.from = all->next;
        all->next = all->next + 2 * c->bytes <= all->part ? all->next + c->bytes : 0;
    } else {
        workers_run(read_body, &r); /* brings it into the cache */
    }
    r.passes = c->passes;
    const workers_time time = workers_run(read_body, &r);
    return (double)c->bytes * c->passes * all->threads / time.elapsed;
}

typedef struct tensors {
    attn_isa isa;
    int threads, count;
    void *const *memory;
    const size_t *bytes;
} tensors;

/* The bytes of tensor k that one thread reads, in whole steps. */
static size_t part_of(const tensors *t, int k) { return full_steps(t->bytes[k] / (size_t)t->threads); }

static void tensors_body(void *context, int thread)
{
    const tensors *t = context;
    for (int k = 0; k < t->count; k++)
        if (part_of(t, k)) read_loop(t->isa, (const char *)t->memory[k] + (size_t)thread * part_of(t, k), part_of(t, k));
}

double ceiling_read_tensors(const ceilings *all, int count, void *const *memory, const size_t *bytes)
{
    tensors t = {all->isa, all->threads, count, memory, bytes};
    double sum = 0;
    for (int k = 0; k < count; k++) sum += (double)part_of(&t, k) * t.threads;
    return sum / workers_run(tensors_body, &t).elapsed;
}

void ceiling_sample(ceilings *all, ceiling *c)
{
    const double begin = clock_seconds();
    double rate;
    if (c->kind == CEILING_FMA) {
        rate = (double)c->loop->flops * (double)c->rounds * workers_run(compute_body, c).rate_sum;
    } else {
        rate = read_rate(all, c);
    }
    series_add(&c->rates, (begin + clock_seconds()) / 2, rate);
}

void ceilings_refresh(ceilings *all)
{
    const double now = clock_seconds();
    for (int k = 0; k < all->count; k++) {
        const series *s = &all->list[k].rates;
        if (!s->count || s->when[s->count - 1] < now - stale_after) ceiling_sample(all, &all->list[k]);
    }
}

/* ---- setting up ---- */

static void add_fma(ceilings *all, attn_isa isa)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const fma_loop *loop = fma_loop_of(isa, types[k]);
        if (!loop || ceiling_of_fma(all, isa, types[k])) continue;
        ceiling *c = &all->list[all->count++];
        *c = (ceiling){.kind = CEILING_FMA, .isa = isa, .loop = loop, .rounds = 20000};
        const double rate = workers_run(compute_body, c).rate_sum;
        c->rounds = (int64_t)ceil(fma_seconds * rate * (double)c->rounds) + 1;
    }
}

static void add_read(ceilings *all, ceiling_kind kind, attn_isa isa, size_t bytes, int passes)
{
    all->list[all->count++] = (ceiling){.kind = kind, .isa = isa, .bytes = full_steps(bytes), .passes = passes};
}

/* Each thread reads half its L2; half of its share of the L3, if that is more than its L2 holds; or memory.  Levels beyond the one
 * that holds `most_read` bytes are left out, since filling four times the L3 takes a good part of a second. */
static void add_reads(ceilings *all, attn_isa isa, double most_read)
{
    const size_t threads = (size_t)all->threads;
    const ceiling_kind level = ceiling_level(all, most_read);
    const size_t in_l2 = all->l2 / 2, in_l3 = all->l3 / threads / 2;
    const size_t memory = least(most(CACHES_OF_MEMORY * all->l3, min_memory), max_memory);
    const int l2 = in_l2 > 0, l3 = in_l3 > all->l2 && (level > CEILING_L2 || !l2),
              beyond = level > CEILING_L3 || (!l3 && !(l2 && level == CEILING_L2));
    all->part = full_steps(most(beyond ? memory / threads : 0, most(in_l2, l3 ? in_l3 : 0)));
    all->memory = fresh_memory(threads * all->part);
    reading all_of_it = {.memory = all->memory, .part = all->part};
    workers_run(touch_body, &all_of_it);
    if (l2) add_read(all, CEILING_L2, isa, in_l2, (int)(cache_sample / threads / in_l2) + 1);
    if (l3) add_read(all, CEILING_L3, isa, in_l3, (int)(cache_sample / threads / in_l3) + 1);
    if (beyond) add_read(all, CEILING_MEMORY, isa, least(memory_sample / threads, all->part), 1);
}

void ceilings_create(ceilings *all, attn_isa isa, const attn_isa *others, int count, double most_read)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_cpu_describe(&cpu, NULL);
    *all = (ceilings){.threads = workers_count(), .isa = isa, .l2 = cpu.cache_l2, .l3 = cpu.cache_l3};
    add_fma(all, isa);
    add_fma(all, cpu.isa);
    for (int k = 0; k < count; k++) add_fma(all, others[k]);
    add_reads(all, isa, most_read);
}

void ceilings_destroy(ceilings *all)
{
    for (int k = 0; k < all->count; k++) series_free(&all->list[k].rates);
    fresh_release(all->memory, (size_t)all->threads * all->part);
    *all = (ceilings){0};
}

/* ---- lookup ---- */

ceiling *ceiling_of_fma(ceilings *all, attn_isa isa, attn_dtype compute)
{
    for (int k = 0; k < all->count; k++) {
        ceiling *c = &all->list[k];
        if (c->kind == CEILING_FMA && c->loop->isa == isa && c->loop->compute == compute) return c;
    }
    return NULL;
}

ceiling *ceiling_of_read(ceilings *all, ceiling_kind level)
{
    for (int kind = (int)level; kind < CEILING_KINDS; kind++)
        for (int k = 0; k < all->count; k++)
            if ((int)all->list[k].kind == kind) return &all->list[k];
    return NULL;
}

ceiling_kind ceiling_level(const ceilings *all, double bytes)
{
    if (bytes <= (double)all->l2 * all->threads) return CEILING_L2;
    return bytes <= (double)all->l3 ? CEILING_L3 : CEILING_MEMORY;
}

const char *ceiling_kind_name(ceiling_kind kind)
{
    static const char *const names[CEILING_KINDS] = {"FMA", "L2", "L3", "memory"};
    return names[kind];
}

double ceiling_median(const ceiling *c) { return c ? quantile(c->rates.value, c->rates.count, 0.5) : NAN; }
