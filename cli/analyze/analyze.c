/* SPDX-License-Identifier: MIT
 *
 * analyze.c - `attn analyze`: how concentrated and how diverse the heads of a file are, and the norms of all gradients; states.c
 * has what needs the scores themselves. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/analysis.h"
#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/base/progress.h"
#include "cli/compute/weights.h"
#include "cli/input/input.h"
#include "cli/input/labels.h"
#include "maps.h"
#include "roles.h"
#include "states.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

static const command_usage usage = {
    .name = "analyze",
    .synopsis = "IN [options]",
    .summary = "Prints, for each layer and head, how concentrated the weights are: entropy, effective\n"
               "number of keys, largest weight, mutual information of queries and keys; and for each\n"
               "layer how much its heads differ. The weights are computed from q and k of IN, or are\n"
               "those that a file without q has, as `attn run --weights` and `attn layer --weights`\n"
               "write it. --roles adds what each head does.\n",
    .notes = "Means are over the queries with a weight above 0. Entropies are in nats; `normalised`\n"
             "is the entropy over the logarithm of the number of keys. --temperature shows the effect\n"
             "of another temperature. Where the weights of a query are not a distribution, with another\n"
             "normaliser or a sink, their sum takes the place of the entropy and what follows from it.\n"
             "\n"
             "--roles: means over the rows where such a key exists, whose number is in the line `rows`;\n"
             "`uniform` is what a head scores whose rows are uniform. From 8 rows on, a head is named by\n"
             "a role if it puts half of its weight there (0.3 for a sink). --content leaves separators\n"
             "out, and divides each row by the rest of its sum.\n"
             "\n"
             "--rollout and --flow write how much of each input token is in a token after a layer, the\n"
             "product of the layers' weights and the maximum flow through them, with half of the weight\n"
             "on the token itself; --gradient-weighted the weights times their gradients, from\n"
             "`dweights`, or `do` and `v`, of IN. attn view, top and plot show these files.\n"
             "\n"
             "--states treats the weights of a query as a Gibbs distribution at the temperature T of\n"
             "its softmax, with energies -scores: log partition log Z, free energy -T log Z, mean\n"
             "energy, entropy, heat capacity; the divergence of the weights from uniform ones; and\n"
             "the response, the trace of the Jacobian of weights by scores; means over the queries.\n"
             "--gradients adds the norms of all gradients of |o|^2/2 on the way to q, k and v, and\n"
             "checks some of them against finite differences. --states, --sweep, --steps and\n"
             "--gradients compute in f64 and need memory for queries x keys; --states and --sweep\n"
             "are for a softmax without a sink.\n"
             "\n"
             "Examples:\n"
             "  attn analyze sentence.safetensors\n"
             "  attn analyze sentence.safetensors --roles --content\n"
             "  attn analyze sentence.safetensors --rollout=rollout.safetensors\n"
             "  attn analyze sentence.safetensors --temperature=0.5 --json\n"
             "  attn analyze sentence.safetensors --states --sweep=0.25,0.5,1,2,4\n"
             "  attn analyze sentence.safetensors --steps=steps.safetensors\n"
             "  attn analyze layer.safetensors --gradients --causal\n",
    .operands = {"input file"},
    .example = "attn analyze IN.safetensors",
    .without = "seed",
    .lacks = role_lacked_of_analysis,
    .more = roles_print,
};

typedef struct analyze_settings {
    int gradients;
    states_settings states;
    roles_settings roles;
    maps_settings maps;
} analyze_settings;

static const option_row analyze_options[] = {
    {"roles", 0, NULL, "what each head does: previous token, separators, induction ...", FLAG(analyze_settings, roles.roles)},
    {"content", 0, NULL, "roles as if separators were not there", FLAG(analyze_settings, roles.content)},
    {"rollout", 0, "FILE", "write attention rollout, a map for each layer",
     OUTPUT(analyze_settings, maps.rollout, ".safetensors or .npz")},
    {"flow", 0, "FILE", "write attention flow from the last layer to the input",
     OUTPUT(analyze_settings, maps.flow, ".safetensors or .npz")},
    {"gradient-weighted", 0, "FILE", "write weights times their gradients, where above 0",
     OUTPUT(analyze_settings, maps.gradient, ".safetensors or .npz")},
    {"states", 0, NULL, "log partition, energies, heat capacity ... of each head", FLAG(analyze_settings, states.states)},
    {"sweep", 0, "T,T,...", "the entropy of each head at these temperatures",
     CALL_ON(states_set_temperatures, analyze_settings, states)},
    {"steps", 0, "FILE", "write raw, scores, weights, partition, o: .safetensors or .npz",
     OUTPUT(analyze_settings, states.steps, ".safetensors or .npz")},
    {"gradients", 0, NULL, "norms of all gradients, some checked by finite differences", FLAG(analyze_settings, gradients)},
    {0},
};

/* ---- heads ---- */

/* A number of a head: its name in JSON, and the heading of its column, which is as wide. */
typedef struct statistic {
    const char *name, *heading;
    int digits;
} statistic;

enum { STATISTICS = 5 };

static const statistic of_distributions[STATISTICS + 1] = {{"entropy", "entropy", 3},
                                                           {"normalised_entropy", "normalised", 3},
                                                           {"effective_keys", "effective keys", 2},
                                                           {"largest_weight", "largest", 3},
                                                           {"mutual_information", "information", 3}};
/* of weights that do not sum to 1 */
static const statistic of_numbers[] = {{"row_sum", "row sum", 3}, {"largest_weight", "largest", 3}, {0}};

/* Sums over the rows of one layer and entry. */
typedef struct sums {
    int64_t heads, len_kv;
    int64_t *rows;                         /* [heads] that see a key */
    double *entropy, *effective, *largest; /* [heads] */
    double *mean;                          /* [heads][len_kv] */
    double *dots;                          /* [heads][heads] between weights */
    double *row;                           /* [len_kv] */
} sums;

static sums sums_make(int64_t heads, int64_t len_kv)
{
    sums s = {heads,
              len_kv,
              need_memory(heads, sizeof *s.rows),
              need_memory(heads, sizeof *s.entropy),
              need_memory(heads, sizeof *s.effective),
              need_memory(heads, sizeof *s.largest),
              need_memory(heads * len_kv, sizeof *s.mean),
              need_memory(heads * heads, sizeof *s.dots),
              need_memory(len_kv, sizeof *s.row)};
    return s;
}

static void sums_free(sums *s)
{
    free(s->rows), free(s->entropy), free(s->effective), free(s->largest), free(s->mean), free(s->dots), free(s->row);
}

static void sums_clear(sums *s)
{
    for (int64_t h = 0; h < s->heads; h++) s->rows[h] = 0, s->entropy[h] = s->effective[h] = s->largest[h] = 0;
    for (int64_t n = 0; n < s->heads * s->len_kv; n++) s->mean[n] = 0;
    for (int64_t n = 0; n < s->heads * s->heads; n++) s->dots[n] = 0;
}

/* The weights of one query, [heads][len_kv]. */
static void sums_add(sums *s, const float *weights)
{
    for (int64_t h = 0; h < s->heads; h++) {
        const float *w = weights + h * s->len_kv;
        double largest = 0;
        for (int64_t j = 0; j < s->len_kv; j++) {
            s->row[j] = (double)w[j];
            s->mean[h * s->len_kv + j] += (double)w[j];
            if ((double)w[j] > largest) largest = (double)w[j];
        }
        for (int64_t g = 0; g <= h; g++)
            for (int64_t j = 0; j < s->len_kv; j++) s->dots[h * s->heads + g] += (double)w[j] * (double)weights[g * s->len_kv + j];
        if (!(largest > 0)) continue; /* sees nothing */
        s->rows[h]++;
        s->entropy[h] += attn_entropy(s->len_kv, s->row);
        s->effective[h] += attn_effective_states(s->len_kv, s->row);
        s->largest[h] += largest;
    }
}

/* The values of of_distributions, or of of_numbers: means over the rows. */
static void values_of(sums *s, int64_t h, int distribution, double out[STATISTICS])
{
    const double rows = s->rows[h] ? (double)s->rows[h] : 1, entropy = s->entropy[h] / rows, largest = s->largest[h] / rows;
    double sum = 0;
    for (int64_t j = 0; j < s->len_kv; j++) sum += s->row[j] = s->mean[h * s->len_kv + j] / rows;
    const double of_mean = attn_entropy(s->len_kv, s->row), most = s->len_kv > 1 ? attn_max_entropy(s->len_kv) : 1;
    const double all[] = {entropy, entropy / most, s->effective[h] / rows, largest, fmax(0, of_mean - entropy)};
    memcpy(out, distribution ? all : (double[STATISTICS]){sum, largest}, sizeof all);
}

/* As attn_head_diversity, from the products of the heads. */
static double diversity_of(const sums *s)
{
    double cosines = 0;
    for (int64_t h = 0; h < s->heads; h++)
        for (int64_t g = 0; g < h; g++) {
            double size = sqrt(s->dots[h * s->heads + h] * s->dots[g * s->heads + g]);
            if (size > 0) cosines += s->dots[h * s->heads + g] / size;
        }
    return s->heads > 1 ? 1 - cosines / ((double)s->heads * (double)(s->heads - 1) / 2) : 0;
}

typedef struct printer {
    cJSON *heads, *layers; /* NULL: a table */
    int distribution;      /* 1: the weights of a query that sees a key sum to 1 */
} printer;

static const statistic *statistics_in(const printer *out) { return out->distribution ? of_distributions : of_numbers; }

static void print_heading(const printer *out, const labels *l)
{
    printf("%slayer  head", l->entries > 1 ? "entry  " : "");
    for (const statistic *n = statistics_in(out); n->name; n++) printf("  %s", n->heading);
    printf("\n");
}

static void print_layer(const printer *out, const labels *l, int64_t layer, int64_t entry, sums *s)
{
    const double diversity = diversity_of(s);
    for (int64_t h = 0; h < s->heads; h++) {
        double value[STATISTICS], *at = value;
        values_of(s, h, out->distribution, value);
        if (out->heads) {
            cJSON *item = json_item(out->heads);
            if (l->entries > 1) json_int(item, "entry", entry);
            json_int(item, "layer", l->layer_number[layer]);
            json_int(item, "head", h);
            for (const statistic *n = statistics_in(out); n->name; n++) json_number(item, n->name, *at++);
        } else {
            if (l->entries > 1) printf("%5" PRId64 "  ", entry);
            printf("%5" PRId64 "  %4" PRId64, l->layer_number[layer], h);
            for (const statistic *n = statistics_in(out); n->name; n++)
                printf("  %*.*f", (int)strlen(n->heading), n->digits, *at++);
            printf("\n");
        }
    }
    if (out->layers) {
        cJSON *item = json_item(out->layers);
        if (l->entries > 1) json_int(item, "entry", entry);
        json_int(item, "layer", l->layer_number[layer]);
        json_number(item, "head_diversity", diversity);
    } else {
        printf("%s%5" PRId64 "   all  head diversity %.3f\n", l->entries > 1 ? "       " : "", l->layer_number[layer], diversity);
    }
}

static attn_status analyze_heads(const attention_input *input, const labels *l, const printer *out, const common_settings *common,
                                 attn_error *error)
{
    const attn_shape *shape = &input->problem.shape;
    sums s = sums_make(shape->heads_q, shape->len_kv);
    float *weights = need_memory(shape->heads_q * shape->len_kv, sizeof *weights);
    weight_reader reader;
    progress bar;
    int64_t done = 0;
    attn_status status = weights_begin(&reader, input, 1, common, error);
    progress_begin(&bar, "weights", common->quiet);
    if (status == ATTN_OK && !out->heads) print_heading(out, l);
    for (int64_t e = 0; e < l->entries && status == ATTN_OK; e++)
        for (int64_t y = 0; y < l->layers && status == ATTN_OK; y++) {
            sums_clear(&s);
            for (int64_t i = 0; i < shape->len_q && status == ATTN_OK; i++) {
                status = weights_read(&reader, labels_batch(l, y, e), i, weights, error);
                if (status == ATTN_OK) sums_add(&s, weights);
            }
            if (status == ATTN_OK) print_layer(out, l, y, e, &s);
            progress_show(&bar, ++done, l->entries * l->layers);
        }
    progress_end(&bar);
    weights_end(&reader);
    free(weights);
    sums_free(&s);
    return status;
}

/* ---- gradients ---- */

static attn_status analyze_gradients(const attention_input *input, cJSON *object, attn_error *error)
{
    enum { CHECKED = 32 };
    attn_problem problem = input->problem;
    attn_tensors tensors = tensors_of_op(&input->tensors, ATTN_BACKWARD);
    const attn_shape *s = &problem.shape;
    attn_flow f = {.struct_size = sizeof f};
    attn_verification v = {.struct_size = sizeof v};
    double *o = need_memory(s->batch * s->heads_q * s->len_q * s->dim_v, sizeof *o);
    problem.op = ATTN_FORWARD;
    problem.dropout.probability = 0;
    tensors.o = (attn_output){o, ATTN_F64, {0, 0, 0, 0}};
    attn_status status = attn_gradient_flow(&problem, &tensors, &f, NULL, error);
    if (status == ATTN_OK) status = attn_verify_gradients(&problem, 0, CHECKED, &tensors, &v, NULL, error);
    const struct {
        const char *name;
        double norm;
    } norms[] = {{"do", f.norm_grad_o},           {"dweights", f.norm_grad_weights},
                 {"dscores", f.norm_grad_scores}, {"dq", f.norm_grad_q},
                 {"dk", f.norm_grad_k},           {"dv", f.norm_grad_v}};
    if (status == ATTN_OK && object) {
        cJSON *list = json_object(object, "gradient_norms"), *check = json_object(object, "verification");
        for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) json_number(list, norms[k].name, norms[k].norm);
        json_int(check, "checked", v.checked);
        json_number(check, "max_error", v.max_error);
        json_number(check, "relative_error", v.relative_error);
        json_number(check, "limit", v.limit);
        json_flag(check, "correct", v.correct);
    } else if (status == ATTN_OK) {
        printf("gradients of |o|^2 / 2\n");
        for (size_t k = 0; k < sizeof norms / sizeof *norms; k++)
            printf("  |%s|%*s%.6g\n", norms[k].name, 10 - (int)strlen(norms[k].name), "", norms[k].norm);
        printf("  %" PRId64 " elements against finite differences: largest error %.2g, limit %.2g: %s\n", v.checked, v.max_error,
               v.limit, v.correct ? "right" : "WRONG");
    }
    if (status == ATTN_OK && !v.correct)
        status = failure(error, ATTN_ERR_ARGUMENT, "gradients differ from finite differences by %g", v.max_error);
    free(o);
    return status;
}

/* ---- the command ---- */

/* Rejects flags of tensors that only --steps and --gradients read. */
static attn_status check_unused(const input_settings *in, attn_error *error)
{
    static const int unused[] = {TENSOR(v_scale), TENSOR(relative_values), TENSOR(dropout_given)};
    for (size_t k = 0; k < sizeof unused / sizeof *unused; k++)
        if (in->chosen[unused[k]])
            return failure(error, ATTN_ERR_ARGUMENT,
                           "--%s has no effect without --steps or --gradients: weights do not depend on it", role_flag(unused[k]));
    return ATTN_OK;
}

/* The flag that needs scores; NULL: none was given. */
static const char *scores_flag(const analyze_settings *s)
{
    return s->gradients ? "gradients" : s->states.states ? "states" : s->states.count ? "sweep" : s->states.steps ? "steps" : NULL;
}

/* Queries, keys, values and the gradient of the output, for a file that has no dweights. */
static attn_status load_gradients(attention_input *input, const char *path, const input_settings *in, attn_input *grad_o,
                                  attn_error *error)
{
    input_settings backward = *in;
    if (!input->file || !attn_archive_find(input->file, "do")) return ATTN_OK; /* an error of maps.c */
    input_free(input);
    backward.spec.op = SPEC_BACKWARD;
    const attn_status status = input_load(input, path, &backward, INPUT_VALUE_CUT, error);
    if (status != ATTN_OK) return status;
    *grad_o = input->tensors.grad_o;
    input->problem.op = ATTN_FORWARD;
    input->tensors = tensors_of_op(&input->tensors, ATTN_FORWARD);
    return ATTN_OK;
}

/* *grad_o: the gradient of the output, if it is used. */
static attn_status load(attention_input *input, const char *path, const analyze_settings *settings, input_settings *in,
                        attn_input *grad_o, attn_error *error)
{
    const int values = settings->gradients || settings->states.steps;
    const char *flag = scores_flag(settings);
    if (flag) in->has_dtype = 1, in->spec.dtype = SPEC_F64;
    attn_status status = flag ? input_load(input, path, in, values ? INPUT_VALUE_CUT : INPUT_NO_VALUE, error)
                              : input_load_weights(input, path, in, error);
    if (flag && status != ATTN_OK && input_has_weights_alone(input, in))
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.100s has weights and no q: --%s needs scores, which cannot be computed from weights", path, flag);
    if (status == ATTN_OK && settings->maps.gradient && !input->weights && input->file &&
        !attn_archive_find(input->file, "dweights"))
        status = load_gradients(input, path, in, grad_o, error);
    return status;
}

static attn_status analyze(const char *path, const void *own, input_settings *in, attn_error *error)
{
    const analyze_settings *settings = own;
    const common_settings *common = &in->common;
    const char *output = maps_output(&settings->maps) ? maps_output(&settings->maps) : settings->states.steps;
    attention_input input;
    attn_input grad_o = {0};
    labels l = {0};
    printer out = {NULL, NULL, 1};
    cJSON *object = NULL;
    attn_archive *file = NULL;
    attn_status status = settings->gradients || settings->states.steps ? ATTN_OK : check_unused(in, error);
    if (status == ATTN_OK) status = roles_check(&settings->roles, error);
    if (status == ATTN_OK) status = maps_check(&settings->maps, settings->states.steps, error);
    if (status != ATTN_OK) return status;
    status = load(&input, path, settings, in, &grad_o, error);
    if (status == ATTN_OK) status = input_check_output(&input, output, error);
    if (status == ATTN_OK && settings->gradients && in->spec.order)
        status = failure(error, ATTN_ERR_UNSUPPORTED, "--gradients takes [batch, head, token, channel], and no --layout=bshd");
    if (status == ATTN_OK) status = states_check(&settings->states, &input, error);
    if (status == ATTN_OK) status = labels_read(&l, &input, in->tokens, error);
    if (status == ATTN_OK) out.distribution = weights_are_distributions(&input);
    if (status == ATTN_OK && maps_output(&settings->maps))
        status = analyze_maps(&input, &l, &settings->maps, &grad_o, common, &file, error);
    if (status == ATTN_OK && common->json) {
        object = json_begin();
        command_json_warnings(object);
        out.heads = json_list(object, "heads");
        out.layers = json_list(object, "layers");
    }
    if (status == ATTN_OK) status = analyze_heads(&input, &l, &out, common, error);
    if (status == ATTN_OK && settings->roles.roles) status = analyze_roles(&input, &l, &settings->roles, common, object, error);
    if (status == ATTN_OK && states_requested(&settings->states))
        status = analyze_states(&input, &l, &settings->states, object, &file, error);
    if (status == ATTN_OK && settings->gradients) status = analyze_gradients(&input, object, error);
    if (status == ATTN_OK && object && maps_output(&settings->maps)) json_text(object, "map", output);
    char *json = status == ATTN_OK && object ? json_compose(object) : NULL;
    if (status != ATTN_OK) cJSON_Delete(object);
    status = file_finish(status, file, output, json, error);
    attn_archive_destroy(file);
    labels_free(&l);
    input_free(&input);
    return status;
}

int attn_cmd_analyze(int argc, char **argv)
{
    input_settings in;
    analyze_settings settings = {0};
    const option_group groups[] = {{"Analysis", analyze_options, &settings}, {0}};
    return input_command(&usage, groups, FLAG_INPUT, argc, argv, &in, analyze, &settings);
}
