/* SPDX-License-Identifier: MIT
 * program.cpp - the interface in C++11 and later: structs start as {}, and nothing warns. */
#include <attn/attn.h>

#include <cstdio>
#include <vector>

int main()
{
    std::vector<float> q(6, 1.0F), o(6), lse(3), grad(18);
    attn_problem problem = {};
    attn_tensors tensors = {};
    attn_call call = {};
    attn_error error;
    problem.struct_size = sizeof problem, tensors.struct_size = sizeof tensors, call.struct_size = sizeof call;
    problem.shape = attn_shape{1, 1, 1, 3, 3, 2, 2};
    tensors.call = &call;
    tensors.q = attn_in(q.data()), tensors.k = tensors.q, tensors.v = tensors.q;
    tensors.o = attn_out(o.data()), tensors.lse = attn_out(lse.data());
    if (attn_compute(&problem, &tensors, &error) != ATTN_OK) return std::fprintf(stderr, "%s\n", error.message), 1;
    problem.op = ATTN_BACKWARD;
    const float *const saved = o.data(), *const saved_lse = lse.data();
    tensors.o = attn_saved(saved), tensors.lse = attn_saved(saved_lse), tensors.grad_o = attn_in(q.data());
    tensors.grad_q = attn_out(grad.data()), tensors.grad_k = attn_out(&grad[6]), tensors.grad_v.data = &grad[12];
    tensors.grad_v.stride[0] = 6, tensors.grad_v.stride[1] = 6, tensors.grad_v.stride[2] = 2, tensors.grad_v.stride[3] = 1;
    tensors.v.dtype = ATTN_F32;
    attn_plan *plan = nullptr;
    if (attn_plan_create(&plan, &problem, &tensors, nullptr, &error) != ATTN_OK) return 1;
    std::vector<char> workspace(attn_plan_workspace_size(plan) + 1);
    const attn_status status = attn_execute(plan, &tensors, workspace.data(), workspace.size() - 1, &error);
    attn_plan_destroy(plan);
    tensors.mask.data = ATTN_LATER, tensors.bias.data = ATTN_EMPTY;
    return status == ATTN_OK && attn_compute(&problem, &tensors, nullptr) == ATTN_ERR_ARGUMENT ? 0 : 1;
}
