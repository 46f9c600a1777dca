/* SPDX-License-Identifier: MIT
 *
 * main.c - attn-mpi: problems over the processes of an MPI job. */
#include <mpi.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/program.h"
#include "commands.h"
#include "ranks.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

static const program_command commands[] = {
    {"run", "IN -o OUT", "compute attention over the tensors of a file", mpi_cmd_run, NULL},
    {"bench", "[PROBLEM...]", "measure how problems scale with the number of processes", mpi_cmd_bench, NULL},
    {"explain", "PROBLEM", "predict time, messages and memory over many machines, and the best way", mpi_cmd_explain, NULL},
};

static const program attn_mpi_program = {
    .name = "attn-mpi",
    .about = "Attention over several processes, each of which has some of the queries and keys: started by mpirun.\n"
             "The results have the same bits for any number of them.",
    .commands = commands,
    .count = sizeof commands / sizeof *commands,
};

int main(int argc, char **argv)
{
    int level, rank = 0, status;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) return EXIT_USAGE;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 0) file_no_stdout();
    command_begin("attn-mpi", rank > 0);
    file_guard(); /* after MPI has installed its handlers, which stay */
    json_need_memory();
    status = program_run(&attn_mpi_program, argc, argv);
    ranks_leave();
    (void)MPI_Finalize();
    return status;
}
