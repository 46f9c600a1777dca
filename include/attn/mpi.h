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
#define ATTN_MPI_MESSAGE ((size_t)1 << 26)

/* Must not move while it is open: the transport points to it. */
typedef struct attn_mpi {
    attn_transport transport;
    MPI_Comm communicator; /* a duplicate, whose messages meet no others */
} attn_mpi;

/* A message that has begun: `count` requests. */
typedef struct attn_mpi_request {
    int count;
    MPI_Request parts[1]; /* as many as there are */
} attn_mpi_request;

/* Begins to send or to receive `bytes` bytes in pieces.  Returns 0, or what failed. */
static inline int attn_mpi_begin(const attn_mpi *ranks, int sends, int other, int tag, void *data, size_t bytes, void **request)
{
    const size_t pieces = bytes / ATTN_MPI_MESSAGE + (bytes % ATTN_MPI_MESSAGE != 0 || bytes == 0);
    attn_mpi_request *begun = (attn_mpi_request *)malloc(sizeof *begun + pieces * sizeof(MPI_Request));
    int failed = begun ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    size_t n;
    if (begun) begun->count = 0;
    for (n = 0; n < pieces && failed == MPI_SUCCESS; n++) {
        const size_t first = n * ATTN_MPI_MESSAGE, left = bytes - first;
        char *at = (char *)data + first;
        const int count = (int)(left < ATTN_MPI_MESSAGE ? left : ATTN_MPI_MESSAGE);
        failed = sends ? MPI_Isend(at, count, MPI_BYTE, other, tag, ranks->communicator, &begun->parts[n])
                       : MPI_Irecv(at, count, MPI_BYTE, other, tag, ranks->communicator, &begun->parts[n]);
        if (failed == MPI_SUCCESS) begun->count++;
    }
    *request = begun;
    return failed;
}

/* transport.send. */
static inline int attn_mpi_send(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    return attn_mpi_begin((const attn_mpi *)context, 1, to, tag, (void *)(uintptr_t)data, bytes, request);
}

/* transport.receive. */
static inline int attn_mpi_receive(void *context, int from, int tag, void *data, size_t bytes, void **request)
{
    return attn_mpi_begin((const attn_mpi *)context, 0, from, tag, data, bytes, request);
}

/* transport.wait. */
static inline int attn_mpi_wait(void *context, int64_t count, void **requests)
{
    int failed = MPI_SUCCESS, k;
    int64_t n;
    (void)context;
    for (n = 0; n < count; n++) {
        attn_mpi_request *begun = (attn_mpi_request *)requests[n];
        if (!begun) continue;
        for (k = 0; k < begun->count && failed == MPI_SUCCESS; k++) failed = MPI_Wait(&begun->parts[k], MPI_STATUS_IGNORE);
        free(begun);
    }
    return failed;
}

/* Lets MPI work on messages while the library computes. */
static inline int attn_mpi_progress(void *context)
{
    int some;
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ((const attn_mpi *)context)->communicator, &some, MPI_STATUS_IGNORE);
}

/*
 * Makes ranks->transport of a communicator, which is duplicated.  Collective.  Returns ATTN_OK, ATTN_ERR_ARGUMENT (MPI is not
 * initialised, or for fewer threads than MPI_THREAD_FUNNELED) or ATTN_ERR_IO.
 */
static inline attn_status attn_mpi_open(attn_mpi *ranks, MPI_Comm communicator, attn_error *error)
{
    const attn_transport none = {sizeof(attn_transport), 0, 1, NULL, NULL, NULL, NULL, NULL, {0, 0, 0, 0}};
    const char *wrong = NULL;
    attn_status status = ATTN_ERR_ARGUMENT;
    int initialised = 0, level = MPI_THREAD_SINGLE;
    ranks->transport = none;
    if (MPI_Initialized(&initialised) != MPI_SUCCESS || !initialised) wrong = "MPI is not initialised: call MPI_Init_thread before";
    else if (MPI_Query_thread(&level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
        wrong = "MPI has no threads: call MPI_Init_thread with MPI_THREAD_FUNNELED";
    else if (MPI_Comm_dup(communicator, &ranks->communicator) != MPI_SUCCESS ||
             MPI_Comm_set_errhandler(ranks->communicator, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
             MPI_Comm_rank(ranks->communicator, &ranks->transport.rank) != MPI_SUCCESS ||
             MPI_Comm_size(ranks->communicator, &ranks->transport.ranks) != MPI_SUCCESS) {
        wrong = "the communicator cannot be duplicated";
        status = ATTN_ERR_IO;
    } else {
        ranks->transport.context = ranks;
        ranks->transport.send = attn_mpi_send;
        ranks->transport.receive = attn_mpi_receive;
        ranks->transport.wait = attn_mpi_wait;
        ranks->transport.progress = attn_mpi_progress;
        status = ATTN_OK;
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
