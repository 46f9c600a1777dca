/* SPDX-License-Identifier: MIT
 *
 * mpi.h - the ranks of an MPI communicator as a transport of attn/distributed.h.  Nothing of it is in a library, since MPIs have no
 * common binary interface: these functions are compiled with the MPI of the program (3.1 or later).
 *
 *      attn_mpi ranks;
 *      attn_mpi_open(&ranks, MPI_COMM_WORLD, &error);
 *      attn_distributed_plan_create(&plan, &problem, &tensors, &split, &ranks.transport, NULL, &error);
 *      ...
 *      attn_mpi_close(&ranks);
 *
 * MPI must be initialised with at least MPI_THREAD_FUNNELED: all calls of MPI come from the thread that calls the library.  If a
 * rank dies, MPI ends the job; nothing is recovered.  After ATTN_ERR_IO the program must end it, too (MPI_Abort).
 */
#ifndef ATTN_MPI_H
#define ATTN_MPI_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/distributed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the pieces in which a message is sent: MPI counts in ints. */
#ifndef ATTN_MPI_MESSAGE
#define ATTN_MPI_MESSAGE ((size_t)1 << 26)
#endif

/* Must not move while it is open: the transport points to it. */
typedef struct attn_mpi {
    attn_transport transport;
    MPI_Comm communicator; /* a duplicate, whose messages meet no others */
    int failed;            /* what MPI returned when a call failed; nothing is waited for any more */
} attn_mpi;

/* A message that has begun, as `count` pieces. */
typedef struct attn_mpi_request {
    int count, sends;
    size_t bytes;
    MPI_Request pieces[1]; /* as many as there are */
} attn_mpi_request;

/* Bytes of piece n of a message. */
static inline int attn_mpi_piece(size_t bytes, size_t n)
{
    const size_t left = bytes - n * ATTN_MPI_MESSAGE;
    return (int)(left < ATTN_MPI_MESSAGE ? left : ATTN_MPI_MESSAGE);
}

/* Begins to send or to receive `bytes` bytes in pieces.  Returns 0, or what failed. */
static inline int attn_mpi_begin(attn_mpi *ranks, int sends, int other, int tag, void *data, size_t bytes, void **request)
{
    const size_t pieces = bytes / ATTN_MPI_MESSAGE + (bytes % ATTN_MPI_MESSAGE != 0 || bytes == 0);
    attn_mpi_request *begun = (attn_mpi_request *)malloc(sizeof *begun + pieces * sizeof(MPI_Request));
    int failed = begun ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    size_t n;
    if (begun) {
        begun->count = 0;
        begun->sends = sends;
        begun->bytes = bytes;
    }
    for (n = 0; n < pieces && failed == MPI_SUCCESS; n++) {
        char *at = (char *)data + n * ATTN_MPI_MESSAGE;
        const int count = attn_mpi_piece(bytes, n);
        failed = sends ? MPI_Isend(at, count, MPI_BYTE, other, tag, ranks->communicator, &begun->pieces[n])
                       : MPI_Irecv(at, count, MPI_BYTE, other, tag, ranks->communicator, &begun->pieces[n]);
        if (failed == MPI_SUCCESS) begun->count++;
    }
    *request = begun;
    if (failed != MPI_SUCCESS) ranks->failed = failed;
    return failed;
}

/* transport.send. */
static inline int attn_mpi_send(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    return attn_mpi_begin((attn_mpi *)context, 1, to, tag, (void *)(uintptr_t)data, bytes, request);
}

/* transport.receive. */
static inline int attn_mpi_receive(void *context, int from, int tag, void *data, size_t bytes, void **request)
{
    return attn_mpi_begin((attn_mpi *)context, 0, from, tag, data, bytes, request);
}

/* Waits for piece n of a message; fails if another number of bytes came. */
static inline int attn_mpi_finish(attn_mpi_request *begun, int n)
{
    MPI_Status status;
    int failed = MPI_Wait(&begun->pieces[n], &status), bytes = 0;
    if (failed != MPI_SUCCESS || begun->sends) return failed;
    failed = MPI_Get_count(&status, MPI_BYTE, &bytes);
    return failed != MPI_SUCCESS || bytes == attn_mpi_piece(begun->bytes, (size_t)n) ? failed : MPI_ERR_TRUNCATE;
}

/* After a failure: takes a receive back; forgets a send, which only reads. */
static inline void attn_mpi_abandon(attn_mpi_request *begun, int n)
{
    if (begun->pieces[n] == MPI_REQUEST_NULL) return;
    if (begun->sends) {
        (void)MPI_Request_free(&begun->pieces[n]);
        return;
    }
    (void)MPI_Cancel(&begun->pieces[n]);
    (void)MPI_Wait(&begun->pieces[n], MPI_STATUS_IGNORE);
}

/* transport.wait. */
static inline int attn_mpi_wait(void *context, int64_t count, void **requests)
{
    attn_mpi *ranks = (attn_mpi *)context;
    int64_t n;
    int k;
    for (n = 0; n < count; n++) {
        attn_mpi_request *begun = (attn_mpi_request *)requests[n];
        if (!begun) continue;
        for (k = 0; k < begun->count; k++)
            if (ranks->failed) attn_mpi_abandon(begun, k);
            else ranks->failed = attn_mpi_finish(begun, k);
        free(begun);
    }
    return ranks->failed;
}

/* Lets MPI work on messages while the library computes. */
static inline int attn_mpi_progress(void *context)
{
    attn_mpi *ranks = (attn_mpi *)context;
    int some;
    ranks->failed = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ranks->communicator, &some, MPI_STATUS_IGNORE);
    return ranks->failed;
}

/* NULL, or what prevents this rank from using MPI. */
static inline const char *attn_mpi_threads_wrong(void)
{
    int level = MPI_THREAD_SINGLE, is_main = 0;
    if (MPI_Query_thread(&level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
        return "MPI has no threads: call MPI_Init_thread with MPI_THREAD_FUNNELED";
    if (level == MPI_THREAD_FUNNELED && (MPI_Is_thread_main(&is_main) != MPI_SUCCESS || !is_main))
        return "this is not the thread that called MPI_Init_thread, and MPI was initialised with MPI_THREAD_FUNNELED";
    return NULL;
}

/*
 * Makes ranks->transport of a communicator, which is duplicated.  Collective.  Returns ATTN_OK; ATTN_ERR_ARGUMENT (MPI is not
 * initialised, or it is finalised; MPI_COMM_NULL, which a process has of others' communicators; on all ranks, if it is initialised
 * on one of them for fewer threads than MPI_THREAD_FUNNELED, or if this is another thread) or ATTN_ERR_IO.
 */
static inline attn_status attn_mpi_open(attn_mpi *ranks, MPI_Comm communicator, attn_error *error)
{
    const attn_transport none = {sizeof(attn_transport), 0, 1, NULL, NULL, NULL, NULL, NULL, {0, 0, 0, 0}};
    const char *wrong = NULL;
    attn_status status = ATTN_OK;
    int initialised = 0, finalised = 0, here = 0, anywhere = 0;
    ranks->transport = none;
    ranks->failed = MPI_SUCCESS;
    ranks->communicator = MPI_COMM_NULL;
    if (MPI_Initialized(&initialised) != MPI_SUCCESS || !initialised) {
        wrong = "MPI is not initialised: call MPI_Init_thread before";
        status = ATTN_ERR_ARGUMENT;
    } else if (MPI_Finalized(&finalised) != MPI_SUCCESS || finalised) {
        wrong = "MPI is finalised already";
        status = ATTN_ERR_ARGUMENT;
    } else if (communicator == MPI_COMM_NULL) {
        wrong = "the communicator is MPI_COMM_NULL: this process is not among its ranks";
        status = ATTN_ERR_ARGUMENT;
    } else if (MPI_Comm_dup(communicator, &ranks->communicator) != MPI_SUCCESS ||
               MPI_Comm_set_errhandler(ranks->communicator, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
               MPI_Comm_rank(ranks->communicator, &ranks->transport.rank) != MPI_SUCCESS ||
               MPI_Comm_size(ranks->communicator, &ranks->transport.ranks) != MPI_SUCCESS) {
        wrong = "the communicator cannot be duplicated";
        status = ATTN_ERR_IO;
    } else {
        wrong = attn_mpi_threads_wrong();
        here = wrong != NULL;
        if (MPI_Allreduce(&here, &anywhere, 1, MPI_INT, MPI_MAX, ranks->communicator) != MPI_SUCCESS) {
            wrong = "the ranks cannot reach each other";
            status = ATTN_ERR_IO;
        } else if (anywhere) {
            if (!wrong)
                wrong = "another rank has no threads: call MPI_Init_thread with MPI_THREAD_FUNNELED, in the thread that calls";
            status = ATTN_ERR_ARGUMENT;
        }
    }
    if (status == ATTN_OK) {
        ranks->transport.context = ranks;
        ranks->transport.send = attn_mpi_send;
        ranks->transport.receive = attn_mpi_receive;
        ranks->transport.wait = attn_mpi_wait;
        ranks->transport.progress = attn_mpi_progress;
    } else if (ranks->communicator != MPI_COMM_NULL) {
        (void)MPI_Comm_free(&ranks->communicator);
    }
    if (error) {
        error->status = status;
        error->tensor = error->other = -1;
        error->message[0] = '\0';
        if (wrong) (void)snprintf(error->message, sizeof error->message, "%s", wrong);
    }
    return status;
}

/* Frees the duplicate.  Collective; plans over the transport must be destroyed before. */
static inline void attn_mpi_close(attn_mpi *ranks)
{
    if (ranks->transport.context) (void)MPI_Comm_free(&ranks->communicator);
    ranks->transport.context = NULL;
}

#ifdef __cplusplus
}
#endif

#endif
