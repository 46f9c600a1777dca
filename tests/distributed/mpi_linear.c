/* SPDX-License-Identifier: MIT
 *
 * mpi_linear.c - linear attention over the ranks of MPI (mpi.sh): a chain has the bits of one call, a scan those of one rank, and
 * the messages are those of the description.  The exit status is 1 if something differs. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/distributed_linear.h"
#include "attn/mpi.h"

enum { HEADS = 6, LEN = 150, D = 8, PART = 16, ROWS = HEADS * LEN * D, STATE = HEADS * D * D };

static int64_t sent_messages, sent_bytes;

/* transport.send: counts, and passes on. */
static int send_counted(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    sent_messages++, sent_bytes += (int64_t)bytes;
    return attn_mpi_send(context, to, tag, data, bytes, request);
}

static float in[4][ROWS]; /* q, k, v, grad_o: the same on all ranks */
static float beta[HEADS * LEN];

/* What a call writes: o, or gradients; and the state that all ranks get. */
typedef struct results {
    float rows[3][ROWS], beta[HEADS * LEN], state[STATE];
} results;

static attn_input rows_at(const float *whole, int64_t width, int64_t first)
{
    return (attn_input){whole + first * width, ATTN_F32, {HEADS * LEN * width, LEN * width, width, 1}};
}

static attn_output rows_of(float *whole, int64_t width, int64_t first)
{
    return (attn_output){whole + first * width, ATTN_F32, {HEADS * LEN * width, LEN * width, width, 1}};
}

/* From token `first` on, of which a rank has some. */
static attn_linear_tensors tensors_at(attn_op op, results *out, int64_t first)
{
    attn_linear_tensors t = {.struct_size = sizeof t,
                             .q = rows_at(in[0], D, first),
                             .k = rows_at(in[1], D, first),
                             .v = rows_at(in[2], D, first),
                             .beta = rows_at(beta, 1, first)};
    if (op == ATTN_FORWARD) {
        t.o = rows_of(out->rows[0], D, first), t.final_state = attn_out(out->state);
        return t;
    }
    t.grad_o = rows_at(in[3], D, first), t.grad_beta = rows_of(out->beta, 1, first);
    t.grad_q = rows_of(out->rows[0], D, first), t.grad_k = rows_of(out->rows[1], D, first),
    t.grad_v = rows_of(out->rows[2], D, first);
    return t;
}

/* Returns 1 if it fails. */
static int run(const attn_transport *transport, attn_op op, attn_way way, results *out)
{
    const attn_linear_problem problem = {.struct_size = sizeof problem,
                                         .op = op,
                                         .form = ATTN_LINEAR_FORM_CHUNKED,
                                         .shape = {1, HEADS, HEADS, LEN, LEN, D, D},
                                         .features = ATTN_FEATURES_SOFTMAX,
                                         .denominator = ATTN_DENOMINATOR_NONE,
                                         .causal = 1,
                                         .rule = ATTN_LINEAR_RULE_DELTA,
                                         .chunk = PART};
    const attn_split split = {.struct_size = sizeof split, .part = PART, .way = way};
    const int rank = transport ? transport->rank : 0, ranks = transport ? transport->ranks : 1;
    attn_split_part part = {.struct_size = sizeof part};
    attn_distributed_linear_description d = {.struct_size = sizeof d};
    attn_distributed_linear_plan *plan;
    attn_error error;
    memset(out, 0, sizeof *out);
    if (way == ATTN_WAY_AUTO) {
        const attn_linear_tensors whole = tensors_at(op, out, 0);
        return attn_linear_compute(&problem, &whole, &error) != ATTN_OK;
    }
    (void)attn_split_part_describe(&split, LEN, ATTN_AXIS_QUERY, rank, ranks, 0, &part, NULL);
    const attn_linear_tensors mine = tensors_at(op, out, part.first);
    attn_status status = attn_distributed_linear_plan_create(&plan, &problem, &mine, &split, transport, NULL, &error);
    if (status == ATTN_OK) {
        const size_t size = attn_distributed_linear_workspace_size(plan);
        void *workspace = malloc(size);
        sent_messages = sent_bytes = 0;
        (void)attn_distributed_linear_describe(plan, &d, NULL);
        status = attn_distributed_linear_execute(plan, &mine, workspace, size, &error);
        free(workspace);
        attn_distributed_linear_plan_destroy(plan);
    }
    if (status != ATTN_OK) printf("rank %d: %s\n", rank, error.message);
    else if (transport && (d.messages != sent_messages || d.bytes != sent_bytes)) printf("rank %d: other messages\n", rank);
    return status != ATTN_OK || (transport && (d.messages != sent_messages || d.bytes != sent_bytes));
}

int main(int count, char **arguments)
{
    static results alone, here;
    attn_mpi ranks;
    attn_error error;
    int level, faults = 0, all = 0;
    (void)MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &level);
    if (attn_mpi_open(&ranks, MPI_COMM_WORLD, &error) != ATTN_OK) return 1;
    attn_transport transport = ranks.transport;
    transport.send = send_counted;
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < ROWS; i++) in[n][i] = (float)((i * (5 + n)) % 23 - 11) / 16;
    for (int i = 0; i < HEADS * LEN; i++) beta[i] = (float)(i % 7) / 8;
    for (int n = 0; n < 4; n++) {
        const attn_op op = n % 2 ? ATTN_BACKWARD : ATTN_FORWARD;
        const attn_way way = n / 2 ? ATTN_WAY_DIRECT : ATTN_WAY_RING;
        faults += run(NULL, op, way == ATTN_WAY_RING ? ATTN_WAY_AUTO : way, &alone);
        faults += run(&transport, op, way, &here);
        if (memcmp(alone.state, here.state, sizeof here.state) != 0) faults++, printf("rank %d: another state\n", transport.rank);
        /* Each rank has filled in its own rows, and zeros elsewhere. */
        (void)MPI_Allreduce(MPI_IN_PLACE, &here, (int)offsetof(results, state), MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
        if (memcmp(&alone, &here, sizeof here) != 0)
            faults++, printf("rank %d: operation %d, way %d: other bits\n", transport.rank, (int)op, (int)way);
    }
    (void)MPI_Allreduce(&faults, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (transport.rank == 0) printf("%d ranks: linear attention, %d faults\n", transport.ranks, all);
    attn_mpi_close(&ranks);
    (void)MPI_Finalize();
    return all != 0;
}
