/* SPDX-License-Identifier: MIT
 *
 * mpi.c - random problems over the ranks of MPI (mpi.sh): the same bits as on one rank, and the messages that MPI_Isend was given
 * are those of the description.  One rank prints; the exit status is 1 if something differs. */
#include "spread.h"

#include "attn/mpi.h"

enum { SEEDS = 14 };
static const attn_op operations[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static int64_t sent_messages, sent_bytes, expected_pieces, sent_pieces;

/* transport.send: counts, and passes on. */
static int send_counted(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    sent_messages++;
    expected_pieces += bytes ? (int64_t)((bytes - 1) / ATTN_MPI_MESSAGE + 1) : 1;
    return attn_mpi_send(context, to, tag, data, bytes, request);
}

/* MPI's own profiling interface. */
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator, MPI_Request *request)
{
    sent_pieces++;
    sent_bytes += count; /* of MPI_BYTE */
    return PMPI_Isend(data, count, type, to, tag, communicator, request);
}

static void sent(const attn_transport *transport, int64_t *messages, int64_t *bytes)
{
    (void)transport;
    *messages = sent_messages;
    *bytes = sent_bytes;
}

/* Each rank has filled in its own rows, and zeros elsewhere. */
static void collect(spread *out, int rank)
{
    for (int n = 0; n < out->count; n++) {
        const spread_tensor *x = &out->all[n];
        if (!x->data) continue;
        const int bytes = (int)(x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]) * (int)attn_dtype_size(x->dtype);
        (void)MPI_Reduce(rank ? x->data : MPI_IN_PLACE, x->data, bytes, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD);
    }
}

/* Returns the number of faults, on rank 0. */
static int check(const attn_mpi *ranks, uint64_t seed, attn_op op)
{
    static whole w;
    spread_more more;
    int faults = 0;
    const attn_dtype dtype = seed & 1 ? ATTN_F64 : ATTN_F32;
    const int64_t part_size = spread_draw(&w, &more, seed, dtype, seed % 3 == 0 ? SPREAD_PACKED : 0);
    if (part_size > 0 && spread_has(&w, &more, op)) {
        spread forward, all, one, here;
        attn_error error;
        spread_way way = {.ranks = ranks->transport.ranks, .threads = 1, .sent = sent};
        way.split = (attn_split){.struct_size = sizeof way.split,
                                 .part = part_size,
                                 .layout = (attn_layout)(seed / 2 % 3),
                                 .way = seed % 7 == 3 && !more.shares[1] ? ATTN_WAY_GATHER : (attn_way)(seed / 6 % 3)};
        spread_make(&forward, &w, &more, ATTN_FORWARD, NULL);
        spread_make(&all, &w, &more, op, op == ATTN_FORWARD ? NULL : &forward);
        spread_output(&all, &here);
        attn_transport transport = ranks->transport;
        uint64_t most = 0, least = 0;
        transport.send = send_counted;
        spread_run_rank(&all, &way, &transport, &here, &error);
        const uint64_t *const shared = &here.shared[transport.rank];
        (void)MPI_Allreduce(shared, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
        (void)MPI_Allreduce(shared, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
        if (most != least) faults++, printf("%s, rank %d: other shared gradients\n", w.text, transport.rank);
        if (error.status != ATTN_OK) faults++, printf("%s, rank %d: %s\n", w.text, ranks->transport.rank, error.message);
        collect(&here, ranks->transport.rank);
        way.ranks = 1;
        if (ranks->transport.rank == 0) {
            spread_run(&all, &way, &one);
            if (!spread_same(&one, &here)) faults++, printf("%s: other bits than on one rank\n", w.text);
            spread_free(&one);
        }
        spread_free(&here), spread_free(&all), spread_free(&forward);
    }
    spread_more_free(&more);
    whole_free(&w);
    return faults;
}

/* What MPI would abort for. */
static int rejects(MPI_Comm communicator, const char *sentence)
{
    attn_mpi ranks;
    attn_error error;
    const int rejected = attn_mpi_open(&ranks, communicator, &error) == ATTN_ERR_ARGUMENT && strcmp(error.message, sentence) == 0;
    if (!rejected) printf("not rejected: %s\n", sentence);
    attn_mpi_close(&ranks);
    return rejected;
}

int main(int count, char **arguments)
{
    attn_mpi ranks;
    attn_error error;
    int level, faults = 0, all = 0;
    faults += !rejects(MPI_COMM_WORLD, "MPI is not initialised: call MPI_Init_thread before");
    (void)MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &level);
    if (attn_mpi_open(&ranks, MPI_COMM_WORLD, &error) != ATTN_OK) {
        printf("%s\n", error.message);
        return 1;
    }
    faults += !rejects(MPI_COMM_NULL, "the communicator is MPI_COMM_NULL: this process is not among its ranks");
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (int n = 0; n < OPERATIONS; n++) faults += check(&ranks, seed, operations[n]);
    if (sent_pieces != expected_pieces) faults++, printf("%d pieces, not %d\n", (int)sent_pieces, (int)expected_pieces);
    (void)MPI_Allreduce(&faults, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (ranks.transport.rank == 0)
        printf("%d ranks: %d messages in %d pieces, %d faults\n", ranks.transport.ranks, (int)sent_messages, (int)sent_pieces, all);
    attn_mpi_close(&ranks);
    (void)MPI_Finalize();
    return all != 0 || !rejects(MPI_COMM_WORLD, "MPI is finalised already");
}
