/* SPDX-License-Identifier: MIT
 *
 * roles.c - what a tensor is for: its name in files, and the flag that chooses another. */
#include "roles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "testing/problem/linear_tensors.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

/* The roles that have flags, in the order of --help. */
static const struct {
    int role;
    const char *help;
} table[] = {
    {TENSOR(q), "the queries (default q)"},
    {TENSOR(k), "the keys (default k)"},
    {TENSOR(v), "the values (default v)"},
    {TENSOR(mask), "a mask of 0 and 1, 1 = keep (default mask)"},
    {TENSOR(bias), "an additive bias (default bias)"},
    {TENSOR(lengths_q), "number of real queries of each batch entry"},
    {TENSOR(lengths_kv), "number of real keys of each entry (or: lengths)"},
    {TENSOR(offset_q), "position of query 0 among the keys; or a number"},
    {TENSOR(alibi_slopes), "ALiBi slopes of each head, or batch entry and head"},
    {TENSOR(bias_table), "table of a bias by distance, for --t5 or --clipped"},
    {TENSOR(relative_keys), "rows by distance, for --rel"},
    {TENSOR(relative_values), "the same for values, for --rel=shaw-values/DISTANCE"},
    {TENSOR(relative_u), "a vector of each head, for --rel=xl"},
    {TENSOR(relative_v), "the same for positions, for --rel=xl"},
    {TENSOR(sink), "a score of each head that joins the denominator"},
    {TENSOR(scale), "the scale of each head; or a number (1/sqrt(width))"},
    {TENSOR(score_matrix), "weights of --score=general, metric, additive (default w)"},
    {TENSOR(block_mask), "a block mask, 1 = keep; needs --block"},
    {TENSOR(dropout_given), "a dropout mask, 1 = keep, instead of drawing one"},
    {TENSOR(cu_seqlens_q), "where packed sequences begin; [sequences + 1]"},
    {TENSOR(cu_seqlens_kv), "the same for their keys"},
    {TENSOR(grad_o), "the gradient of o, for --backward (default do)"},
    {TENSOR(grad_lse), "the gradient of lse, for --backward"},
    {TENSOR(tan_q), "the tangent of q, for --jvp"},
    {TENSOR(tan_k), "the tangent of k, for --jvp"},
    {TENSOR(tan_v), "the tangent of v, for --jvp"},
    {TENSOR(tan_bias), "the tangent of the bias, for --jvp"},
    {ROLE_POSITIONS_Q, "positions of the queries, for --rope"},
    {ROLE_POSITIONS_KV, "the same for the keys"},
    {TENSOR(k_scale), "scales of i8 keys, one for each row"},
    {TENSOR(v_scale), "the same for i8 values"},
};
enum { FLAGS = sizeof table / sizeof *table };

/* Second names of flags.  Those of masks are named after their slot, since the name in files is an output's too or is less clear;
 * the latter is accepted, but not in --help. */
static const struct {
    int role;
    const char *flag, *file_flag, *argument, *help;
} slots[] = {
    {TENSOR(q), "query", "q", "NAME", "short for --query"},
    {TENSOR(k), "key", "k", "NAME", "short for --key"},
    {TENSOR(v), "value", "v", "NAME", "short for --value"},
    {TENSOR(block_mask), "block-mask", "blocks", "NAME", NULL},
    {TENSOR(dropout_given), "dropout-given", "dropout-keep",
     "NAME, a mask to drop by, as --dropout-given; --dropout-mask writes what is drawn", NULL},
};
enum { SLOTS = sizeof slots / sizeof *slots };

static const char before_dropout[] = "weights are taken before dropout", of_keys[] = "weights do not depend on values";
const option_lacked role_lacked_of_weights[] = {{"dropout", before_dropout},      {"dropout-given", before_dropout},
                                                {"dropout-keep", before_dropout}, {"v-scale", of_keys},
                                                {"relative-values", of_keys},     {0}};
const option_lacked role_lacked_of_analysis[] = {{"dropout", before_dropout}, {0}};

const char *role_name(int role)
{
    return role == ROLE_POSITIONS_Q ? "positions_q" : role == ROLE_POSITIONS_KV ? "positions_kv" : tensors_file_name(role);
}

const char *role_flag(int role)
{
    static char flags[ROLES][32];
    int row = 0;
    while (row < FLAGS && table[row].role != role) row++;
    if (row == FLAGS) return NULL;
    if (role <= TENSOR(v)) return role == TENSOR(q) ? "query" : role == TENSOR(k) ? "key" : "value";
    for (int k = 0; k < SLOTS; k++)
        if (slots[k].role == role) return slots[k].flag;
    snprintf(flags[role], sizeof flags[role], "%s", role_name(role));
    for (char *at = flags[role]; *at; at++)
        if (*at == '_') *at = '-';
    return flags[role];
}

int role_without_flag(int role)
{
    return role < TENSORS && !role_flag(role) && tensors_about(role)->role[ATTN_FORWARD] == ATTN_ROLE_INPUT;
}

int role_used_by(int role, int op)
{
    static const attn_op ops[] = {
        [SPEC_BACKWARD] = ATTN_BACKWARD, [SPEC_JVP] = ATTN_JVP, [SPEC_DOUBLE_BACKWARD] = ATTN_DOUBLE_BACKWARD};
    if (role >= TENSORS || tensors_about(role)->role[ATTN_FORWARD] == ATTN_ROLE_INPUT) return 1;
    return op > SPEC_FORWARD && op <= SPEC_DOUBLE_BACKWARD && tensors_about(role)->role[ops[op]] == ATTN_ROLE_INPUT;
}

/* "inf" and "nan" too, so that they are rejected as numbers and not reported as missing tensors. */
static int is_number(const char *text)
{
    char *end;
    strtod(text, &end);
    return *text && !*end;
}

static attn_status set_role(void *target, const char *flag, const char *value, attn_error *error)
{
    input_settings *settings = target;
    const char *name = flag;
    int64_t number;
    for (int k = 0; k < SLOTS; k++) {
        const int by_file = strcmp(flag, slots[k].file_flag) == 0;
        if (!by_file && strcmp(flag, slots[k].flag) != 0) continue;
        if (settings->chosen[slots[k].role] && settings->by_file[slots[k].role] != by_file)
            return failure(error, ATTN_ERR_ARGUMENT, "%s: --%s already names the tensor; use --%s alone", flag,
                           by_file ? slots[k].flag : slots[k].file_flag, slots[k].flag);
        settings->by_file[slots[k].role] = by_file;
        name = slots[k].flag;
    }
    for (int n = 0; n < FLAGS; n++) {
        const int r = table[n].role;
        if (strcmp(name, role_flag(r)) != 0) continue;
        if (r == TENSOR(offset_q) && option_int(name, value, INT64_MIN, INT64_MAX, &number, NULL) == ATTN_OK)
            return problem_set(&settings->spec, name, value, error);
        if (r == TENSOR(scale) && is_number(value)) return problem_set(&settings->spec, name, value, error);
        settings->chosen[r] = value;
    }
    return ATTN_OK;
}

/* 1 if a role has this name, in files or of its slot, in either kind of attention; also one that no flag gives (find.c). */
static int is_role(const char *name)
{
    for (int r = 0; r < ROLES; r++)
        if ((role_flag(r) || role_without_flag(r)) &&
            (strcmp(name, role_name(r)) == 0 || (r < TENSORS && strcmp(name, tensors_about(r)->name) == 0)))
            return 1;
    for (int t = 0; t < LINEARS; t++)
        if (strcmp(name, linear_file_name(t)) == 0 || strcmp(name, linear_about(t)->name) == 0)
            return linear_about(t)->role[ATTN_FORWARD] == ATTN_ROLE_INPUT ||
                   linear_about(t)->role[ATTN_BACKWARD] == ATTN_ROLE_INPUT;
    return 0;
}

attn_status role_reject_ignored(const char *name, int (*has)(int role), attn_error *error)
{
    char hint[100], names[140] = "";
    const char *more = "";
    nearest near;
    nearest_init(&near, name);
    for (int n = 0; n < FLAGS; n++) {
        const char *known = role_name(table[n].role);
        if (has && !has(table[n].role)) continue;
        nearest_offer(&near, known);
        if (strlen(names) + 24 >= sizeof names) more = ", ...";
        else if (n > 2)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? ", " : "", known); /* not q, k, v */
    }
    for (int t = LINEAR(feature_matrix); !has && t <= LINEAR(initial_sum); t++) nearest_offer(&near, linear_file_name(t));
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "ignore: no tensor '%.30s' can be left out%s; known: %s%s", name, hint, names, more);
}

static attn_status set_ignore(void *target, const char *name, const char *value, attn_error *error)
{
    (void)name;
    input_settings *settings = target;
    if (!is_role(value)) return role_reject_ignored(value, NULL, error);
    settings->ignored[settings->ignored_count++] = value;
    settings->ignored[settings->ignored_count] = NULL;
    return ATTN_OK;
}

static attn_status set_dtype(void *target, const char *name, const char *value, attn_error *error)
{
    input_settings *settings = target;
    settings->has_dtype = 1;
    return problem_set(&settings->spec, name, value, error);
}

static attn_status set_block(void *target, const char *name, const char *value, attn_error *error)
{
    if (strchr(value, '/')) /* a share to drop is for randomly drawn problems */
        return failure(error, ATTN_ERR_ARGUMENT, "block: '%.40s' is not Q,K (two integers above 0)", value);
    return problem_set(&((input_settings *)target)->spec, name, value, error);
}

static attn_status set_alibi(void *target, const char *name, const char *value, attn_error *error)
{
    return problem_set(&((input_settings *)target)->spec, name, value, error);
}

attn_status role_set_pairs(void *target, const char *name, const char *value, attn_error *error)
{
    const int halves = strcmp(value, "halves") == 0;
    *(attn_rope_pairs *)target = halves ? ATTN_ROPE_PAIRS_HALVES : ATTN_ROPE_PAIRS_INTERLEAVED;
    if (halves || strcmp(value, "interleaved") == 0) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not interleaved or halves", name, value);
}

static attn_status set_rope(void *target, const char *name, const char *value, attn_error *error)
{
    input_settings *settings = target;
    attn_rope *rope = &settings->rope;
    rope->struct_size = sizeof *rope;
    settings->rope_word = name + strlen("rope-");
    if (strcmp(name, "rope-channels") == 0) return option_int(name, value, 2, INT64_MAX, &rope->dim_rotary, error);
    if (strcmp(name, "rope-pairs") == 0) return role_set_pairs(&rope->pairs, name, value, error);
    return option_real(name, value, 1, 0, &rope->base, error);
}

attn_status role_read_scaling(const char *name, const char *value, attn_rope_scaling *s, attn_error *error)
{
    static const char *const kinds[] = {"linear", "ntk", "ntk-dynamic", "yarn", "llama3"};
    const char *slash = strchr(value, '/');
    const size_t length = strcspn(value, "/");
    char *end = NULL;
    int kind = 0;
    while (kind < 5 && (strlen(kinds[kind]) != length || strncmp(kinds[kind], value, length) != 0)) kind++;
    *s = (attn_rope_scaling){.struct_size = sizeof *s, .kind = (attn_rope_scaling_kind)kind};
    if (slash) s->factor = strtod(slash + 1, &end);
    const int needs_length = kind >= ATTN_ROPE_SCALING_NTK_DYNAMIC, has_length = slash && *end == '/';
    if (has_length) s->original_length = strtoll(end + 1, &end, 10);
    if (kind < 5 && slash && strspn(slash, "/+-.0123456789eE") == strlen(slash) && !*end && s->factor >= 1 &&
        s->factor < HUGE_VAL && has_length == needs_length && (!has_length || s->original_length > 0))
        return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT,
                   "%s: '%.40s' is not linear/F, ntk/F, ntk-dynamic/F/L, yarn/F/L or llama3/F/L, with a factor F of at least 1 and "
                   "the trained length L, an integer above 0",
                   name, value);
}

static attn_status set_scaling(void *target, const char *name, const char *value, attn_error *error)
{
    input_settings *settings = target;
    settings->rope_word = name + strlen("rope-");
    return role_read_scaling(name, value, &settings->stretched, error);
}

static const option_row other_rows[] = {
    {"ignore", 0, "NAME", "leave this tensor out (may be repeated)", CALL(set_ignore)},
    {"mask-drop", 0, NULL, "in the mask, 1 = hide (as in nn.MultiheadAttention)", FLAG(input_settings, mask_drop)},
    {"block", 0, "Q,K", "queries and keys that an entry of blocks covers", CALL(set_block)},
    {"alibi", 0, NULL, "ALiBi; without slopes, with the published ones", CALL(set_alibi)},
    {"dtype", 0, "TYPE", "convert q, k and v first: f64, f32, f16, bf16, int8", CALL(set_dtype)},
    {"tokens", 0, "FILE", "one token per line (default: the metadata's)", TEXT(input_settings, tokens)},
    {"rope-pairs", 0, "KIND", "channels of a pair: interleaved (default) or halves", CALL(set_rope)},
    {"rope-channels", 0, "N", "rotate the first N channels (default: all)", CALL(set_rope)},
    {"rope-base", 0, "B", "base of the rotation frequencies (default: 10000)", CALL(set_rope)},
    {"rope-scaling", 0, "HOW", "linear/F, ntk/F, ntk-dynamic/F/L, yarn/F/L, llama3/F/L", CALL(set_scaling)},
};
enum { OTHERS = sizeof other_rows / sizeof *other_rows };

/* --query NAME and its like, --ignore, --dtype, --tokens; the target is an input_settings.  A static table. */
static const option_row *role_options(problem_word_flag words)
{
    static option_row rows[FLAGS + OTHERS + SLOTS + 1];
    option_row *row = rows;
    for (int n = 0; n < FLAGS; n++) {
        const int used = words == FLAG_OUTPUT || role_used_by(table[n].role, SPEC_FORWARD); /* only `run` has gradients */
        *row = (option_row){role_flag(table[n].role), 0, "NAME", table[n].help, CALL(set_role)};
        row->hidden = !used;
        row++->stands_in = table[n].role == TENSOR(q);
    }
    for (int n = 0; n < OTHERS; n++) *row++ = other_rows[n];
    for (int n = 0; n < SLOTS; n++)
        *row++ = (option_row){slots[n].file_flag,
                              0,
                              slots[n].argument,
                              slots[n].help,
                              CALL(set_role),
                              .hidden = !slots[n].help,
                              .stands_in = slots[n].role == TENSOR(q)};
    return rows;
}

enum { OWN_GROUPS = 5 /* the input and its mechanism are two more, of the seven that options_begin takes */ };

int input_command(const command_usage *usage, const option_group *groups, problem_word_flag words, int argc, char **argv,
                  input_settings *in, input_use *use, const void *own)
{
    option_group all[OWN_GROUPS + 3] = {{0}};
    attn_error error;
    int n = 0, operand;
    *in = (input_settings){.ignored = need_memory(argc + 1, sizeof *in->ignored)};
    in->ignored[0] = NULL;
    problem_init(&in->spec);
    for (; n < OWN_GROUPS && groups[n].rows; n++) all[n] = groups[n];
    all[n++] = (option_group){"Input; a NAME may be numbers ('1 0; 0 1'), @FILE (.csv, .json, .npy) or - (standard input)",
                              role_options(words), in};
    all[n] = (option_group){"Mechanism, in the words of problem strings", problem_options(words), &in->spec};
    int exit = options_begin(usage, all, &in->common, argc, argv, 1, &operand);
    in->spec.seed = in->common.seed;
    if (exit < 0) exit = command_end(use(argv[operand], own, in, &error), usage->name, NULL, &error);
    free(in->ignored);
    return exit;
}
