/* SPDX-License-Identifier: MIT
 *
 * family.c - the table of families. */
#include "family.h"

#include <stdio.h>
#include <string.h>

const char *const weight_words[WEIGHT_ROLES] = {
    [WEIGHT_QUERY] = "wq",
    [WEIGHT_KEY] = "wk",
    [WEIGHT_VALUE] = "wv",
    [WEIGHT_OUTPUT] = "wo",
    [WEIGHT_QKV] = "wqkv",
    [WEIGHT_BIAS_QUERY] = "bq",
    [WEIGHT_BIAS_KEY] = "bk",
    [WEIGHT_BIAS_VALUE] = "bv",
    [WEIGHT_BIAS_OUTPUT] = "bo",
    [WEIGHT_BIAS_QKV] = "bqkv",
    [WEIGHT_EXTRA_KEY] = "bias_k",
    [WEIGHT_EXTRA_VALUE] = "bias_v",
    [WEIGHT_NORM_QUERY] = "q_norm",
    [WEIGHT_NORM_KEY] = "k_norm",
    [WEIGHT_NORM_BIAS_QUERY] = "q_norm_bias",
    [WEIGHT_NORM_BIAS_KEY] = "k_norm_bias",
    [WEIGHT_NORM] = "norm",
    [WEIGHT_NORM_BIAS] = "norm_bias",
    [WEIGHT_TABLE] = "bias_table",
    [WEIGHT_SCORE] = "w",
    [WEIGHT_STATE] = "state",
    [WEIGHT_MEMORY] = "memory",
    [WEIGHT_BOTH] = "both",
    [WEIGHT_BIAS_STATE] = "bias",
    [WEIGHT_BIAS_MEMORY] = "memory_bias",
    [WEIGHT_BIAS_BOTH] = "both_bias",
    [WEIGHT_COMBINE] = "combine",
};

/* Names of the four matrices of a family, with those of their biases. */
#define SEPARATE(q, k, v, o)                                                                                                       \
    [WEIGHT_QUERY] = q ".weight", [WEIGHT_KEY] = k ".weight", [WEIGHT_VALUE] = v ".weight", [WEIGHT_OUTPUT] = o ".weight",         \
    [WEIGHT_BIAS_QUERY] = q ".bias", [WEIGHT_BIAS_KEY] = k ".bias", [WEIGHT_BIAS_VALUE] = v ".bias",                               \
    [WEIGHT_BIAS_OUTPUT] = o ".bias"
#define FUSED(qkv, o)                                                                                                              \
    [WEIGHT_QKV] = qkv ".weight", [WEIGHT_OUTPUT] = o ".weight", [WEIGHT_BIAS_QKV] = qkv ".bias", [WEIGHT_BIAS_OUTPUT] = o ".bias"
#define HEAD_NORMS(q, k)                                                                                                           \
    [WEIGHT_NORM_QUERY] = q ".weight", [WEIGHT_NORM_KEY] = k ".weight", [WEIGHT_NORM_BIAS_QUERY] = q ".bias",                      \
    [WEIGHT_NORM_BIAS_KEY] = k ".bias"
#define NORM(name) [WEIGHT_NORM] = name ".weight", [WEIGHT_NORM_BIAS] = name ".bias"
#define ADDITIVE(w, q, k)                                                                                                          \
    [WEIGHT_SCORE] = w ".weight", [WEIGHT_STATE] = q ".weight", [WEIGHT_MEMORY] = k ".weight", [WEIGHT_BIAS_STATE] = q ".bias",    \
    [WEIGHT_BIAS_MEMORY] = k ".bias"

const layer_family layer_families[] = {
    {.name = "deepseek", .kind = "latent", .names = {[WEIGHT_QUERY] = "kv_a_proj_with_mqa.weight|kv_b_proj.weight"}, .native = 1},
    {.name = "decoder and memory", .kind = "additive", .names = {[WEIGHT_STATE] = "state.weight|memory.weight"}, .native = 1},
    /* models */
    {.name = "gguf",
     .kind = "multi-head",
     .names = {SEPARATE("attn_q", "attn_k", "attn_v", "attn_output"), NORM("attn_norm"), HEAD_NORMS("attn_q_norm", "attn_k_norm")}},
    {.name = "gguf", .kind = "multi-head", .names = {FUSED("attn_qkv", "attn_output"), NORM("attn_norm")}},
    {.name = "bert", .kind = "multi-head", .names = {SEPARATE("self.query", "self.key", "self.value", "output.dense")}},
    {.name = "vit",
     .kind = "multi-head",
     .names = {SEPARATE("attention.query", "attention.key", "attention.value", "output.dense"), NORM("../layernorm_before")}},
    {.name = "timm", .kind = "multi-head", .names = {FUSED("qkv", "proj"), NORM("../norm1"), HEAD_NORMS("q_norm", "k_norm")}},
    {.name = "distilbert", .kind = "multi-head", .names = {SEPARATE("q_lin", "k_lin", "v_lin", "out_lin")}},
    {.name = "t5",
     .kind = "multi-head",
     .names = {SEPARATE("SelfAttention.q", "SelfAttention.k", "SelfAttention.v", "SelfAttention.o"),
               [WEIGHT_TABLE] = "SelfAttention.relative_attention_bias.weight", [WEIGHT_NORM] = "layer_norm.weight"},
     .model = {.unscaled = 1, .t5 = 1}},
    {.name = "t5",
     .kind = "multi-head",
     .names =
         {SEPARATE("EncDecAttention.q", "EncDecAttention.k", "EncDecAttention.v", "EncDecAttention.o"), [WEIGHT_NORM] =
                                                                                                            "layer_norm.weight"},
     .model = {.unscaled = 1}},
    {.name = "t5",
     .kind = "multi-head",
     .names = {SEPARATE("q", "k", "v", "o"), [WEIGHT_TABLE] = "relative_attention_bias.weight"},
     .model = {.unscaled = 1, .t5 = 1},
     .sign = "relative_attention_bias.weight"},
    {.name = "gpt2",
     .kind = "multi-head",
     .names = {FUSED("c_attn", "c_proj"), NORM("../ln_1")},
     .axes = FAMILY_BY_SHAPE,
     .model = {.causal = 1}},
    {.name = "gpt-neo",
     .kind = "multi-head",
     .names = {SEPARATE("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj", "attn.attention.out_proj"),
               NORM("ln_1")},
     .model = {.causal = 1, .unscaled = 1}},
    {.name = "gpt-neox",
     .kind = "multi-head",
     .names = {FUSED("attention.query_key_value", "attention.dense"), NORM("input_layernorm")},
     .fused = FAMILY_GROUPS,
     .model = {.rope = FAMILY_HALVES, .rope_in_part = 1, .causal = 1}},
    {.name = "falcon or bloom",
     .kind = "multi-head",
     .names = {FUSED("self_attention.query_key_value", "self_attention.dense"), NORM("input_layernorm")},
     .fused = FAMILY_GROUPS,
     .model = {.causal = 1}},
    {.name = "phi3",
     .kind = "multi-head",
     .names = {FUSED("self_attn.qkv_proj", "self_attn.o_proj"), NORM("input_layernorm")},
     .model = {.rope = FAMILY_HALVES, .causal = 1}},
    {.name = "phi",
     .kind = "multi-head",
     .names = {SEPARATE("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"), NORM("input_layernorm")},
     .model = {.rope = FAMILY_HALVES, .rope_in_part = 1, .causal = 1}},
    {.name = "llama",
     .kind = "multi-head",
     .names = {SEPARATE("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"), NORM("input_layernorm"),
               HEAD_NORMS("self_attn.q_norm", "self_attn.k_norm")},
     .model = {.rope = FAMILY_HALVES, .causal = 1}},
    {.name = "llama of Meta",
     .kind = "multi-head",
     .names = {SEPARATE("attention.wq", "attention.wk", "attention.wv", "attention.wo"), NORM("attention_norm")},
     .model = {.rope = FAMILY_INTERLEAVED, .causal = 1}},
    /* modules and notebooks: a decoder and what it attends to */
    {.name = "bahdanau", .kind = "additive", .names = {ADDITIVE("w_v", "W_q", "W_k")}},
    {.name = "bahdanau", .kind = "additive", .names = {ADDITIVE("w_v", "w_q", "w_k")}},
    {.name = "bahdanau", .kind = "additive", .names = {ADDITIVE("Va", "Wa", "Ua")}},
    {.name = "bahdanau", .kind = "additive", .names = {ADDITIVE("v_a", "W_a", "U_a")}},
    {.name = "bahdanau", .kind = "additive", .names = {ADDITIVE("V", "W1", "W2")}},
    {.name = "luong concat",
     .kind = "additive",
     .names = {[WEIGHT_SCORE] = "v|v.weight", [WEIGHT_BOTH] = "attn.weight", [WEIGHT_BIAS_BOTH] = "attn.bias"}},
    {.name = "luong general", .kind = "general", .names = {[WEIGHT_SCORE] = "W_a.weight|attn.weight"}, .only_here = 1},
    /* modules and notebooks: several heads */
    {.name = "torch",
     .kind = "multi-head",
     .names = {[WEIGHT_QKV] = "in_proj_weight",
               [WEIGHT_BIAS_QKV] = "in_proj_bias",
               [WEIGHT_QUERY] = "q_proj_weight|q_proj.weight|wq",
               [WEIGHT_KEY] = "k_proj_weight|k_proj.weight|wk",
               [WEIGHT_VALUE] = "v_proj_weight|v_proj.weight|wv",
               [WEIGHT_OUTPUT] = "out_proj.weight|o_proj.weight|wo",
               [WEIGHT_BIAS_QUERY] = "q_proj.bias|bq",
               [WEIGHT_BIAS_KEY] = "k_proj.bias|bk",
               [WEIGHT_BIAS_VALUE] = "v_proj.bias|bv",
               [WEIGHT_BIAS_OUTPUT] = "out_proj.bias|o_proj.bias|bo",
               [WEIGHT_EXTRA_KEY] = "bias_k",
               [WEIGHT_EXTRA_VALUE] = "bias_v",
               [WEIGHT_NORM] = "../layernorm_before.weight|../layer_norm1.weight|../norm1.weight",
               [WEIGHT_NORM_BIAS] = "../layernorm_before.bias|../layer_norm1.bias|../norm1.bias",
               HEAD_NORMS("q_norm", "k_norm")},
     .end = FAMILY_ASKS},
    {.name = "W_q", .kind = "multi-head", .names = {SEPARATE("W_q", "W_k", "W_v", "W_o")}, .end = FAMILY_MAY_END},
    {.name = "W_q", .kind = "multi-head", .names = {SEPARATE("w_q", "w_k", "w_v", "w_o")}, .end = FAMILY_MAY_END},
    {.name = "W_query",
     .kind = "multi-head",
     .names = {SEPARATE("W_query", "W_key", "W_value", "out_proj")},
     .end = FAMILY_MAY_END},
    {.name = "W_query",
     .kind = "multi-head",
     .names = {[WEIGHT_QUERY] = "W_query", [WEIGHT_KEY] = "W_key", [WEIGHT_VALUE] = "W_value"},
     .axes = FAMILY_IN_OUT,
     .end = FAMILY_MAY_END},
    {.name = "transformer-lens",
     .kind = "multi-head",
     .names = {[WEIGHT_QUERY] = "W_Q",
               [WEIGHT_KEY] = "W_K",
               [WEIGHT_VALUE] = "W_V",
               [WEIGHT_OUTPUT] = "W_O",
               [WEIGHT_BIAS_QUERY] = "b_Q",
               [WEIGHT_BIAS_KEY] = "b_K",
               [WEIGHT_BIAS_VALUE] = "b_V",
               [WEIGHT_BIAS_OUTPUT] = "b_O"},
     .axes = FAMILY_IN_OUT},
    {.name = "flax or keras",
     .kind = "multi-head",
     .names = {[WEIGHT_QUERY] = "query/kernel|query.kernel",
               [WEIGHT_KEY] = "key/kernel|key.kernel",
               [WEIGHT_VALUE] = "value/kernel|value.kernel",
               [WEIGHT_OUTPUT] = "out/kernel|out.kernel|attention_output/kernel",
               [WEIGHT_BIAS_QUERY] = "query/bias|query.bias",
               [WEIGHT_BIAS_KEY] = "key/bias|key.bias",
               [WEIGHT_BIAS_VALUE] = "value/bias|value.bias",
               [WEIGHT_BIAS_OUTPUT] = "out/bias|out.bias|attention_output/bias"},
     .axes = FAMILY_MODEL_FIRST},
    {.name = "linears", .kind = "multi-head", .names = {SEPARATE("linears.0", "linears.1", "linears.2", "linears.3")}},
    {.name = "to_q", .kind = "multi-head", .names = {SEPARATE("to_q", "to_k", "to_v", "to_out.0")}, .end = FAMILY_MAY_END},
    {.name = "to_qkv", .kind = "multi-head", .names = {FUSED("to_qkv", "to_out.0")}},
    {.name = "to_qkv", .kind = "multi-head", .names = {FUSED("to_qkv", "to_out")}, .end = FAMILY_MAY_END},
    {.name = "query",
     .kind = "multi-head",
     .names = {[WEIGHT_QUERY] = "query.weight|q.weight",
               [WEIGHT_KEY] = "key.weight|k.weight",
               [WEIGHT_VALUE] = "value.weight|v.weight",
               [WEIGHT_OUTPUT] = "out.weight|o.weight|proj.weight",
               [WEIGHT_BIAS_QUERY] = "query.bias|q.bias",
               [WEIGHT_BIAS_KEY] = "key.bias|k.bias",
               [WEIGHT_BIAS_VALUE] = "value.bias|v.bias",
               [WEIGHT_BIAS_OUTPUT] = "out.bias|o.bias|proj.bias"},
     .end = FAMILY_MAY_END},
    {.name = "decoder and memory", .kind = "general", .names = {[WEIGHT_SCORE] = "w"}, .native = 1, .only_here = 1},
    {.name = "decoder and memory", .kind = "dot", .names = {[WEIGHT_COMBINE] = "combine.weight"}, .native = 1, .only_here = 1},
    {0},
};

/* The first of the names, without ".weight". */
static void print_name(const char *names, const char *before)
{
    static const char end[] = ".weight";
    const size_t size = strcspn(names, "|"), extra = sizeof end - 1;
    const int cut = size > extra && memcmp(names + size - extra, end, extra) == 0;
    printf("%s%.*s", before, (int)(cut ? size - extra : size), names);
}

void family_print(void)
{
    static const weight_role first[] = {WEIGHT_QKV, WEIGHT_STATE, WEIGHT_BOTH, WEIGHT_QUERY, WEIGHT_SCORE},
                             last[] = {WEIGHT_OUTPUT, WEIGHT_SCORE, WEIGHT_VALUE};
    printf("\nFamilies, their first and last names, and what their models compute:\n");
    for (const layer_family *f = layer_families; f->name; f++) {
        int begin = 0, end = 0;
        if (f->native) continue;
        while (!f->names[first[begin]]) begin++;
        while (end < 2 && !f->names[last[end]]) end++;
        printf("  %-18s", f->name);
        print_name(f->names[first[begin]], "");
        if (last[end] != first[begin]) print_name(f->names[last[end]], " ... ");
        const family_model *m = &f->model;
        printf("%s%s%s%s\n", m->causal ? "; causal" : "",
               m->rope == FAMILY_HALVES ? ", rope halves"
               : m->rope                ? ", rope interleaved"
                                        : "",
               m->unscaled ? "; scale 1" : "", m->t5 ? ", T5's table" : "");
    }
}

const char family_beyond[] = "sinks|self_attn.sinks|attn_sinks.weight|" /* gpt-oss */
                             "relative_position_bias_table|self.relative_position_bias_table|"
                             "attention.relative_position_bias.relative_position_bias_table|"     /* Swin, BEiT */
                             "self.distance_embedding.weight|rel_pos_h|"                          /* BERT with relative keys, SAM */
                             "q_bias|v_bias|attn_sub_norm.weight|self_attn.attn_sub_norm.weight"; /* EVA, BitNet */

int family_separates(char c) { return c == '.' || c == '/'; }

/* Where the root of a name ends: "h.0.attn." is "h.0." for names that begin with "../". */
static size_t root_of(const char *root, int parent)
{
    size_t length = strlen(root);
    if (parent && length) length--;
    while (parent && length && !family_separates(root[length - 1])) length--;
    return length;
}

const attn_archive_tensor *family_find(const attn_archive *file, const char *root, const char *names)
{
    while (names && *names) {
        char name[512];
        const int parent = strncmp(names, "../", 3) == 0;
        const size_t length = root_of(root, parent);
        names += parent ? 3 : 0;
        const size_t size = strcspn(names, "|");
        if (length + size < sizeof name) {
            memcpy(name, root, length);
            memcpy(name + length, names, size);
            name[length + size] = 0;
            const attn_archive_tensor *t = attn_archive_find(file, name);
            if (t) return t;
        }
        names += size;
        names += *names == '|';
    }
    return NULL;
}
