/* SPDX-License-Identifier: MIT
 *
 * fuzz_layers.c - fuzzes multi-head, latent and sequence-to-sequence layers (target.h; layers_case.h): forward and backward with
 * outputs complete or untouched, the same bits for other threads, addresses and batch entries, NaN in masked tokens; against loops
 * and differences in double; f32 against f64; and decoding against forward. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/limited_allocator.h"
#include "layers_case.h"

const char *const target_cases = "layers";

static layers_case c;
static attn_error last;

void target_print(void)
{
    static const char *const kinds[] = {"heads", "latents", "a memory"};
    const attn_layer *l = &c.layer;
    const attn_latent *n = &c.latent;
    fprintf(stderr,
            "of %s %s  B %" PRId64 " len_q %" PRId64 " len_kv %" PRId64 " dims %" PRId64 " %" PRId64 " %" PRId64 " -> %" PRId64
            " threads %d causal %d softcap %g dropout %g extra %d rope %d\n",
            kinds[c.kind], attn_dtype_name(c.dtype), c.batch, c.len_q, c.len_kv, c.dim_q, c.dim_kv, c.dim_v, c.dim_out,
            c.options.threads, c.attention.mask.causal, c.attention.score.softcap, c.attention.dropout.probability, c.extra,
            l->rope != NULL);
    fprintf(stderr,
            "heads %" PRId64 " %" PRId64 " of %" PRId64 " %" PRId64 "  latents %" PRId64 " of %" PRId64 " %" PRId64 " rank %" PRId64
            " %" PRId64 " rotary %" PRId64 "  score %d hidden %" PRId64 "\n",
            l->heads_q, l->heads_kv, l->head_dim, l->head_dim_v, n->heads, n->head_dim, n->head_dim_v, n->rank, n->rank_query,
            n->dim_rotary, (int)c.module.score, c.module.dim_hidden);
    for (int64_t e = 0; c.masked && e < c.batch; e++) fprintf(stderr, "  length %" PRId64, c.lengths[e]);
    fputc('\n', stderr);
    blocks_print(c.blocks, Y_BLOCKS);
}

attn_status layers_forward(const layers_case *x, attn_error *error)
{
    memset(error, 0x55, sizeof *error);
    const attn_status status = x->kind == OF_HEADS ? attn_layer_forward(&x->layer, (const void *)&x->weights, &x->tensors, error)
                               : x->kind == OF_LATENTS
                                   ? attn_latent_forward(&x->latent, (const void *)&x->weights, &x->tensors, error)
                                   : attn_seq2seq_forward(&x->module, (const void *)&x->weights, &x->tensors, error);
    check_error(status, error);
    return status;
}

attn_status layers_backward(const layers_case *x, attn_error *error)
{
    const void *w = &x->weights, *g = &x->gradients;
    memset(error, 0x55, sizeof *error);
    const attn_status status = x->kind == OF_HEADS     ? attn_layer_backward(&x->layer, w, &x->tensors, g, error)
                               : x->kind == OF_LATENTS ? attn_latent_backward(&x->latent, w, &x->tensors, g, error)
                                                       : attn_seq2seq_backward(&x->module, w, &x->tensors, g, error);
    check_error(status, error);
    return status;
}

/* Forward, which fills `saved`, then backward. */
static void run(unsigned char canary, const char *what)
{
    blocks_canary(c.blocks, Y_BLOCKS, canary);
    c.tensors.saved = c.saved;
    if (layers_forward(&c, &last)) finding("%s: a valid forward is rejected: %s", what, last.message);
    if (layers_backward(&c, &last)) finding("%s: a valid backward is rejected: %s", what, last.message);
}

static void allocate_saved(void)
{
    attn_layer_counts counts = {.struct_size = sizeof counts};
    const void *w = &c.weights;
    const attn_status status =
        c.kind == OF_HEADS     ? attn_layer_count(&c.layer, c.batch, c.len_q, c.len_kv ? c.len_kv : c.len_q, w, &counts, &last)
        : c.kind == OF_LATENTS ? attn_latent_count(&c.latent, c.batch, c.len_q, c.len_kv ? c.len_kv : c.len_q, w, &counts, &last)
                               : attn_seq2seq_count(&c.module, c.batch, c.len_q, c.len_kv, w, &counts, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("a valid layer is rejected by its count: %s", last.message);
    c.saved_bytes = (size_t)counts.saved_bytes;
    c.saved = malloc(c.saved_bytes + (c.saved_bytes == 0));
    if (!c.saved) abort();
    memset(c.saved, 0xFF, c.saved_bytes);
}

static void run_corrupted(void)
{
    const int backward = draw_one_in(c.from, 2);
    const layers_case was = c;
    const char *what = layers_corrupt(&c, backward);
    blocks_canary(c.blocks, Y_BLOCKS, 0x21);
    const attn_status status = what ? (backward ? layers_backward : layers_forward)(&c, &last) : ATTN_OK;
    if (what && status == ATTN_OK) finding("%s, but %s succeeds", what, backward ? "backward" : "forward");
    blocks_untouched(c.blocks, Y_BLOCKS, 0x21, last.message);
    c = was;
    layers_place(&c, 0, c.batch);
    c.tensors.saved = c.saved;
}

static void without_memory(void)
{
    const attn_options was = c.options;
    for (int left = 0; left < 8; left++) {
        limited_allocator p = {left, 0};
        c.options.allocator = (attn_allocator){limited_acquire, limited_release, &p};
        for (int backward = 0; backward < 2; backward++) {
            p.left = left;
            blocks_canary(c.blocks, Y_BLOCKS, 0x32);
            const attn_status status = (backward ? layers_backward : layers_forward)(&c, &last);
            if (status != ATTN_OK && status != ATTN_ERR_MEMORY) finding("allocation %d fails: status %d", left, (int)status);
            if (status != ATTN_OK) blocks_untouched(c.blocks, Y_BLOCKS, 0x32, last.message);
            if (p.held) finding("allocation %d fails: %d blocks are not released", left, p.held);
        }
    }
    c.options = was;
}

/* Entry e as a batch of its own. */
static void run_entry(int64_t e)
{
    if (c.len_q < 5 || (c.len_kv && c.len_kv < 5) || c.attention.dropout.probability > 0) return;
    layers_place(&c, e, 1);
    blocks_canary(c.blocks, Y_BLOCKS, 0x3C);
    if (layers_forward(&c, &last)) finding("one entry: rejected: %s", last.message);
    layers_place(&c, 0, c.batch);
    c.tensors.saved = c.saved;
    for (int t = Y_Y; t <= Y_MEAN; t++) {
        const block *b = &c.blocks[t];
        const int64_t begin[4] = {e, 0, 0, 0}, end[4] = {e + 1, 1, b->shape[2], b->shape[3]};
        if (b->name) block_compare_part(b, begin, end, 0, "one entry");
    }
}

/* NaN in keys past the lengths, and in later tokens under a causal mask. */
static void run_masked(void)
{
    const int own = c.blocks[Y_KEY].name != NULL;
    for (int64_t e = 0; c.masked && own && e < c.batch; e++)
        for (int t = Y_KEY; t <= Y_VALUE; t++)
            for (int64_t j = c.lengths[e]; c.blocks[t].name && j < c.len_kv; j++)
                for (int64_t x = 0; x < c.blocks[t].shape[3]; x++) block_put(&c.blocks[t], e, 0, j, x, NAN);
    const int64_t first = own || !c.attention.mask.causal ? c.len_q : draw_below(c.from, c.len_q);
    for (int64_t e = 0; e < c.batch; e++)
        for (int64_t j = first; j < c.len_q; j++)
            for (int64_t x = 0; x < c.dim_q; x++) block_put(&c.blocks[Y_X], e, 0, j, x, NAN);
    blocks_canary(c.blocks, Y_BLOCKS, 0x44);
    c.tensors.saved = NULL;
    if (layers_forward(&c, &last)) finding("NaN in masked tokens: rejected: %s", last.message);
    for (int t = Y_Y; t <= Y_MEAN; t++) {
        const int64_t begin[4] = {0, 0, 0, 0}, end[4] = {c.batch, 1, first, c.blocks[t].shape[3]};
        if (c.blocks[t].name) block_compare_part(&c.blocks[t], begin, end, 0, "NaN in masked tokens");
    }
}

static void judge(void)
{
    draws *d = c.from;
    allocate_saved();
    run(0xA5, "first");
    target_ran++;
    blocks_keep(c.blocks, Y_BLOCKS);
    if (c.kind == OF_HEADS) layers_by_loops(&c);
    if (draw_one_in(d, 4)) {
        if (c.dtype == ATTN_F64) layers_by_differences(&c);
        else layers_by_f64(&c);
    }
    if (draw_one_in(d, 2)) layers_by_steps(&c);
    const int threads = c.options.threads;
    for (c.options.threads = 1; c.options.threads <= 3; c.options.threads++) {
        if (c.options.threads == threads) continue;
        run(0x5A, "other threads");
        blocks_compare(c.blocks, Y_BLOCKS, 0x5A, "other threads");
    }
    c.options.threads = threads;
    if (draw_one_in(d, 2)) run_corrupted();
    if (draw_one_in(d, 12)) without_memory();
    if (draw_one_in(d, 4)) layers_by_weights(&c);
    if (c.batch > 1) run_entry(draw_below(d, c.batch));
    if (draw_one_in(d, 3)) {
        for (int t = 0; t < Y_BLOCKS; t++)
            if (t != Y_MEAN) block_move(&c.blocks[t], 1 + (size_t)draw_below(d, 15));
        layers_place(&c, 0, c.batch);
        run(0x99, "other addresses");
        blocks_compare(c.blocks, Y_BLOCKS, 0x99, "other addresses");
    }
    run_masked();
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    layers_draw(&c);
    target_drawn();
    judge();
    free(c.saved);
    blocks_free(c.blocks, Y_BLOCKS);
}
