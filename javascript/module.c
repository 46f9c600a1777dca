/* SPDX-License-Identifier: MIT
 *
 * module.c - the interface of attn.wasm: functions of numbers, addresses and words, which JavaScript calls without knowing the
 * layout of a struct.  A call is a problem with its tensors and its plan:
 *
 *      call = attn_js_create(op)
 *      attn_js_number(call, "heads_q", 8)      a field, by the name that Python has too; attn_js_word(call, "isa", "scalar")
 *      attn_js_tensor(call, index, ...)        a tensor by its number (attn_tensor_describe)
 *      attn_js_plan(call)                      attn_js_planned then says what outputs need
 *      attn_js_tensor(call, index, ...)        the outputs' addresses
 *      attn_js_run(call)
 *      attn_js_destroy(call)
 *
 * Functions that can fail return an attn_status; attn_js_message() is then what was wrong.  One thread, so one message.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"

#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name

typedef struct js_call {
    attn_problem problem;
    attn_tensors tensors;
    attn_options options;
    attn_call more;
    attn_plan *plan;
} js_call;

static attn_error error;

static attn_status fails(attn_status status, const char *name, const char *text)
{
    error = (attn_error){.status = status, .tensor = -1, .other = -1};
    snprintf(error.message, sizeof error.message, "%.100s %.130s", name, text);
    return status;
}

const char *EXPORT(attn_js_version)(void) { return attn_version(); }
const char *EXPORT(attn_js_message)(void) { return error.message; }
const char *EXPORT(attn_js_type_name)(int dtype) { return attn_dtype_name((attn_dtype)dtype); }
int EXPORT(attn_js_type_bytes)(int dtype) { return (int)attn_dtype_size((attn_dtype)dtype); }

/* The instruction set of a call that asks for none. */
const char *EXPORT(attn_js_isa)(void)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    return attn_isa_name(attn_cpu_describe(&cpu, &error) == ATTN_OK ? cpu.isa : ATTN_ISA_DEFAULT);
}

/* ---- memory, aligned to 64 bytes ---- */

enum { ALIGNMENT = 64 };

void *EXPORT(attn_js_allocate)(size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
    return aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
}

void EXPORT(attn_js_release)(void *memory) { free(memory); }

/* ---- tensors ---- */

static attn_tensor_description described;

static int describe(int index)
{
    described = (attn_tensor_description){.struct_size = sizeof described};
    return attn_tensor_describe(ATTN_FAMILY_ATTENTION, index, &described, NULL) == ATTN_OK;
}

/* Its name; NULL past the last one. */
const char *EXPORT(attn_js_tensor_name)(int index) { return describe(index) ? described.name : NULL; }
int EXPORT(attn_js_tensor_axis)(int index, int axis)
{
    return describe(index) && axis >= 0 && axis < 4 ? (int)described.axes[axis] : 0;
}
int EXPORT(attn_js_tensor_role)(int index, int op)
{
    return describe(index) && op >= 0 && op < ATTN_OPERATIONS ? (int)described.role[op] : 0;
}
int EXPORT(attn_js_tensor_need)(int index, int op)
{
    return describe(index) && op >= 0 && op < ATTN_OPERATIONS ? (int)described.need[op] : 0;
}

/* ---- a call ---- */

js_call *EXPORT(attn_js_create)(int op)
{
    js_call *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->problem.struct_size = sizeof c->problem;
    c->problem.op = (attn_op)op;
    c->tensors.struct_size = sizeof c->tensors;
    c->options.struct_size = sizeof c->options;
    c->more.struct_size = sizeof c->more;
    return c;
}

void EXPORT(attn_js_destroy)(js_call *c)
{
    if (c) attn_plan_destroy(c->plan);
    free(c);
}

typedef enum kind { REAL, SIZE, SWITCH, SEED, CHOICE } kind;

static const char stages[] = "raw capped biased weights ";

#define FIELD(kind, name, at)                                                                                                      \
    {                                                                                                                              \
        name, kind, offsetof(js_call, at), NULL                                                                                    \
    }
#define ONE_OF(name, at, choices)                                                                                                  \
    {                                                                                                                              \
        name, CHOICE, offsetof(js_call, at), choices                                                                               \
    }
static const struct field {
    const char *name;
    kind kind;
    size_t offset;
    const char *choices; /* of an enum, from 0 on, each followed by a space */
} fields[] = {
    FIELD(SIZE, "batch", problem.shape.batch),
    FIELD(SIZE, "heads_q", problem.shape.heads_q),
    FIELD(SIZE, "heads_kv", problem.shape.heads_kv),
    FIELD(SIZE, "len_q", problem.shape.len_q),
    FIELD(SIZE, "len_kv", problem.shape.len_kv),
    FIELD(SIZE, "dim_qk", problem.shape.dim_qk),
    FIELD(SIZE, "dim_v", problem.shape.dim_v),
    ONE_OF("score", problem.score.kind, "dot general metric cosine distance additive "),
    ONE_OF("scale_kind", problem.score.scale_kind, "default value "),
    FIELD(REAL, "scale", problem.score.scale),
    FIELD(REAL, "temperature", problem.score.temperature),
    FIELD(REAL, "softcap", problem.score.softcap),
    FIELD(SIZE, "dim_k", problem.score.dim_k),
    FIELD(SIZE, "dim_metric", problem.score.dim_metric),
    FIELD(SWITCH, "additive_bias", problem.score.additive_bias),
    ONE_OF("normaliser", problem.score.normaliser, "softmax softmax-one sigmoid relu "),
    FIELD(REAL, "shift", problem.score.shift),
    FIELD(SWITCH, "causal", problem.mask.causal),
    ONE_OF("align", problem.mask.align, "top-left bottom-right "),
    FIELD(SWITCH, "window", problem.mask.window),
    FIELD(SIZE, "window_left", problem.mask.window_left),
    FIELD(SIZE, "window_right", problem.mask.window_right),
    ONE_OF("empty", problem.mask.empty, "zero uniform "),
    FIELD(SIZE, "chunk", problem.mask.chunk),
    FIELD(SIZE, "dilation", problem.mask.dilation),
    FIELD(SIZE, "global_q", problem.mask.global_q),
    FIELD(SIZE, "global_kv", problem.mask.global_kv),
    FIELD(SIZE, "block_q", problem.mask.block_q),
    FIELD(SIZE, "block_kv", problem.mask.block_kv),
    FIELD(SIZE, "block_entries", problem.mask.block_entries),
    FIELD(SIZE, "least_distance", problem.mask.least_distance),
    FIELD(REAL, "dropout", problem.dropout.probability),
    FIELD(SEED, "seed", more.dropout_seed),
    FIELD(SWITCH, "after_dropout", problem.outputs.after_dropout),
    ONE_OF("scores_stage", problem.outputs.scores_stage, stages),
    ONE_OF("column_heads", problem.outputs.column_heads, "each group all "),
    FIELD(SIZE, "column_queries", problem.outputs.column_queries),
    FIELD(SIZE, "topk", problem.outputs.topk),
    ONE_OF("bias_table_kind", problem.bias_table.kind, "t5 clipped "),
    FIELD(SIZE, "bias_table_buckets", problem.bias_table.buckets),
    FIELD(SIZE, "bias_table_max_distance", problem.bias_table.max_distance),
    FIELD(SWITCH, "bias_table_causal", problem.bias_table.causal),
    FIELD(SIZE, "relative_first", problem.relative.first),
    FIELD(SIZE, "relative_rows", problem.relative.rows),
    ONE_OF("isa", options.isa, "default scalar avx2 avx512 neon wasm128 "),
    FIELD(SWITCH, "invariant", options.invariant),
    FIELD(SWITCH, "reproducible", options.reproducible),
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* Name and choices of a field, the latter NULL if it is a number; both NULL past the last one. */
const char *EXPORT(attn_js_field_name)(int index) { return index >= 0 && index < FIELDS ? fields[index].name : NULL; }
const char *EXPORT(attn_js_field_choices)(int index) { return index >= 0 && index < FIELDS ? fields[index].choices : NULL; }

static const struct field *field_of(const char *name)
{
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

attn_status EXPORT(attn_js_number)(js_call *c, const char *name, double value)
{
    const struct field *f = field_of(name);
    const double most = f && f->kind == SWITCH ? 1 : 0x1p53;
    if (!f || f->kind == CHOICE) return fails(ATTN_ERR_ARGUMENT, name, "is not a field that has a number");
    char *to = (char *)c + f->offset;
    if (f->kind == REAL) {
        memcpy(to, &value, sizeof value);
        return ATTN_OK;
    }
    if (!(value == floor(value)) || fabs(value) > most || (f->kind != SIZE && value < 0))
        return fails(ATTN_ERR_ARGUMENT, name,
                     f->kind == SWITCH ? "must be true or false"
                     : f->kind == SEED ? "must be an integer from 0 to 2^53"
                                       : "must be an integer within 2^53");
    if (f->kind == SWITCH) *(int *)(void *)to = (int)value;
    else *(int64_t *)(void *)to = (int64_t)value;
    if (f->kind == SEED) c->tensors.call = &c->more;
    return ATTN_OK;
}

attn_status EXPORT(attn_js_word)(js_call *c, const char *name, const char *word)
{
    const struct field *f = field_of(name);
    const size_t length = strlen(word);
    if (!f || f->kind != CHOICE) return fails(ATTN_ERR_ARGUMENT, name, "is not a field that has a word");
    int number = 0;
    for (const char *at = f->choices, *end; (end = strchr(at, ' ')); at = end + 1, number++)
        if ((size_t)(end - at) == length && memcmp(at, word, length) == 0) {
            memcpy((char *)c + f->offset, &number, sizeof number);
            return ATTN_OK;
        }
    char text[200];
    snprintf(text, sizeof text, "is '%.30s'; known: %.*s", word, (int)strlen(f->choices) - 1, f->choices);
    return fails(ATTN_ERR_ARGUMENT, name, text);
}

/* data: an address, or 0 for an output that is only planned yet; the strides in elements, or INT32_MIN for ATTN_BROADCAST.  Inputs
 * and outputs have slots of the same layout. */
attn_status EXPORT(attn_js_tensor)(js_call *c, int index, int dtype, void *data, int s0, int s1, int s2, int s3)
{
    if (!describe(index)) return fails(ATTN_ERR_ARGUMENT, "tensor", "has a number that none has");
    const attn_output slot = {data ? data : ATTN_LATER, (attn_dtype)dtype, {s0 == INT32_MIN ? ATTN_BROADCAST : s0, s1, s2, s3}};
    _Static_assert(sizeof(attn_output) == sizeof(attn_input), "one layout");
    memcpy((char *)&c->tensors + described.offset, &slot, sizeof slot);
    return ATTN_OK;
}

attn_status EXPORT(attn_js_plan)(js_call *c)
{
    attn_plan_destroy(c->plan);
    c->plan = NULL;
    return attn_plan_create(&c->plan, &c->problem, &c->tensors, &c->options, &error);
}

/* Of a planned tensor, by `what`: 0 to 3 its shape, 4 its type, 5 its bytes; -1 if the plan does not have it. */
double EXPORT(attn_js_planned)(const js_call *c, int index, int what)
{
    attn_tensor_plan tensor = {.struct_size = sizeof tensor};
    if (attn_plan_tensor(c->plan, index, &tensor, &error) != ATTN_OK || tensor.role == ATTN_ROLE_NONE) return -1;
    return (double)(what < 4 ? tensor.shape[what] : what == 4 ? (int64_t)tensor.dtype : tensor.bytes);
}

const char *EXPORT(attn_js_kernel)(const js_call *c)
{
    attn_plan_description plan = {.struct_size = sizeof plan};
    return attn_plan_describe(c->plan, &plan, &error) == ATTN_OK ? plan.kernel : "";
}

attn_status EXPORT(attn_js_run)(const js_call *c)
{
    const size_t size = attn_plan_workspace_size(c->plan);
    void *workspace = attn_js_allocate(size);
    if (!workspace) return fails(ATTN_ERR_MEMORY, "the workspace", "does not fit into the memory of WebAssembly");
    const attn_status status = attn_execute(c->plan, &c->tensors, workspace, size, &error);
    free(workspace);
    return status;
}
