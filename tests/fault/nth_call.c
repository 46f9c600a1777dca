/* SPDX-License-Identifier: MIT
 *
 * nth_call.c - a library for LD_PRELOAD that injects the fault in FAULT at the N-th call of a KIND, counted from the start of main.
 *
 *      FAULT=KIND:N          the call fails, as when memory runs out, the disk is full or a device is broken
 *      FAULT=KIND:N:ever     it and all later ones fail
 *      FAULT=write:N:short   writes one byte less than requested
 *      FAULT=KIND:N:NUMBER   the process gets this signal just before the call; NUMBER:after: just after it
 *      FAULT=KIND:N:shrink   FAULT_FILE is truncated to half just before the call
 *      FAULT=KIND:N:grow     FAULT_FILE is extended
 *      FAULT=KIND:N:replace  FAULT_FILE is replaced by FAULT_FILE.new
 *      FAULT_COUNT=FILE      at exit, writes the number of calls of each kind: a line `KIND COUNT` for each
 *
 * Calls inside libc are not intercepted, except malloc.  Used by command.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MALLOC, OPEN, STREAM, READ, MAP, WRITE, FSYNC, CLOSE, RENAME, THREAD, KINDS };

static const char *const kinds[KINDS] = {"malloc", "open", "stream", "read", "map", "write", "fsync", "close", "rename", "thread"};

static enum { FAIL, SHORT, SIGNAL, SHRINK, GROW, REPLACE } action;
static int kind = -1, ever, signal_number, after;
static long at;
static int on; /* 1 while main runs */
static long calls[KINDS];

static void read_fault(void)
{
    const char *text = getenv("FAULT");
    char name[16], rest[32] = "";
    if (!text || sscanf(text, "%15[^:]:%ld:%31s", name, &at, rest) < 2) return;
    for (int k = 0; k < KINDS; k++)
        if (strcmp(kinds[k], name) == 0) kind = k;
    ever = strcmp(rest, "ever") == 0;
    action = strcmp(rest, "short") == 0     ? SHORT
             : strcmp(rest, "shrink") == 0  ? SHRINK
             : strcmp(rest, "grow") == 0    ? GROW
             : strcmp(rest, "replace") == 0 ? REPLACE
             : atoi(rest)                   ? SIGNAL
                                            : FAIL;
    signal_number = atoi(rest);
    after = strstr(rest, ":after") != NULL;
}

static void meddle(void)
{
    const char *path = getenv("FAULT_FILE");
    char other[4096];
    struct stat about;
    if (!path || stat(path, &about) != 0) return;
    (void)snprintf(other, sizeof other, "%s.new", path);
    if (action == SHRINK) (void)!truncate(path, about.st_size / 2);
    if (action == GROW) (void)!truncate(path, about.st_size + 4096);
    if (action == REPLACE) ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(other, path);
}

/* Before a call.  Returns 1 if it must fail or be short. */
static int meets(int which)
{
    if (!on) return 0;
    const long number = __atomic_add_fetch(&calls[which], 1, __ATOMIC_RELAXED);
    if (which != kind || (number != at && !(ever && number > at))) return 0;
    if (action == FAIL || action == SHORT) return 1;
    if (action != SIGNAL) meddle();
    else if (!after) (void)kill(getpid(), signal_number);
    return 0;
}

/* After a call. */
static void after_call(int which)
{
    if (on && action == SIGNAL && after && which == kind && calls[which] == at) (void)kill(getpid(), signal_number);
}

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **environment)
{
    read_fault();
    on = 1;
    return real_main(argc, argv, environment);
}

/* `real`: the next definition of this function. */
#define REAL(name)                                                                                                                 \
    static __typeof__(&name) real;                                                                                                 \
    if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, #name)

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    REAL(__libc_start_main);
    real_main = main;
    return real(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("FAULT_COUNT");
    on = 0;
    FILE *file = path ? fopen(path, "w") : NULL;
    for (int k = 0; file && k < KINDS; k++) (void)fprintf(file, "%s %ld\n", kinds[k], calls[k]);
    if (file) (void)fclose(file);
}

/* ---- memory ---- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void *no_memory(void) { return errno = ENOMEM, NULL; }

void *malloc(size_t size) { return meets(MALLOC) ? no_memory() : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return meets(MALLOC) ? no_memory() : __libc_calloc(count, size); }
void *realloc(void *memory, size_t size) { return meets(MALLOC) ? no_memory() : __libc_realloc(memory, size); }
void *memalign(size_t alignment, size_t size) { return meets(MALLOC) ? no_memory() : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
    REAL(mmap);
    return meets(MAP) ? (errno = ENOMEM, MAP_FAILED) : real(address, length, protection, flags, descriptor, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off64_t offset)
{
    return mmap(address, length, protection, flags, descriptor, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    REAL(pthread_create);
    return meets(THREAD) ? EAGAIN : real(thread, attributes, start, argument);
}

/* ---- files ---- */

int open(const char *path, int flags, ...)
{
    REAL(open);
    va_list list;
    va_start(list, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (meets(OPEN)) return errno = EMFILE, -1;
    const int result = real(path, flags, mode);
    const int number = errno;
    after_call(OPEN);
    return errno = number, result;
}

int open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(fopen);
    return meets(OPEN) ? (errno = EMFILE, NULL) : real(path, mode);
}

FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

/* Streams read inside libc: gives the stream a descriptor that cannot be read. */
static void spoil(FILE *file)
{
    if (meets(STREAM)) (void)dup2(STDERR_FILENO, fileno(file)), (void)close(fileno(file));
}

size_t fread(void *data, size_t size, size_t count, FILE *file)
{
    REAL(fread);
    spoil(file);
    return real(data, size, count, file);
}

ssize_t getline(char **line, size_t *size, FILE *file)
{
    REAL(getline);
    spoil(file);
    return real(line, size, file);
}

char *fgets(char *line, int size, FILE *file)
{
    REAL(fgets);
    spoil(file);
    return real(line, size, file);
}

ssize_t read(int descriptor, void *data, size_t size)
{
    REAL(read);
    return meets(READ) ? errno = EIO, -1 : real(descriptor, data, size);
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    REAL(write);
    if (meets(WRITE)) {
        if (action == FAIL || size < 2) return errno = ENOSPC, -1;
        size--;
    }
    const ssize_t result = real(descriptor, data, size);
    after_call(WRITE);
    return result;
}

int fsync(int descriptor)
{
    REAL(fsync);
    if (meets(FSYNC)) return errno = EIO, -1;
    const int result = real(descriptor);
    after_call(FSYNC);
    return result;
}

int close(int descriptor)
{
    REAL(close);
    const int fails = meets(CLOSE), result = real(descriptor);
    return fails ? errno = EIO, -1 : result;
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    if (meets(RENAME)) return errno = EIO, -1;
    const int result = real(from, to);
    after_call(RENAME);
    return result;
}
