/* SPDX-License-Identifier: MIT
 *
 * test_run.c - `attn run` computes attention by its definition, for every shape, name and broadcast that a file can have.
 *
 * Each test writes a file, runs the command (ATTN_COMMAND) and compares the output with ref/. */
#include "run_example.h"

/* ---- tests ---- */

static void the_model_in_the_file(void **state)
{
    (void)state;
    char words[300];
    const char *street = ATTN_SOURCE "/examples/data/animal_street.safetensors";
    attn_archive *in = read_file(street);
    static const char *const options[] = {"", "--isa=scalar", "--dtype=f64", "--threads=1"};
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        snprintf(words, sizeof words, "%s -o street.safetensors --weights %s", street, options[k]);
        run(words);
        attn_archive *out = read_file("street.safetensors");
        static const char *const names[] = {"o", "weights"};
        for (int n = 0; n < 2; n++) {
            const attn_archive_tensor *model = attn_archive_find(in, names[n]), *result = attn_archive_find(out, names[n]);
            assert_int_equal(result->rank, model->rank);
            assert_memory_equal(result->shape, model->shape, sizeof(int64_t[4]));
            assert_int_equal(result->dtype, strstr(options[k], "f64") ? ATTN_F64 : ATTN_F32);
            for (int64_t i = 0; i < product(4, model->shape); i++) {
                double got =
                    result->dtype == ATTN_F64 ? ((const double *)result->data)[i] : (double)((const float *)result->data)[i];
                assert_true(fabs(got - (double)((const float *)model->data)[i]) < 2e-6);
            }
        }
        assert_string_equal(attn_archive_get_metadata(out, "sentence"), attn_archive_get_metadata(in, "sentence"));
        assert_string_equal(attn_archive_get_metadata(out, "tokens"), attn_archive_get_metadata(in, "tokens"));
        assert_string_equal(attn_archive_get_metadata(out, "attn_version"), attn_version());
        assert_string_equal(attn_archive_get_metadata(out, "attn_problem"),
                            strstr(options[k], "f64") ? "fwd:f64:b6:hq12:sq14:d32:weights" : "fwd:f32:b6:hq12:sq14:d32:weights");
        const char *kernel = attn_archive_get_metadata(out, "attn_kernel");
        assert_non_null(strstr(kernel, strstr(options[k], "scalar") ? "_scalar" : "attn_fwd_"));
        attn_archive_destroy(out);
    }
    attn_archive_destroy(in);
}

static void leading_axes_are_batch(void **state)
{
    (void)state;
    static example e;
    example_init(&e);
    static const int64_t lead161[] = {1, 6, 1};
    const struct {
        int leading;
        const int64_t *lead;
    } rows[] = {{1, lead6}, {2, lead23}, {3, lead161}};
    for (int k = 0; k < 3; k++) {
        write_file(example_file(&e, rows[k].leading, rows[k].lead), "in.safetensors");
        check(&e, "");
        attn_archive *out = read_file("out.safetensors");
        int64_t shape[ATTN_MAX_RANK] = {0};
        memcpy(shape, rows[k].lead, (size_t)rows[k].leading * sizeof *shape);
        int64_t *s = shape + rows[k].leading;
        s[0] = e.p.Hq, s[1] = e.p.Sq, s[2] = e.p.Dv;
        assert_shape(out, "o", rows[k].leading + 3, shape);
        assert_shape(out, "lse", rows[k].leading + 2, shape);
        s[2] = e.p.Skv;
        assert_shape(out, "weights", rows[k].leading + 3, shape);
        attn_archive_destroy(out);
    }
}

/* Ranks 3 and 2: one batch entry, and one head. */
static void small_ranks(void **state)
{
    (void)state;
    static example e;
    example_init(&e);
    e.p.B = 1;
    write_file(example_file(&e, 0, lead6), "in.safetensors");
    check(&e, "");
    e.p.Hq = e.p.Hkv = 1;
    attn_archive *file = new_file();
    add_floats(file, "q", 2, (int64_t[]){3, 4}, e.Q);
    add_floats(file, "k", 2, (int64_t[]){5, 4}, e.K);
    add_floats(file, "v", 2, (int64_t[]){5, 3}, e.V);
    write_file(file, "in.safetensors");
    check(&e, "");
    attn_archive *out = read_file("out.safetensors");
    assert_shape(out, "o", 2, (int64_t[]){3, 3});
    assert_shape(out, "lse", 1, (int64_t[]){3});
    assert_shape(out, "weights", 2, (int64_t[]){3, 5});
    attn_archive_destroy(out);
}

/* [b][h][t][c] to [b][t][h][c] */
static void swap_heads(const double *src, double *dst, int64_t B, int64_t H, int64_t S, int64_t D)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < S; t++)
                for (int64_t c = 0; c < D; c++) dst[((b * S + t) * H + h) * D + c] = src[((b * H + h) * S + t) * D + c];
}

static void layout_bshd(void **state)
{
    (void)state;
    static example e;
    static double swapped[CAPACITY];
    example_init(&e);
    attn_archive *file = new_file();
    swap_heads(e.Q, swapped, 6, 4, 3, 4);
    add_floats(file, "q", 5, (int64_t[]){2, 3, 3, 4, 4}, swapped);
    swap_heads(e.K, swapped, 6, 2, 5, 4);
    add_floats(file, "k", 5, (int64_t[]){2, 3, 5, 2, 4}, swapped);
    swap_heads(e.V, swapped, 6, 2, 5, 3);
    add_floats(file, "v", 5, (int64_t[]){2, 3, 5, 2, 3}, swapped);
    write_file(file, "in.safetensors");
    run("in.safetensors -o out.safetensors --layout=bshd --lse --weights");
    ref_forward(&e.p, e.O, e.lse, e.S, e.P);
    attn_archive *out = read_file("out.safetensors");
    swap_heads(e.O, swapped, 6, 4, 3, 3);
    assert_shape(out, "o", 5, (int64_t[]){2, 3, 3, 4, 3});
    assert_close(out, "o", swapped, 6 * 4 * 3 * 3);
    assert_shape(out, "lse", 4, (int64_t[]){2, 3, 4, 3});
    assert_close(out, "lse", e.lse, 6 * 4 * 3);
    assert_shape(out, "weights", 5, (int64_t[]){2, 3, 4, 3, 5});
    assert_close(out, "weights", e.P, 6 * 4 * 3 * 5);
    attn_archive_destroy(out);
}

/* Masks and biases of every shape that broadcasts to [2, 3, 4, 3, 5]; in the last, one of two leading axes has size 1. */
static void masks_and_biases_broadcast(void **state)
{
    (void)state;
    static example e;
    static const struct {
        int rank;
        int64_t shape[5];
    } rows[] = {
        {2, {3, 5}},          {2, {1, 5}},          {2, {3, 1}},          {2, {1, 1}},          {3, {4, 3, 5}},
        {3, {1, 1, 5}},       {4, {3, 1, 3, 5}},    {4, {1, 4, 1, 5}},    {5, {2, 3, 4, 3, 5}}, {5, {1, 1, 4, 3, 5}},
        {5, {2, 3, 1, 1, 5}}, {5, {2, 1, 1, 3, 5}}, {5, {1, 3, 4, 1, 5}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int64_t full[5] = {2, 3, 4, 3, 5};
        int64_t count = product(rows[r].rank, rows[r].shape), stride[5] = {0};
        double bias[CAPACITY];
        unsigned char keep[CAPACITY];
        example_init(&e);
        for (int64_t k = 0; k < count; k++) {
            bias[k] = (float)number(k, 3);
            keep[k] = k % 3 != 1;
        }
        for (int64_t axis = rows[r].rank - 1, step = 1; axis >= 0; axis--) {
            stride[axis + 5 - rows[r].rank] = rows[r].shape[axis] == 1 ? 0 : step;
            step *= rows[r].shape[axis];
        }
        for (int64_t k = 0; k < 6 * 4 * 3 * 5; k++) {
            int64_t at = 0, rest = k;
            for (int axis = 4; axis >= 0; axis--) {
                at += rest % full[axis] * stride[axis];
                rest /= full[axis];
            }
            e.bias[k] = bias[at];
            e.keep[k] = keep[at];
        }
        attn_archive *file = example_file(&e, 2, lead23);
        add_floats(file, "bias", rows[r].rank, rows[r].shape, bias);
        add_bytes(file, "mask", rows[r].rank, rows[r].shape, keep);
        write_file(file, "in.safetensors");
        e.p.bias = e.bias;
        check(&e, "--ignore=mask");
        e.p.keep = e.keep;
        check(&e, "");
        e.p.bias = NULL;
        check(&e, "--ignore bias");
    }
}

static void lengths_and_offsets(void **state)
{
    (void)state;
    static example e;
    static const int64_t three[] = {3, 0, 5}, six[] = {-1, 0, 1, 2, 3, -4}, queries[] = {2, 3, 0, 1, 3, 3};
    example_init(&e);
    int64_t keys[6];
    for (int k = 0; k < 6; k++) keys[k] = three[k % 3];
    attn_archive *file = example_file(&e, 2, lead23);
    add_full(file, "lengths_kv", 1, (int64_t[]){3}, ATTN_I32, three);
    add_full(file, "lengths_q", 2, (int64_t[]){2, 3}, ATTN_I64, queries);
    add_full(file, "offset", 2, (int64_t[]){2, 3}, ATTN_I32, six);
    write_file(file, "in.safetensors");
    e.p.len_kv = keys;
    check(&e, "--ignore=offset --ignore=lengths_q");
    e.p.len_q = queries;
    check(&e, "--ignore=offset");
    e.p.causal = 1;
    e.p.offset = six;
    check(&e, "--causal=offset");
    check(&e, "--causal");
    const int64_t twos[] = {2, 2, 2, 2, 2, 2};
    e.p.offset = twos;
    check(&e, "--offset=2 --causal");
    e.p.causal = 0;
    e.p.window = 1, e.p.window_left = 1, e.p.window_right = 0;
    check(&e, "--offset=2 --window=1,0");
    int64_t bottom_right[6];
    for (int k = 0; k < 6; k++) bottom_right[k] = keys[k] - queries[k];
    e.p.offset = bottom_right;
    check(&e, "--ignore=offset --align=bottom-right --window=1,0");
    e.p.scale = -2;
    check(&e, "--ignore=offset --align=bottom-right --window=1,0 --scale=-2");
}

/* `lengths` are those of the keys, unless the file has lengths_kv or is packed, or a flag uses them. */
static void lengths_by_their_other_name(void **state)
{
    (void)state;
    static example e;
    static const int64_t three[] = {3, 0, 5}, ones[] = {1, 1, 1};
    example_init(&e);
    int64_t keys[6], fewer[6];
    for (int k = 0; k < 6; k++) keys[k] = three[k % 3], fewer[k] = ones[k % 3];
    attn_archive *file = example_file(&e, 2, lead23);
    add_full(file, "lengths", 1, (int64_t[]){3}, ATTN_I32, three);
    write_file(file, "in.safetensors");
    check(&e, "--ignore=lengths");
    e.p.len_kv = keys;
    check(&e, "");
    check(&e, "--lengths-kv=lengths");
    e.p.len_kv = NULL, e.p.len_q = fewer;
    file = example_file(&e, 2, lead23);
    add_full(file, "lengths", 1, (int64_t[]){3}, ATTN_I32, ones);
    write_file(file, "in.safetensors");
    check(&e, "--lengths-q=lengths");
    e.p.len_kv = keys, e.p.len_q = NULL;
    file = example_file(&e, 2, lead23);
    add_full(file, "lengths", 1, (int64_t[]){3}, ATTN_I32, ones);
    add_full(file, "lengths_kv", 1, (int64_t[]){3}, ATTN_I32, three);
    write_file(file, "in.safetensors");
    check(&e, "");
}

static void names_and_types(void **state)
{
    (void)state;
    static example e;
    example_init(&e);
    e.p.B = 1;
    attn_archive *file = new_file();
    add_floats(file, "k", 3, (int64_t[]){4, 3, 4}, e.Q); /* misleading names */
    add_floats(file, "q", 3, (int64_t[]){2, 5, 4}, e.K);
    add_floats(file, "values", 3, (int64_t[]){2, 5, 3}, e.V);
    for (int64_t k = 0; k < 4 * 3 * 5; k++) e.bias[k] = (float)number(k, 3);
    add_floats(file, "mask", 3, (int64_t[]){4, 3, 5}, e.bias);
    write_file(file, "in.safetensors");
    e.p.bias = e.bias;
    check(&e, "--query=k --key q --value values --bias=mask");
    check(&e, "--query=k --key q --value values --bias=mask --dtype=f64");
    e.p.bias = NULL;
    check(&e, "--query=k --key q --value values --ignore=mask --dtype f64");
}

/* The same bits for every file format. */
static void formats(void **state)
{
    (void)state;
    static example e;
    example_init(&e);
    write_file(example_file(&e, 1, lead6), "in.safetensors");
    write_file(example_file(&e, 1, lead6), "in.npz");
    static const char *const names[] = {"q", "k", "v"};
    for (int k = 0; k < 3; k++) {
        char name[20];
        attn_archive *all = example_file(&e, 1, lead6), *one = new_file();
        const attn_archive_tensor *t = attn_archive_find(all, names[k]);
        assert_int_equal(attn_archive_add(one, names[k], t->dtype, t->rank, t->shape, t->data, NULL), ATTN_OK);
        snprintf(name, sizeof name, "%s.npy", names[k]);
        write_file(one, name);
        attn_archive_destroy(all);
    }
    e.p.causal = 1;
    check(&e, "--causal");
    run("in.safetensors -o plain.safetensors --causal"); /* without weights: with them, few queries take other kernels */
    run("in.npz -o a.npz --causal --lse");
    run("--query=q.npy --key=k.npy --value=v.npy -o b.npy --causal");
    char view[600]; /* the third of three files is accepted, though weights need only two */
    snprintf(view, sizeof view, "cd %s && exec %s view --query=q.npy --key=k.npy --value=v.npy -o b.html >printed 2>&1", folder,
             ATTN_COMMAND);
    assert_int_equal(system(view), 0);
    run("in.npz --value=v.npy --ignore=v -o c.safetensors --causal");
    attn_archive *first = read_file("plain.safetensors");
    const attn_archive_tensor *o = attn_archive_find(first, "o");
    static const char *const others[] = {"a.npz", "b.npy", "c.safetensors"};
    for (int k = 0; k < 3; k++) {
        attn_archive *other = read_file(others[k]);
        const attn_archive_tensor *t = k == 1 ? attn_archive_at(other, 0) : attn_archive_find(other, "o");
        assert_non_null(t);
        assert_int_equal(t->bytes, o->bytes);
        assert_memory_equal(t->data, o->data, o->bytes);
        attn_archive_destroy(other);
    }
    attn_archive_destroy(first);
}

/* On a terminal, long work is done in slices where possible, for a progress bar: the bits stay the same. */
static void compare_on_terminal(const char *options)
{
    char command[500];
    snprintf(command, sizeof command, "in.safetensors -o plain.safetensors --lse %s", options);
    run(command);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) SKIP_BECAUSE("there are no pseudo terminals");
    snprintf(command, sizeof command, "cd %s && exec %s run in.safetensors -o sliced.safetensors --lse %s 2>%s", folder,
             ATTN_COMMAND, options, ptsname(terminal));
    assert_int_equal(system(command), 0);
    close(terminal);
    attn_archive *plain = read_file("plain.safetensors"), *sliced = read_file("sliced.safetensors");
    static const char *const outputs[] = {"o", "lse"};
    for (int k = 0; k < 2; k++) {
        const attn_archive_tensor *a = attn_archive_find(plain, outputs[k]), *b = attn_archive_find(sliced, outputs[k]);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    attn_archive_destroy(plain);
    attn_archive_destroy(sliced);
}

static void a_terminal_changes_nothing(void **state)
{
    (void)state;
    enum { S = 4500, D = 64 }; /* above 2e9 operations, else there are no slices */
    static double values[S * D];
    for (int64_t k = 0; k < S * D; k++) values[k] = number(k, 0);
    attn_archive *file = new_file();
    static const char *const names[] = {"q", "k", "v"};
    for (int k = 0; k < 3; k++) add_floats(file, names[k], 4, (int64_t[]){1, 1, S, D}, values);
    add_full(file, "lengths_q", 1, (int64_t[]){1}, ATTN_I64, (int64_t[]){4300});
    add_full(file, "lengths_kv", 1, (int64_t[]){1}, ATTN_I64, (int64_t[]){4400});
    static const unsigned char blocks[7 * 2] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1};
    add_bytes(file, "blocks", 2, (int64_t[]){7, 2}, blocks);
    add_floats(file, "slopes", 4, (int64_t[]){1, 1, 1, 1}, (double[]){0.01});
    write_file(file, "in.safetensors");
    compare_on_terminal("--ignore=blocks --ignore=slopes --causal=bottom-right --window=4390,-1");
    compare_on_terminal("--ignore=blocks --causal --softcap=2 --temperature=0.5 --chunk=4200 --empty=uniform");
    compare_on_terminal(
        "--ignore=blocks --ignore=slopes --dropout=0.5 --seed=3"); /* no slices: the dropout mask depends on the query index */
    compare_on_terminal("--ignore=slopes --block=700,2250");       /* no slices: one would split a block */
}

static void empty_tensors(void **state)
{
    (void)state;
    attn_archive *file = new_file();
    add_floats(file, "q", 4, (int64_t[]){0, 4, 3, 4}, NULL);
    add_floats(file, "k", 4, (int64_t[]){0, 2, 5, 4}, NULL);
    add_floats(file, "v", 4, (int64_t[]){0, 2, 5, 3}, NULL);
    write_file(file, "in.safetensors");
    run("in.safetensors -o out.safetensors --lse --weights");
    static const double zeros[12];
    static double q[12];
    for (int k = 0; k < 12; k++) q[k] = number(k, 0);
    file = new_file();
    add_floats(file, "q", 3, (int64_t[]){1, 3, 4}, q);
    add_floats(file, "k", 3, (int64_t[]){1, 0, 4}, NULL);
    add_floats(file, "v", 3, (int64_t[]){1, 0, 4}, NULL);
    write_file(file, "in.safetensors");
    run("in.safetensors -o out.safetensors");
    attn_archive *out = read_file("out.safetensors");
    assert_close(out, "o", zeros, 12); /* no keys: zeros */
    attn_archive_destroy(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_in_the_file),
        cmocka_unit_test(leading_axes_are_batch),
        cmocka_unit_test(small_ranks),
        cmocka_unit_test(layout_bshd),
        cmocka_unit_test(masks_and_biases_broadcast),
        cmocka_unit_test(lengths_and_offsets),
        cmocka_unit_test(lengths_by_their_other_name),
        cmocka_unit_test(names_and_types),
        cmocka_unit_test(formats),
        cmocka_unit_test(a_terminal_changes_nothing),
        cmocka_unit_test(empty_tensors),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
