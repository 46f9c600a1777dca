/* SPDX-License-Identifier: MIT
 * calls.c - see calls.h. */
#include "calls.h"

#include <string.h>

#include "../tests/fnv.h"
#include "../tests/limited_allocator.h"

attn_error calls_last;

void calls_make(block *b, draws *d, block like, int strides)
{
    *b = like;
    if (strides != CALLS_DENSE && draw_one_in(d, 2)) block_draw_strides(b, d, strides == CALLS_ROWS);
    if (!block_allocate(b)) { /* perhaps only the gaps between axes are too much */
        *b = block_of(like.name, like.dtype, like.output, like.shape[0], like.shape[1], like.shape[2], like.shape[3]);
        if (!block_allocate(b)) finding("%s is too large", like.name);
    }
}

/* A hash of all input bytes. */
static uint64_t sum_of_inputs(const calls *c)
{
    uint64_t sum = FNV_START;
    for (int t = 0; t < c->count; t++)
        if (!c->blocks[t].output && c->blocks[t].memory) sum = fnv_add(sum, c->blocks[t].memory, c->blocks[t].bytes);
    return sum;
}

int calls_run(const calls *c, unsigned char canary)
{
    memset(&calls_last, 0x55, sizeof calls_last);
    blocks_canary(c->blocks, c->count, canary);
    const uint64_t before = sum_of_inputs(c);
    const attn_status status = c->call(&calls_last);
    check_error(status, &calls_last);
    if (sum_of_inputs(c) != before) finding("an input is written");
    if (status == ATTN_OK) return 1;
    blocks_untouched(c->blocks, c->count, canary, calls_last.message);
    return 0;
}

void calls_first(const calls *c)
{
    if (!calls_run(c, 0xA5)) finding("a valid call is rejected: %s", calls_last.message);
    target_ran++;
    blocks_keep(c->blocks, c->count);
}

void calls_again(const calls *c, unsigned char canary, const char *what)
{
    if (!calls_run(c, canary)) finding("%s: the same call is now rejected: %s", what, calls_last.message);
    blocks_compare(c->blocks, c->count, canary, what);
}

void calls_elsewhere(const calls *c, draws *d)
{
    for (int t = 0; t < c->count; t++) block_move(&c->blocks[t], 1 + (size_t)draw_below(d, 15));
    c->place();
    calls_again(c, 0x99, "other addresses");
}

void calls_rejected(const calls *c, const char *must)
{
    if (calls_run(c, 0x77)) {
        if (must) finding("%s, but the call succeeds", must);
    } else {
        target_rejected++;
    }
    c->place();
}

void calls_threads(const calls *c, attn_options *options)
{
    const int threads = options->threads;
    for (options->threads = 1; options->threads <= 3; options->threads++)
        if (options->threads != threads) calls_again(c, 0x5A, "other threads");
    options->threads = threads;
}

void calls_without_memory(const calls *c, attn_options *options)
{
    const attn_options was = *options;
    int ran = 0;
    for (int left = 0; left < 40 && !ran; left++) {
        limited_allocator p = {left, 0};
        options->allocator = (attn_allocator){limited_acquire, limited_release, &p};
        ran = calls_run(c, 0x32);
        if (!ran && calls_last.status != ATTN_ERR_MEMORY)
            finding("allocation %d fails: status %d: %s", left, (int)calls_last.status, calls_last.message);
        if (p.held) finding("allocation %d fails: %d blocks are not released", left, p.held);
    }
    if (!ran) finding("40 allocations are not enough");
    blocks_compare(c->blocks, c->count, 0x32, "the caller's allocator");
    *options = was;
}

void calls_vary(const calls *c, draws *d, attn_options *options, int allocates, void (*reject)(void))
{
    if (options) calls_threads(c, options);
    if (options && allocates && draw_one_in(d, 8)) calls_without_memory(c, options);
    if (draw_one_in(d, 3)) calls_elsewhere(c, d);
    if (draw_one_in(d, 2)) reject();
}

attn_options calls_options(draws *d)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_options o = {.struct_size = sizeof o, .threads = 1 + (int)draw_below(d, 3), .isa = (attn_isa)draw_below(d, 4)};
    if (attn_cpu_describe(&cpu, NULL)) finding("no CPU");
    if (o.isa > cpu.isa) o.isa = ATTN_ISA_DEFAULT;
    return o;
}

int64_t calls_bad_size(draws *d)
{
    static const int64_t bad[] = {-1, -2, INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, INT64_MAX / 2};
    return bad[draw_below(d, 7)];
}

const char *calls_corrupt(attn_output *slot, const block *b, draws *d, int needed, const block *shared)
{
    const int axis = (int)draw_below(d, 4);
    if (!b->name) return NULL;
    switch (draw_below(d, 7)) {
    case 0:
        slot->data = b->bytes && draw_one_in(d, 2) ? ATTN_LATER : ATTN_MISSING; /* a tensor without elements may be passed later */
        return "ATTN_MISSING or ATTN_LATER";
    case 1:
        slot->data = NULL;
        return "NULL with a type";
    case 2:
        memset(slot, 0, sizeof *slot);
        return needed ? "a tensor is missing" : NULL;
    case 3:
        slot->dtype = (attn_dtype)(b->dtype > ATTN_BF16 ? ATTN_F16 : 5 + draw_below(d, 12));
        return "an invalid type";
    case 4:
        if (b->bytes == 0 || b->element == 1) return NULL;
        slot->data = (unsigned char *)slot->data + 1;
        return "a misaligned address";
    case 5:
        if (b->bytes == 0 || b->shape[axis] < 2 || (b->element == 1 && b->shape[axis] < 4)) return NULL;
        slot->stride[axis] = draw_one_in(d, 2) ? INT64_MAX / 2 : INT64_MIN + 1;
        return "a stride that overflows";
    default:
        if (!b->output || b->bytes == 0) return NULL;
        if (shared && shared->bytes && draw_one_in(d, 2)) {
            slot->data = shared->memory + shared->first; /* both have their first element at this address */
            return "an output over an input";
        }
        if (b->shape[axis] < 2) return NULL;
        slot->stride[axis] = draw_one_in(d, 2) ? 0 : ATTN_BROADCAST;
        for (int k = 0; k < 4; k++) /* four strides of 0 mean dense */
            if (slot->stride[k] != 0) return "an output that broadcasts";
        slot->stride[axis] = ATTN_BROADCAST;
        return "an output that broadcasts";
    }
}

const char *calls_corrupt_input(attn_input *slot, const block *b, draws *d, int needed)
{
    attn_output as;
    memcpy(&as, slot, sizeof as);
    const char *must = b->output ? NULL : calls_corrupt(&as, b, d, needed, NULL);
    memcpy(slot, &as, sizeof as);
    return must;
}
