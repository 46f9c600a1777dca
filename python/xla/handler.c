/* SPDX-License-Identifier: MIT
 * handler.c - the one handler that libattn.jax registers with XLA: any operation of attn_problem.
 *
 * What to compute is decided when Python traces, and arrives as attributes: `problem`, the bytes of an attn_problem with its shape,
 * and `slots`, for each argument and then each result the six numbers {offset of its slot in attn_tensors, type, four strides}.  An
 * argument of offset -1 is the seed of dropout: two words of 32 bits, low first.  One of offset -2 is the place of the queries in a
 * larger problem, {first query, first head, heads} of 32 bits, and comes with the attribute `part`, tokens of a part
 * (attn/distributed.h).  All that happens here is to fill in addresses. */
#include "ffi.h"
#include "parts.h"
#include "threads.h"

#include "common/plans.h"
#include "common/sentence.h"

#include <string.h>

enum { MOST_TENSORS = 40, NUMBERS = 6 };
enum { SLOT_SEED = -1, SLOT_PLACE = -2 };

typedef struct key { /* all that a plan depends on */
    attn_problem problem;
    int64_t threads;
    int64_t slots[MOST_TENSORS * NUMBERS];
} key;

static xla_error *failure(const xla_call_frame *frame, int code, const char *message)
{
    return frame->api->error_create(&(xla_error_create){sizeof(xla_error_create), NULL, message, code});
}

static xla_error *failed(const xla_call_frame *frame, attn_error *error)
{
    sentence_python(error->message, sizeof error->message, 0);
    int code = error->status == ATTN_ERR_UNSUPPORTED ? XLA_ERROR_UNIMPLEMENTED
               : error->status == ATTN_ERR_MEMORY    ? XLA_ERROR_RESOURCE_EXHAUSTED
                                                     : XLA_ERROR_INVALID_ARGUMENT;
    return failure(frame, code, error->message);
}

/* The bytes of an attribute, at most `most`; -1 if there is none or it is longer. */
static int64_t attribute(const xla_attributes *all, const char *name, size_t element, void *bytes, size_t most)
{
    for (int64_t i = 0; i < all->size; i++) {
        const xla_span *found = all->names[i];
        if (found->length != strlen(name) || memcmp(found->text, name, found->length) || all->types[i] != XLA_ATTRIBUTE_ARRAY)
            continue;
        const xla_array *array = all->values[i];
        if (array->size > most / element) return -1;
        memcpy(bytes, array->data, array->size * element);
        return (int64_t)array->size;
    }
    return -1;
}

static int answers_metadata(const xla_call_frame *frame)
{
    const xla_extension *extension = frame->extension_start;
    if (!extension || extension->type != XLA_EXTENSION_METADATA) return 0;
    xla_metadata *metadata = ((const xla_metadata_extension *)(const void *)extension)->metadata;
    metadata->api_version.major_version = XLA_API_MAJOR;
    metadata->api_version.minor_version = XLA_API_MINOR;
    return 1;
}

static int is_empty(const xla_buffer *buffer)
{
    for (int64_t i = 0; i < buffer->rank; i++)
        if (!buffer->dims[i]) return 1;
    return 0;
}

/* Puts a buffer into its slot.  (An attn_output and an attn_input have the same layout.) */
static void place(attn_tensors *tensors, attn_call *call, attn_origin *origin, const int64_t numbers[NUMBERS],
                  const xla_buffer *buffer)
{
    const uint32_t *words = buffer->data;
    if (numbers[0] < 0) tensors->call = call;
    if (numbers[0] == SLOT_SEED) call->dropout_seed = (uint64_t)words[1] << 32 | words[0];
    if (numbers[0] == SLOT_PLACE) {
        *origin = (attn_origin){.q = words[0], .head = words[1], .heads = words[2]};
        call->origin = origin;
    }
    if (numbers[0] < 0) return;
    attn_output slot = {is_empty(buffer) ? ATTN_EMPTY : buffer->data, (attn_dtype)numbers[1], {0, 0, 0, 0}};
    memcpy(slot.stride, numbers + 2, sizeof slot.stride);
    memcpy((char *)tensors + numbers[0], &slot, sizeof slot);
}

/* The library does not know how many tokens packed sequences have: cu_seqlens must end there. */
static int ends_at(const xla_buffer *starts, int64_t type, int64_t tokens)
{
    const int64_t last = starts->dims[0] - 1;
    return last >= 0 && (type == ATTN_I64 ? ((const int64_t *)starts->data)[last] : ((const int32_t *)starts->data)[last]) == tokens;
}

static const char *misplaced(const xla_call_frame *frame, const int64_t *slots)
{
    int64_t queries = 0, keys = 0;
    for (int64_t i = 0; i < frame->arguments.size; i++) {
        const xla_buffer *buffer = frame->arguments.values[i];
        const int64_t offset = slots[NUMBERS * i];
        if (offset == offsetof(attn_tensors, q)) queries = buffer->dims[0];
        if (offset == offsetof(attn_tensors, k)) keys = buffer->dims[0];
    }
    for (int64_t i = 0; i < frame->arguments.size; i++) {
        const int64_t *numbers = slots + NUMBERS * i;
        if (numbers[0] == offsetof(attn_tensors, cu_seqlens_q) && !ends_at(frame->arguments.values[i], numbers[1], queries))
            return "cu_seqlens_q does not end at the number of tokens of q";
        if (numbers[0] == offsetof(attn_tensors, cu_seqlens_kv) && !ends_at(frame->arguments.values[i], numbers[1], keys))
            return "cu_seqlens_kv does not end at the number of tokens of k";
    }
    return NULL;
}

__attribute__((visibility("default"))) xla_error *attn_xla_call(xla_call_frame *frame);

xla_error *attn_xla_call(xla_call_frame *frame)
{
    if (answers_metadata(frame) || frame->stage != XLA_STAGE_EXECUTE) return NULL;
    int64_t arguments = frame->arguments.size, all = arguments + frame->results.size;
    key k;
    memset(&k, 0, sizeof k);
    if (attribute(&frame->attributes, "problem", 1, &k.problem, sizeof k.problem) != sizeof k.problem || all > MOST_TENSORS ||
        attribute(&frame->attributes, "slots", sizeof k.slots[0], k.slots, sizeof k.slots) != NUMBERS * all)
        return failure(frame, XLA_ERROR_INTERNAL, "libattn.jax and its shared object are of different versions");
    const char *wrong = misplaced(frame, k.slots);
    if (wrong) return failure(frame, XLA_ERROR_INVALID_ARGUMENT, wrong);
    k.threads = xla_threads(frame);

    attn_tensors tensors = {.struct_size = sizeof tensors};
    attn_call call = {.struct_size = sizeof call};
    attn_origin origin;
    for (int64_t i = 0; i < all; i++) {
        const xla_buffer *buffer = i < arguments ? frame->arguments.values[i] : frame->results.values[i - arguments];
        place(&tensors, &call, &origin, k.slots + NUMBERS * i, buffer);
    }
    attn_error error;
    const attn_options options = {.struct_size = sizeof options, .threads = (int)k.threads, .parallel_for = xla_parallel_for};
    int64_t part;
    if (attribute(&frame->attributes, "part", sizeof part, &part, sizeof part) == 1) {
        xla_enter(frame, (int)k.threads);
        const attn_status status_of_parts = xla_compute_parts(&k.problem, &tensors, part, &options, &error);
        xla_leave();
        return status_of_parts ? failed(frame, &error) : NULL;
    }
    size_t size = offsetof(key, slots) + (size_t)(NUMBERS * all) * sizeof k.slots[0];
    kept_plan *kept = kept_find(&k, size);
    if (!kept) {
        attn_plan *plan;
        if (attn_plan_create(&plan, &k.problem, &tensors, &options, &error)) return failed(frame, &error);
        kept = kept_add(&k, size, plan, 0);
        if (!kept) return failure(frame, XLA_ERROR_RESOURCE_EXHAUSTED, "cannot allocate the plan");
    }
    xla_enter(frame, (int)k.threads);
    attn_status status = kept_execute(kept, &tensors, &error);
    xla_leave();
    kept_release(kept);
    return status ? failed(frame, &error) : NULL;
}
