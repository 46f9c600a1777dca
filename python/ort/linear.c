/* SPDX-License-Identifier: MIT
 * linear.c - LinearAttention, of ai.onnx 27 and of com.microsoft with a state for the last token only. */
#include <string.h>

#include "shim.h"

enum { QUERY, KEY, VALUE, PAST, DECAY, BETA }; /* inputs */
enum { O, PRESENT };                           /* outputs */

const char *linear_read(const source *s, attributes *a)
{
    char rule[16];
    a->heads_q = source_int(s, "q_num_heads", 0);
    a->heads_kv = source_int(s, "kv_num_heads", 0);
    a->scale = source_float(s, "scale", 0);
    source_string(s, "update_rule", rule, sizeof rule);
    const char *name = *rule ? rule : "gated_delta";
    a->gated = !strncmp(name, "gated", 5);
    a->delta = !strcmp(name, "delta") || !strcmp(name, "gated_delta");
    if (!a->gated && !a->delta && strcmp(name, "linear")) return "an update_rule that libattn does not know";
    if (source_int(s, "state_window", 0)) return "state_window";
    if (a->heads_q < 1 || a->heads_kv < 1 || a->heads_q % a->heads_kv) return "q_num_heads is not a multiple of kv_num_heads";
    return NULL;
}

const char *linear_refuse(const shape_of_node *node, const attributes *a)
{
    if ((int)HAS(node->inputs, DECAY) != a->gated) return "decay does not go with update_rule";
    if ((int)HAS(node->inputs, BETA) != a->delta) return "beta does not go with update_rule";
    return NULL;
}

/* Numbers [B, T, heads * channels] of each head and token, whose last axis has `last` numbers. */
static ort_status *gate_of(const value *v, const int64_t k[4], int64_t channels, int64_t last, attn_input *slot)
{
    const int64_t want[3] = {k[0], k[2], last};
    TRY(expect(v, 3, want));
    *slot = (attn_input){v->data, type_of(v->type), {k[2] * last, last == 1 ? 0 : channels, last, channels > 1}};
    if (v->data == ATTN_EMPTY) memset(slot->stride, 0, sizeof slot->stride);
    return NULL;
}

static ort_status *set_gates(const attributes *a, call *c, attn_linear_problem *p, attn_linear_tensors *t, const int64_t k[4])
{
    value decay, beta;
    TRY(call_input(c, DECAY, "decay", &decay));
    TRY(call_input(c, BETA, "beta", &beta));
    if (a->gated) {
        const int each = decay.rank == 3 && decay.size[2] != a->heads_kv;
        p->decay_kind = each ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD;
        TRY(gate_of(&decay, k, each ? k[3] : 1, each ? a->heads_kv * k[3] : a->heads_kv, &t->decay));
    }
    if (a->delta) TRY(gate_of(&beta, k, 1, beta.rank == 3 && beta.size[2] == 1 ? 1 : a->heads_kv, &t->beta));
    return NULL;
}

/* States are floats for the library: those of another type are converted, and stored at the end. */
static ort_status *set_states(call *c, attn_linear_tensors *t, const int64_t sizes[4], value *present)
{
    const int64_t count = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    value past;
    void *state;
    TRY(call_input(c, PAST, "past_state", &past));
    TRY(call_output(c, PRESENT, "present_state", 4, sizes, 0, present));
    if (past.data) TRY(expect(&past, 4, sizes));
    if (!count) {
        t->final_state = written((attn_input){ATTN_EMPTY, ATTN_F32, {0}});
        if (past.data) t->initial_state = (attn_input){ATTN_EMPTY, ATTN_F32, {0}};
        return NULL;
    }
    state = present->data;
    if (!state || present->type != ORT_FLOAT) TRY(call_scratch(c, count, sizeof(float), &state));
    t->final_state = written(dense(state, ATTN_F32, sizes));
    if (!past.data) return NULL;
    if (past.type != ORT_FLOAT) {
        if (attn_convert(count, past.data, type_of(past.type), state, ATTN_F32, NULL))
            return fail(ORT_FAIL, "cannot convert past_state");
        past.data = state; /* the final state may be the initial one */
    }
    t->initial_state = dense(past.data, ATTN_F32, sizes);
    return NULL;
}

ort_status *linear_compute(const attributes *a, call *c)
{
    value query, key, values, present, o;
    int64_t q[4], k[4], v[4], sizes[4];
    attn_input slot;
    attn_linear_problem p = {.struct_size = sizeof p, .features = ATTN_FEATURES_IDENTITY, .denominator = ATTN_DENOMINATOR_NONE};
    attn_linear_tensors t = {.struct_size = sizeof t};
    TRY(call_input(c, QUERY, "query", &query));
    TRY(call_input(c, KEY, "key", &key));
    TRY(call_input(c, VALUE, "value", &values));
    TRY(rows_of(&query, a->heads_q, &t.q, q));
    TRY(rows_of(&key, a->heads_kv, &t.k, k));
    TRY(rows_of(&values, a->heads_kv, &t.v, v));
    const int64_t k_want[4] = {q[0], a->heads_kv, q[2], q[3]}, v_want[4] = {q[0], a->heads_kv, q[2], v[3]};
    TRY(expect_sizes("key as [batch, heads, tokens, dim]", k, k_want));
    TRY(expect_sizes("value as [batch, heads, tokens, dim]", v, v_want));
    p.shape = (attn_shape){q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
    p.causal = 1;
    p.rule = a->delta ? ATTN_LINEAR_RULE_DELTA : ATTN_LINEAR_RULE_ADD;
    if (a->scale != 0) {
        p.scale_kind = ATTN_SCALE_VALUE;
        p.scale = a->scale;
    }
    TRY(set_gates(a, c, &p, &t, k));

    const int64_t three[3] = {q[0], q[2], q[1] * v[3]}, state[4] = {q[0], k[1], q[3], v[3]};
    TRY(call_output(c, O, "output", 3, three, 0, &o));
    TRY(rows_of(&o, a->heads_q, &slot, sizes));
    t.o = written(slot);
    TRY(set_states(c, &t, state, &present));
    TRY(call_run_linear(c, &p, &t));
    if (!present.data || present.data == ATTN_EMPTY || present.type == ORT_FLOAT) return NULL;
    const int64_t count = state[0] * state[1] * state[2] * state[3];
    return attn_convert(count, t.final_state.data, ATTN_F32, present.data, type_of(present.type), NULL)
               ? fail(ORT_FAIL, "cannot convert present_state")
               : NULL;
}
