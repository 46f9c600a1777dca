/* SPDX-License-Identifier: MIT
 *
 * test_model.c - logits of the model of examples/generate have the same bits for any chunks of a sequence, any sequences beside it
 * and any page size, for every type of cache; and pages come back.
 */
#include "gguf_file.h"

#include <math.h>

#include "model.h"
#include "testing/random/share.h"

enum { WIDTH = 128, HEADS = 4, HEADS_KV = 2, HIDDEN = 96, LAYERS = 2, WORDS = 40, TOKENS = 60, SEQUENCES = 3 };

static const char path[] = "model.gguf";
static int tokens[SEQUENCES][TOKENS];
static model *m;

static float draw(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-24F - 0.5F;
}

static void put_number(gguf_file *f, const char *key, uint32_t value)
{
    gguf_key(f, key, U32);
    gguf_u32(f, value);
}

/* A tensor of F32 without its data; rows 0: of rank 1.  Returns the offset after it. */
static uint64_t describe(gguf_file *f, const char *name, uint64_t rows, uint64_t columns, uint64_t offset)
{
    gguf_tensor(f, name, rows ? 2 : 1, (uint64_t[]){columns, rows}, 0, offset);
    return offset + (rows ? rows : 1) * columns * sizeof(float); /* a multiple of 32 */
}

static void write_model(void)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } parts[] = {{"attn_norm", 0, WIDTH},      {"attn_q", WIDTH, WIDTH},      {"attn_k", WIDTH / 2, WIDTH},
                 {"attn_v", WIDTH / 2, WIDTH}, {"attn_output", WIDTH, WIDTH}, {"ffn_norm", 0, WIDTH},
                 {"ffn_gate", HIDDEN, WIDTH},  {"ffn_up", HIDDEN, WIDTH},     {"ffn_down", WIDTH, HIDDEN}};
    enum { PARTS = sizeof parts / sizeof parts[0] };
    gguf_file f;
    uint64_t offset = 0;
    gguf_begin(&f, LAYERS * PARTS + 2, 8);
    gguf_entry(&f, "general.architecture", "llama");
    put_number(&f, "llama.block_count", LAYERS);
    put_number(&f, "llama.embedding_length", WIDTH);
    put_number(&f, "llama.feed_forward_length", HIDDEN);
    put_number(&f, "llama.attention.head_count", HEADS);
    put_number(&f, "llama.attention.head_count_kv", HEADS_KV);
    put_number(&f, "llama.context_length", 512);
    gguf_key(&f, "llama.attention.layer_norm_rms_epsilon", F32);
    gguf_put(&f, &(float){1e-5F}, sizeof(float));
    offset = describe(&f, "token_embd.weight", WORDS, WIDTH, offset);
    offset = describe(&f, "output_norm.weight", 0, WIDTH, offset);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < PARTS; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, parts[i].name);
            offset = describe(&f, name, parts[i].rows, parts[i].columns, offset);
        }
    gguf_pad(&f, 32);
    for (uint64_t i = 0; i < offset / sizeof(float); i++) gguf_put(&f, &(float){draw()}, sizeof(float));
    io_store(path, f.bytes, f.size);
    free(f.bytes);
}

static int begin(void **state)
{
    attn_error error;
    if (io_enter_folder(state)) return -1;
    write_model();
    m = model_open(path, 2, &error);
    if (!m) fail_msg("%s", error.message);
    for (int i = 0; i < SEQUENCES * TOKENS; i++) tokens[i / TOKENS][i % TOKENS] = (i * 17 + i / 7) % WORDS;
    return 0;
}

static int end(void **state)
{
    model_close(m);
    return io_leave_folder(state);
}

/* Only keys can be quantised by channel. */
static attn_dtype values_beside(attn_dtype keys) { return keys == ATTN_Q4_1C ? ATTN_Q4_1 : keys; }

/* The logits [TOKENS][WORDS] of sequence `which`, `chunk` tokens at once, beside `others` other sequences with chunks of their own
 * sizes. */
static void run(attn_dtype dtype, int which, int64_t chunk, int64_t others, int64_t page, float *logits)
{
    pages p;
    attn_error error;
    float *some = malloc((size_t)(SEQUENCES * TOKENS * WORDS) * sizeof *some);
    const int64_t count = 1 + others, all = count * ((TOKENS + page - 1) / page);
    assert_true(model_make_pages(m, count, TOKENS, all, page, dtype, values_beside(dtype), &p));
    p.hadamard = dtype == ATTN_Q4_1;
    while (pages_length(&p, 0) < TOKENS) {
        int batch[SEQUENCES * TOKENS];
        int64_t counts[SEQUENCES], rows = 0;
        const int64_t before = pages_length(&p, 0);
        for (int b = 0; b < count; b++) {
            const int64_t done = pages_length(&p, b), size = b ? (done / 3 + b) % 6 : chunk;
            counts[b] = size < TOKENS - done ? size : TOKENS - done;
            memcpy(batch + rows, &tokens[(which + b) % SEQUENCES][done], (size_t)counts[b] * sizeof *batch);
            assert_true(pages_reserve(&p, b, counts[b]));
            rows += counts[b];
        }
        if (model_run(m, &p, 0, count, batch, counts, counts, some, &error)) fail_msg("%s", error.message);
        memcpy(logits + before * WORDS, some, (size_t)(counts[0] * WORDS) * sizeof *some);
    }
    for (int b = 0; b < count; b++) pages_keep(&p, b, 0);
    assert_true(p.unused_count == all);
    pages_free(&p);
    free(some);
}

static void logits_have_the_same_bits(void **state)
{
    (void)state;
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_I8, ATTN_F8_E4M3, ATTN_Q8_0, ATTN_Q4_1};
    static const struct {
        int64_t chunk, others, page;
    } ways[] = {{TOKENS, 0, 64}, {7, 0, 16}, {25, 0, 1}, {1, 2, 64}, {5, 1, 3}, {30, 2, 16}};
    static float expected[TOKENS * WORDS], found[TOKENS * WORDS];
    for (int t = 0; t < 6; t++)
        for (int which = 0; which < SEQUENCES; which++) {
            if (share_stride() > 1 && which != t % SEQUENCES) continue;
            run(types[t], which, 1, 0, 64, expected);
            for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
                memset(found, 0, sizeof found);
                run(types[t], which, ways[w].chunk, ways[w].others, ways[w].page, found);
                for (int i = 0; i < TOKENS * WORDS; i++)
                    if (memcmp(&found[i], &expected[i], sizeof found[i]) != 0)
                        fail_msg("%s, way %zu: logit %d of token %d is %.9g, not %.9g", attn_dtype_name(types[t]), w, i % WORDS,
                                 i / WORDS, (double)found[i], (double)expected[i]);
            }
        }
}

/* With keys by channel they depend on the sequence's own chunks, since the last keys are exact until they are 32. */
static void by_channel_chunks_are_their_own(void **state)
{
    static float expected[TOKENS * WORDS], found[TOKENS * WORDS], exact[TOKENS * WORDS];
    (void)state;
    for (int64_t chunk = 1; chunk < TOKENS; chunk = chunk * 3 + 4) {
        double off = 0, size = 0;
        run(ATTN_Q4_1C, 1, chunk, 0, 32, expected);
        run(ATTN_Q4_1C, 1, chunk, 2, 96, found);
        run(ATTN_F32, 1, chunk, 0, 32, exact);
        assert_memory_equal(found, expected, sizeof found);
        for (int i = 0; i < TOKENS * WORDS; i++) {
            off += pow((double)(found[i] - exact[i]), 2);
            size += pow((double)exact[i], 2);
        }
        assert_true(off > 0 && off < 0.05 * size);
    }
}

/* Tokens that are forgotten leave no trace: what drafts rely on. */
static void forget_tokens(attn_dtype dtype, int64_t page)
{
    static float expected[TOKENS * WORDS], found[WORDS];
    pages p;
    attn_error error;
    const int64_t one = 1, some = 9;
    run(dtype, 0, 1, 0, 64, expected);
    assert_true(model_make_pages(m, 1, TOKENS + some, TOKENS, page, dtype, values_beside(dtype), &p)); /* more than one can have */
    for (int i = 0; i < TOKENS; i++) {
        static float unused[9 * WORDS];
        assert_true(pages_reserve(&p, 0, some));
        if (model_run(m, &p, 0, 1, tokens[1], &some, &some, unused, &error)) fail_msg("%s", error.message);
        pages_keep(&p, 0, i);
        assert_true(pages_reserve(&p, 0, 1));
        if (model_run(m, &p, 0, 1, &tokens[0][i], &one, &one, found, &error)) fail_msg("%s", error.message);
        assert_memory_equal(found, expected + i * WORDS, sizeof found);
    }
    assert_false(pages_reserve(&p, 0, some + page));
    pages_free(&p);
}

static void tokens_can_be_forgotten(void **state)
{
    (void)state;
    forget_tokens(ATTN_BF16, 4);
    forget_tokens(ATTN_Q4_1C, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_have_the_same_bits),
                                       cmocka_unit_test(by_channel_chunks_are_their_own),
                                       cmocka_unit_test(tokens_can_be_forgotten)};
    return cmocka_run_group_tests(tests, begin, end);
}
