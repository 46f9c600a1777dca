/* SPDX-License-Identifier: MIT
 *
 * fuzz_archive.c - fuzzes containers of tensors (target.h): tensors and texts are added, rejected, removed and looked up, and
 * checked against a list of what should be there; containers are written to files of each format, read and mapped. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn/io.h"
#include "block.h"
#include "target.h"

const char *const target_cases = "containers";

enum { MAX_STEPS = 12, MAX_NAME = 16, MAX_TEXT = 24 };

typedef struct entry {
    char name[MAX_NAME];
    attn_dtype dtype;
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    size_t bytes;
    unsigned char *data; /* the expected bytes */
    block borrowed;      /* the memory lent to the container */
} entry;

typedef struct text {
    char key[MAX_NAME], value[MAX_TEXT];
} text;

static struct {
    draws *from;
    attn_archive *archive;
    entry tensors[MAX_STEPS];
    text texts[MAX_STEPS];
    int count, text_count;
} c;

static attn_error last;

void target_print(void)
{
    for (int i = 0; i < c.count; i++)
        fprintf(stderr, "  tensor '%s' %s rank %d, %zu bytes\n", c.tensors[i].name, attn_dtype_name(c.tensors[i].dtype),
                c.tensors[i].rank, c.tensors[i].bytes);
    for (int i = 0; i < c.text_count; i++) fprintf(stderr, "  text '%s' = '%s'\n", c.texts[i].key, c.texts[i].value);
}

/* ---- names ---- */

/* Draws a few characters of 1 to 4 bytes, some with a special meaning in a format; with `good`, the text is valid UTF-8. */
static void draw_text(char *to, size_t most, int good)
{
    static const char *const letters[] = {
        "a", "b", "c", ".", "/", "_", " ", "\"", "\\", "\n", "0", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\x7F", "\x01"};
    static const char *const bad[] = {"\xC3", "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"};
    size_t used = 0;
    to[0] = 0;
    for (int64_t n = draw_below(c.from, 5); n >= 0; n--) {
        const char *letter = letters[draw_below(c.from, 16)];
        if (used + strlen(letter) + 5 < most) strcpy(to + used, letter), used += strlen(letter);
    }
    if (!good) strcpy(to + used, bad[draw_below(c.from, 6)]);
}

static int tensor_named(const char *name)
{
    for (int i = 0; i < c.count; i++)
        if (!strcmp(c.tensors[i].name, name)) return i;
    return -1;
}

/* ---- steps ---- */

static int64_t elements(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return n;
}

static void add_tensor(void)
{
    draws *d = c.from;
    entry *e = &c.tensors[c.count];
    const char *must = NULL, *name = e->name;
    int64_t shape[ATTN_MAX_RANK + 1] = {0};
    void *data = NULL;
    const int own = draw_one_in(d, 2);
    *e = (entry){.dtype = (attn_dtype)(1 + draw_below(d, 13)),
                 .rank = (int)draw_below(d, draw_one_in(d, 4) ? ATTN_MAX_RANK + 1 : 4)};
    draw_text(e->name, sizeof e->name, 1);
    for (int i = 0; i < e->rank; i++) shape[i] = draw_below(d, e->rank > 4 ? 3 : 6);
    e->bytes = (size_t)elements(e->rank, shape) * attn_dtype_size(e->dtype);
    e->borrowed = block_of("data", e->dtype, 0, 1, 1, 1, elements(e->rank, shape));
    if (!block_allocate(&e->borrowed)) abort();
    for (size_t i = 0; i < e->bytes; i++) e->borrowed.memory[i] = (unsigned char)draw_word(d);
    memcpy(e->shape, shape, sizeof e->shape);
    attn_dtype dtype = e->dtype;
    int rank = e->rank;
    const void *borrowed = e->borrowed.memory;
    if (tensor_named(name) >= 0) must = "a name that is taken";
    switch (draw_below(d, 18)) {
    case 0:
        draw_text(e->name, sizeof e->name, 0), must = "a name that is not UTF-8";
        break;
    case 1:
        name = draw_one_in(d, 3) ? "" : draw_one_in(d, 2) ? "__metadata__" : NULL, must = "an invalid name";
        break;
    case 2:
        dtype = (attn_dtype)(draw_one_in(d, 2) ? 0 : 14 + draw_below(d, 99)), must = "an invalid type";
        break;
    case 3:
        rank = draw_one_in(d, 2) ? -1 : ATTN_MAX_RANK + 1 + (int)draw_below(d, 99), must = "an invalid rank";
        break;
    case 4:
        if (rank == 0) break;
        shape[draw_below(d, rank)] = draw_one_in(d, 2) ? -1 : INT64_MAX;
        must = "an invalid size";
        for (int i = 0; i < rank; i++)
            if (shape[i] == INT64_MAX && attn_dtype_size(dtype) == 1) { /* 2^63 - 1 bytes are legal, but not available here */
                block_free(&e->borrowed);
                return;
            }
        break;
    case 5:
        if (own || e->bytes == 0) break;
        borrowed = draw_one_in(d, 2) && attn_dtype_size(dtype) > 1 ? (const unsigned char *)borrowed + 1 : NULL,
        must = "invalid data";
        break;
    default:
        break;
    }
    memset(&last, 0x55, sizeof last);
    const int64_t before = attn_archive_count(c.archive);
    const attn_status status = own ? attn_archive_allocate(c.archive, name, dtype, rank, shape, &data, &last)
                                   : attn_archive_add(c.archive, name, dtype, rank, shape, borrowed, &last);
    check_error(status, &last);
    if (must && status == ATTN_OK) finding("%s, but the tensor is added", must);
    if (!must && status != ATTN_OK) finding("a valid tensor is rejected: %s", last.message);
    if (attn_archive_count(c.archive) != before + (status == ATTN_OK)) finding("the number of tensors is wrong");
    if (status != ATTN_OK) {
        target_rejected++;
        block_free(&e->borrowed);
        return;
    }
    if (draw_one_in(d, 8)) { /* removed, and added again */
        if (attn_archive_remove(c.archive, name, &last) != ATTN_OK) finding("an existing tensor is not removed: %s", last.message);
        if (attn_archive_remove(c.archive, name, NULL) == ATTN_OK) finding("a missing tensor is removed");
        if (attn_archive_count(c.archive) != before || attn_archive_find(c.archive, name))
            finding("a removed tensor is still there");
        if ((own ? attn_archive_allocate(c.archive, name, dtype, rank, shape, &data, &last)
                 : attn_archive_add(c.archive, name, dtype, rank, shape, borrowed, &last)) != ATTN_OK)
            finding("the name of a removed tensor is rejected: %s", last.message);
    }
    e->data = malloc(e->bytes + 1);
    if (!e->data) abort();
    if (e->bytes) memcpy(e->data, e->borrowed.memory, e->bytes);
    for (size_t i = 0; own && i < e->bytes; i++)
        if (((unsigned char *)data)[i] != 0) finding("memory is not zeroed");
    if (own && (!data || (uintptr_t)data % 64)) finding("memory is NULL or misaligned: %p", data);
    if (own && e->bytes) memcpy(data, e->data, e->bytes);
    c.count++;
}

static void set_text(void)
{
    draws *d = c.from;
    text t;
    const int good = !draw_one_in(d, 6);
    const char *key = t.key;
    draw_text(t.key, sizeof t.key, good), draw_text(t.value, sizeof t.value, good || draw_one_in(d, 2));
    if (good && draw_one_in(d, 12)) key = NULL;
    memset(&last, 0x55, sizeof last);
    const attn_status status = attn_archive_set_metadata(c.archive, key, t.value, &last);
    check_error(status, &last);
    if (good && key && status != ATTN_OK) finding("a text is rejected: %s", last.message);
    if ((!good || !key) && status == ATTN_OK) finding("an invalid text is accepted");
    if (status != ATTN_OK) return;
    int at = 0;
    while (at < c.text_count && strcmp(c.texts[at].key, t.key) != 0) at++;
    c.texts[at] = t;
    if (at == c.text_count) c.text_count++;
}

/* ---- expected contents ---- */

static void check_tensors(const attn_archive *archive, const char *what)
{
    if (attn_archive_count(archive) != c.count)
        finding("%s: %lld tensors, not %d", what, (long long)attn_archive_count(archive), c.count);
    for (int64_t i = 0; i < c.count; i++) {
        const attn_archive_tensor *t = attn_archive_at(archive, i), *before = attn_archive_at(archive, i - 1);
        const int at = tensor_named(t->name);
        if (at < 0) finding("%s: an unexpected tensor '%s'", what, t->name);
        const entry *e = &c.tensors[at];
        if (before && strcmp(before->name, t->name) >= 0) finding("%s: '%s' is listed after '%s'", what, t->name, before->name);
        if (attn_archive_find(archive, t->name) != t) finding("%s: '%s' is not found", what, t->name);
        if (t->dtype != e->dtype || t->rank != e->rank || t->bytes != e->bytes ||
            memcmp(t->shape, e->shape, (size_t)e->rank * sizeof *e->shape) != 0)
            finding("%s: '%s' has the wrong type, rank, shape or size", what, t->name);
        if (e->bytes && ((uintptr_t)t->data % attn_dtype_size(t->dtype) || memcmp(t->data, e->data, e->bytes) != 0))
            finding("%s: '%s' is misaligned or has the wrong bytes", what, t->name);
    }
    const int64_t hostile = draw_hostile(c.from);
    if ((hostile < 0 || hostile >= c.count) && attn_archive_at(archive, hostile))
        finding("%s: there is a tensor %lld", what, (long long)hostile);
    if (attn_archive_find(archive, "nobody")) finding("%s: a missing name is found", what);
}

static void check_texts(const attn_archive *archive, const char *what)
{
    if (attn_archive_metadata_count(archive) != c.text_count)
        finding("%s: %lld texts, not %d", what, (long long)attn_archive_metadata_count(archive), c.text_count);
    for (int i = 0; i < c.text_count; i++) {
        const char *value = attn_archive_get_metadata(archive, c.texts[i].key);
        const attn_metadata *m = attn_archive_metadata_at(archive, i), *before = attn_archive_metadata_at(archive, i - 1);
        if (!value || strcmp(value, c.texts[i].value) != 0)
            finding("%s: '%s' is '%s'", what, c.texts[i].key, value ? value : "NULL");
        if (before && strcmp(before->key, m->key) >= 0) finding("%s: '%s' is listed after '%s'", what, m->key, before->key);
    }
}

/* ---- files ---- */

/* The contents of a file; free() them. */
static unsigned char *slurp(const char *path, size_t *bytes)
{
    unsigned char *all = malloc(1 << 20);
    FILE *file = fopen(path, "rb");
    *bytes = file && all ? fread(all, 1, 1 << 20, file) : 0;
    if (!file || !all) finding("%s cannot be read", path);
    fclose(file);
    return all;
}

/* Every second tensor, by a callback. */
static int every_second(void *context, const attn_archive_tensor *tensor)
{
    int *asked = context;
    if (!tensor->name || tensor->data) finding("a tensor that is not read has data, or no name");
    return (*asked)++ % 2;
}

static void check_some(const char *path)
{
    attn_archive *some, *all;
    int asked = 0;
    if (attn_archive_read(&all, path, &last)) finding("%s is read once and not twice: %s", path, last.message);
    if (attn_archive_read_some(&some, path, every_second, &asked, &last)) finding("some of %s: %s", path, last.message);
    if (asked != attn_archive_count(all) || attn_archive_count(some) != asked / 2)
        finding("%d of %d tensors, %d asked for", (int)attn_archive_count(some), (int)attn_archive_count(all), asked);
    for (int64_t k = 0; k < attn_archive_count(some); k++) {
        const attn_archive_tensor *t = attn_archive_at(some, k), *same = attn_archive_find(all, t->name);
        if (!same || t->bytes != same->bytes || (t->bytes && memcmp(t->data, same->data, t->bytes) != 0))
            finding("tensor %d of some differs", (int)k);
    }
    attn_archive_destroy(some), attn_archive_destroy(all);
}

static void write_and_read(void)
{
    static const char *const formats[] = {"safetensors", "npz", "npy"};
    const int format = (int)draw_below(c.from, 3), watched = draw_one_in(c.from, 2);
    char folder[] = "/tmp/fuzz_archive_XXXXXX", path[64], nowhere[96];
    attn_unfinished unfinished = {.there = 0};
    attn_archive *read = NULL;
    int narrow = 0; /* a type that NumPy lacks, or a name that zip lacks */
    for (int i = 0; i < c.count; i++) narrow |= c.tensors[i].dtype == ATTN_BF16 || (format == 1 && strchr(c.tensors[i].name, 1));
    if (!mkdtemp(folder)) return;
    snprintf(path, sizeof path, "%s/x.%s", folder, formats[format]), snprintf(nowhere, sizeof nowhere, "%s/y/x.npz", folder);
    memset(&last, 0x55, sizeof last);
    const attn_status status =
        watched ? attn_archive_write_watched(c.archive, path, &unfinished, &last) : attn_archive_write(c.archive, path, &last);
    check_error(status, &last);
    if (unfinished.there) finding("an unfinished file is left");
    attn_unfinished_remove(&unfinished), attn_unfinished_remove(NULL);
    const int must = format == 2 ? c.count == 1 && !narrow : format == 0 || !narrow;
    if (must != (status == ATTN_OK)) finding("writing %s: unexpected status %d: %s", formats[format], (int)status, last.message);
    if ((status == ATTN_OK) != !access(path, F_OK)) finding("status %d, but file exists: %d", (int)status, !access(path, F_OK));
    if (status == ATTN_OK && format < 2) {
        const int mapped = draw_one_in(c.from, 2);
        if ((mapped ? attn_archive_map : attn_archive_read)(&read, path, &last))
            finding("a written file is not read: %s", last.message);
        check_tensors(read, path), check_texts(read, path);
        attn_archive_destroy(read);
        size_t bytes, copied;
        unsigned char *all = slurp(path, &bytes);
        if (attn_archive_read_memory(&read, "x", all, bytes, &last))
            finding("a written file is not read from memory: %s", last.message);
        check_tensors(read, "memory"), check_texts(read, "memory");
        attn_archive_destroy(read);
        if (bytes && attn_archive_read_memory(&read, "x", all, bytes - 1, &last) == ATTN_OK) finding("a truncated file is read");
        check_some(path);
        if ((watched ? attn_file_write_watched(path, all, bytes / 2, &unfinished, &last)
                     : attn_file_write(path, all, bytes / 2, &last)))
            finding("attn_file_write fails: %s", last.message);
        unsigned char *half = slurp(path, &copied);
        if (copied != bytes / 2 || memcmp(half, all, copied) != 0) finding("the wrong bytes are written");
        free(all), free(half);
    } else if (status == ATTN_OK) {
        if (attn_archive_read(&read, path, &last)) finding("a written file is not read: %s", last.message);
        const attn_archive_tensor *t = attn_archive_find(read, "x");
        if (!t || t->bytes != c.tensors[0].bytes || (t->bytes && memcmp(t->data, c.tensors[0].data, t->bytes) != 0))
            finding("%s has the wrong tensor", path);
        attn_archive_destroy(read);
    }
    if (attn_archive_write(c.archive, nowhere, &last) == ATTN_OK || attn_file_write(nowhere, "", 0, &last) == ATTN_OK)
        finding("a file is written in a folder that does not exist");
    read = (attn_archive *)(void *)&last;
    if (attn_archive_read(&read, nowhere, &last) != ATTN_ERR_IO || read) finding("a file that does not exist is read");
    (void)unlink(path);
    if (rmdir(folder)) finding("something is left in %s", folder);
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    if (attn_archive_create(&c.archive, &last)) finding("no container: %s", last.message);
    if (attn_archive_create(NULL, &last) != ATTN_ERR_ARGUMENT) finding("a container is created without a place for it");
    for (int64_t steps = draw_below(from, MAX_STEPS); steps > 0; steps--) (draw_one_in(from, 3) ? set_text : add_tensor)();
    target_drawn();
    check_tensors(c.archive, "after creation"), check_texts(c.archive, "after creation");
    if (draw_one_in(from, 6)) write_and_read();
    target_ran++;
    attn_archive_destroy(c.archive);
    attn_archive_destroy(NULL);
    for (int i = 0; i < c.count; i++) free(c.tensors[i].data), block_free(&c.tensors[i].borrowed);
}
