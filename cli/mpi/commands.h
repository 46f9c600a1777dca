/* SPDX-License-Identifier: MIT
 *
 * commands.h - the commands of attn-mpi.  All ranks of MPI_COMM_WORLD call them, between MPI_Init_thread and MPI_Finalize, and get
 * the same exit status; rank 0 alone prints. */
#ifndef ATTN_CLI_MPI_COMMANDS_H
#define ATTN_CLI_MPI_COMMANDS_H

int mpi_cmd_run(int argc, char **argv);
int mpi_cmd_bench(int argc, char **argv);
int mpi_cmd_explain(int argc, char **argv);

#endif
