/* SPDX-License-Identifier: MIT
 * problem_rules.c - the words of problem strings: one row each. */
#include "problem_rules.h"

#include <math.h>
#include <stddef.h>

#include "problem_values.h"

#define LIST(...)                                                                                                                  \
    (const char *const[]) { __VA_ARGS__, NULL }
#define FIELD(name) .field = offsetof(problem_spec, name)
#define SIZE(name, help, field)                                                                                                    \
    {                                                                                                                              \
        .word = {name, "N", help, WORD_SIZE, FLAG_NONE}, .read = value_read_size, .print = value_print_size, FIELD(shape.field)    \
    }

/* In the order of spec_stored. */
#define STORED_TYPES                                                                                                               \
    "f32", "f16", "bf16", "i8", "f8_e4m3", "f8_e5m2", "f8_e4m3-unscaled", "f8_e5m2-unscaled", "q8_0", "q4_0", "q4_1"
#define STORED(name, help, field, ...)                                                                                             \
    {                                                                                                                              \
        .word = {name, "TYPE", help, WORD_OPTION, FLAG_NONE}, .read = value_read_choice, .print = value_print_choice,              \
        FIELD(field), .choices = LIST(__VA_ARGS__), .first = SPEC_STORED_F32                                                       \
    }

/* clang-format off */
const problem_rule problem_rules[] = {
    {.word = {"op", NULL, "fwd (default), bwd, jvp, bwd2, decode (a cache), linear, linear-bwd", WORD_IS_VALUE, FLAG_NONE},
     .read = value_read_choice, .print = value_print_word, FIELD(op), .choices = LIST("fwd", "bwd", "jvp", "bwd2", "decode", "linear", "linear-bwd")},
    {.word = {"dtype", NULL, "storage: f32 (default), f64, f16, bf16, int8 (k and v; the rest f32)", WORD_IS_VALUE, FLAG_NONE},
     .read = value_read_choice, .print = value_print_word, FIELD(dtype), .choices = LIST("f32", "f64", "f16", "bf16", "int8")},
    SIZE("b", "batch entries (default 1)", batch),
    SIZE("hq", "query heads (default 1)", heads_q),
    SIZE("hkv", "key and value heads (default hq)", heads_kv),
    SIZE("sq", "queries", len_q),
    SIZE("skv", "keys (default sq)", len_kv),
    SIZE("d", "width of a query and of a key", dim_qk),
    SIZE("dv", "width of a value (default d)", dim_v),
    STORED("ktype", "of keys: f32 f16 bf16 i8 f8_e4m3 f8_e5m2 (-unscaled) q8_0 q4_0 q4_1[c]", k_type, STORED_TYPES, "q4_1c"),
    STORED("vtype", "the same, of values, not q4_1c; i8 and f8 have a scale for each row", v_type, STORED_TYPES),
    {.word = {"causal", "[=KIND]", "a query sees no later key: top-left (default), bottom-right, offset", WORD_OPTION, FLAG_INPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(causal), .choices = LIST("top-left", "bottom-right", "offset"),
     .first = SPEC_CAUSAL_TOP_LEFT, .omitted = SPEC_CAUSAL_TOP_LEFT},
    {.word = {"align", "KIND", "how a window aligns queries: top-left, bottom-right", WORD_OPTION, FLAG_INPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(align), .choices = LIST("top-left", "bottom-right"),
     .first = SPEC_ALIGN_TOP_LEFT},
    {.word = {"offset", "[=N]", "query i is at key i + N; without N, each entry has its own", WORD_OPTION, FLAG_NONE},
     .read = value_read_offset, .print = value_print_offset},
    {.word = {"window", "L,R", "a query sees L keys to its left, R to its right; -1: no bound", WORD_OPTION, FLAG_INPUT},
     .read = value_read_window, .print = value_print_window},
    {.word = {"mask", "P[/AXES]", "a boolean mask drops a fraction P; AXES of size 1, as b1h1", WORD_OPTION, FLAG_NONE},
     .read = value_read_mask, .print = value_print_mask},
    {.word = {"bias", "[=AXES]", "an additive bias; AXES of size 1, as b1h1", WORD_OPTION, FLAG_NONE},
     .read = value_read_bias, .print = value_print_bias},
    {.word = {"lens", "[=WHICH]", "random lengths: both (default), q, kv", WORD_OPTION, FLAG_NONE},
     .read = value_read_choice, .print = value_print_choice, FIELD(lengths), .choices = LIST("both", "q", "kv"),
     .first = SPEC_LENGTHS_BOTH, .omitted = SPEC_LENGTHS_BOTH},
    {.word = {"spread", "KIND", "of random lengths: even (default), log (a short one as often as a long)", WORD_OPTION, FLAG_NONE},
     .read = value_read_choice, .print = value_print_choice, FIELD(spread), .choices = LIST("even", "log")},
    {.word = {"scale", "X", "scores are X times q.k (default 1/sqrt(d)); heads: an X for each", WORD_OPTION, FLAG_NONE},
     .read = value_read_scale, .print = value_print_scale, FIELD(scale), .low = -HUGE_VAL, .high = HUGE_VAL},
    {.word = {"layout", "ORDER", "the order of the axes: bhsd (default), bshd", WORD_OPTION, FLAG_INPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(order), .choices = LIST("bhsd", "bshd")},
    {.word = {"lse", NULL, "also write the log-sum-exp of each query", WORD_OPTION, FLAG_OUTPUT},
     .read = value_read_flag, .print = value_print_flag, FIELD(lse)},
    {.word = {"weights", NULL, "also write the weights (queries x keys)", WORD_OPTION, FLAG_OUTPUT},
     .read = value_read_flag, .print = value_print_flag, FIELD(weights)},
    {.word = {"softcap", "C", "scores become C tanh(score / C); 0 is off", WORD_OPTION, FLAG_INPUT},
     .read = value_read_number, .print = value_print_not_zero, FIELD(softcap), .high = HUGE_VAL},
    {.word = {"temperature", "T", "scores are divided by T (default 1)", WORD_OPTION, FLAG_INPUT},
     .read = value_read_number, .print = value_print_not_one, FIELD(temperature), .low = 0x1p-1074, .high = HUGE_VAL},
    {.word = {"dropout", "P", "drop a fraction P of the weights; 0 is off", WORD_OPTION, FLAG_INPUT},
     .read = value_read_number, .print = value_print_not_zero, FIELD(dropout), .high = 1},
    {.word = {"alibi", "[=WHOSE]", "a penalty by distance, a slope each: head (default), batch-head", WORD_OPTION, FLAG_NONE},
     .read = value_read_choice, .print = value_print_choice, FIELD(alibi), .choices = LIST("head", "batch-head"),
     .first = SPEC_ALIBI_HEAD, .omitted = SPEC_ALIBI_HEAD},
    {.word = {"sink", NULL, "a sink in the denominator of each head", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(sink)},
    {.word = {"packed", NULL, "concatenated sequences of different lengths", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(packed)},
    {.word = {"ragged", "[=KIND]", "concatenated queries, not keys: random, mixed (sq of the first, 1 each)", WORD_OPTION, FLAG_NONE},
     .read = value_read_choice, .print = value_print_choice, FIELD(ragged), .choices = LIST("random", "mixed"),
     .first = SPEC_RAGGED_RANDOM, .omitted = SPEC_RAGGED_RANDOM},
    {.word = {"page", "N", "keys and values in pages of N tokens, in no order; 0 is off", WORD_OPTION, FLAG_NONE},
     .read = value_read_count, .print = value_print_count, FIELD(page)},
    {.word = {"prefix", "N", "all sequences share their first N keys, in the same pages; 0 is off", WORD_OPTION, FLAG_NONE},
     .read = value_read_count, .print = value_print_count, FIELD(prefix)},
    {.word = {"tree", "N", "the last N keys and queries are drafts, in a random tree; 0 is off", WORD_OPTION, FLAG_NONE},
     .read = value_read_count, .print = value_print_count, FIELD(tree)},
    {.word = {"schedule", NULL, "bench and check execute with a schedule; explain says what it has", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(schedule)},
    {.word = {"steps", "N", "attn bench decode: N times, a cache that grows to skv; 0 is 1", WORD_OPTION, FLAG_NONE},
     .read = value_read_count, .print = value_print_count, FIELD(steps)},
    {.word = {"chunk", "N", "a query sees only keys of its own chunk of N; 0 is off", WORD_OPTION, FLAG_INPUT},
     .read = value_read_count, .print = value_print_count, FIELD(chunk)},
    {.word = {"block", "Q,K[/P]", "a block mask of Q queries by K keys drops a fraction P", WORD_OPTION, FLAG_NONE},
     .read = value_read_block, .print = value_print_block},
    {.word = {"empty", "KIND", "a query that sees no key gets: zero (default), uniform (the mean)", WORD_OPTION, FLAG_INPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(empty), .choices = LIST("zero", "uniform")},
    {.word = {"dlse", NULL, "lse has an incoming gradient, too", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(dlse)},
    {.word = {"dslopes", NULL, "also the gradient of the slopes", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(dslopes)},
    {.word = {"dsink", NULL, "also the gradient of the sink", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(dsink)},
    {.word = {"dscale", NULL, "also the gradient of the scale of each head", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(dscale)},
    {.word = {"dbias", NULL, "also the gradient of the bias", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(dbias)},
    {.word = {"score", "KIND", "dot (default), cosine, distance; with w: general, metric, additive", WORD_OPTION, FLAG_INPUT},
     .read = value_read_pattern, .print = value_print_pattern, FIELD(score),
     .choices = LIST("dot", "cosine", "distance", "additive", "additive/UNITS", "general", "general/CHANNELS", "metric", "metric/ROWS")},
    {.word = {"w", "WHAT", "weights of a score: heads (one w each), bias (additive), heads-bias", WORD_OPTION, FLAG_NONE},
     .read = value_read_choice, .print = value_print_choice, FIELD(w), .choices = LIST("heads", "bias", "heads-bias"), .first = SPEC_W_HEADS},
    {.word = {"normaliser", "KIND", "scores to weights: softmax (default), softmax-one, sigmoid, relu", WORD_OPTION, FLAG_INPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(normaliser), .choices = LIST("softmax", "softmax-one", "sigmoid", "relu")},
    {.word = {"shift", "B", "normaliser=sigmoid: added to each score (default 0)", WORD_OPTION, FLAG_INPUT},
     .read = value_read_number, .print = value_print_not_zero, FIELD(shift), .low = -HUGE_VAL, .high = HUGE_VAL},
    {.word = {"rel", "KIND", "relative terms: shaw/DISTANCE, shaw-values/DISTANCE, full, xl", WORD_OPTION, FLAG_INPUT},
     .read = value_read_pattern, .print = value_print_pattern, FIELD(rel), .choices = LIST("shaw/DISTANCE", "shaw-values/DISTANCE", "full", "xl")},
    {.word = {"drel", NULL, "also the gradients of the tables of rel", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(drel)},
    {.word = {"t5", "[=KEYS]", "a bias by T5's buckets: both, causal, KEYS/BUCKETS/DISTANCE", WORD_OPTION, FLAG_INPUT},
     .read = value_read_t5, .print = value_print_t5},
    {.word = {"clipped", "N", "a bias by distance, the same for all beyond N", WORD_OPTION, FLAG_INPUT},
     .read = value_read_clipped, .print = value_print_clipped},
    {.word = {"shared", "[=WHOSE]", "one table for all heads: both (default), rel, table (t5, clipped)", WORD_OPTION, FLAG_NONE},
     .read = value_read_choice, .print = value_print_choice, FIELD(shared), .choices = LIST("rel", "table", "both"),
     .first = SPEC_SHARED_REL, .omitted = SPEC_SHARED_BOTH},
    {.word = {"dtable", NULL, "also the gradient of the table of t5 or clipped", WORD_OPTION, FLAG_NONE},
     .read = value_read_flag, .print = value_print_flag, FIELD(dtable)},
    {.word = {"rope", NULL, "rotary positions of queries and keys", WORD_FLAG, FLAG_INPUT},
     .read = value_read_flag, .print = value_print_flag, FIELD(rope)},
    {.word = {"sparse", "NAME/N...", "masks of attn mask, joined by +: bigbird/64/3/2/3, strided/8+prefix/4", WORD_OPTION, FLAG_INPUT},
     .read = value_read_sparse, .print = value_print_pattern, FIELD(sparse)},
    {.word = {"phi", "MAP", "elu1, identity, relu, softmax, favor/N, fourier/N, trigonometric/N", WORD_OPTION, FLAG_OUTPUT},
     .read = value_read_pattern, .print = value_print_pattern, FIELD(phi),
     .choices = LIST("elu1", "identity", "relu", "softmax", "favor/N", "fourier/N", "trigonometric/N")},
    {.word = {"decay", "WHOSE", "decay of linear attention: by head or by channel", WORD_OPTION, FLAG_NONE},
     .read = value_read_choice, .print = value_print_choice, FIELD(decay), .choices = LIST("head", "channel"), .first = SPEC_DECAY_HEAD},
    {.word = {"rule", "RULE", "update of linear attention: add (default), delta, low-rank", WORD_OPTION, FLAG_OUTPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(rule), .choices = LIST("add", "delta", "low-rank")},
    {.word = {"denominator", "KIND", "of linear attention: clamp (max(n,e), default), add (n + e), none", WORD_OPTION, FLAG_OUTPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(denominator), .choices = LIST("clamp", "add", "none"), .first = 1},
    {.word = {"epsilon", "E", "the guard e of that denominator (default 1e-6)", WORD_OPTION, FLAG_OUTPUT},
     .read = value_read_number, .print = value_print_not_zero, FIELD(epsilon), .low = 0x1p-1074, .high = HUGE_VAL},
    {.word = {"form", "FORM", "of linear attention: chunked, recurrent, quadratic (default: fastest)", WORD_OPTION, FLAG_OUTPUT},
     .read = value_read_choice, .print = value_print_choice, FIELD(form), .choices = LIST("chunked", "recurrent", "quadratic"), .first = 1},
    {.word = {"seed", "N", "the seed of random numbers (default 0)", WORD_OPTION, FLAG_NONE},
     .read = value_read_seed, .print = value_print_seed},
};
/* clang-format on */

const int problem_rules_count = (int)(sizeof problem_rules / sizeof *problem_rules);
