/* SPDX-License-Identifier: MIT
 * features.c - ways to use each feature of features.def. */
#include "test.h"

#include "features.h"
#include "outcome.h"

#define ON(name, brings, words, names)                                                                                             \
    {                                                                                                                              \
        ATTN_FEATURE_NUMBER_##name, brings, words, names                                                                           \
    }

/* FOLDED has no row: no problem requests it, the walk of that name folds heads by itself.  Words of this table only: grouped
 * (heads), invariant and reproducible (options), kind=N (attn_score_kind), rows (visit_rows). */
static const feature_way ways[] = {
    ON(INVARIANT, 0, "invariant", "options.invariant"),
    ON(REPRODUCIBLE, 0, "reproducible", "options.reproducible"),
    ON(ADDITIVE, 0, "kind=5", "score.kind"),
    ON(PREPARED, 0, "kind=1", "score.kind"),
    ON(PREPARED, 0, "kind=2", "score.kind"),
    ON(PREPARED, 0, "kind=3", "score.kind"),
    ON(PREPARED, 0, "kind=4", "score.kind"),
    ON(RELATIVE, 0, "relative", "relative_"),
    ON(MODIFIER, 0, "modify", "modif"),
    ON(ELEMENTWISE, 0, "normaliser=sigmoid shift=-0.5", "score.normaliser"),
    ON(ELEMENTWISE, 0, "normaliser=relu", "score.normaliser"),
    ON(DROPOUT, 0, "dropout=0.4", "dropout"),
    ON(DROPOUT, 0, "dropout=0.25 +given", "dropout"),
    ON(BLOCKS, 0, "block=5,8/0.4", "block"),
    ON(BLOCKS, 0, "+lists", "block"),
    ON(HEAD_LISTS, 0, "+head_lists", "block"),
    ON(CHOICES, 0, "+choices", "block"),
    ON(TREE, 0, "+tree", "tree"),
    ON(DILATION, 0, "+dilation", "dilat"),
    ON(GLOBAL, ATTN_USES(WINDOW), "window=3,2 +global", "global"),
    ON(GLOBAL, ATTN_USES(DILATION), "+dilation +global", "global"),
    ON(UNIFORM, 0, "empty=uniform", "mask.empty"),
    ON(UNIFORM, ATTN_USES(MASK), "empty=uniform mask=0.97/h1", "mask.empty"),
    ON(PAIRS, 0, ">weights", "weights"),
    ON(PAIRS, 0, ">scores", "scores"),
    ON(PAIRS, 0, "rows", "visit_rows"),
    ON(ROWS, 0, ">row_max", "row_max"),
    ON(ROWS, 0, ">entropy", "entropy"),
    ON(ROWS, 0, ">effective_keys", "effective_keys"),
    ON(ROWS, 0, ">topk_weight", "topk_weight"),
    ON(COLUMNS, 0, ">column_sum", "column_sum"),
    ON(KEEP, 0, ">dropout_keep", "dropout_keep"),
    ON(CAUSAL, 0, "causal", "causal"),
    ON(ALIGNED, ATTN_USES(CAUSAL), "causal=bottom-right", "causal"),
    ON(ALIGNED, ATTN_USES(CAUSAL), "causal offset", "causal"),
    ON(ORIGIN, 0, "+part", "origin"),
    ON(WINDOW, 0, "window=6,9", "window"),
    ON(WINDOW, 0, "window=-1,4", "window"),
    ON(CHUNK, 0, "chunk=7", "chunk"),
    ON(LEAST_DISTANCE, 0, "+distant", "least_distance"),
    ON(LENGTHS, 0, "lens +full", "lengths"),
    ON(LENGTHS, 0, "lens=kv +full", "lengths"),
    ON(PACKED, 0, "packed +full", "cu_seqlens"),
    ON(RAGGED, 0, "ragged +full", "cu_seqlens"),
    ON(RAGGED, ATTN_USES(LENGTHS), "ragged lens=kv +full", "cu_seqlens"),
    ON(PAGED, 0, "+pages", "page"),
    ON(PAGED, 0, "+page_lists", "page"),
    ON(MASK, 0, "mask=0.3", "mask"),
    ON(MASK, 0, "mask=0.3/h1q1", "mask"),
    ON(RANGES, 0, "+ranges", "ranges"),
    ON(BIAS, 0, "bias", "bias"),
    ON(BIAS, 0, "bias=b1h1", "bias"),
    ON(BIAS_TABLE, 0, "table", "bias_table"),
    ON(ALIBI, 0, "alibi", "alibi_slopes"),
    ON(ALIBI, 0, "alibi=batch-head", "alibi_slopes"),
    ON(SINK, 0, "sink", "sink"),
    ON(SINK, 0, "normaliser=softmax-one", "sink"),
    ON(SOFTCAP, 0, "softcap=1.5", "softcap"),
    ON(SCALES, 0, "scale=heads", "scale"),
    ON(QUANTISED, 0, "+integers", "quantised"),
    ON(QUANTISED, 0, "+blocks", "quantised"),
    ON(GROUPS, 0, "grouped", "heads"),
    ON(LSE_GRADIENT, 0, ">grad_lse", "grad_lse"),
    ON(BIAS_GRADIENT, ATTN_USES(BIAS), "bias >grad_bias", "grad_bias"),
    ON(BIAS_GRADIENT, ATTN_USES(BIAS), "bias=b1q1 >grad_bias", "grad_bias"),
    ON(BIAS_GRADIENT, ATTN_USES(BIAS_TABLE), "table >grad_bias_table", "grad_bias_table"),
    ON(BIAS_GRADIENT, ATTN_USES(BIAS), "bias=h1 >second_bias", "second_bias"),
    ON(HEAD_GRADIENTS, 0, ">grad_scale", "grad_scale"),
    ON(HEAD_GRADIENTS, ATTN_USES(SINK), "sink >grad_sink", "grad_sink"),
    ON(HEAD_GRADIENTS, ATTN_USES(ALIBI), "alibi >grad_alibi_slopes", "grad_alibi_slopes"),
    ON(MATRIX_GRADIENT, ATTN_USES(PREPARED), "kind=1 >grad_score_matrix", "grad_score_matrix"),
    ON(MATRIX_GRADIENT, ATTN_USES(PREPARED), "kind=2 >grad_score_matrix", "grad_score_matrix"),
    ON(MATRIX_GRADIENT, ATTN_USES(ADDITIVE), "kind=5 >grad_score_matrix", "grad_score_matrix"),
    ON(RELATIVE_GRADIENT, ATTN_USES(RELATIVE),
       "relative >grad_relative_keys >grad_relative_values >grad_relative_u >grad_relative_v", "grad_relative_"),
};
enum { WAYS = sizeof ways / sizeof *ways };

const char *feature_name(int bit)
{
    static const char *const names[] = {
#define FEATURE(name, used, sentence) #name,
#include "base/features.def"
#undef FEATURE
    };
    return names[bit];
}

const feature_way *feature_at(int bit, int n)
{
    for (int i = 0; i < WAYS; i++)
        if (ways[i].bit == bit && n-- == 0) return &ways[i];
    return NULL;
}

int feature_ways(int bit)
{
    int n = 0;
    while (feature_at(bit, n)) n++;
    return n;
}

/* ---- words ---- */

typedef struct request {
    problem_spec spec;
    int flags, kind, grouped, invariant, reproducible, visits;
    unsigned char requested[TENSORS];
} request;

enum { OF_LISTS = LISTS | HEAD_LISTS | CHOICES }; /* steps that set block_starts */

/* Two words set the same choice. */
static attn_status choose_twice(const char *word, attn_error *error)
{
    (void)snprintf(error->message, sizeof error->message, "%s is chosen twice", word);
    return ATTN_ERR_ARGUMENT;
}

static attn_status add_word(request *r, const char *word, attn_error *error)
{
    char name[40];
    const char *value = strchr(word, '=');
    const int step = combination_step(word), t = *word == '>' ? tensors_find(word + 1) : 0;
    assert_true(t >= 0);
    if (strncmp(word, "kind=", 5) == 0 && r->kind && r->kind != atoi(word + 5)) return choose_twice(word, error);
    if (strncmp(word, "normaliser", 10) == 0 && (r->spec.normaliser || r->spec.sink)) return choose_twice(word, error);
    if (strcmp(word, "packed") == 0 && r->spec.ragged) return choose_twice(word, error);
    if (strcmp(word, "ragged") == 0 && r->spec.packed) return choose_twice(word, error);
    if (strcmp(word, "sink") == 0 && r->spec.normaliser) return choose_twice(word, error);
    if (step & OF_LISTS && (r->flags & OF_LISTS || r->spec.block_q)) return choose_twice(word, error);
    if (step) r->flags |= step;
    else if (*word == '>') r->requested[t] = 1;
    else if (strcmp(word, "grouped") == 0) r->grouped = 1;
    else if (strcmp(word, "invariant") == 0) r->invariant = 1;
    else if (strcmp(word, "reproducible") == 0) r->reproducible = 1;
    else if (strcmp(word, "rows") == 0) r->visits = 1;
    else if (strncmp(word, "kind=", 5) == 0) r->flags |= KIND, r->kind = atoi(word + 5);
    else {
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
        return problem_set(&r->spec, name, value ? value + 1 : NULL, error);
    }
    return ATTN_OK;
}

static attn_status add_words(request *r, const char *words, attn_error *error)
{
    char text[160], *rest = text;
    attn_status status = ATTN_OK;
    assert_true(strlen(words) < sizeof text);
    strcpy(text, words);
    for (char *word; status == ATTN_OK && (word = strtok_r(rest, " ", &rest));) status = add_word(r, word, error);
    return status;
}

/* Adds the sizes and the seed to the spec; an error if the result is not a valid problem. */
static attn_status finish(request *r, const feature_sizes *sizes, attn_dtype dtype, uint64_t seed, attn_error *error)
{
    problem_spec sized;
    attn_problem problem;
    attn_tensors tensors;
    char text[200];
    (void)snprintf(text, sizeof text, "%s:%s", attn_dtype_name(dtype), r->grouped ? sizes->grouped : sizes->plain);
    if (problem_parse(text, &sized, error) != ATTN_OK) fail_msg("%s: %s", text, error->message);
    if (r->flags & IN_BLOCKS) { /* whole ones */
        sized.shape.dim_qk = (sized.shape.dim_qk + ATTN_BLOCK - 1) / ATTN_BLOCK * ATTN_BLOCK;
        sized.shape.dim_v = (sized.shape.dim_v + ATTN_BLOCK - 1) / ATTN_BLOCK * ATTN_BLOCK;
    }
    r->spec.shape = sized.shape, r->spec.dtype = sized.dtype;
    r->spec.seed =
        ATTN_SCORE_ADDITIVE * seed + (uint64_t)(r->kind ? r->kind - ATTN_SCORE_GENERAL : 0); /* the seed selects the kind */
    const attn_status status = problem_check(&r->spec, error);
    return status == ATTN_OK ? problem_build(&r->spec, &problem, &tensors, error) : status;
}

int feature_combination(combination *c, const feature_sizes *sizes, attn_dtype dtype, const feature_way *const *chosen, int count,
                        uint64_t seed, attn_error *error)
{
    request r = {.flags = seed % 2 ? FINITE : 0};
    attn_status status = ATTN_OK;
    problem_init(&r.spec);
    for (int n = 0; n < count && status == ATTN_OK; n++) status = add_words(&r, chosen[n]->words, error);
    if (status == ATTN_OK) status = finish(&r, sizes, dtype, seed, error);
    if (status != ATTN_OK) return 0;
    combination_of(c, &r.spec, r.flags);
    c->chooses = 1, c->invariant = r.invariant, c->reproducible = r.reproducible, c->visits = r.visits;
    memcpy(c->requested, r.requested, sizeof c->requested);
    c->problem.outputs.topk = r.requested[TENSOR(topk_weight)] ? 3 : 0;
    c->problem.outputs.scores_stage = ATTN_STAGE_BIASED, c->problem.outputs.rows_stage = ATTN_STAGE_WEIGHTS;
    if (r.visits) c->call.visit_rows = outcome_visit;
    if (!r.requested[TENSOR(grad_lse)]) combination_drop(c, TENSOR(grad_lse));
    for (int t = TENSOR(grad_relative_keys); t <= TENSOR(grad_relative_v); t++) /* only some of these are drawn */
        c->requested[t] &= (unsigned char)tensors_has(&c->tensors, tensors_about(t)->gradient_of);
    for (int t = 0; t < TENSORS; t++)
        if (c->requested[t]) combination_say(c, tensors_about(t)->name);
    if (r.invariant) combination_say(c, "invariant");
    if (r.reproducible) combination_say(c, "reproducible");
    if (r.visits) combination_say(c, "rows");
    return 1;
}
