/* SPDX-License-Identifier: MIT
 * layers_weights.c - tests with the weights of a drawn layer: stored and loaded, initialised from a seed, grouped to fewer heads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/io.h"
#include "layers_case.h"

static attn_error last;

static attn_status store(const layers_case *c, attn_archive *file, const char *prefix)
{
    const void *w = &c->weights;
    memset(&last, 0x55, sizeof last);
    const attn_status status = c->kind == OF_HEADS     ? attn_layer_store(&c->layer, w, prefix, file, &last)
                               : c->kind == OF_LATENTS ? attn_latent_store(&c->latent, w, prefix, file, &last)
                                                       : attn_seq2seq_store(&c->module, w, prefix, file, &last);
    check_error(status, &last);
    return status;
}

static attn_status load(const layers_case *c, const attn_archive *file, const char *prefix, layer_weights *to)
{
    void *w = to;
    memset(&last, 0x55, sizeof last);
    const attn_status status = c->kind == OF_HEADS     ? attn_layer_load(&c->layer, file, prefix, w, &last)
                               : c->kind == OF_LATENTS ? attn_latent_load(&c->latent, file, prefix, w, &last)
                                                       : attn_seq2seq_load(&c->module, file, prefix, w, &last);
    check_error(status, &last);
    return status;
}

static attn_status initialise(const layers_case *c, layer_weights *to, attn_init init, uint64_t seed)
{
    void *w = to;
    memset(&last, 0x55, sizeof last);
    const attn_status status = c->kind == OF_HEADS     ? attn_layer_initialise(&c->layer, init, seed, w, &last)
                               : c->kind == OF_LATENTS ? attn_latent_initialise(&c->latent, init, seed, w, &last)
                                                       : attn_seq2seq_initialise(&c->module, init, seed, w, &last);
    check_error(status, &last);
    return status;
}

/* A slot as a block that does not own its memory. */
static block loaded_block(const block *like, const attn_output *slot)
{
    block b = block_of("loaded", like->dtype, 0, like->shape[0], like->shape[1], like->shape[2], like->shape[3]);
    for (int axis = 0; axis < 4; axis++)
        if (slot->stride[axis]) memcpy(b.stride, slot->stride, sizeof b.stride);
    b.memory = slot->data;
    return b;
}

static void by_files(const layers_case *c)
{
    static const char *const prefixes[] = {"", "layers.3.attn.", "a/", "\xC3\xA9"};
    const char *prefix = prefixes[draw_below(c->from, 4)];
    attn_archive *file;
    layer_weights loaded, before;
    memset(&loaded, 0x55, sizeof loaded);
    loaded.struct_size = c->weights.struct_size, before = loaded;
    if (attn_archive_create(&file, &last)) abort();
    if (load(c, file, prefix, &loaded) == ATTN_OK) finding("weights are loaded from an empty container");
    if (memcmp(&loaded, &before, sizeof loaded) != 0) finding("rejected, but weights are written");
    if (store(c, file, prefix)) finding("weights are not stored: %s", last.message);
    if (store(c, file, prefix) == ATTN_OK) finding("weights are stored twice");
    if (load(c, file, prefix, &loaded)) finding("stored weights are not loaded: %s", last.message);
    for (int i = 0; i < c->weight_count; i++) {
        const block *was = &c->blocks[Y_WEIGHTS + i];
        if (was->name && !loaded.slot[i].data) finding("%s is not loaded", was->name);
        if (!was->name || was->bytes == 0) continue;
        const block now = loaded_block(was, &loaded.slot[i]);
        for (int64_t x = 0; x < was->shape[1]; x++)
            for (int64_t y = 0; y < was->shape[2]; y++)
                for (int64_t z = 0; z < was->shape[3]; z++)
                    if (block_get(&now, 0, x, y, z) != block_get(was, 0, x, y, z))
                        finding("%s [%lld][%lld][%lld] differs", was->name, (long long)x, (long long)y, (long long)z);
    }
    attn_archive_destroy(file);
}

/* Uninitialised weights of the case's shapes and strides, and their slots. */
static void make_like(const layers_case *c, block *blocks, layer_weights *slots)
{
    *slots = c->weights;
    for (int i = 0; i < c->weight_count; i++) {
        const block *b = &c->blocks[Y_WEIGHTS + i];
        if (!b->name) continue;
        blocks[i] = block_of(b->name, b->dtype, 1, b->shape[0], b->shape[1], b->shape[2], b->shape[3]);
        memcpy(blocks[i].stride, b->stride, sizeof blocks[i].stride);
        if (!block_allocate(&blocks[i])) abort();
        slots->slot[i].data = blocks[i].bytes ? blocks[i].memory + blocks[i].first : ATTN_EMPTY;
    }
}

static void by_seed(const layers_case *c)
{
    block blocks[MAX_WEIGHTS] = {{0}};
    layer_weights slots, again;
    const uint64_t seed = draw_word(c->from);
    const attn_init init = (attn_init)draw_below(c->from, 4);
    make_like(c, blocks, &slots);
    blocks_canary(blocks, MAX_WEIGHTS, 0x5A);
    if (initialise(c, &slots, (attn_init)(4 + draw_below(c->from, 9)), seed) == ATTN_OK) finding("an unknown rule is accepted");
    blocks_untouched(blocks, MAX_WEIGHTS, 0x5A, last.message);
    if (initialise(c, &slots, init, seed)) finding("weights are not initialised: %s", last.message);
    blocks_keep(blocks, MAX_WEIGHTS);
    for (int i = 0; i < c->weight_count; i++)
        for (int64_t x = 0; x < blocks[i].shape[1]; x++)
            for (int64_t y = 0; y < blocks[i].shape[2]; y++)
                for (int64_t z = 0; z < blocks[i].shape[3]; z++)
                    if (!(fabs(block_get(&blocks[i], 0, x, y, z)) < 20))
                        finding("%s is initialised with %g", blocks[i].name, block_get(&blocks[i], 0, x, y, z));
    again = slots;
    blocks_canary(blocks, MAX_WEIGHTS, 0xC3);
    if (initialise(c, &again, init, seed)) finding("weights are not initialised again: %s", last.message);
    blocks_compare(blocks, MAX_WEIGHTS, 0xC3, "the same seed");
    blocks_free(blocks, MAX_WEIGHTS);
}

static void check_grouped_heads(const layers_case *c)
{
    const int64_t heads = c->layer.heads_kv, groups = draw_one_in(c->from, 2) ? 1 : heads;
    static const int which[] = {1, 2, 5, 6, 8, 9}; /* key, value, their biases, extra key and value */
    block blocks[MAX_WEIGHTS] = {{0}};
    layer_weights slots = {.struct_size = c->weights.struct_size};
    for (int k = 0; k < 6; k++) {
        const block *b = &c->blocks[Y_WEIGHTS + which[k]];
        block *to = &blocks[which[k]];
        if (!b->name) continue;
        *to = block_of(b->name, b->dtype, 1, 1, groups, b->shape[2], b->shape[3]);
        if (!block_allocate(to)) abort();
        slots.slot[which[k]] = (attn_output){to->bytes ? to->memory : ATTN_EMPTY, to->dtype, {0, 0, 0, 0}};
    }
    blocks_canary(blocks, MAX_WEIGHTS, 0x5A);
    const void *from = &c->weights, *grouped = &slots;
    attn_status status = attn_layer_group_heads(&c->layer, heads + 1, from, grouped, &last);
    check_error(status, &last);
    if (status == ATTN_OK) finding("more groups than heads are accepted");
    blocks_untouched(blocks, MAX_WEIGHTS, 0x5A, last.message);
    memset(&last, 0x55, sizeof last);
    status = attn_layer_group_heads(&c->layer, groups, from, grouped, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("heads are not grouped: %s", last.message);
    for (int k = 0; k < 6; k++) {
        const block *b = &c->blocks[Y_WEIGHTS + which[k]], *to = &blocks[which[k]];
        for (int64_t g = 0; b->name && g < groups; g++)
            for (int64_t y = 0; y < b->shape[2]; y++)
                for (int64_t z = 0; z < b->shape[3]; z++) {
                    double sum = 0, size = 0;
                    for (int64_t h = g * (heads / groups); h < (g + 1) * (heads / groups); h++)
                        sum += block_get(b, 0, h, y, z), size += fabs(block_get(b, 0, h, y, z));
                    block_check(to, 0, g, y, z, sum * (double)groups / (double)heads, 0x1p-51 * size);
                }
    }
    blocks_free(blocks, MAX_WEIGHTS);
}

void layers_by_weights(const layers_case *c)
{
    int some = 0;
    for (int i = 0; i < c->weight_count; i++) some |= c->blocks[Y_WEIGHTS + i].name != NULL;
    if (!some) return; /* dot-product scores without an output projection have none */
    switch (draw_below(c->from, 3)) {
    case 0:
        by_files(c);
        break;
    case 1:
        by_seed(c);
        break;
    default:
        if (c->kind == OF_HEADS) check_grouped_heads(c);
    }
}
