/* SPDX-License-Identifier: MIT
 *
 * transformer.c - runs an encoder block and a decoder block, pre- and post-norm, and checks them: the decoder's output for a token
 * does not depend on later tokens, and the gradient matches the slope along a direction.  usage: transformer */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "block.h"

enum { BATCH = 2, SOURCE = 9, TARGET = 7 };

static real *numbers(int64_t count)
{
    real *memory = calloc((size_t)count, sizeof *memory);
    if (!memory) {
        fprintf(stderr, "transformer: no memory\n");
        exit(1);
    }
    return memory;
}

static void wave(real *x, int64_t count, double step)
{
    for (int64_t i = 0; i < count; i++) x[i] = (real)sin(step * (double)i);
}

static void *trace_of(const block *b, const block_data *d)
{
    void *memory = aligned_alloc(64, (size_t)block_trace_bytes(b, d));
    return memory ? memory : (fprintf(stderr, "transformer: no memory\n"), exit(1), (void *)0);
}

static int failed(attn_status status, const attn_error *error)
{
    if (status != ATTN_OK) fprintf(stderr, "transformer: %s\n", error->message);
    return status != ATTN_OK;
}

/* Runs the source through the encoder and the target through the decoder that reads it; returns 0 on a failed check. */
static int run(int post_norm)
{
    const block encoder = {.width = 32, .heads = 4, .hidden = 64, .post_norm = post_norm},
                decoder = {.width = 32, .heads = 4, .hidden = 64, .decoder = 1, .post_norm = post_norm};
    const int64_t source = BATCH * SOURCE * encoder.width, target = BATCH * TARGET * decoder.width,
                  parameters = block_parameters(&decoder);
    real *we = numbers(block_parameters(&encoder)), *wd = numbers(parameters), *x = numbers(source), *memory = numbers(source),
         *z = numbers(target), *y = numbers(target), *again = numbers(target), *dy = numbers(target), *dx = numbers(target),
         *dmemory = numbers(source), *dw = numbers(parameters), *along = numbers(parameters);
    block_data e = {.batch = BATCH, .len = SOURCE, .x = x, .y = memory}, d = {.batch = BATCH,
                                                                              .len = TARGET,
                                                                              .len_memory = SOURCE,
                                                                              .x = z,
                                                                              .memory = memory,
                                                                              .y = y,
                                                                              .dy = dy,
                                                                              .dx = dx,
                                                                              .dmemory = dmemory};
    attn_error error;
    double slope = 0, difference = 0, leak = 0;
    wave(x, source, 0.7), wave(z, target, 1.1), wave(dy, target, 1.9), wave(along, parameters, 2.3);
    e.trace = trace_of(&encoder, &e), d.trace = trace_of(&decoder, &d);
    if (failed(block_initialise(&encoder, we, 1, &error), &error) || failed(block_initialise(&decoder, wd, 2, &error), &error) ||
        failed(block_forward(&encoder, we, &e, &error), &error) || failed(block_forward(&decoder, wd, &d, &error), &error) ||
        failed(block_backward(&decoder, wd, &d, dw, &error), &error))
        return 0;
    for (int64_t i = 0; i < parameters; i++) slope += (double)dw[i] * (double)along[i];

    d.y = again;
    z[(TARGET - 1) * decoder.width] += 1; /* the last token of the first entry */
    if (failed(block_forward(&decoder, wd, &d, &error), &error)) return 0;
    for (int64_t i = 0; i < (TARGET - 1) * decoder.width; i++) leak += again[i] != y[i];
    z[(TARGET - 1) * decoder.width] -= 1;

    const double step = 3e-4;
    for (int side = -1; side <= 1; side += 2) {
        for (int64_t i = 0; i < parameters; i++) wd[i] += (real)(side * step * (double)along[i]);
        if (failed(block_forward(&decoder, wd, &d, &error), &error)) return 0;
        for (int64_t i = 0; i < target; i++) difference += side * (double)again[i] * (double)dy[i] / (2 * step);
        for (int64_t i = 0; i < parameters; i++) wd[i] -= (real)(side * step * (double)along[i]);
    }
    const int right = leak == 0 && fabs(slope - difference) <= 0.01 * (1 + fabs(slope));
    printf("%s-norm: encoder %lld and decoder %lld parameters; slope %.4f, by differences %.4f; %s\n", post_norm ? "post" : "pre",
           (long long)block_parameters(&encoder), (long long)parameters, slope, difference, right ? "right" : "WRONG");
    real *const all[] = {we, wd, x, memory, z, y, again, dy, dx, dmemory, dw, along};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(e.trace), free(d.trace);
    return right;
}

int main(void) { return run(0) && run(1) ? 0 : 1; }
