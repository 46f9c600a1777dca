/* SPDX-License-Identifier: MIT
 * asked.c - see asked.h. */
#include "test.h"

#include "asked.h"

void asked_fill(asked *a, attn_op op, const attn_transport *transport)
{
    memset(a, 0, sizeof *a);
    for (int n = 0; n < 5; n++)
        for (int i = 0; i < (int)(sizeof a->in[n] / sizeof *a->in[n]); i++)
            a->in[n][i] = (float)((i * (5 + n) + transport->rank) % 11 - 5) / 8;
    for (int n = 0; n < ASKED_ROWS; n++) a->lse[n] = 2;
    for (int n = 0; n < 2 * ASKED_BATCH; n++) a->lengths[n] = ASKED_LEN - 3;
    a->slopes[0] = 0.125f, a->slopes[1] = 0.25f;
    a->problem = (attn_problem){.struct_size = sizeof a->problem,
                                .op = op,
                                .shape = {ASKED_BATCH, ASKED_HEADS, ASKED_HEADS, ASKED_LEN, ASKED_LEN, ASKED_D, ASKED_D},
                                .mask.causal = 1,
                                .dropout.probability = 0.5,
                                .bias_table = {.kind = ATTN_DISTANCE_CLIPPED, .max_distance = 4}};
    a->call = (attn_call){.struct_size = sizeof a->call, .dropout_seed = 7};
    a->tensors = (attn_tensors){.struct_size = sizeof a->tensors,
                                .call = &a->call,
                                .q = attn_in(a->in[0]),
                                .k = attn_in(a->in[1]),
                                .v = attn_in(a->in[2]),
                                .lengths_kv = attn_in(a->lengths),
                                .alibi_slopes = attn_in(a->slopes),
                                .bias_table = attn_in(a->table)};
    a->split = (attn_split){.struct_size = sizeof a->split, .part = ASKED_PART, .layout = ATTN_LAYOUT_ZIGZAG, .way = ATTN_WAY_RING};
    a->transport = *transport;
    a->options = (attn_options){.struct_size = sizeof a->options, .threads = 1};
    a->to = &a->plan;
    attn_tensors *t = &a->tensors;
    if (op == ATTN_FORWARD) {
        t->o = attn_out(a->out.rows[0]), t->lse = attn_out(a->out.lse), t->column_sum = attn_out(a->out.columns);
        return;
    }
    t->grad_o = attn_in(a->in[3]), t->o = attn_out(a->in[4]), t->lse = attn_out(a->lse);
    if (op == ATTN_DOUBLE_BACKWARD) {
        t->tan_q = attn_in(a->in[1]), t->tan_k = attn_in(a->in[2]), t->tan_v = attn_in(a->in[0]); /* some numbers */
        t->second_q = attn_out(a->out.rows[0]), t->second_k = attn_out(a->out.rows[1]), t->second_v = attn_out(a->out.rows[2]);
        t->second_grad_o = attn_out(a->out.rows[3]), t->second_grad_lse = attn_out(a->out.lse);
    } else {
        t->grad_q = attn_out(a->out.rows[0]), t->grad_k = attn_out(a->out.rows[1]), t->grad_v = attn_out(a->out.rows[2]);
        t->grad_alibi_slopes = attn_out(a->out.slopes), t->grad_bias_table = attn_out(a->out.table);
    }
}

void asked_run(asked *a, void (*spoil)(asked *a, int executes), asked_outcome *outcome)
{
    attn_error error = {.status = ATTN_OK};
    memset(&a->out, 0x5a, sizeof a->out);
    if (spoil) spoil(a, 0);
    outcome->status = attn_distributed_plan_create(a->to, &a->problem, &a->tensors, &a->split, &a->transport, &a->options, &error);
    outcome->planned = outcome->status == ATTN_OK;
    if (a->plan) {
        a->size = attn_distributed_workspace_size(a->plan);
        char *const memory = a->workspace = malloc(a->size + 1);
        assert_non_null(memory);
        if (spoil) spoil(a, 1);
        outcome->status = attn_distributed_execute(a->plan, &a->tensors, a->workspace, a->size, &error);
        free(memory);
        attn_distributed_plan_destroy(a->plan);
    }
    memcpy(outcome->message, error.message, sizeof outcome->message);
    outcome->written = 0;
    for (size_t n = 0; n < sizeof a->out; n++) outcome->written |= ((const unsigned char *)&a->out)[n] != 0x5a;
}
