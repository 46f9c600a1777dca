/* SPDX-License-Identifier: MIT
 *
 * fuzz_problem.c - fuzz target of problem strings and of planning: a string that parses must print and parse again to the same
 * problem, and the library must plan that problem or reject it with one line.
 *
 * Problems of more than 2^20 queries are not planned: describing a plan takes time proportional to the tiles of a column. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(int condition)
{
    if (!condition) abort();
}

static void require_message(const attn_error *error, attn_status status)
{
    require(error->status == status);
    require(error->message[0] && !strchr(error->message, '\n'));
    require(memchr(error->message, 0, sizeof error->message) != NULL);
}

/* A plan has the tensors that it was created with, in the shapes and types of the table. */
static void check_tensor(const attn_problem *problem, const attn_tensors *tensors, const attn_plan *plan, int t)
{
    attn_tensor_plan about = {.struct_size = sizeof about};
    int64_t shape[4];
    require(attn_plan_tensor(plan, t, &about, NULL) == ATTN_OK);
    require((about.role != ATTN_ROLE_NONE) == tensors_has(tensors, t));
    if (about.role == ATTN_ROLE_NONE) return;
    require(about.role == tensors_about(t)->role[problem->op] && about.dtype == tensors_dtype(tensors, t) && about.bytes >= 0);
    tensors_shape(problem, tensors, t, shape);
    if (tensors->cu_seqlens_q.data && tensors_packs(t)) shape[0] = 1;
    for (int axis = 0; axis < 4; axis++) require(about.shape[axis] == shape[axis]);
}

static void check_plan(const problem_spec *spec)
{
    attn_problem problem;
    attn_tensors tensors;
    attn_error error;
    attn_status status = problem_build(spec, &problem, &tensors, &error);
    if (status != ATTN_OK) {
        require_message(&error, status);
        return;
    }
    if (problem.shape.len_q > 1 << 20) return;
    attn_plan *plan;
    status = attn_plan_create(&plan, &problem, &tensors, NULL, &error);
    require((status == ATTN_OK) == (plan != NULL));
    if (status != ATTN_OK) {
        require_message(&error, status);
        return;
    }
    attn_plan_description description = {.struct_size = sizeof description};
    require(attn_plan_describe(plan, &description, &error) == ATTN_OK);
    require(description.tiles_modified <= description.tiles_visited && description.tiles_visited <= description.tiles_total);
    for (int t = 0; t < TENSORS; t++) check_tensor(&problem, &tensors, plan, t);
    attn_plan_destroy(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1), printed[1024], again[1024];
    if (!text) return 0;
    memcpy(text, bytes, size);
    text[size] = 0;
    problem_spec spec, same;
    attn_error error;
    attn_status status = problem_parse(text, &spec, &error);
    if (status == ATTN_OK) {
        require(problem_print(&spec, printed, sizeof printed) < sizeof printed);
        require(problem_parse(printed, &same, &error) == ATTN_OK);
        require(problem_print(&same, again, sizeof again) < sizeof again);
        require(strcmp(printed, again) == 0);
        check_plan(&spec);
    } else if (!memchr(bytes, '\n', size)) {
        require_message(&error, status);
    }
    free(text);
    return 0;
}
