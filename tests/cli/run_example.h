/* SPDX-License-Identifier: MIT
 *
 * run_example.h - helpers of the `attn run` tests: a temporary folder, input files made from a problem for ref/, running attn. */
#ifndef ATTN_TESTS_CLI_RUN_EXAMPLE_H
#define ATTN_TESTS_CLI_RUN_EXAMPLE_H

#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attn/io.h"
#include "attn_ref.h"

#define IN_TESTS __attribute__((unused)) static

IN_TESTS char folder[] = "/tmp/attn-test-run-XXXXXX";

IN_TESTS char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

IN_TESTS int enter_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

IN_TESTS int leave_folder(void **state)
{
    (void)state;
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* `attn run WORDS` in the folder; it must succeed, and print nothing. */
IN_TESTS void run(const char *words)
{
    char command[600];
    snprintf(command, sizeof command, "cd %s && exec %s run %s >printed 2>&1", folder, ATTN_COMMAND, words);
    int status = system(command);
    FILE *printed = fopen(in_folder("printed"), "r");
    char line[300] = "";
    assert_non_null(printed);
    if (!fgets(line, sizeof line, printed)) line[0] = 0;
    fclose(printed);
    if (status != 0 || line[0]) fail_msg("attn run %s: status %d: %s", words, WEXITSTATUS(status), line);
}

IN_TESTS attn_archive *read_file(const char *name)
{
    attn_archive *file = NULL;
    attn_error error;
    if (attn_archive_read(&file, name[0] == '/' ? name : in_folder(name), &error) != ATTN_OK) fail_msg("%s", error.message);
    return file;
}

IN_TESTS void write_file(attn_archive *file, const char *name)
{
    attn_error error;
    if (attn_archive_write(file, in_folder(name), &error) != ATTN_OK) fail_msg("%s", error.message);
    attn_archive_destroy(file);
}

IN_TESTS attn_archive *new_file(void)
{
    attn_archive *file = NULL;
    assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
    return file;
}

/* ---- one attention, as ref/ takes it ---- */

enum { CAPACITY = 4096 };

typedef struct example {
    ref_problem p;
    double Q[CAPACITY], K[CAPACITY], V[CAPACITY], O[CAPACITY], lse[CAPACITY], S[CAPACITY], P[CAPACITY], bias[CAPACITY];
    unsigned char keep[CAPACITY];
    int64_t index[8];
} example;

IN_TESTS double number(int64_t k, double phase) { return sin(1.7 * (double)k + phase); }

/* Batch 6, so that a file can have it as [6], [2][3] or [1][6]. */
IN_TESTS void example_init(example *e)
{
    memset(e, 0, sizeof *e);
    e->p =
        (ref_problem){.B = 6, .Hq = 4, .Hkv = 2, .Sq = 3, .Skv = 5, .D = 4, .Dv = 3, .Q = e->Q, .K = e->K, .V = e->V, .scale = 0.5};
    for (int64_t k = 0; k < e->p.B * e->p.Hq * e->p.Sq * e->p.D; k++) e->Q[k] = (float)number(k, 0);
    for (int64_t k = 0; k < e->p.B * e->p.Hkv * e->p.Skv * e->p.D; k++) e->K[k] = (float)number(k, 1);
    for (int64_t k = 0; k < e->p.B * e->p.Hkv * e->p.Skv * e->p.Dv; k++) e->V[k] = (float)number(k, 2);
}

IN_TESTS int64_t product(int rank, const int64_t *shape)
{
    int64_t count = 1;
    for (int k = 0; k < rank; k++) count *= shape[k];
    return count;
}

IN_TESTS void add_floats(attn_archive *file, const char *name, int rank, const int64_t *shape, const double *values)
{
    void *data;
    assert_int_equal(attn_archive_allocate(file, name, ATTN_F32, rank, shape, &data, NULL), ATTN_OK);
    for (int64_t k = 0; k < product(rank, shape); k++) ((float *)data)[k] = (float)values[k];
}

IN_TESTS void add_bytes(attn_archive *file, const char *name, int rank, const int64_t *shape, const unsigned char *values)
{
    void *data;
    assert_int_equal(attn_archive_allocate(file, name, ATTN_BOOL, rank, shape, &data, NULL), ATTN_OK);
    memcpy(data, values, (size_t)product(rank, shape));
}

IN_TESTS void add_full(attn_archive *file, const char *name, int rank, const int64_t *shape, attn_dtype dtype,
                       const int64_t *values)
{
    void *data;
    assert_int_equal(attn_archive_allocate(file, name, dtype, rank, shape, &data, NULL), ATTN_OK);
    for (int64_t k = 0; k < product(rank, shape); k++) {
        if (dtype == ATTN_I64) ((int64_t *)data)[k] = values[k];
        else ((int32_t *)data)[k] = (int32_t)values[k];
    }
}

/* A file of q, k and v with these leading axes for the batch. */
IN_TESTS attn_archive *example_file(const example *e, int leading, const int64_t *lead)
{
    attn_archive *file = new_file();
    int64_t shape[ATTN_MAX_RANK] = {0};
    memcpy(shape, lead, (size_t)leading * sizeof *lead);
    int64_t *s = shape + leading;
    s[0] = e->p.Hq, s[1] = e->p.Sq, s[2] = e->p.D;
    add_floats(file, "q", leading + 3, shape, e->Q);
    s[0] = e->p.Hkv, s[1] = e->p.Skv;
    add_floats(file, "k", leading + 3, shape, e->K);
    s[2] = e->p.Dv;
    add_floats(file, "v", leading + 3, shape, e->V);
    return file;
}

IN_TESTS void assert_close(const attn_archive *file, const char *name, const double *expected, int64_t count)
{
    const attn_archive_tensor *t = attn_archive_find(file, name);
    assert_non_null(t);
    assert_int_equal(product(t->rank, t->shape), count);
    for (int64_t k = 0; k < count; k++) {
        double got = t->dtype == ATTN_F64 ? ((const double *)t->data)[k] : (double)((const float *)t->data)[k];
        if (got == expected[k]) continue; /* infinities too */
        if (!(fabs(got - expected[k]) <= (t->dtype == ATTN_F64 ? 1e-13 : 2e-6)))
            fail_msg("%s[%d] is %.9g; expected %.9g", name, (int)k, got, expected[k]);
    }
}

IN_TESTS void assert_shape(const attn_archive *file, const char *name, int rank, const int64_t *shape)
{
    const attn_archive_tensor *t = attn_archive_find(file, name);
    assert_non_null(t);
    assert_int_equal(t->rank, rank);
    assert_memory_equal(t->shape, shape, (size_t)rank * sizeof *shape);
}

/* The outputs of --backward, computed by ref/. */
typedef struct gradients {
    double dO[CAPACITY], dlse[CAPACITY], dQ[CAPACITY], dK[CAPACITY], dV[CAPACITY], P[CAPACITY], dS[CAPACITY], dscale[8],
        dslopes[32], dsink[8], Z[CAPACITY];
} gradients;

IN_TESTS void gradients_draw(gradients *g)
{
    memset(g, 0, sizeof *g);
    for (int64_t k = 0; k < 6 * 4 * 3 * 3; k++) g->dO[k] = (float)number(k, 4);
    for (int64_t k = 0; k < 6 * 4 * 3; k++) g->dlse[k] = (float)number(k, 5);
}

/* The pointers for ref_backward; dlse is not among them. */
IN_TESTS ref_gradients gradients_in(gradients *g)
{
    return (ref_gradients){.dO = g->dO,
                           .dQ = g->dQ,
                           .dK = g->dK,
                           .dV = g->dV,
                           .P = g->P,
                           .dS = g->dS,
                           .dscale = g->dscale,
                           .dslopes = g->dslopes,
                           .dsink = g->dsink};
}

/* Compares the outputs of `attn run --lse --weights` with those of ref_forward. */
IN_TESTS void assert_outputs(const example *e, const attn_archive *out)
{
    assert_close(out, "o", e->O, e->p.B * e->p.Hq * e->p.Sq * e->p.Dv);
    assert_close(out, "lse", e->lse, e->p.B * e->p.Hq * e->p.Sq);
    assert_close(out, "weights", e->P, e->p.B * e->p.Hq * e->p.Sq * e->p.Skv);
}

/* Runs `attn run in.safetensors -o out.safetensors --lse --weights WORDS` and checks all three outputs. */
IN_TESTS void check(example *e, const char *words)
{
    char all[400];
    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --lse --weights %s", words);
    run(all);
    ref_forward(&e->p, e->O, e->lse, e->S, e->P);
    attn_archive *out = read_file("out.safetensors");
    assert_outputs(e, out);
    attn_archive_destroy(out);
}

static const int64_t lead6[] = {6}, lead23[] = {2, 3};

#endif
