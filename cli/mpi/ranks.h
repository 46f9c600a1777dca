/* SPDX-License-Identifier: MIT
 *
 * ranks.h - the processes of an MPI job as they work on one command: what one of them rejects, all reject, and one prints. */
#ifndef ATTN_CLI_MPI_RANKS_H
#define ATTN_CLI_MPI_RANKS_H

#include "attn/mpi.h"
#include "cli/base/options.h"

typedef struct ranks {
    attn_mpi mpi; /* the transport of plans; must not move */
    MPI_Comm all;
    int rank, count;
} ranks;

/* Collective over all processes, as the first thing of a command that understood its arguments: the error of the lowest process
 * that did not, or of the first whose command or whose digest of options is not that of process 0 (mpirun -n 1 ... : -n 1 ...). */
attn_status ranks_meet(const char *command, uint64_t digest, attn_error *error);

/* At the end: a process that has not come to ranks_meet tells those that wait there, by the last error that it could not print. */
void ranks_leave(void);

/* Of a communicator, which is borrowed.  Close also after a failure. */
attn_status ranks_open(ranks *r, MPI_Comm all, attn_error *error);
void ranks_close(ranks *r);

/* Collective: the status of the lowest rank that failed, with its message, on all ranks. */
attn_status ranks_agree(const ranks *r, attn_status status, attn_error *error);

/* After a collective function of the library, which all ranks leave with one status: ends the job if messages were lost. */
attn_status ranks_check(const ranks *r, attn_status status, const attn_error *error);

/* Threads of this process, if neither a flag nor the environment says how many: 0, the library's default, where MPI has bound the
 * process to some of the CPUs; else its part of them.  Collective. */
int ranks_threads(const ranks *r, const common_settings *common);

#endif
