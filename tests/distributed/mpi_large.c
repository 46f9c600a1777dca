/* SPDX-License-Identifier: MIT
 *
 * mpi_large.c - more than 2^32 bytes in one message of attn/mpi.h, and more than 2^31 elements, at addresses of more than 2^32
 * bytes, in one attn_distributed_scatter, between two ranks (mpi.sh).  A few MiB of memory lie at all addresses of a long buffer,
 * so that it costs little; pages of their own, on both sides of 2^31 and 2^32 and at the ends, show whether each byte went where it
 * belongs. The exit status is 1 if one did not. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attn/mpi.h"

enum { REPEATED = 1 << 22, PAGE = 1 << 12, MARKS = 7 };

/* Not a multiple of a piece, so that the last one is shorter. */
static const size_t length = ((size_t)1 << 32) + REPEATED + 3 * PAGE;

static size_t mark_at(int n)
{
    const size_t at[MARKS] = {
        0, (size_t)1 << 30, ((size_t)1 << 31) - PAGE, (size_t)1 << 31, ((size_t)1 << 32) - PAGE, (size_t)1 << 32, length - PAGE};
    return at[n];
}

/* A buffer of `length` bytes, with pages of their own at the marks; NULL: there is no space. */
static char *map_long(void)
{
    const int file = memfd_create("repeated", 0);
    const int share = MAP_SHARED | MAP_FIXED, both = PROT_READ | PROT_WRITE;
    char *all = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || all == MAP_FAILED || ftruncate(file, REPEATED) != 0) return NULL;
    for (size_t at = 0; at < length; at += REPEATED) {
        const size_t bytes = length - at < REPEATED ? length - at : REPEATED;
        if (mmap(all + at, bytes, both, share, file, 0) == MAP_FAILED) return NULL;
    }
    for (int n = 0; n < MARKS; n++)
        if (mmap(all + mark_at(n), PAGE, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return NULL;
    (void)close(file);
    return all;
}

/* Numbers that differ from mark to mark. */
static void set_marks(char *all, int turn)
{
    for (int n = 0; n < MARKS; n++)
        for (int k = 0; k < PAGE; k++) all[mark_at(n) + (size_t)k] = (char)(1 + (7 * n + k + turn) % 251);
}

/* 1 if mark n of `all` is not mark m of rank 0. */
static int is_wrong(const char *all, int n, int m, int turn, const char *what)
{
    for (int k = 0; k < PAGE; k++)
        if (all[mark_at(n) + (size_t)k] != (char)(1 + (7 * m + k + turn) % 251)) {
            printf("%s: other bytes from %zu on\n", what, mark_at(n) + (size_t)k);
            return 1;
        }
    return 0;
}

/* One message from rank 0 to rank 1. */
static int send_one(const attn_transport *t, char *all, int turn)
{
    void *request = NULL;
    int failed =
        t->rank == 0 ? t->send(t->context, 1, 0, all, length, &request) : t->receive(t->context, 0, 0, all, length, &request);
    if (t->wait(t->context, 1, &request) != 0) failed = 1;
    for (int n = 0; n < MARKS && t->rank == 1; n++) failed += is_wrong(all, n, n, turn, "a message");
    if (failed) printf("rank %d: the message failed\n", t->rank);
    return failed != 0;
}

/* Every second page of rank 0 goes to rank 1, where they lie together. */
static int scatter(const attn_transport *t, char *all, int turn)
{
    static const int to[][2] = {{0, 0}, {1, 3}, {3, 5}};
    static int32_t owners[4096];
    const int64_t shape[4] = {1, 1, (int64_t)(length / (2 * PAGE)), PAGE};
    const attn_split split = {.struct_size = sizeof split, .part = 1 << 8, .layout = ATTN_LAYOUT_OWNERS, .owners_kv = owners};
    const attn_input whole = {all, ATTN_U8, {0, 0, 2 * PAGE, 1}};
    const attn_output own = {t->rank == 0 ? ATTN_EMPTY : all, ATTN_U8, {0, 0, 0, 0}};
    attn_error error;
    int failed = 0;
    for (size_t n = 0; n < sizeof owners / sizeof *owners; n++) owners[n] = 1;
    if (attn_distributed_scatter(ATTN_AXIS_KEY, shape, t->rank == 0 ? &whole : NULL, &split, t, &own, &error) != ATTN_OK) {
        printf("rank %d: %s\n", t->rank, error.message);
        return 1;
    }
    for (int n = 0; n < 3 && t->rank == 1; n++) failed += is_wrong(all, to[n][0], to[n][1], turn, "scatter");
    return failed;
}

int main(int count, char **arguments)
{
    attn_mpi ranks;
    attn_error error;
    int level, faults = 0; /* of both ranks */
    (void)MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &level);
    if (attn_mpi_open(&ranks, MPI_COMM_WORLD, &error) != ATTN_OK || ranks.transport.ranks != 2) return 1;
    const attn_transport *t = &ranks.transport;
    char *all = map_long();
    if (!all) {
        printf("rank %d: no memory can be mapped at %zu addresses\n", t->rank, length);
        (void)MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int turn = 0; turn < 2 && faults == 0; turn++) {
        if (t->rank == 0) set_marks(all, turn);
        faults += turn ? scatter(t, all, turn) : send_one(t, all, turn);
        (void)MPI_Allreduce(MPI_IN_PLACE, &faults, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (t->rank == 0) printf("2 ranks: %zu bytes at once, %d faults\n", length, faults);
    attn_mpi_close(&ranks);
    (void)MPI_Finalize();
    return faults != 0;
}
