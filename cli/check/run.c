/* SPDX-License-Identifier: MIT
 * run.c - one check case on one kernel. */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>

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

/* Says what is running, for the case that it faults. */
static void announce(const check_result *r, const check_case *c)
{
    char text[CASE_TEXT], message[CASE_TEXT + 96];
    case_print(c, text, sizeof text);
    snprintf(message, sizeof message, "attn check: %s on %s", text, r->kernel);
    guard_on_fault(message);
}

static void compare(check_result *r, const check_call *call, const check_outputs *out, int64_t block_kv)
{
    const outputs got = {.O = out->O,
                         .lse = out->L,
                         .P = out->P,
                         .o_dtype = out->o.layout.dtype,
                         .weights_dtype = call->problem.want.weights_layout.dtype};
    char text[200];
    if (!compare_outputs(&r->numbers, &call->expected, &got, block_kv)) {
        conclude(r, CHECK_FAILED, "out of memory");
        return;
    }
    comparison_describe(&r->numbers, text, sizeof text);
    if (r->numbers.failed) conclude(r, CHECK_FAILED, "%s (%.3g of the bound)", text, r->numbers.fraction);
}

static void execute(check_result *r, check_call *call, const check_case *c, const check_setting *setting, const attn_plan *plan,
                    check_outputs *out)
{
    attn_error error;
    guarded workspace;
    attn_plan_description about = {.struct_size = sizeof about};
    if (attn_plan_describe(plan, &about, &error) != ATTN_OK) {
        conclude(r, CHECK_FAILED, "attn_plan_describe: %s", error.message);
        return;
    }
    snprintf(r->kernel, sizeof r->kernel, "%s", about.kernel);
    /* Exactly as many bytes as it asks for, at an odd address, against a page that faults. */
    const size_t bytes = attn_plan_workspace_size(plan);
    const guard_side side = c->spec.seed % 2 ? GUARD_BEFORE : GUARD_AFTER;
    if (!guarded_create(&workspace, bytes, side, side == GUARD_BEFORE)) {
        conclude(r, CHECK_FAILED, "out of memory");
        return;
    }
    announce(r, c);
    const attn_status status = attn_execute(plan, &call->args, workspace.data, bytes, &error);
    guard_on_fault(NULL);
    const int intact = guarded_intact(&workspace);
    guarded_destroy(&workspace);
    const char *spilled = check_outputs_take(out);
    if (status != ATTN_OK) {
        conclude(r, CHECK_FAILED, "attn_execute: %s", error.message);
    } else if (!intact) {
        conclude(r, CHECK_FAILED, "wrote outside of the workspace of %zu bytes", bytes);
    } else if (spilled) {
        conclude(r, CHECK_FAILED, "wrote between or around the elements of %s", spilled);
    } else {
        if (setting->tamper) setting->tamper(out, setting->tamper_context);
        compare(r, call, out, about.block_kv);
    }
}

void check_run(check_result *r, check_call *call, const check_case *c, const check_setting *setting)
{
    attn_error error;
    check_outputs out;
    attn_plan *plan = NULL;
    const attn_options options = {.struct_size = sizeof options, .isa = setting->isa, .threads = setting->threads};
    *r = (check_result){.status = CHECK_PASSED};
    snprintf(r->kernel, sizeof r->kernel, "%s", attn_isa_name(setting->isa));
    if (!check_outputs_create(&out, call, c)) {
        conclude(r, CHECK_FAILED, "out of memory");
        return;
    }
    const attn_status status = attn_plan_create(&plan, &call->problem, &options, &error);
    if (status == ATTN_ERR_UNSUPPORTED) conclude(r, CHECK_SKIPPED, "%s", error.message);
    else if (status != ATTN_OK) conclude(r, CHECK_FAILED, "attn_plan_create: %s", error.message);
    else execute(r, call, c, setting, plan, &out);
    attn_plan_destroy(plan);
    check_outputs_destroy(&out);
}

void check_run_case(check_result *r, const check_case *c, const check_setting *setting)
{
    attn_error error;
    check_call call;
    const attn_status status = check_call_create(&call, c, &error);
    if (status != ATTN_OK) {
        *r = (check_result){0};
        conclude(r, status == ATTN_ERR_UNSUPPORTED ? CHECK_SKIPPED : CHECK_FAILED, "%s", error.message);
        return;
    }
    check_run(r, &call, c, setting);
    check_call_destroy(&call);
}
