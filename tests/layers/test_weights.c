/* SPDX-License-Identifier: MIT
 *
 * test_weights.c - a layer's weights: names in files, counting, fused and grouped matrices; and a layer of a real model.
 */
#include "bad_files.h"

#include "attn/layers.h"

static const int64_t E = 8;

static attn_layer layer_of(int64_t heads, int64_t heads_kv)
{
    return (attn_layer){.struct_size = sizeof(attn_layer), .dim_model = E, .heads_q = heads, .heads_kv = heads_kv};
}

/* Storage for the weights of a layer of width E. */
typedef struct storage {
    float q[64], k[64], v[64], o[64], bq[8], bk[8], bv[8], bo[8];
} storage;

static attn_layer_weights weights_in(storage *r)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query.data = r->q,
                                .query_bias.data = r->bq,
                                .key.data = r->k,
                                .key_bias.data = r->bk,
                                .value.data = r->v,
                                .value_bias.data = r->bv,
                                .output.data = r->o,
                                .output_bias.data = r->bo};
}

static void test_counts(void **state)
{
    /* 4 D^2 = 2,359,296 at D = 768; with biases of four projections 4 D more; grouped 2 D H d + 2 D G d */
    const struct {
        int64_t dim, heads, heads_kv;
        int bias;
        int64_t parameters;
    } cases[] = {
        {768, 12, 0, 0, 2359296}, {512, 8, 0, 0, 1048576}, {512, 8, 0, 1, 1050624}, {512, 8, 2, 0, 2 * 512 * 512 + 2 * 512 * 128}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_layer layer = {
            .struct_size = sizeof layer, .dim_model = cases[i].dim, .heads_q = cases[i].heads, .heads_kv = cases[i].heads_kv};
        float some = 0;
        attn_layer_weights w = {.struct_size = sizeof w};
        attn_layer_counts counts = {.struct_size = sizeof counts};
        if (cases[i].bias) w.query_bias.data = w.key_bias.data = w.value_bias.data = w.output_bias.data = &some;
        assert_int_equal(attn_layer_count(&layer, 0, 0, 0, &w, &counts, NULL), ATTN_OK);
        assert_int_equal(counts.parameters, cases[i].parameters);
    }
    /* LLaMA-7B: 32 heads of 128, 2048 tokens, 32 layers: 1 GiB of keys and values in 16 bits, so 2 GiB in f32 */
    attn_layer layer = {.struct_size = sizeof layer, .dim_model = 4096, .heads_q = 32};
    attn_layer_counts counts = {.struct_size = sizeof counts};
    assert_int_equal(attn_layer_count(&layer, 1, 2048, 2048, NULL, &counts, NULL), ATTN_OK);
    assert_int_equal(counts.cache_per_token * 2048 * 32, INT64_C(2) << 30);
}

/* Weights of any layout are the same numbers after they are stored and loaded. */
static void test_store_and_load(void **state)
{
    static storage r, transposed;
    static float extra[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    attn_layer layer = layer_of(4, 2);
    attn_layer_weights weights = weights_in(&r), back = {.struct_size = sizeof back};
    attn_archive *file = NULL;
    attn_error error;
    (void)state;
    assert_int_equal(attn_layer_initialise(&layer, ATTN_INIT_XAVIER, 1, &weights, NULL), ATTN_OK);
    for (int i = 0; i < 8; i++) r.bq[i] = (float)i, r.bo[i] = (float)-i;
    /* the query's matrix as [in, out] */
    for (int o = 0; o < 8; o++)
        for (int i = 0; i < 8; i++) transposed.q[i * 8 + o] = r.q[o * 8 + i];
    weights.query = (attn_output){transposed.q, ATTN_F32, {0, 2, 1, 8}};
    weights.extra_key.data = extra[0], weights.extra_value.data = extra[1];
    assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
    assert_int_equal(attn_layer_store(&layer, &weights, "layers.3.", file, &error), ATTN_OK);
    assert_non_null(attn_archive_find(file, "layers.3.in_proj_weight"));
    assert_non_null(attn_archive_find(file, "layers.3.out_proj.bias"));
    assert_int_equal(attn_layer_load(&layer, file, "layers.3.", &back, &error), ATTN_OK);
    assert_memory_equal(back.query.data, r.q, 8 * 8 * sizeof(float));
    assert_memory_equal(back.key.data, r.k, 4 * 8 * sizeof(float));
    assert_memory_equal(back.value.data, r.v, 4 * 8 * sizeof(float));
    assert_memory_equal(back.output.data, r.o, 8 * 8 * sizeof(float));
    assert_memory_equal(back.query_bias.data, r.bq, sizeof r.bq);
    assert_memory_equal(back.key_bias.data, r.bk, 4 * sizeof(float));
    assert_memory_equal(back.output_bias.data, r.bo, sizeof r.bo);
    assert_memory_equal(back.extra_key.data, extra[0], sizeof extra[0]);
    assert_memory_equal(back.extra_value.data, extra[1], sizeof extra[1]);
    attn_archive_destroy(file);
}

/* If a name is taken, the container stays unchanged, whichever tensor has that name. */
static void test_store_all_or_nothing(void **state)
{
    static const char *const names[] = {"a.in_proj_weight", "a.out_proj.weight", "a.in_proj_bias",
                                        "a.out_proj.bias",  "a.bias_k",          "a.bias_v"};
    static storage r;
    static float extra[2][8];
    const attn_layer layer = layer_of(2, 0);
    attn_layer_weights weights = weights_in(&r);
    (void)state;
    weights.extra_key.data = extra[0], weights.extra_value.data = extra[1];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        attn_archive *file = NULL;
        attn_error error;
        char message[80];
        assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
        assert_int_equal(attn_archive_add(file, names[i], ATTN_F32, 1, (int64_t[]){8}, extra[0], NULL), ATTN_OK);
        assert_int_equal(attn_layer_store(&layer, &weights, "a.", file, &error), ATTN_ERR_ARGUMENT);
        (void)snprintf(message, sizeof message, "tensor '%s': the name is taken", names[i]);
        assert_string_equal(error.message, message);
        assert_int_equal(attn_archive_count(file), 1);
        assert_ptr_equal(attn_archive_find(file, names[i])->data, extra[0]);
        assert_int_equal(attn_archive_remove(file, names[i], NULL), ATTN_OK);
        assert_int_equal(attn_layer_store(&layer, &weights, "a.", file, &error), ATTN_OK);
        assert_int_equal(attn_archive_count(file), 6);
        attn_archive_destroy(file);
    }
}

static void test_bad_files(void **state)
{
    static const char *const messages[BAD_KINDS] = {"layer: no tensor 'a.out_proj.weight', 'a.o_proj.weight' or 'a.wo'",
                                                    "layer: tensor 'a.wo' has shape [8, 7]; the layer has [8, 8]",
                                                    "layer: tensor 'a.wo' is f64; the layer is f32",
                                                    "layer: tensor 'a.wo' has a NaN at element 2"};
    const attn_layer layer = layer_of(2, 0);
    (void)state;
    for (int fault = 0; fault < BAD_KINDS; fault++) {
        attn_layer_weights weights;
        attn_archive *file = empty_file();
        add_matrix(file, "a.wq", 8, 8, GOOD);
        add_matrix(file, "a.wk", 8, 8, GOOD);
        add_matrix(file, "a.wv", 8, 8, GOOD);
        add_matrix(file, "a.wo", 8, 8, fault);
        LOAD_FAILS(attn_layer_load(&layer, file, "a.", &weights, &error), messages[fault]);
    }
}

/* An extra key without its value, or of another width. */
static void test_bad_extra(void **state)
{
    static const float extra[8];
    const int64_t eight[3] = {1, 1, 8}, seven[1] = {7};
    const struct {
        const char *name, *message;
        int rank;
        const int64_t *shape;
    } cases[] = {{"bias_k", "layer: tensor 'bias_k' is present, but bias_v is missing", 3, eight},
                 {"bias_v", "layer: tensor 'bias_v' is present, but bias_k is missing", 3, eight},
                 {NULL, "layer: tensor 'bias_v' has shape [7]; the layer has [8]", 1, seven}};
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    const attn_layer layer = layer_of(2, 0);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_layer_weights weights;
        attn_archive *file = empty_file();
        for (int n = 0; n < 4; n++) add_matrix(file, names[n], 8, 8, GOOD);
        if (!cases[i].name) assert_int_equal(attn_archive_add(file, "bias_k", ATTN_F32, 3, eight, extra, NULL), ATTN_OK);
        assert_int_equal(
            attn_archive_add(file, cases[i].name ? cases[i].name : "bias_v", ATTN_F32, cases[i].rank, cases[i].shape, extra, NULL),
            ATTN_OK);
        LOAD_FAILS(attn_layer_load(&layer, file, "", &weights, &error), cases[i].message);
    }
}

/* Grouping identical heads changes nothing. */
static void test_group_heads(void **state)
{
    static storage r, few;
    static float x[3 * 8], y[3 * 8], z[3 * 8];
    attn_layer layer = layer_of(4, 0), grouped_layer = layer_of(4, 2);
    attn_layer_weights weights = weights_in(&r), grouped = weights_in(&few);
    (void)state;
    assert_int_equal(attn_layer_initialise(&layer, ATTN_INIT_XAVIER, 9, &weights, NULL), ATTN_OK);
    for (int i = 0; i < 8; i++) r.bk[i] = (float)(i / 4), r.bv[i] = (float)(i % 2);
    for (int h = 0; h < 4; h += 2) { /* heads h and h + 1 */
        memcpy(r.k + (h + 1) * 16, r.k + h * 16, 16 * sizeof *r.k);
        memcpy(r.v + (h + 1) * 16, r.v + h * 16, 16 * sizeof *r.v);
    }
    float extra[2][8], extra_few[2][4];
    for (int i = 0; i < 16; i++)
        extra[i / 8][i % 8] = (float)(i / 8 + i % 2 + i % 8 / 4); /* the two heads of a pair are identical */
    weights.extra_key.data = extra[0], weights.extra_value.data = extra[1];
    grouped.extra_key.data = extra_few[0], grouped.extra_value.data = extra_few[1];
    grouped.query = weights.query, grouped.output = weights.output;
    assert_int_equal(attn_layer_group_heads(&layer, 2, &weights, &grouped, NULL), ATTN_OK);
    for (int i = 0; i < 24; i++) x[i] = sinf((float)i);
    attn_layer_tensors args = {.struct_size = sizeof args, .batch = 1, .len_q = 3, .query = {.data = x}, .output = {.data = y}};
    assert_int_equal(attn_layer_forward(&layer, &weights, &args, NULL), ATTN_OK);
    args.output.data = z;
    assert_int_equal(attn_layer_forward(&grouped_layer, &grouped, &args, NULL), ATTN_OK);
    for (int i = 0; i < 24; i++) assert_true(fabsf(y[i] - z[i]) < 64 * 0x1p-24f); /* sums of 8 numbers below 1, four deep */
}

/* One head with identity matrices as weights equals attention, to the bit: the products are exact. */
static void p16_identity(void **state)
{
    static float identity[8 * 8], x[2 * 5 * 8], y[2 * 5 * 8], o[2 * 5 * 8];
    const attn_layer layer = layer_of(1, 0);
    const attn_layer_weights weights = {.struct_size = sizeof weights,
                                        .query.data = identity,
                                        .key.data = identity,
                                        .value.data = identity,
                                        .output.data = identity};
    const attn_problem problem = {.struct_size = sizeof problem, .shape = {2, 1, 1, 5, 5, 8, 8}};
    const attn_tensors core = {.struct_size = sizeof core, .q = attn_in(x), .k = attn_in(x), .v = attn_in(x), .o = attn_out(o)};
    const attn_layer_tensors args = {
        .struct_size = sizeof args, .batch = 2, .len_q = 5, .query = {.data = x}, .output = {.data = y}};
    (void)state;
    for (int i = 0; i < 8; i++) identity[i * 9] = 1;
    for (int i = 0; i < 80; i++) x[i] = sinf(1.3f * (float)i);
    assert_int_equal(attn_layer_forward(&layer, &weights, &args, NULL), ATTN_OK);
    assert_int_equal(attn_compute(&problem, &core, NULL), ATTN_OK);
    assert_memory_equal(y, o, sizeof y);
}

/* Three pointers into one [3 D, D] matrix, or into one [D, 3 D] of x W, equal three separate matrices. */
static void p16_fused(void **state)
{
    static storage r;
    static float rows[3 * 8 * 8], columns[8 * 3 * 8], x[5 * 8], y[3][5 * 8];
    const attn_layer layer = layer_of(4, 0);
    attn_layer_weights weights[3] = {weights_in(&r), weights_in(&r), weights_in(&r)};
    attn_output *fused[2][3] = {{&weights[1].query, &weights[1].key, &weights[1].value},
                                {&weights[2].query, &weights[2].key, &weights[2].value}};
    const float *const apart[3] = {r.q, r.k, r.v};
    (void)state;
    assert_int_equal(attn_layer_initialise(&layer, ATTN_INIT_SMALL, 3, &weights[0], NULL), ATTN_OK);
    for (int p = 0; p < 3; p++) {
        for (int o = 0; o < 8; o++)
            for (int i = 0; i < 8; i++) rows[(p * 8 + o) * 8 + i] = columns[i * 24 + p * 8 + o] = apart[p][o * 8 + i];
        *fused[0][p] = attn_out(rows + p * 64);
        *fused[1][p] = (attn_output){columns + p * 8, ATTN_F32, {0, 2, 1, 24}};
        if (p == 0) weights[1].query_bias.data = weights[2].query_bias.data = r.bq;
    }
    for (int i = 0; i < 40; i++) x[i] = cosf((float)i);
    for (int n = 0; n < 3; n++) {
        const attn_layer_tensors args = {
            .struct_size = sizeof args, .batch = 1, .len_q = 5, .query = {.data = x}, .output = {.data = y[n]}};
        assert_int_equal(attn_layer_forward(&layer, &weights[n], &args, NULL), ATTN_OK);
    }
    for (int i = 0; i < 40; i++) {
        assert_true(fabsf(y[1][i] - y[0][i]) <= 64 * 0x1p-24f); /* sums of 8 numbers below 1, four deep */
        assert_true(fabsf(y[2][i] - y[0][i]) <= 64 * 0x1p-24f);
    }
}

/* Each entry of a padded batch equals a call on its own, whatever the padding holds. */
static void test_padded_batch(void **state)
{
    static storage r;
    static float x[2 * 5 * 8], y[2 * 5 * 8], alone[5 * 8];
    static const int64_t lengths[2] = {3, 5};
    const attn_layer layer = layer_of(4, 2);
    attn_layer_weights weights = weights_in(&r);
    const attn_tensors with_lengths = {
        .struct_size = sizeof with_lengths, .lengths_q = attn_in(lengths), .lengths_kv = attn_in(lengths)};
    (void)state;
    assert_int_equal(attn_layer_initialise(&layer, ATTN_INIT_XAVIER, 2, &weights, NULL), ATTN_OK);
    for (int i = 0; i < 80; i++) x[i] = i / 8 % 5 < 3 || i >= 40 ? cosf((float)i) : NAN;
    attn_layer_tensors args = {.struct_size = sizeof args, .batch = 2, .len_q = 5, .query = {.data = x}, .output = {.data = y}};
    args.attention = &with_lengths;
    assert_int_equal(attn_layer_forward(&layer, &weights, &args, NULL), ATTN_OK);
    args.attention = NULL;
    args.batch = 1;
    args.output.data = alone;
    for (int b = 0; b < 2; b++) {
        args.query.data = x + b * 40;
        args.len_q = lengths[b];
        assert_int_equal(attn_layer_forward(&layer, &weights, &args, NULL), ATTN_OK);
        for (int i = 0; i < lengths[b] * 8; i++) assert_true(fabsf(y[b * 40 + i] - alone[i]) < 64 * 0x1p-24f);
    }
}

/* Row statistics include the extra key: they equal those computed from the row of weights with its column. */
static void test_extra_statistics(void **state)
{
    enum { LEN = 5, WIDE = 4, ROWS = 2 * LEN };
    static double w[4][WIDE * WIDE], extra[2][WIDE], x[ROWS * WIDE], y[ROWS * WIDE], mean[ROWS * (LEN + 1)], lse[ROWS], most[ROWS],
        entropy[ROWS], keys[ROWS];
    static const int64_t lengths[2] = {0, 4}; /* the first entry sees only the extra key */
    attn_problem options = {.struct_size = sizeof options, .score.temperature = 0.7, .score.softcap = 2};
    attn_tensors more = {.struct_size = sizeof more,
                         .lengths_kv = attn_in(lengths),
                         .lse = attn_out(lse),
                         .row_max = attn_out(most),
                         .entropy = attn_out(entropy)};
    const attn_layer layer = {
        .struct_size = sizeof layer, .dtype = ATTN_F64, .dim_model = WIDE, .heads_q = 1, .attention = &options};
    const attn_layer_weights weights = {.struct_size = sizeof weights,
                                        .query.data = w[0],
                                        .key.data = w[1],
                                        .value.data = w[2],
                                        .output.data = w[3],
                                        .extra_key.data = extra[0],
                                        .extra_value.data = extra[1]};
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = 2,
                                     .len_q = LEN,
                                     .query.data = x,
                                     .output.data = y,
                                     .weights_mean = {.data = mean},
                                     .attention = &more};
    attn_error error;
    (void)state;
    for (int i = 0; i < 4 * WIDE * WIDE; i++) w[i / (WIDE * WIDE)][i % (WIDE * WIDE)] = sin(1.7 * i);
    for (int i = 0; i < 2 * WIDE; i++) extra[i / WIDE][i % WIDE] = cos(2.1 * i);
    for (int i = 0; i < ROWS * WIDE; i++) x[i] = sin(0.9 * i);
    options.mask.causal = 1;
    for (int both = 0; both < 2;
         both++) { /* first without effective_keys, then with it; below, effective_keys without the entropy */
        if (both) more.effective_keys = attn_out(keys);
        if (attn_layer_forward(&layer, &weights, &args, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, largest = 0;
            for (int j = 0; j <= LEN; j++) {
                const double one = mean[r * (LEN + 1) + j];
                if (one > 0) sum -= one * log(one);
                largest = fmax(largest, one);
            }
            assert_true(fabs(entropy[r] - sum) < 1e-14);
            assert_true(fabs(most[r] - (lse[r] + log(largest))) < 1e-14);
            if (both) assert_true(fabs(keys[r] - exp(sum)) < 1e-13);
        }
    }
    more.entropy = (attn_output){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    memset(keys, 0, sizeof keys);
    assert_int_equal(attn_layer_forward(&layer, &weights, &args, NULL), ATTN_OK);
    for (int r = 0; r < ROWS; r++) assert_true(fabs(keys[r] - exp(entropy[r])) < 1e-13);
}

/* A layer of a real model: its own output and weights. */
static void test_real(void **state)
{
    static float y[14 * 384], mean[14 * 14];
    attn_archive *file = NULL;
    attn_error error;
    attn_layer layer = {.struct_size = sizeof layer, .dim_model = 384, .heads_q = 12};
    attn_layer_weights weights = {.struct_size = sizeof weights};
    double largest = 0, largest_weight = 0, scale = 0;
    (void)state;
    if (attn_archive_read(&file, "examples/data/animal_street_layer2.safetensors", &error) != ATTN_OK)
        fail_msg("%s", error.message);
    const float *model = attn_archive_find(file, "y")->data, *model_weights = attn_archive_find(file, "weights")->data;
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = 1,
                                     .len_q = 14,
                                     .query = {.data = attn_archive_find(file, "x")->data},
                                     .output = {.data = y},
                                     .weights_mean = {.data = mean}};
    if (attn_layer_load(&layer, file, "", &weights, &error) != ATTN_OK ||
        attn_layer_forward(&layer, &weights, &args, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    for (int i = 0; i < 14 * 384; i++) largest = fmax(largest, fabs(y[i] - model[i])), scale = fmax(scale, fabs(model[i]));
    for (int i = 0; i < 14 * 14; i++) {
        double sum = 0;
        for (int h = 0; h < 12; h++) sum += model_weights[h * 196 + i];
        largest_weight = fmax(largest_weight, fabs(mean[i] - sum / 12));
    }
    print_message("largest difference to the model: y %.2g of %.2g, mean weights %.2g\n", largest, scale, largest_weight);
    assert_true(largest <= 2 * 384 * 0x1p-24 * scale); /* both sides round sums of 384 products, twice */
    assert_true(largest_weight <= 384 * 0x1p-24);
    attn_archive_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_store_and_load),
                                       cmocka_unit_test(test_store_all_or_nothing),
                                       cmocka_unit_test(test_bad_files),
                                       cmocka_unit_test(test_bad_extra),
                                       cmocka_unit_test(test_extra_statistics),
                                       cmocka_unit_test(test_group_heads),
                                       cmocka_unit_test(p16_identity),
                                       cmocka_unit_test(p16_fused),
                                       cmocka_unit_test(test_padded_batch),
                                       cmocka_unit_test(test_real)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
