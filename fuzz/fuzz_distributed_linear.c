/* SPDX-License-Identifier: MIT
 *
 * fuzz_distributed_linear.c - fuzzes attn/distributed_linear.h (target.h; linear_case.h) on ranks that are threads: all of them
 * return the same, with the bits of one rank, and of one call where no chunk is cut; messages and bytes are those described. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/distributed_linear.h"
#include "linear_case.h"
#include "testing/ranks/ranks.h"

enum { CANARY = 0x3C, MAX_WORKSPACE = 1 << 26, STATES = 4 };

const char *const target_cases = "problems of linear attention over ranks";

/* Outputs that all ranks get. */
static const int states[STATES] = {L_S1, L_Z1, L_DS0, L_DZ0};

typedef struct ranks_case {
    linear_case whole;
    attn_split split;
    int ranks;
    block own[MAX_RANKS][STATES];
    attn_status status[MAX_RANKS];
    attn_error error[MAX_RANKS];
    attn_distributed_linear_description about;
} ranks_case;
static ranks_case x;

void target_print(void)
{
    const attn_linear_problem *p = &x.whole.problem;
    const attn_shape *s = &p->shape;
    fprintf(stderr,
            "op %d form %d  B %" PRId64 " Hq %" PRId64 " Hkv %" PRId64 " Sq %" PRId64 " Skv %" PRId64 " D %" PRId64 " Dv %" PRId64
            " features %d of %" PRId64 " denominator %d causal %d rule %d decay %d chunk %" PRId64 " ranks %d part %" PRId64
            " layout %d way %d hostile %d\n",
            (int)p->op, (int)p->form, s->batch, s->heads_q, s->heads_kv, s->len_q, s->len_kv, s->dim_qk, s->dim_v, (int)p->features,
            p->random_features, (int)p->denominator, p->causal, (int)p->rule, (int)p->decay_kind, p->chunk, x.ranks, x.split.part,
            (int)x.split.layout, (int)x.split.way, x.whole.hostile);
    blocks_print(x.whole.blocks, L_TENSORS);
}

/* ---- one rank ---- */

/* The rank's rows of the whole's tensors, in their place. */
static attn_linear_tensors tensors_of(int rank, int ranks)
{
    attn_linear_tensors t = x.whole.tensors;
    for (int n = 0; n < L_TENSORS; n++) {
        const attn_axis axis = x.whole.about[n].axes[2];
        attn_output *slot = linear_slot(&t, &x.whole, n);
        const block *b = &x.whole.blocks[n];
        attn_split_description own = {.struct_size = sizeof own};
        attn_split_part part = {.struct_size = sizeof part};
        if (!linear_has(&x.whole, n) || (axis != ATTN_AXIS_QUERY && axis != ATTN_AXIS_KEY)) continue;
        if (attn_split_describe(&x.split, b->shape[2], axis, rank, ranks, &own, NULL) != ATTN_OK) continue;
        if (own.tokens == 0 || b->bytes == 0) slot->data = ATTN_EMPTY;
        if (own.tokens == 0 || b->bytes == 0 || b->shape[2] == own.tokens) continue;
        if (attn_split_part_describe(&x.split, b->shape[2], axis, rank, ranks, 0, &part, NULL) != ATTN_OK) finding("no part");
        *slot = block_out(b);
        slot->data = block_at(b, 0, 0, part.first, 0);
    }
    for (int n = 0; n < STATES; n++)
        if (x.own[rank][n].name) *linear_slot(&t, &x.whole, states[n]) = block_out(&x.own[rank][n]);
    return t;
}

static void run(const attn_transport *transport, const attn_linear_tensors *t, attn_status *status, attn_error *error)
{
    attn_distributed_linear_plan *plan = NULL;
    attn_distributed_linear_description d = {.struct_size = sizeof d};
    attn_options options = x.whole.options;
    const int me = transport ? transport->rank : 0;
    int64_t messages[2] = {0, 0}, bytes[2] = {0, 0};
    options.threads = 1 + me % 3;
    options.workspace_limit = MAX_WORKSPACE; /* which all ranks then reject, and none goes on alone */
    memset(error, 0x55, sizeof *error);
    *status = attn_distributed_linear_plan_create(&plan, &x.whole.problem, t, &x.split, transport, &options, error);
    check_error(*status, error);
    if ((*status == ATTN_OK) != (plan != NULL)) finding("status %d and plan %p", (int)*status, (void *)plan);
    if (!plan) return;
    if (attn_distributed_linear_describe(plan, &d, NULL) != ATTN_OK) finding("a plan is not described");
    const size_t need = attn_distributed_linear_workspace_size(plan);
    if (need != d.workspace_bytes) finding("the description has another workspace");
    unsigned char *workspace = x.whole.plan_only ? NULL : malloc(need + (size_t)me);
    if (workspace) {
        memset(workspace, 0xFF, need + (size_t)me);
        if (transport) ranks_sent(transport, &messages[0], &bytes[0]);
        *status = attn_distributed_linear_execute(plan, t, workspace + me, need, error);
        check_error(*status, error);
        if (transport) ranks_sent(transport, &messages[1], &bytes[1]);
        if (*status == ATTN_OK && (messages[1] - messages[0] != d.messages || bytes[1] - bytes[0] != d.bytes))
            finding("%" PRId64 " bytes in %" PRId64 " messages are described as %" PRId64 " in %" PRId64, bytes[1] - bytes[0],
                    messages[1] - messages[0], d.bytes, d.messages);
    } else *status = ATTN_ERR_MEMORY;
    free(workspace);
    if (!transport) x.about = d;
    attn_distributed_linear_plan_destroy(plan);
}

static void on_rank(void *context, const attn_transport *transport)
{
    const attn_linear_tensors t = tensors_of(transport->rank, transport->ranks);
    (void)context;
    run(transport, &t, &x.status[transport->rank], &x.error[transport->rank]);
}

/* ---- a case ---- */

/* One call in the same form has the same bits if no chunk lies on two parts; but the gradient of a decay per head is a sum over
 * later tokens, which one call makes of them all. */
static void compare_one_call(void)
{
    linear_case *c = &x.whole;
    const attn_shape *s = &c->problem.shape;
    attn_linear_problem p = c->problem;
    attn_error error;
    const int64_t longest = s->len_q > s->len_kv ? s->len_q : s->len_kv;
    const int in_chunks = x.about.form == ATTN_LINEAR_FORM_CHUNKED;
    if (x.split.way == ATTN_WAY_DIRECT) return; /* it adds in another order */
    if (in_chunks && x.split.part < longest && x.split.part % x.about.chunk != 0) return;
    p.form = x.about.form, p.chunk = in_chunks ? x.about.chunk : 0;
    attn_linear_plan *plan = linear_plan(c, &p, &c->tensors, &c->options, &error);
    if (!plan) finding("one call is rejected: %s", error.message);
    const size_t need = attn_linear_plan_workspace_size(plan);
    void *workspace = malloc(need + 1);
    if (!workspace) abort();
    blocks_canary(c->blocks, L_TENSORS, CANARY);
    const attn_status status = attn_linear_execute(plan, &c->tensors, workspace, need, &error);
    if (status != ATTN_OK) finding("one call is rejected: %s", error.message);
    free(workspace);
    attn_linear_plan_destroy(plan);
    block *decay = &c->blocks[L_DDECAY];
    const int output = decay->output;
    if (in_chunks && p.rule == ATTN_LINEAR_RULE_ADD && p.decay_kind == ATTN_DECAY_HEAD) decay->output = 0;
    blocks_compare(c->blocks, L_TENSORS, CANARY, "one call");
    decay->output = output;
}

static void over_ranks(int expected)
{
    linear_case *c = &x.whole;
    for (int r = 0; r < x.ranks; r++)
        for (int n = 0; n < STATES; n++) {
            const block *of = &c->blocks[states[n]];
            block *own = &x.own[r][n];
            if (!of->name || !of->output || of->bytes == 0) continue;
            *own = block_of(of->name, of->dtype, 1, of->shape[0], of->shape[1], of->shape[2], of->shape[3]);
            if (!block_allocate(own)) finding("a state is too large");
        }
    if (expected) blocks_canary(c->blocks, L_TENSORS, CANARY);
    ranks_run(x.ranks, draw_one_in(c->from, 2) ? 1 : 0, on_rank, NULL);
    if (ranks_wrong()) finding("%s", ranks_wrong());
    for (int r = 0; r < x.ranks; r++) {
        if (x.status[r] != x.status[0] || strcmp(x.error[r].message, x.error[0].message) != 0)
            finding("rank %d: %d '%s', rank 0: %d '%s'", r, (int)x.status[r], x.error[r].message, (int)x.status[0],
                    x.error[0].message);
        if (expected && x.status[r] != ATTN_OK && x.status[r] != ATTN_ERR_MEMORY)
            finding("rank %d of %d: %s", r, x.ranks, x.error[r].message);
    }
    const int ran = expected && x.status[0] == ATTN_OK; /* several ranks may need more than one does */
    for (int n = 0; n < STATES && ran; n++) {           /* those of the last rank; then of all of them, in the whole's memory */
        const block *of = &c->blocks[states[n]];
        for (int r = 0; r < x.ranks && x.own[r][n].name; r++)
            for (int64_t b = 0; b < of->shape[0]; b++)
                for (int64_t h = 0; h < of->shape[1]; h++)
                    for (int64_t f = 0; f < of->shape[2]; f++)
                        for (int64_t i = 0; i < of->shape[3]; i++)
                            memcpy(block_at(of, b, h, f, i), block_at(&x.own[r][n], b, h, f, i), of->element);
    }
    if (ran) blocks_compare(c->blocks, L_TENSORS, CANARY, "over ranks");
    for (int n = 0; n < STATES && ran; n++)
        for (int r = 1; r < x.ranks && x.own[r][n].name; r++)
            if (memcmp(x.own[r][n].memory, x.own[0][n].memory, x.own[0][n].bytes) != 0)
                finding("%s differs on rank %d", x.own[r][n].name, r);
    for (int r = 0; r < x.ranks; r++) blocks_free(x.own[r], STATES);
}

void target_run(draws *from)
{
    linear_case *c = &x.whole;
    memset(&x, 0, sizeof x);
    c->from = from;
    attn_linear_plan *plan = linear_draw(c);
    x.split = (attn_split){.struct_size = sizeof x.split, .part = 1 + draw_below(from, draw_one_in(from, 3) ? 200 : 40)};
    if (draw_one_in(from, 2)) x.split.way = ATTN_WAY_RING;
    if (draw_one_in(from, 3)) x.split.way = ATTN_WAY_DIRECT;
    if (draw_one_in(from, 40))
        x.split.layout = (attn_layout)draw_below(from, 4), x.split.way = (attn_way)draw_below(from, ATTN_WAY_GATHER + 1);
    if (draw_one_in(from, 2) && c->problem.chunk) x.split.part = (1 + draw_below(from, 4)) * (1 + c->problem.chunk % 60);
    if (draw_one_in(from, 2) && c->problem.chunk) c->problem.chunk = 1 + c->problem.chunk % 60;
    x.ranks = 1 + (int)draw_below(from, 6);
    target_drawn();
    blocks_canary(c->blocks, L_TENSORS, CANARY);
    run(NULL, &c->tensors, &x.status[0], &x.error[0]);
    const int expected = x.status[0] == ATTN_OK;
    if (expected) {
        target_ran++;
        blocks_keep(c->blocks, L_TENSORS);
        if (plan) compare_one_call();
    } else {
        target_rejected++;
        blocks_untouched(c->blocks, L_TENSORS, CANARY, x.error[0].message);
        if (plan && !c->hostile && !x.split.layout && x.split.way <= ATTN_WAY_DIRECT && x.status[0] != ATTN_ERR_MEMORY)
            finding("one call is planned, and ranks are rejected: %s", x.error[0].message);
    }
    attn_linear_plan_destroy(plan);
    if (plan) over_ranks(expected);
    blocks_free(c->blocks, L_TENSORS);
}
