/* SPDX-License-Identifier: MIT
 *
 * test_heads.c - heads that ranks divide, or take one after another: the bits of one rank for every number of ranks, layout and
 * group, also where heads are few or do not divide evenly; masks that broadcast on some ranks alone; and what these ways do not
 * have. */
#include "spread.h"
#include "testing/random/share.h"

/* ---- every number of ranks ---- */

enum { BATCH = 2, HEADS = 6, HEADS_KV = 3, QUERIES = 45, KEYS = 53, DIM = 8, PART = 6, PARTS = 16 };

/* Options of a problem. */
enum { CAUSAL = 1, WINDOW = 2, DROPOUT = 4, BIAS = 8, MASK = 16, SINK = 32, SLOPES = 64, PACKED = 128, TABLE = 256, EQUAL = 512 };

static const struct {
    const char *name;
    int options;
} problems[] = {{"dense", 0},
                {"causal, sink", CAUSAL | SINK},
                {"window, slopes", WINDOW | SLOPES},
                {"dropout, bias", DROPOUT | BIAS},
                {"causal, mask, table", CAUSAL | MASK | TABLE},
                {"packed, causal, dropout", PACKED | CAUSAL | DROPOUT},
                {"packed, window, sink", PACKED | WINDOW | SINK},
                {"one query head for each key head, window, bias", EQUAL | WINDOW | BIAS}};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static array numbers(whole *w, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const array a = array_make(w->dtype, b, h, i, c);
    w->owned[w->count++] = a.data;
    for (int64_t n = 0; n < b * h * i * c; n++) ((float *)(void *)a.data)[n] = (float)random_signed(&w->random);
    return a;
}

static void build(whole *w, spread_more *more, const char *name, int options)
{
    static const int64_t starts[2][6] = {{0, 5, 5, 19, 20, QUERIES}, {0, 9, 11, 30, 30, KEYS}};
    const int packed = (options & PACKED) != 0, B = packed ? 1 : BATCH, H = options & EQUAL ? HEADS_KV : HEADS;
    *w = (whole){.problem.struct_size = sizeof w->problem, .dtype = ATTN_F32, .random = random_from((uint64_t)options)};
    *more = (spread_more){.documents = packed ? 5 : 0};
    attn_problem *p = &w->problem;
    p->shape = (attn_shape){B, H, HEADS_KV, QUERIES, KEYS, DIM, DIM};
    p->mask.causal = (options & CAUSAL) != 0;
    if (options & WINDOW) p->mask.window = 1, p->mask.window_left = 8, p->mask.window_right = 3;
    if (options & DROPOUT) p->dropout.probability = 0.25;
    w->call = (attn_call){.struct_size = sizeof w->call, .dropout_seed = 9};
    w->q = numbers(w, B, H, QUERIES, DIM), w->k = numbers(w, B, HEADS_KV, KEYS, DIM), w->v = numbers(w, B, HEADS_KV, KEYS, DIM);
    w->grad_o = numbers(w, B, H, QUERIES, DIM), w->grad_lse = numbers(w, B, H, QUERIES, 1);
    w->tan_q = numbers(w, B, H, QUERIES, DIM), w->tan_k = numbers(w, B, HEADS_KV, KEYS, DIM);
    w->tan_v = numbers(w, B, HEADS_KV, KEYS, DIM);
    if (options & BIAS) w->bias = numbers(w, B, H, QUERIES, KEYS), w->tan_bias = numbers(w, B, H, QUERIES, KEYS);
    if (options & SLOPES) w->slopes = numbers(w, B, H, 1, 1);
    if (options & SINK) more->sink = numbers(w, 1, H, 1, 1);
    if (options & TABLE) {
        p->bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = 4};
        w->table = numbers(w, 1, H, 9, 1);
    }
    if (options & MASK) {
        w->mask = array_make(ATTN_BOOL, B, H, QUERIES, KEYS);
        w->owned[w->count++] = w->mask.data;
        for (int64_t n = 0; n < (int64_t)B * H * QUERIES * KEYS; n++) w->mask.data[n] = random_below(&w->random, 4) > 0;
    }
    for (int n = 0; packed && n < 6; n++) more->starts_q[n] = starts[0][n], more->starts_kv[n] = starts[1][n];
    for (int n = 0; n < SPREAD_EXTRAS && options & (CAUSAL | SINK); n++)
        if (!strcmp(spread_outputs[n], "column_sum") || (!packed && !strcmp(spread_outputs[n], "weights"))) more->outputs |= 1 << n;
    more->how = (attn_outputs){.after_dropout = 1, .column_heads = options & CAUSAL ? ATTN_COLUMNS_GROUP : ATTN_COLUMNS_EACH};
    (void)snprintf(w->text, sizeof w->text, "%s", name);
}

static void check(const spread *all, const spread *one, spread_way way)
{
    static int32_t owners[2][PARTS];
    spread other;
    for (int n = 0; n < PARTS; n++) owners[0][n] = (n * n + 1) % way.ranks, owners[1][n] = (3 * n + n / 4) % way.ranks;
    if (way.split.layout == ATTN_LAYOUT_OWNERS) way.split.owners_q = owners[0], way.split.owners_kv = owners[1];
    spread_run(all, &way, &other);
    if (!spread_same(one, &other))
        fail_msg("%s, op %d: other bits on %d ranks in groups of %d, layout %d", all->w->text, (int)all->problem.op, way.ranks,
                 (int)way.split.ranks_heads, (int)way.split.layout);
    spread_free(&other);
}

static void test_op(attn_op op)
{
    const int share = (int)share_stride(), some = 3 * share; /* a third of them */
    int ran = 0;
    for (int n = 0; n < PROBLEMS; n++) {
        static whole w;
        spread_more more;
        spread forward, all, one;
        spread_way way = {.ranks = 1, .split = {.struct_size = sizeof way.split, .part = PART}, .threads = 1};
        build(&w, &more, problems[n].name, problems[n].options);
        if (op == ATTN_JVP && w.table.data) w.table.data = NULL, w.problem.bias_table = (attn_bias_table){.kind = 0};
        spread_make(&forward, &w, &more, ATTN_FORWARD, NULL);
        spread_make(&all, &w, &more, op, op == ATTN_FORWARD ? NULL : &forward);
        spread_run(&all, &way, &one);
        for (int r = 1; r <= 8; r++)
            for (int members = -1; members <= r; members++) /* -1: one head after another, on all ranks */
                for (int layout = 0; layout <= ATTN_LAYOUT_OWNERS; layout++) {
                    if ((members > 0 && r % members) || (n + r + members + layout) % some) continue;
                    way.ranks = r;
                    way.split.layout = (attn_layout)layout;
                    way.split.way = members < 0 ? ATTN_WAY_GATHER : members ? ATTN_WAY_HEADS_RING : ATTN_WAY_HEADS;
                    way.split.ranks_heads = members < 0 ? 0 : members;
                    check(&all, &one, way);
                    ran++;
                }
        spread_free(&one), spread_free(&all), spread_free(&forward);
        for (int k = 0; k < w.count; k++) free(w.owned[k]);
    }
    assert_in_range(ran, 8 * 36 / share, 8 * 36 * 4);
}

static void test_forward(void **state) { (void)state, test_op(ATTN_FORWARD); }
static void test_backward(void **state) { (void)state, test_op(ATTN_BACKWARD); }
static void test_jvp(void **state) { (void)state, test_op(ATTN_JVP); }
static void test_second(void **state) { (void)state, test_op(ATTN_DOUBLE_BACKWARD); }

/* ---- masks that broadcast ---- */

enum { RANKS = 4, TOKENS = 24, B_TOKENS = 4, OWN = TOKENS, B = 2, H = 4 };

/* All tokens belong to ranks 0 .. 2, so that rank 3 has no rows. */
static const int32_t three[TOKENS / B_TOKENS] = {0, 1, 2, 0, 1, 2};

typedef struct broadcasting {
    attn_op op;
    attn_way way;
    int ranks;
    int entries, heads; /* bit r: the bias of rank r broadcasts along these */
    int gradient;
    float o[RANKS][B * H * OWN * 4], grad_bias[RANKS][B * H * OWN * TOKENS];
    attn_error error[RANKS];
    int64_t bytes[RANKS], workspace[RANKS];
} broadcasting;

static attn_input strided(const void *data, int64_t b, int64_t h, int64_t row)
{
    return (attn_input){data, ATTN_F32, {b ? b : ATTN_BROADCAST, h ? h : ATTN_BROADCAST, row, 1}};
}

/* A bias that is the same for all heads and entries, stored once or for each. */
static void broadcast_on_rank(void *context, const attn_transport *t)
{
    broadcasting *x = context;
    const int r = t->rank, rows = x->ranks == 1 ? TOKENS : r < 3 ? 2 * B_TOKENS : 0;
    static _Thread_local float in[4][B * H * OWN * 4], lse[B * H * OWN], bias[B * H * OWN * TOKENS], grads[3][B * H * OWN * 4];
    attn_split split = {.struct_size = sizeof split, .part = B_TOKENS, .way = x->way, .layout = ATTN_LAYOUT_OWNERS};
    const int32_t alone[TOKENS / B_TOKENS] = {0};
    split.owners_q = split.owners_kv = x->ranks == 1 ? alone : three;
    if (x->way == ATTN_WAY_HEADS_RING) split.ranks_heads = 2;
    for (int n = 0; n < rows; n++) {
        const int token = x->ranks == 1 ? n : (n / B_TOKENS * 3 + r) * B_TOKENS + n % B_TOKENS;
        for (int bh = 0; bh < B * H; bh++) {
            for (int k = 0; k < 4; k++)
                for (int d = 0; d < 4; d++) in[k][(bh * rows + n) * 4 + d] = (float)((token * 7 + bh * 3 + k * 5 + d) % 13 - 6) / 8;
            lse[bh * rows + n] = 4;
            for (int j = 0; j < TOKENS; j++) bias[(bh * rows + n) * TOKENS + j] = (float)((token * 5 + j * 3) % 11 - 5) / 8;
        }
    }
    const attn_problem p = {.struct_size = sizeof p, .op = x->op, .shape = {B, H, H, TOKENS, TOKENS, 4, 4}, .mask.causal = 1};
    const int64_t row = TOKENS, of_head = (rows ? rows : 1) * row, of_entry = H * of_head;
    const int all_entries = x->entries >> r & 1, all_heads = x->heads >> r & 1;
    attn_tensors tensors = {.struct_size = sizeof tensors, .q = attn_in(in[0]), .k = attn_in(in[1]), .v = attn_in(in[2])};
    tensors.bias = strided(bias, all_entries ? 0 : of_entry, all_heads ? 0 : of_head, row);
    tensors.o = attn_out(x->o[r]);
    if (x->op == ATTN_BACKWARD) {
        tensors.grad_o = attn_in(in[3]), tensors.lse = attn_out(lse), tensors.o = attn_out(in[0]);
        tensors.grad_q = attn_out(grads[0]), tensors.grad_k = attn_out(grads[1]), tensors.grad_v = attn_out(grads[2]);
        if (x->gradient) tensors.grad_bias = attn_out(x->grad_bias[r]);
    }
    attn_distributed_plan *plan;
    attn_distributed_description d = {.struct_size = sizeof d};
    int64_t messages[2], bytes[2];
    if (attn_distributed_plan_create(&plan, &p, &tensors, &split, t, NULL, &x->error[r]) != ATTN_OK) return;
    void *workspace = malloc(attn_distributed_workspace_size(plan));
    assert_non_null(workspace);
    assert_int_equal(attn_distributed_describe(plan, &d, NULL), ATTN_OK);
    ranks_sent(t, &messages[0], &bytes[0]);
    if (attn_distributed_execute(plan, &tensors, workspace, d.workspace_bytes, &x->error[r]) == ATTN_OK) {
        ranks_sent(t, &messages[1], &bytes[1]);
        if (d.messages != messages[1] - messages[0] || d.bytes != bytes[1] - bytes[0])
            fail_msg("rank %d has sent %d bytes, and not %d", r, (int)(bytes[1] - bytes[0]), (int)d.bytes);
    }
    x->bytes[r] = d.bytes, x->workspace[r] = (int64_t)d.workspace_bytes;
    free(workspace);
    attn_distributed_plan_destroy(plan);
}

static broadcasting *broadcast(attn_op op, attn_way way, int ranks, int entries, int heads, int gradient)
{
    broadcasting *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->op = op, x->way = way, x->ranks = ranks, x->entries = entries, x->heads = heads, x->gradient = gradient;
    ranks_run(ranks, 0, broadcast_on_rank, x);
    if (ranks_wrong()) fail_msg("%s", ranks_wrong());
    for (int r = 1; r < ranks; r++) {
        assert_int_equal(x->error[r].status, x->error[0].status);
        assert_string_equal(x->error[r].message, x->error[0].message);
    }
    return x;
}

/* The bits of the bias that each has for itself. */
static void test_broadcast(void **state)
{
    static const attn_way ways[] = {ATTN_WAY_HEADS, ATTN_WAY_HEADS_RING, ATTN_WAY_GATHER};
    (void)state;
    broadcasting *one = broadcast(ATTN_FORWARD, ATTN_WAY_DIRECT, RANKS, 0, 0, 0);
    for (int way = 0; way < 3; way++) {
        int64_t bytes[3];
        for (int n = 0; n < 3; n++) { /* nobody, everybody, some */
            static const int bits[] = {0, 7, 5};
            broadcasting *x = broadcast(ATTN_FORWARD, ways[way], RANKS, bits[n], bits[n], 0);
            if (x->error[0].status != ATTN_OK) fail_msg("%s", x->error[0].message);
            assert_memory_equal(x->o, one->o, sizeof x->o);
            bytes[n] = x->bytes[0];
            free(x);
        }
        assert_true(ways[way] == ATTN_WAY_GATHER ? bytes[1] == bytes[0] : bytes[1] < bytes[0]); /* (biases stay) */
        assert_true(bytes[2] == bytes[0]);
    }
    free(one);
}

/* The gradient of a bias that entries share, and of one that heads share. */
static void test_shared_gradient(void **state)
{
    (void)state;
    for (int way = ATTN_WAY_HEADS; way <= ATTN_WAY_GATHER; way++) {
        broadcasting *one = broadcast(ATTN_BACKWARD, ATTN_WAY_DIRECT, RANKS, 15, 0, 1),
                     *x = broadcast(ATTN_BACKWARD, (attn_way)way, RANKS, 15, 0, 1);
        if (x->error[0].status != ATTN_OK) fail_msg("%s", x->error[0].message);
        assert_memory_equal(x->grad_bias, one->grad_bias, sizeof x->grad_bias);
        free(x), free(one);
        if (way != ATTN_WAY_GATHER) { /* which sends no bias */
            x = broadcast(ATTN_BACKWARD, (attn_way)way, RANKS, 5, 0, 1);
            assert_int_equal(x->error[0].status, ATTN_ERR_ARGUMENT);
            assert_string_equal(x->error[0].message, "distributed: ranks disagree about whether bias broadcasts along axis 0; its "
                                                     "gradient has other sizes then");
            free(x);
        }
        for (int ranks = 1; ranks <= RANKS; ranks += 3) {
            if (ranks == 1 && way == ATTN_WAY_HEADS_RING) continue;
            x = broadcast(ATTN_BACKWARD, (attn_way)way, ranks, 0, 15, 1);
            assert_int_equal(x->error[0].status, ATTN_ERR_UNSUPPORTED);
            assert_string_equal(x->error[0].message, "distributed: grad_bias is set, of a tensor that all heads share; where heads "
                                                     "are computed apart, that sum is not there yet");
            free(x);
        }
    }
}

/* ---- groups ---- */

/* What attn_split_predict takes for a group, or why not. */
static void test_groups(void **state)
{
    static const struct {
        int ranks, heads_kv;
        attn_way way;
        int64_t asked, taken; /* taken 0: rejected */
        const char *message;
    } all[] = {
        {8, 4, ATTN_WAY_HEADS, 0, 8, NULL},
        {8, 4, ATTN_WAY_HEADS, 8, 8, NULL},
        {8, 4, ATTN_WAY_HEADS, 4, 0, "split.ranks_heads is 4 and split.way is 4 (heads); it must be 0 or all of the 8 ranks"},
        {8, 4, ATTN_WAY_HEADS_RING, 0, 4, NULL},
        {6, 4, ATTN_WAY_HEADS_RING, 0, 2, NULL},
        {7, 4, ATTN_WAY_HEADS_RING, 0, 1, NULL},
        {6, 4, ATTN_WAY_HEADS_RING, 3, 3, NULL},
        {6, 4, ATTN_WAY_HEADS_RING, 4, 0, "split.ranks_heads is 4; it must divide the number of ranks, 6"},
        {6, 4, ATTN_WAY_HEADS_RING, INT64_MAX, 0,
         "split.ranks_heads is 9223372036854775807; it must divide the number of ranks, 6"},
        {6, 4, ATTN_WAY_HEADS_RING, -1, 0, "split.ranks_heads is -1; it must be at least 1, or 0 to be chosen"},
        {6, 4, ATTN_WAY_DIRECT, 2, 0, "split.ranks_heads is 2 and split.way is 2; it is for 4 (heads) and 5 (heads x ring)"},
        {6, 4, ATTN_WAY_DIRECT, 0, 1, NULL},
    };
    const attn_split_machine machine = {.struct_size = sizeof machine, .flops_per_second = 1e12, .bytes_per_second = 1e9};
    const attn_input later = {.data = ATTN_LATER};
    (void)state;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const attn_problem p = {.struct_size = sizeof p, .shape = {1, 8, all[n].heads_kv, 64, 64, 8, 8}};
        const attn_tensors t = {.struct_size = sizeof t, .q = later, .k = later, .v = later, .o.data = ATTN_LATER};
        const attn_split split = {.struct_size = sizeof split, .part = 8, .way = all[n].way, .ranks_heads = all[n].asked};
        attn_split_prediction d = {.struct_size = sizeof d};
        attn_error error;
        const attn_status status = attn_split_predict(&p, all[n].ranks, &t, &split, &machine, &d, &error);
        if (status != (all[n].taken ? ATTN_OK : ATTN_ERR_ARGUMENT)) fail_msg("case %d: %s", (int)n, error.message);
        assert_int_equal(d.ranks_heads, all[n].taken);
        if (all[n].message) assert_string_equal(error.message, all[n].message);
    }
}

/* ---- no entries ---- */

static void plan_without_entries(void *context, const attn_transport *t)
{
    const attn_problem p = {.struct_size = sizeof p, .op = ATTN_BACKWARD, .shape = {0, 2, 2, 8, 8, 4, 4}};
    const attn_split split = {.struct_size = sizeof split, .part = 4, .way = ATTN_WAY_HEADS};
    const attn_options options = {.struct_size = sizeof options, .reproducible = 1};
    const attn_input in = attn_in(ATTN_EMPTY);
    const attn_output out = attn_out(ATTN_EMPTY);
    const attn_tensors tensors = {.struct_size = sizeof tensors,
                                  .q = in,
                                  .k = in,
                                  .v = in,
                                  .o = out,
                                  .lse = out,
                                  .bias = in,
                                  .grad_o = in,
                                  .grad_q = out,
                                  .grad_k = out,
                                  .grad_v = out,
                                  .grad_bias = out};
    attn_distributed_plan *plan;
    (void)attn_distributed_plan_create(&plan, &p, &tensors, &split, t, &options, (attn_error *)context + t->rank);
    attn_distributed_plan_destroy(plan);
}

/* A bias of no entries is not one that queries share, whose gradient reproducible plans reject. */
static void test_no_entries(void **state)
{
    attn_error errors[2];
    (void)state;
    ranks_run(2, 0, plan_without_entries, errors);
    for (int r = 0; r < 2; r++)
        if (errors[r].status != ATTN_OK) fail_msg("rank %d: %s", r, errors[r].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward),   cmocka_unit_test(test_backward),
                                       cmocka_unit_test(test_jvp),       cmocka_unit_test(test_second),
                                       cmocka_unit_test(test_broadcast), cmocka_unit_test(test_shared_gradient),
                                       cmocka_unit_test(test_groups),    cmocka_unit_test(test_no_entries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
