/* SPDX-License-Identifier: MIT
 *
 * soak.c - a load test for hours: does memory grow, and do results keep their bits?
 *
 *      test_soak [--seconds=S] [--threads=T] [--seed=N] [--limit=MIB]          10 seconds, 4 threads, 4096 MiB
 *      test_soak --problem=N [--seed=N]          only the problem that a fault named
 *
 * Threads create, execute and destroy plans of random problems, append to caches and evict from them, and run layers, while some
 * allocations fail and the address space is limited.  Every 1000th problem repeats one that was computed at the start, and must
 * have the same bits.  The exit status is 1 if a result is wrong; if more is allocated at the end than at the start; or, in runs of
 * a minute or more, if resident memory grew: its median over the second half is more than 1 % and 1 MiB above that over the first,
 * without the first tenth of the time.  With --limit=0 (sanitizers) there is no limit and resident memory is not judged. */
#include "soak.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64, MAX_SAMPLES = 1 << 16, MAX_ALLOCATED = 64 << 10, SECONDS_TO_JUDGE = 60 };

static soak_totals totals;
static atomic_int stopping;
static double samples[MAX_SAMPLES]; /* of resident memory, in KiB */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Resident memory in KiB, after the allocator has returned all free memory, so that fragmentation does not hide a leak. */
static double resident(void)
{
    long pages = 0, size = 0;
    malloc_trim(0);
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &size, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static size_t allocated(void)
{
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *of, int count)
{
    qsort(of, (size_t)count, sizeof *of, rising);
    return count ? of[count / 2] : 0;
}

static void *work(void *worker)
{
    while (!atomic_load(&stopping)) soak_worker_step(worker);
    return NULL;
}

static double option(int count, char **words, const char *name, double otherwise)
{
    for (int i = 1; i < count; i++)
        if (!strncmp(words[i], name, strlen(name))) otherwise = strtod(words[i] + strlen(name), NULL);
    return otherwise;
}

static int judge(int count, int resident_too, size_t before)
{
    const int warm = count / 10, half = (count - warm) / 2;
    const double first = median(samples + warm, half), last = median(samples + warm + half, count - warm - half);
    int status = 0;
    printf("resident %.0f KiB in the first half, %.0f KiB in the second; allocated %zu bytes before, %zu after\n", first, last,
           before, allocated());
    if (atomic_load(&totals.blocks))
        status = printf("FAILED: %lld blocks were never released\n", (long long)atomic_load(&totals.blocks));
    if (allocated() > before + MAX_ALLOCATED) status = printf("FAILED: more is allocated than at the start\n");
    if (resident_too && last > 1.01 * first + 1024) status = printf("FAILED: resident memory grew\n");
    return status != 0;
}

int main(int words_count, char **words)
{
    const double seconds = option(words_count, words, "--seconds=", 10), limit = option(words_count, words, "--limit=", 4096);
    const int threads = (int)option(words_count, words, "--threads=", 4);
    pthread_t thread[MAX_THREADS];
    soak_worker *worker[MAX_THREADS];
    if (threads < 1 || threads > MAX_THREADS || !(seconds > 0))
        return fputs("soak: --threads is 1 to 64, --seconds above 0\n", stderr), 2;
    totals.seed = (uint64_t)option(words_count, words, "--seed=", 1);
    for (int i = 1; i < words_count; i++)
        if (!strncmp(words[i], "--problem=", 10))
            return printf("%016llx\n", (unsigned long long)soak_problem(&totals, strtoull(words[i] + 10, NULL, 10))) < 0;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    mallopt(M_ARENA_MAX, 4);
    mallopt(M_MMAP_THRESHOLD, 1 << 17); /* otherwise these two grow with the largest freed block, and resident memory with them */
    mallopt(M_TRIM_THRESHOLD, 1 << 17);
    if (limit > 0) {
        const struct rlimit most = {(rlim_t)(limit * 1048576), (rlim_t)(limit * 1048576)};
        totals.limited = setrlimit(RLIMIT_AS, &most) == 0;
    }
    soak_remember(&totals);
    const double start = now(), pause = seconds / 20 < 1 ? seconds / 200 : 1;
    const size_t before = allocated();
    int count = 0, running = 0;
    for (; running < threads; running++) {
        worker[running] = soak_worker_new(&totals, running);
        if (pthread_create(&thread[running], NULL, work, worker[running]))
            return fputs("soak: cannot create a thread\n", stderr), 2;
    }
    for (double reported = start; now() - start < seconds;) {
        nanosleep(&(struct timespec){(time_t)pause, (long)(1e9 * (pause - (double)(time_t)pause))}, NULL);
        if (count < MAX_SAMPLES) samples[count++] = resident();
        if (now() - reported < 60) continue;
        reported = now();
        printf("%6.0f s: %lld plans, %lld tokens, %.0f KiB\n", reported - start, (long long)atomic_load(&totals.plans),
               (long long)atomic_load(&totals.tokens), samples[count - 1]);
    }
    atomic_store(&stopping, 1);
    for (int i = 0; i < running; i++) pthread_join(thread[i], NULL), soak_worker_free(worker[i]);
    printf("%.0f s, %d threads: %lld plans (%lld problems rejected), %lld tokens, %lld evictions, %lld layers\n", now() - start,
           threads, (long long)totals.plans, (long long)totals.rejected, (long long)totals.tokens, (long long)totals.evictions,
           (long long)totals.layers);
    printf("%lld calls out of memory, %lld too large, %lld compared with the start\n", (long long)totals.short_of_memory,
           (long long)totals.too_large, (long long)totals.compared);
    return judge(count, totals.limited && seconds >= SECONDS_TO_JUDGE, before);
}
