/* SPDX-License-Identifier: MIT
 * boxed.c - from PyTorch's stack to a kernel and back.  The arguments are this function's to free, and an exception leaves it only
 * when all of them are. */
#include "shim.h"

#include "common/sentence.h"

#include <string.h>

_Thread_local attn_error boxed_error;

static void take_tensor(argument *to, StableIValue word)
{
    bool defined = false;
    memcpy(&to->tensor, &word, sizeof to->tensor);
    torch.aoti_torch_is_defined(to->tensor, &defined);
    to->given = defined;
}

static void take(char kind, StableIValue word, argument *to)
{
    switch (kind) {
    case 'T':
        take_tensor(to, word);
        return;
    case 'i':
        memcpy(&to->integer, &word, sizeof to->integer);
        break;
    case 'b':
        to->integer = (word & 0xff) != 0;
        break;
    default:
        memcpy(&to->real, &word, sizeof to->real);
    }
    to->given = 1;
}

static void take_optional(char kind, StableIValue word, argument *to)
{
    StableIValue *inner;
    memcpy(&inner, &word, sizeof inner);
    if (!inner) return;
    take(kind, *inner, to);
    stable_free_word(inner);
}

static int run_kernel(const char *kinds, kernel *run, StableIValue *stack, uint64_t count, uint64_t results)
{
    argument arguments[MAX_ARGUMENTS] = {{0}};
    AtenTensorHandle out[MAX_RESULTS] = {0};
    memset(&boxed_error, 0, sizeof boxed_error);
    for (uint64_t i = 0; i < count; i++) {
        const char *optional = strchr("tjg", kinds[i]);
        if (optional) take_optional("Tif"[optional - "tjg"], stack[i], &arguments[i]);
        else take(kinds[i], stack[i], &arguments[i]);
    }
    const int failed = run(arguments, out, &boxed_error);
    for (uint64_t i = 0; i < count; i++) view_drop(arguments[i].tensor);
    for (uint64_t i = 0; i < results; i++) {
        if (failed) view_drop(out[i]);
        else memcpy(&stack[i], &out[i], sizeof out[i]);
    }
    return failed;
}

void boxed_call(const char *kinds, kernel *run, StableIValue *stack, uint64_t arguments, uint64_t results)
{
    if (!run_kernel(kinds, run, stack, arguments, results)) return;
    sentence_python(boxed_error.message, sizeof boxed_error.message, 0);
    stable_throw(boxed_error.message);
}
