/* SPDX-License-Identifier: MIT
 * ranks.c - see ranks.h. */
#include "ranks.h"

#include <limits.h>
#include <unistd.h>

#include "cli/base/commands.h"
#include "testing/text/failure.h"

/* ---- beginning ---- */

static int has_met;

static ranks all_ranks(void)
{
    ranks r = {.all = MPI_COMM_WORLD};
    (void)MPI_Comm_rank(r.all, &r.rank);
    return r;
}

attn_status ranks_meet(const char *command, uint64_t digest, attn_error *error)
{
    const ranks r = all_ranks();
    uint64_t first[2] = {(unsigned char)command[0], digest};
    has_met = 1;
    attn_status status = ranks_agree(&r, ATTN_OK, error);
    if (status != ATTN_OK) return status;
    (void)MPI_Bcast(first, 2, MPI_UINT64_T, 0, r.all);
    if (first[0] != (unsigned char)command[0])
        status = failure(error, ATTN_ERR_ARGUMENT, "the processes were not all started with this command");
    else if (first[1] != digest)
        status = failure(error, ATTN_ERR_ARGUMENT, "process %d was started with other options than process 0", r.rank);
    return ranks_agree(&r, status, error);
}

void ranks_leave(void)
{
    const ranks r = all_ranks();
    attn_error error = *command_unsaid();
    if (has_met) return;
    if (error.status == ATTN_OK) (void)failure(&error, ATTN_ERR_ARGUMENT, "process %d has nothing to compute", r.rank);
    (void)ranks_agree(&r, error.status, &error);
}

/* ---- of one communicator ---- */

attn_status ranks_open(ranks *r, MPI_Comm all, attn_error *error)
{
    *r = (ranks){.all = all};
    (void)MPI_Comm_rank(all, &r->rank);
    (void)MPI_Comm_size(all, &r->count);
    return attn_mpi_open(&r->mpi, all, error);
}

void ranks_close(ranks *r) { attn_mpi_close(&r->mpi); }

attn_status ranks_agree(const ranks *r, attn_status status, attn_error *error)
{
    int mine = status == ATTN_OK ? INT_MAX : r->rank, lowest;
    (void)MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, r->all);
    if (lowest == INT_MAX) return ATTN_OK;
    (void)MPI_Bcast(error, (int)sizeof *error, MPI_BYTE, lowest, r->all);
    return error->status;
}

attn_status ranks_check(const ranks *r, attn_status status, const attn_error *error)
{
    if (status != ATTN_ERR_IO) return status;
    command_begin(command_program(), 0); /* the others may not know */
    (void)command_fail(NULL, NULL, error);
    (void)MPI_Abort(r->all, EXIT_USAGE);
    return status;
}

int ranks_threads(const ranks *r, const common_settings *common)
{
    attn_options defaults = {.struct_size = sizeof defaults};
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Comm here;
    int neighbours = 1;
    (void)MPI_Comm_split_type(r->all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    (void)MPI_Comm_size(here, &neighbours);
    (void)MPI_Comm_free(&here);
    if (common->threads || getenv("ATTN_THREADS") || getenv("OMP_NUM_THREADS")) return common->threads;
    if (attn_options_resolve(&defaults, &defaults, NULL) != ATTN_OK || defaults.threads < cpus) return 0;
    return defaults.threads > neighbours ? defaults.threads / neighbours : 1;
}
