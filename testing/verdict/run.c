/* SPDX-License-Identifier: MIT
 * run.c - one check case on one kernel. */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attn/schedule.h"
#include "testing/problem/serving.h"
#include "testing/text/failure.h"

const char *check_status_name(check_status status)
{
    static const char *const names[] = {"passed", "failed", "skipped"};
    return names[status];
}

__attribute__((format(printf, 3, 4))) static void conclude(check_result *r, check_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(r->reason, sizeof r->reason, format, list);
    va_end(list);
    r->status = status;
}

/* Sets the message in case the kernel faults. */
static void announce(const check_result *r, const check_case *c)
{
    char text[CASE_TEXT], message[CASE_TEXT + 96];
    case_print(c, text, sizeof text);
    snprintf(message, sizeof message, "attn check: %s on %s", text, r->kernel);
    guard_on_fault(message);
}

static void compare(check_result *r, const check_call *call, const check_outputs *out, int64_t block_kv)
{
    const outputs got = {.O = out->numbers[TENSOR(o)],
                         .lse = out->numbers[TENSOR(lse)],
                         .P = out->numbers[TENSOR(weights)],
                         .o_dtype = out->tensors[TENSOR(o)].layout.dtype,
                         .weights_dtype = out->tensors[TENSOR(weights)].layout.dtype,
                         .decoded = strstr(r->kernel, "_dec_") != NULL};
    char text[200];
    r->numbers = (comparison){0};
    if (got.O && !compare_outputs(&r->numbers, &call->expected, &got, block_kv)) end_out_of_memory("the comparison of a check");
    for (int t = 0; t < TENSORS; t++)
        if (out->numbers[t] && call->problem.op != ATTN_FORWARD)
            flows_compare(&r->numbers, &call->flows, t, &call->problem, &call->tensors, out->numbers[t]);
    comparison_describe(&r->numbers, text, sizeof text);
    if (r->numbers.failed) conclude(r, CHECK_FAILED, "%s (%.3g of the bound)", text, r->numbers.fraction);
}

/* Executes in a workspace of exactly this size, next to a faulting page, possibly at an odd address.  On failure sets *r. */
static void execute_in(check_result *r, const attn_tensors *tensors, const check_case *c, const attn_plan *plan, size_t bytes)
{
    attn_error error;
    guarded workspace;
    const guard_side side = c->spec.seed % 2 ? GUARD_BEFORE : GUARD_AFTER;
    if (!guarded_create(&workspace, bytes, side, side == GUARD_BEFORE)) end_out_of_memory("the workspace of a check");
    announce(r, c);
    const attn_status status = attn_execute(plan, tensors, workspace.data, bytes, &error);
    guard_on_fault(NULL);
    const int intact = guarded_intact(&workspace);
    guarded_destroy(&workspace);
    if (status != ATTN_OK) conclude(r, CHECK_FAILED, "attn_execute: %s", error.message);
    else if (!intact) conclude(r, CHECK_FAILED, "wrote outside of the workspace of %zu bytes", bytes);
}

/* The same with a schedule, in memory of exactly its size, which the execution must not change. */
static void execute_scheduled(check_result *r, const attn_tensors *tensors, const check_case *c, const attn_plan *plan)
{
    attn_error error;
    guarded memory;
    attn_tensors scheduled = *tensors;
    attn_call call = *tensors->call;
    attn_prefix prefix;
    const attn_schedule_options known = serving_options(&c->spec, &prefix);
    if (!guarded_create(&memory, attn_schedule_size(plan), GUARD_AFTER, 0)) end_out_of_memory("the schedule of a check");
    announce(r, c);
    const attn_status status = attn_schedule_make(&call.schedule, plan, tensors, memory.data, memory.bytes, &known, &error);
    guard_on_fault(NULL);
    const int intact = guarded_intact(&memory);
    scheduled.call = &call;
    if (status == ATTN_ERR_UNSUPPORTED) conclude(r, CHECK_SKIPPED, "%s", error.message);
    else if (status != ATTN_OK) conclude(r, CHECK_FAILED, "attn_schedule_make: %s", error.message);
    else if (!intact) conclude(r, CHECK_FAILED, "wrote outside of the schedule of %zu bytes", memory.bytes);
    if (r->status == CHECK_PASSED) {
        guarded_freeze(&memory);
        execute_in(r, &scheduled, c, plan, attn_schedule_workspace_size(call.schedule));
    }
    guarded_destroy(&memory);
}

/* Plans `problem` and executes it; returns 0 if anything fails. */
static int plan_and_execute(check_result *r, const attn_problem *problem, const attn_tensors *tensors, const check_case *c,
                            const check_setting *setting, int64_t *block_kv)
{
    attn_error error;
    attn_plan *plan = NULL;
    attn_plan_description about = {.struct_size = sizeof about};
    attn_status status = attn_plan_create(&plan, problem, tensors, &setting->options, &error);
    if (status != ATTN_OK) end_if_out_of_memory(&error);
    if (status == ATTN_ERR_UNSUPPORTED) conclude(r, CHECK_SKIPPED, "%s", error.message);
    else if (status != ATTN_OK) conclude(r, CHECK_FAILED, "attn_plan_create: %s", error.message);
    else if (attn_plan_describe(plan, &about, &error) != ATTN_OK)
        conclude(r, CHECK_FAILED, "attn_plan_describe: %s", error.message);
    if (r->status == CHECK_PASSED) {
        snprintf(r->kernel, sizeof r->kernel, "%s", about.kernel);
        *block_kv = about.block_kv;
        if (c->spec.schedule) execute_scheduled(r, tensors, c, plan);
        else execute_in(r, tensors, c, plan, attn_plan_workspace_size(plan));
    }
    attn_plan_destroy(plan);
    return r->status == CHECK_PASSED;
}

/* Computes o and lse for a later operation; they are read-only from then on. */
static int run_forward(check_result *r, check_call *call, const check_case *c, const check_setting *setting, check_outputs *out)
{
    int64_t block_kv;
    attn_tensors tensors;
    const attn_problem forward = tensors_forward(&call->problem, &call->tensors, &tensors);
    if (!plan_and_execute(r, &forward, &tensors, c, setting, &block_kv)) return 0;
    guarded_freeze(&out->tensors[TENSOR(o)].block);
    guarded_freeze(&out->tensors[TENSOR(lse)].block);
    return 1;
}

void check_run(check_result *r, check_call *call, const check_case *c, const check_setting *setting)
{
    check_outputs out;
    int64_t block_kv = 1;
    *r = (check_result){.status = CHECK_PASSED};
    snprintf(r->kernel, sizeof r->kernel, "%s", attn_isa_name(setting->options.isa));
    if (!check_outputs_create(&out, call, c)) end_out_of_memory("the outputs of a check");
    if (call->problem.op == ATTN_FORWARD || run_forward(r, call, c, setting, &out))
        (void)plan_and_execute(r, &call->problem, &call->tensors, c, setting, &block_kv);
    if (r->status == CHECK_PASSED) {
        const char *spilled = check_outputs_take(&out, call);
        if (spilled) conclude(r, CHECK_FAILED, "wrote between or around the elements of %s", spilled);
        else if (setting->tamper) setting->tamper(&out, setting->tamper_context);
        if (!spilled) compare(r, call, &out, block_kv);
    }
    check_outputs_destroy(&out);
}

void check_run_case(check_result *r, const check_case *c, const check_setting *setting)
{
    attn_error error;
    check_call call;
    const attn_status status = check_call_create(&call, c, &error);
    if (status != ATTN_OK) {
        end_if_out_of_memory(&error);
        *r = (check_result){0};
        conclude(r, status == ATTN_ERR_UNSUPPORTED ? CHECK_SKIPPED : CHECK_FAILED, "%s", error.message);
        return;
    }
    check_run(r, &call, c, setting);
    check_call_destroy(&call);
}
