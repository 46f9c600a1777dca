/* SPDX-License-Identifier: MIT
 *
 * fuzz_problem.c - fuzz target of problem strings and of planning: what parses must print and parse again to the same, and whatever
 * it asks for the library must plan or refuse with one line.
 *
 * Problems of more than 2^20 queries are not planned: describing a plan takes time in proportion to the tiles of a column. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "problem.h"

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

static void check_plan(const problem_spec *spec)
{
    attn_problem problem;
    attn_error error;
    attn_status status = problem_build(spec, &problem, &error);
    if (status != ATTN_OK) {
        require_message(&error, status);
        return;
    }
    if (problem.shape.len_q > 1 << 20) return;
    attn_plan *plan;
    status = attn_plan_create(&plan, &problem, NULL, &error);
    require((status == ATTN_OK) == (plan != NULL));
    if (status != ATTN_OK) {
        require_message(&error, status);
        return;
    }
    attn_plan_description description = {.struct_size = sizeof description};
    require(attn_plan_describe(plan, &description, &error) == ATTN_OK);
    require(description.tiles_modified <= description.tiles_visited && description.tiles_visited <= description.tiles_total);
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
