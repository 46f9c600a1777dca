/* SPDX-License-Identifier: MIT
 * stable.c - finds PyTorch's functions, and the five of the C++ runtime that throw and free. */
#include "stable.h"

#include <dlfcn.h>
#include <string.h>

stable_interface torch;

/* Of the Itanium C++ ABI and libstdc++ or libc++: std::runtime_error and how it is thrown. */
static struct {
    void *(*allocate)(size_t);
    void (*throw)(void *, void *, void (*)(void *));
    void (*construct)(void *, const char *);
    void (*destroy)(void *);
    void (*delete)(void *);
    void *type;
} cxx;

enum { RUNTIME_ERROR_SIZE = 16 }; /* a vtable and a pointer to the text */

typedef struct wanted {
    const char *name;
    void *to;
    int optional;
} wanted;

const char *stable_load(const char *libtorch)
{
    const wanted names[] = {
#define ROW(result, name, parameters) {#name, &torch.name, 0},
        STABLE_NAMES(ROW)
#undef ROW
#define ROW(result, name, parameters) {#name, &torch.name, 1},
            STABLE_NEW_NAMES(ROW)
#undef ROW
                {"__cxa_allocate_exception", &cxx.allocate, 0},
        {"__cxa_throw", &cxx.throw, 0},
        {"_ZNSt13runtime_errorC1EPKc", &cxx.construct, 0},
        {"_ZNSt13runtime_errorD1Ev", &cxx.destroy, 0},
        {"_ZdlPv", &cxx.delete, 0},
        {"_ZTISt13runtime_error", &cxx.type, 0},
    };
    void *library = dlopen(libtorch, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return libtorch;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(library, names[i].name);
        if (!found && !names[i].optional) return names[i].name;
        memcpy(names[i].to, &found, sizeof found);
    }
    return NULL;
}

void stable_free_word(StableIValue *word)
{
    if (torch.torch_delete_stable_ivalue) torch.torch_delete_stable_ivalue(word);
    else cxx.delete(word); /* before 2.13 it comes from operator new */
}

_Noreturn void stable_throw(const char *message)
{
    void *error = cxx.allocate(RUNTIME_ERROR_SIZE);
    cxx.construct(error, message);
    cxx.throw(error, cxx.type, cxx.destroy);
    __builtin_unreachable();
}
