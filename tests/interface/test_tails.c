/* SPDX-License-Identifier: MIT
 *
 * test_tails.c - expect_tails and expect_filled for every struct of libattn with struct_size, in every module that reads it.
 * (test_structs.c has those of the core; grows.py checks that none is left out.)
 */
#include "tails.h"

#include "attn/analysis.h"
#include "attn/bilinear.h"
#include "attn/cache.h"
#include "attn/choose.h"
#include "attn/convolution.h"
#include "attn/cost.h"
#include "attn/distributed_linear.h"
#include "attn/hopfield.h"
#include "attn/linear.h"
#include "attn/mask.h"
#include "attn/merge.h"
#include "attn/position.h"
#include "attn/product.h"
#include "attn/schedule.h"
#include "attn/team.h"

enum { D = 2, LEN = 3 };

/* One head of LEN queries and keys of D channels, shared by all rows. */
static double q[LEN * D], k[LEN * D], v[LEN * D], o[LEN * D], g[D * D] = {1, 0, 0, 1}, numbers[LEN * LEN], lse[LEN];
static float cached_k[2 * LEN * D], cached_v[2 * LEN * D], new_k[LEN * D], new_v[LEN * D], new_q[LEN * D], new_o[LEN * D];
static float bias[LEN * LEN], gates[LEN], table[LEN];
static int64_t length, starts[3];
static float bounded[2 * 2 * D];
static const int64_t shape[4] = {1, 1, LEN, D};

static const attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, LEN, LEN, D, D}};
static const attn_problem one_head = {.struct_size = sizeof one_head, .shape.heads_q = 1};
static attn_tensors tensors, attended, patterned;
static attn_call call = {.struct_size = sizeof call};
static attn_options options = {.struct_size = sizeof options};
static attn_cache cache;
static attn_cache_tokens tokens;
static attn_bounds bounds;
static attn_choice choice;
static attn_rope rope = {.struct_size = sizeof rope};
static attn_rope_scaling scaling = {.struct_size = sizeof scaling, .dim = 4, .factor = 2};
static attn_distance_bias distance = {
    .struct_size = sizeof distance, .heads = 1, .len_q = LEN, .len_kv = LEN, .kind = ATTN_DISTANCE_CLIPPED, .max_distance = 1};
static attn_bias_gate gate = {.struct_size = sizeof gate, .batch = 1, .heads = 1, .len_q = LEN, .dim = D, .width = 1};
static attn_bias_gate_tensors gate_tensors;
static attn_linear_problem linear = {
    .struct_size = sizeof linear, .shape = {1, 1, 1, LEN, LEN, D, D}, .denominator = ATTN_DENOMINATOR_NONE};
static attn_linear_tensors linear_tensors;
static attn_convolution_problem convolution = {
    .struct_size = sizeof convolution, .width = 2, .batch = 1, .len = LEN, .channels = D};
static attn_convolution_tensors convolution_tensors;
static attn_linformer_problem linformer = {
    .struct_size = sizeof linformer, .batch = 1, .heads = 1, .len = LEN, .rank = 1, .dim = D};
static attn_linformer_tensors linformer_tensors;
static attn_merge_problem merge = {.struct_size = sizeof merge, .parts = 1, .batch = 1, .heads = 1, .len_q = LEN, .dim_v = D};
static attn_input merge_o, merge_lse;
static attn_merge_tensors merge_tensors;
static attn_product_problem product = {.struct_size = sizeof product, .dtype = ATTN_F64, .rows = LEN, .columns = LEN, .inner = D};
static attn_product_tensors product_tensors;
static attn_cost_problem cost = {.struct_size = sizeof cost, .shape = {1, 1, 1, LEN, LEN, D, D}};
static attn_cost costs = {.struct_size = sizeof costs};
static attn_gibbs gibbs = {.struct_size = sizeof gibbs};
static attn_steps steps = {.struct_size = sizeof steps, .weights = numbers};
static attn_flow flow = {.struct_size = sizeof flow};
static attn_verification verification = {.struct_size = sizeof verification};
static attn_metric_properties properties = {.struct_size = sizeof properties};
static attn_pattern_set_counts count = {.struct_size = sizeof count};
static attn_hopfield memory;
static attn_hopfield_tensors remembered;
static attn_linear_plan_description description = {.struct_size = sizeof description};
static attn_split split = {.struct_size = sizeof split, .part = 2};
static attn_transport alone = {.struct_size = sizeof alone, .ranks = 1};
static attn_split_machine machine = {.struct_size = sizeof machine, .flops_per_second = 1e12, .bytes_per_second = 1e9};
static attn_split_prediction predicted = {.struct_size = sizeof predicted};
static attn_split_description owned = {.struct_size = sizeof owned};
static attn_split_part part = {.struct_size = sizeof part};
static attn_distributed_description distributed = {.struct_size = sizeof distributed};
static attn_distributed_linear_description distributed_linear = {.struct_size = sizeof distributed_linear};
static attn_schedule_description scheduled = {.struct_size = sizeof scheduled};
static attn_scheduled_item scheduled_item = {.struct_size = sizeof scheduled_item};
static attn_schedule_options schedule_options = {.struct_size = sizeof schedule_options};
static attn_team team = {.struct_size = sizeof team, .workers = 1};
static attn_tensor_plan tensor_plan = {.struct_size = sizeof tensor_plan};

static void make(void)
{
    tensors = (attn_tensors){
        .struct_size = sizeof tensors, .q = {q, ATTN_F64, {0, 0, 0, 0}}, .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    attended = (attn_tensors){.struct_size = sizeof attended, .q = attn_in(new_q), .o = attn_out(new_o)};
    patterned.struct_size = sizeof patterned;
    length = 0;
    cache = (attn_cache){.struct_size = sizeof cache,
                         .batch = 1,
                         .heads_kv = 1,
                         .capacity = 2 * LEN,
                         .dim_qk = D,
                         .dim_v = D,
                         .k = attn_out(cached_k),
                         .v = attn_out(cached_v),
                         .lengths = attn_out(&length)};
    tokens = (attn_cache_tokens){.struct_size = sizeof tokens, .len = LEN, .k = attn_in(new_k), .v = attn_in(new_v)};
    bounds = (attn_bounds){.struct_size = sizeof bounds, .block = LEN, .rows = attn_out(bounded)};
    choice = (attn_choice){.struct_size = sizeof choice,
                           .batch = 1,
                           .heads_kv = 1,
                           .blocks = 1,
                           .block = 1,
                           .count = 1,
                           .lengths = attn_in(&length),
                           .scores = attn_in(gates),
                           .block_starts = attn_out(starts),
                           .block_index = attn_out(starts + 2)};
    gate_tensors = (attn_bias_gate_tensors){.struct_size = sizeof gate_tensors,
                                            .q = attn_in(new_q),
                                            .w = attn_in(bias),
                                            .b = attn_in(bias),
                                            .a = attn_in(bias),
                                            .gates = attn_out(gates)};
    linear_tensors = (attn_linear_tensors){
        .struct_size = sizeof linear_tensors, .q = {q, ATTN_F64, {0, 0, 0, 0}}, .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    convolution_tensors = (attn_convolution_tensors){
        .struct_size = sizeof convolution_tensors, .x = {k, ATTN_F64, {0, 0, 0, 0}}, .y = attn_out(o), .weight = attn_in(v)};
    linformer_tensors = (attn_linformer_tensors){
        .struct_size = sizeof linformer_tensors, .x = {k, ATTN_F64, {0, 0, 0, 0}}, .projection = attn_in(v), .y = attn_out(o)};
    merge_o = (attn_input){q, ATTN_F64, {0, 0, 0, 0}};
    merge_lse = attn_in(lse);
    merge_tensors =
        (attn_merge_tensors){.struct_size = sizeof merge_tensors, .o_parts = &merge_o, .lse_parts = &merge_lse, .o = attn_out(o)};
    memory = (attn_hopfield){.struct_size = sizeof memory, .dtype = ATTN_F64, .stored = LEN, .dim = D, .patterns = attn_in(k)};
    remembered = (attn_hopfield_tensors){.struct_size = sizeof remembered, .states = attn_in(q), .updated = attn_out(o)};
    product_tensors = (attn_product_tensors){
        .struct_size = sizeof product_tensors, .a = attn_in(q), .b = attn_transposed(k, D), .c = attn_out(numbers)};
}

static attn_plan *a_plan(void)
{
    static attn_plan *plan;
    attn_plan_destroy(plan);
    plan = NULL;
    assert_int_equal(attn_plan_create(&plan, &problem, &tensors, NULL, NULL), ATTN_OK);
    return plan;
}
static attn_status run_team(const void *x, attn_error *e)
{
    static char workspace[1 << 20];
    return attn_execute_worker(a_plan(), 0, &tensors, workspace, sizeof workspace, (attn_team *)(uintptr_t)x, e);
}
static const attn_schedule *schedule;
static attn_status run_schedule_options(const void *x, attn_error *e)
{
    static char of_schedule[1 << 16];
    return attn_schedule_make(&schedule, a_plan(), &tensors, of_schedule, sizeof of_schedule, x, e);
}
static attn_status run_scheduled(const void *x, attn_error *e)
{
    assert_int_equal(run_schedule_options(NULL, NULL), ATTN_OK);
    return attn_schedule_describe(schedule, 1, (attn_schedule_description *)(uintptr_t)x, e);
}
static attn_status run_scheduled_item(const void *x, attn_error *e)
{
    assert_int_equal(run_schedule_options(NULL, NULL), ATTN_OK);
    return attn_schedule_item(schedule, 0, (attn_scheduled_item *)(uintptr_t)x, e);
}
RUN(tokens, (length = 0, attn_cache_append(&cache, x, e)))
RUN(cache, (length = 0, attn_cache_append(x, &tokens, e)))
RUN(attend, (length = 0, attn_cache_attend(&cache, &tokens, &one_head, x, NULL, e)))
RUN(attend_problem, (length = 0, attn_cache_attend(&cache, &tokens, x, &attended, NULL, e)))
RUN(bilinear, attn_bilinear_attention(&problem, x, g, NULL, e))
RUN(bilinear_problem, attn_bilinear_attention(x, &tensors, g, NULL, e))
RUN(decompose, attn_decompose(&problem, x, &steps, NULL, e))
RUN(decompose_problem, attn_decompose(x, &tensors, &steps, NULL, e))
RUN(steps, attn_decompose(&problem, &tensors, x, NULL, e))
RUN(flow, attn_gradient_flow(&problem, &tensors, (attn_flow *)(uintptr_t)x, NULL, e))
RUN(verify, attn_verify_gradients(&problem, 0, 1, &tensors, (attn_verification *)(uintptr_t)x, NULL, e))
RUN(gibbs, attn_softmax(LEN, 1, q, NULL, NULL, (attn_gibbs *)(uintptr_t)x, e))
RUN(metric, attn_metric_check(D, 0, g, (attn_metric_properties *)(uintptr_t)x, e))
RUN(cost, attn_cost_estimate(x, &costs, e))
RUN(costs, attn_cost_estimate(&cost, (attn_cost *)(uintptr_t)x, e))
static attn_status run_rope(const void *x, attn_error *e)
{
    const attn_input from = attn_in(new_q);
    const attn_output to = attn_out(new_o);
    return attn_rope_apply(x, shape, &from, NULL, &to, e);
}
RUN(scaling, attn_rope_frequencies(x, numbers, NULL, e))
static attn_status run_distance(const void *x, attn_error *e)
{
    const attn_input from = attn_in(table);
    const attn_output to = attn_out(bias);
    return attn_distance_bias_fill(x, &from, &to, e);
}
RUN(gate, attn_bias_gate_forward(x, &gate_tensors, e))
RUN(gate_tensors, attn_bias_gate_forward(&gate, x, e))
RUN(linear, attn_linear_compute(x, &linear_tensors, e))
RUN(bounds, attn_page_bounds(&cache, x, NULL, e))
RUN(choice, attn_choose_blocks(x, e))
RUN(convolution, attn_convolution(x, &convolution_tensors, NULL, e))
RUN(convolution_tensors, attn_convolution(&convolution, x, NULL, e))
RUN(convolution_options, attn_convolution(&convolution, &convolution_tensors, x, e))
RUN(linear_tensors, attn_linear_compute(&linear, x, e))
RUN(linformer, attn_linformer_project(x, &linformer_tensors, NULL, e))
RUN(linformer_tensors, attn_linformer_project(&linformer, x, NULL, e))
RUN(merge, attn_merge(x, &merge_tensors, NULL, e))
RUN(merge_tensors, attn_merge(&merge, x, NULL, e))
RUN(merge_options, attn_merge(&merge, &merge_tensors, x, e))
RUN(memory, attn_hopfield_update(x, LEN, &remembered, e))
RUN(remembered, attn_hopfield_update(&memory, LEN, x, e))
RUN(decompose_options, attn_decompose(&problem, &tensors, &steps, x, e))
RUN(bilinear_options, attn_bilinear_attention(&problem, &tensors, g, x, e))
RUN(linformer_options, attn_linformer_project(&linformer, &linformer_tensors, x, e))
RUN_AT(memory_options, attn_hopfield, memory, options, attn_hopfield_update(&copy, LEN, &remembered, e))
RUN(attend_options, (length = 0, attn_cache_attend(&cache, &tokens, &one_head, &attended, x, e)))
RUN(product, attn_product(x, &product_tensors, NULL, e))
RUN(product_tensors, attn_product(&product, x, NULL, e))
RUN(product_options, attn_product(&product, &product_tensors, x, e))
RUN_AT(call, attn_tensors, tensors, call, attn_compute(&problem, &copy, e))

static attn_pattern_set *a_set(void)
{
    static attn_pattern_set *set;
    const attn_pattern causal = attn_pattern_causal();
    if (!set) assert_int_equal(attn_pattern_set_create(&set, LEN, LEN, 1, &causal, NULL), ATTN_OK);
    return set;
}

/* attn_pattern_set_apply writes into its arguments: each run has a copy. */
static attn_status run_apply(const void *x, attn_error *e)
{
    attn_problem p = problem;
    return attn_pattern_set_apply(a_set(), &p, (attn_tensors *)(uintptr_t)x, e);
}
static attn_status run_apply_problem(const void *x, attn_error *e)
{
    attn_tensors t = patterned;
    return attn_pattern_set_apply(a_set(), (attn_problem *)(uintptr_t)x, &t, e);
}
RUN(count, attn_pattern_set_count(a_set(), 1, 1, (attn_pattern_set_counts *)(uintptr_t)x, e))

static attn_linear_plan *a_linear_plan(void)
{
    static attn_linear_plan *plan;
    if (!plan) assert_int_equal(attn_linear_plan_create(&plan, &linear, &linear_tensors, NULL, NULL), ATTN_OK);
    return plan;
}
RUN(linear_plan, attn_linear_plan_describe(a_linear_plan(), (attn_linear_plan_description *)(uintptr_t)x, e))
RUN(linear_tensor, attn_linear_plan_tensor(a_linear_plan(), 0, (attn_tensor_plan *)(uintptr_t)x, e))

static attn_status plan_parts(const attn_problem *p, const attn_tensors *t, const attn_split *s, const attn_transport *ranks,
                              const attn_options *with, attn_error *e)
{
    attn_distributed_plan *plan;
    const attn_status status = attn_distributed_plan_create(&plan, p, t, s, ranks, with, e);
    attn_distributed_plan_destroy(plan);
    return status;
}
RUN(parts_problem, plan_parts(x, &tensors, &split, NULL, NULL, e))
RUN(parts_tensors, plan_parts(&problem, x, &split, NULL, NULL, e))
RUN(split, plan_parts(&problem, &tensors, x, NULL, NULL, e))
RUN(transport, plan_parts(&problem, &tensors, &split, x, NULL, e))
RUN(parts_options, plan_parts(&problem, &tensors, &split, NULL, x, e))
RUN(machine, attn_split_predict(&problem, 2, &tensors, &split, x, &predicted, e))
RUN(predicted, attn_split_predict(&problem, 2, &tensors, &split, &machine, (attn_split_prediction *)(uintptr_t)x, e))
RUN(owned, attn_split_describe(&split, LEN, ATTN_AXIS_KEY, 0, 1, (attn_split_description *)(uintptr_t)x, e))
RUN(part, attn_split_part_describe(&split, LEN, ATTN_AXIS_KEY, 0, 1, 0, (attn_split_part *)(uintptr_t)x, e))

static attn_distributed_plan *a_plan_of_parts(void)
{
    static attn_distributed_plan *plan;
    if (!plan) assert_int_equal(attn_distributed_plan_create(&plan, &problem, &tensors, &split, NULL, NULL, NULL), ATTN_OK);
    return plan;
}
RUN(distributed, attn_distributed_describe(a_plan_of_parts(), (attn_distributed_description *)(uintptr_t)x, e))

static attn_status plan_linear_parts(const attn_linear_problem *p, const attn_linear_tensors *t, const attn_split *s,
                                     const attn_transport *ranks, const attn_options *with, attn_error *e)
{
    attn_distributed_linear_plan *plan;
    const attn_status status = attn_distributed_linear_plan_create(&plan, p, t, s, ranks, with, e);
    attn_distributed_linear_plan_destroy(plan);
    return status;
}
RUN(linear_parts_problem, plan_linear_parts(x, &linear_tensors, NULL, NULL, NULL, e))
RUN(linear_parts_tensors, plan_linear_parts(&linear, x, NULL, NULL, NULL, e))
RUN(linear_parts_split, plan_linear_parts(&linear, &linear_tensors, x, NULL, NULL, e))
RUN(linear_parts_transport, plan_linear_parts(&linear, &linear_tensors, NULL, x, NULL, e))
RUN(linear_parts_options, plan_linear_parts(&linear, &linear_tensors, NULL, NULL, x, e))

static attn_distributed_linear_plan *a_plan_of_linear_parts(void)
{
    static attn_distributed_linear_plan *plan;
    if (!plan)
        assert_int_equal(attn_distributed_linear_plan_create(&plan, &linear, &linear_tensors, NULL, NULL, NULL, NULL), ATTN_OK);
    return plan;
}
RUN(distributed_linear,
    attn_distributed_linear_describe(a_plan_of_linear_parts(), (attn_distributed_linear_description *)(uintptr_t)x, e))

static void test_slots(void **state)
{
    (void)state;
    TAILS(attn_tensors, attended, 1, run_attend);
    TAILS(attn_tensors, tensors, 1, run_bilinear);
    TAILS(attn_tensors, tensors, 1, run_decompose);
    TAILS(attn_tensors, patterned, 1, run_apply);
    TAILS(attn_tensors, tensors, 1, run_parts_tensors);
    TAILS(attn_cache, cache, 1, run_cache);
    TAILS(attn_cache_tokens, tokens, 1, run_tokens);
    TAILS(attn_bounds, bounds, 1, run_bounds);
    TAILS(attn_choice, choice, 1, run_choice);
    TAILS(attn_bias_gate_tensors, gate_tensors, 1, run_gate_tensors);
    TAILS(attn_linear_tensors, linear_tensors, 1, run_linear_tensors);
    TAILS(attn_convolution_tensors, convolution_tensors, 1, run_convolution_tensors);
    TAILS(attn_linear_tensors, linear_tensors, 1, run_linear_parts_tensors);
    TAILS(attn_linformer_tensors, linformer_tensors, 1, run_linformer_tensors);
    TAILS(attn_hopfield, memory, 1, run_memory);
    TAILS(attn_hopfield_tensors, remembered, 1, run_remembered);
    TAILS(attn_product_tensors, product_tensors, 1, run_product_tensors);
}

static void test_fields(void **state)
{
    (void)state;
    TAILS(attn_problem, one_head, 0, run_attend_problem);
    TAILS(attn_problem, problem, 0, run_bilinear_problem);
    TAILS(attn_problem, problem, 0, run_decompose_problem);
    TAILS(attn_problem, problem, 0, run_apply_problem);
    TAILS(attn_problem, problem, 0, run_parts_problem);
    TAILS(attn_call, call, 0, run_call);
    TAILS(attn_linear_problem, linear, 0, run_linear_parts_problem);
    TAILS(attn_split, split, 0, run_split);
    TAILS(attn_split, split, 0, run_linear_parts_split);
    TAILS(attn_split_machine, machine, 0, run_machine);
    TAILS(attn_transport, alone, 0, run_transport);
    TAILS(attn_transport, alone, 0, run_linear_parts_transport);
    TAILS(attn_options, options, 0, run_parts_options);
    TAILS(attn_options, options, 0, run_linear_parts_options);
    TAILS(attn_options, options, 0, run_merge_options);
    TAILS(attn_options, options, 0, run_product_options);
    TAILS(attn_options, options, 0, run_convolution_options);
    TAILS(attn_options, options, 0, run_decompose_options);
    TAILS(attn_options, options, 0, run_bilinear_options);
    TAILS(attn_options, options, 0, run_linformer_options);
    TAILS(attn_options, options, 0, run_memory_options);
    TAILS(attn_options, options, 0, run_attend_options);
    TAILS(attn_rope, rope, 1, run_rope);
    TAILS(attn_rope_scaling, scaling, 0, run_scaling);
    TAILS(attn_distance_bias, distance, 0, run_distance);
    TAILS(attn_bias_gate, gate, 0, run_gate);
    TAILS(attn_linear_problem, linear, 0, run_linear);
    TAILS(attn_convolution_problem, convolution, 0, run_convolution);
    TAILS(attn_linformer_problem, linformer, 0, run_linformer);
    TAILS(attn_merge_problem, merge, 0, run_merge);
    TAILS(attn_merge_tensors, merge_tensors, 0, run_merge_tensors);
    TAILS(attn_product_problem, product, 0, run_product);
    TAILS(attn_cost_problem, cost, 0, run_cost);
    TAILS(attn_steps, steps, 0, run_steps);
    TAILS(attn_flow, flow, 0, run_flow);
    TAILS(attn_schedule_options, schedule_options, 0, run_schedule_options);
    TAILS(attn_team, team, 0, run_team);
}

static void test_filled(void **state)
{
    (void)state;
    FILLED(attn_cost, costs, run_costs);
    FILLED(attn_schedule_description, scheduled, run_scheduled);
    FILLED(attn_scheduled_item, scheduled_item, run_scheduled_item);
    FILLED(attn_gibbs, gibbs, run_gibbs);
    FILLED(attn_verification, verification, run_verify);
    FILLED(attn_metric_properties, properties, run_metric);
    FILLED(attn_pattern_set_counts, count, run_count);
    FILLED(attn_linear_plan_description, description, run_linear_plan);
    FILLED(attn_tensor_plan, tensor_plan, run_linear_tensor);
    FILLED(attn_split_prediction, predicted, run_predicted);
    FILLED(attn_split_description, owned, run_owned);
    FILLED(attn_split_part, part, run_part);
    FILLED(attn_distributed_description, distributed, run_distributed);
    FILLED(attn_distributed_linear_description, distributed_linear, run_distributed_linear);
    attn_distributed_plan_destroy(a_plan_of_parts());
    attn_distributed_linear_plan_destroy(a_plan_of_linear_parts());
    attn_linear_plan_destroy(a_linear_plan());
    attn_pattern_set_destroy(a_set());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slots), cmocka_unit_test(test_fields), cmocka_unit_test(test_filled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
