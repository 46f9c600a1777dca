/* SPDX-License-Identifier: MIT
 *
 * io.h - named tensors in files: .safetensors, .npz and .npy.  The library is libattn_io.
 *
 *      attn_archive *file = NULL;
 *      if (attn_archive_read(&file, "layer.safetensors", &error) != ATTN_OK) ...
 *      const attn_archive_tensor *q = attn_archive_find(file, "q");
 *      const char *tokens = attn_archive_get_metadata(file, "tokens");
 *      ...
 *      attn_archive_destroy(file);
 *
 * Conventions that hold everywhere:
 *
 *  - A file is trusted in nothing: every size, offset, type, name and number in it is checked before it is used.
 *  - Messages are one line: `bad.safetensors: tensor 'q': offsets [0, 100] hold 100 bytes, shape [2, 13] of f32 needs 104`.
 *  - Texts (names, keys, values, paths) are NUL-terminated; names, keys and values are UTF-8.
 *  - One container may be read by any number of threads at once; to change it a thread must have it to itself.
 *
 * docs/io.md has the formats, the limits, and what each format can hold.
 */
#ifndef ATTN_IO_H
#define ATTN_IO_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors and containers ------------------------------------------------------------------------------------ */

#define ATTN_MAX_RANK 8

/* One tensor: dense, the last axis contiguous, in the machine's byte order.  Belongs to its container. */
typedef struct attn_archive_tensor {
    const char *name;
    attn_dtype dtype;
    int rank; /* 0 (one number) to ATTN_MAX_RANK */
    int64_t shape[ATTN_MAX_RANK];
    const void *data; /* aligned to the element at least; not to be read where bytes is 0 */
    size_t bytes;     /* product of shape, times attn_dtype_size(dtype) */
} attn_archive_tensor;

/* A named text beside the tensors. */
typedef struct attn_metadata {
    const char *key;
    const char *value;
} attn_metadata;

/* A set of tensors with distinct names, and of metadata with distinct keys; both are kept in byte order of name. */
typedef struct attn_archive attn_archive;

/* Makes an empty container.  ATTN_ERR_ARGUMENT, ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_archive_create(attn_archive **archive, attn_error *error);

/* Frees a container, its tensors and its texts; NULL is a no-op. */
ATTN_API void attn_archive_destroy(attn_archive *archive);

/* ---- files ----------------------------------------------------------------------------------------------------- */

/*
 * Reads all tensors and metadata of a file into a new container.  The format is told by the content, not by the name; the
 * tensor of a .npy file gets the file's name without folder and extension.
 *
 *  archive  [out] the container; NULL on failure
 *  path     [in]  a regular file, or a pipe (which is read to its end)
 *
 * The whole file is copied into memory, before anything of it is looked at, so whatever happens to it afterwards changes nothing
 * and ends nothing.  A file that is truncated, written or replaced while it is read gives what it held before or after, or an
 * error, never a crash; a change in place is noticed by its size and its time of change.
 *
 * Returns
 *      ATTN_ERR_IO           the operating system rejected to open or read, or the file was changed while it was read
 *      ATTN_ERR_FORMAT       the file is not what it claims to be
 *      ATTN_ERR_UNSUPPORTED  well formed, with an element type, a rank or a compression that no attn_archive_tensor has
 *      ATTN_ERR_MEMORY       out of memory, or an .npz that unpacks to more than this machine has
 *      ATTN_ERR_ARGUMENT     NULL
 */
ATTN_API attn_status attn_archive_read(attn_archive **archive, const char *path, attn_error *error);

/*
 * The same without the copy, for large files of which little is used: the data of .safetensors and .npy files stays in the file,
 * which is mapped into memory and read when it is touched; only what the file has misaligned, in another byte order or in Fortran
 * order is copied.  Replacing the file, as attn_archive_write does, is safe.  But nobody may change it in place or truncate it
 * while the container lives: numbers change under the reader's hands, and to touch what is gone ends the process (SIGBUS).
 */
ATTN_API attn_status attn_archive_map(attn_archive **archive, const char *path, attn_error *error);

/* The same for a file that is in memory already.  name stands for the path in messages and in the name of a .npy tensor.
 * The bytes are borrowed: they stay, unchanged, until the container is destroyed.  Any alignment will do. */
ATTN_API attn_status attn_archive_read_memory(attn_archive **archive, const char *name, const void *bytes, size_t size,
                                              attn_error *error);

/*
 * Writes a container in the format of the path's extension: .safetensors, .npz (members stored, as np.savez does), or .npy (exactly
 * one tensor; its name and the metadata are not kept).  The same container gives the same bytes every time.
 *
 * The file appears whole or not at all: the bytes go to a temporary file in the same folder, which is synced and renamed to `path`,
 * and removed if anything fails; a file that was there before is then as it was.  The new file has the permissions of any new file
 * (the umask).  A symbolic link is followed.
 *
 * Returns
 *      ATTN_ERR_ARGUMENT     NULL, or an extension that is none of the three
 *      ATTN_ERR_SHAPE        more or less than one tensor for .npy
 *      ATTN_ERR_UNSUPPORTED  bf16 in .npz or .npy: NumPy has no such type; in .npz a name that is too long, or has control
 * characters ATTN_ERR_IO           the operating system rejected, or `path` is something other than a file ATTN_ERR_MEMORY
 */
ATTN_API attn_status attn_archive_write(const attn_archive *archive, const char *path, attn_error *error);

/* Writes bytes to a file of any name, whole or not at all in the same way. */
ATTN_API attn_status attn_file_write(const char *path, const void *bytes, size_t size, attn_error *error);

/*
 * The temporary file of a write, for a program that a signal may end meanwhile: the library installs no handlers, and a process
 * that is ended cannot remove its files.
 *
 *      static attn_unfinished unfinished;
 *      static void on_signal(int number)       // installed by sigaction with SA_RESETHAND
 *      {
 *          attn_unfinished_remove(&unfinished);
 *          raise(number);
 *      }
 *      ...
 *      attn_archive_write_watched(archive, "out.npz", &unfinished, &error);
 *
 * Starts as zeros, and outlives the process or the handler.  One write at a time may have it.
 */
typedef struct attn_unfinished {
    int there;       /* 1 while there may be a temporary file */
    char path[4096]; /* its name, which no other file has */
} attn_unfinished;

/* attn_archive_write and attn_file_write, with the name of their temporary file in *unfinished (or NULL) while there is one.  A
 * path whose folder has a name of more than some 4000 bytes is ATTN_ERR_IO. */
ATTN_API attn_status attn_archive_write_watched(const attn_archive *archive, const char *path, attn_unfinished *unfinished,
                                                attn_error *error);
ATTN_API attn_status attn_file_write_watched(const char *path, const void *bytes, size_t size, attn_unfinished *unfinished,
                                             attn_error *error);

/* Removes the temporary file if there is one; NULL is a no-op.  May be called in a signal handler, in any thread: a write that goes
 * on meanwhile fails, or has renamed its file already. */
ATTN_API void attn_unfinished_remove(attn_unfinished *unfinished);

/* ---- what is in a container ------------------------------------------------------------------------------------ */

/* How many tensors; 0 for NULL. */
ATTN_API int64_t attn_archive_count(const attn_archive *archive);

/* Tensor number `index`, in order of name; NULL outside 0 .. count-1.  Pointers to tensors hold until the container is
 * destroyed, or the tensor removed. */
ATTN_API const attn_archive_tensor *attn_archive_at(const attn_archive *archive, int64_t index);

/* The tensor of this name, or NULL. */
ATTN_API const attn_archive_tensor *attn_archive_find(const attn_archive *archive, const char *name);

/* How many metadata; 0 for NULL. */
ATTN_API int64_t attn_archive_metadata_count(const attn_archive *archive);

/* Metadata number `index`, in order of key; NULL outside 0 .. count-1.  Holds until that key is set again. */
ATTN_API const attn_metadata *attn_archive_metadata_at(const attn_archive *archive, int64_t index);

/* The value of this key, or NULL.  Holds until that key is set again. */
ATTN_API const char *attn_archive_get_metadata(const attn_archive *archive, const char *key);

/* ---- building a container -------------------------------------------------------------------------------------- */

/*
 * Adds a tensor.  Name and shape are copied.  The data is borrowed: it stays where it is until the container is destroyed or the
 * tensor removed, and may be NULL only where the tensor has no elements.
 *
 * Returns, with the container unchanged,
 *      ATTN_ERR_ARGUMENT  NULL, a dtype that is none, a rank outside 0 .. ATTN_MAX_RANK, data misaligned for its dtype, a name
 *                         that is empty, not UTF-8, taken, or "__metadata__" (which the formats keep for themselves)
 *      ATTN_ERR_SHAPE     a negative size, or sizes whose product overflows (zeros not counted)
 *      ATTN_ERR_MEMORY
 */
ATTN_API attn_status attn_archive_add(attn_archive *archive, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                                      const void *data, attn_error *error);

/* The same with data that the container owns: *data points to zeroed memory, aligned to 64, for the caller to fill.
 * It is not NULL, also where the tensor has no elements. */
ATTN_API attn_status attn_archive_allocate(attn_archive *archive, const char *name, attn_dtype dtype, int rank,
                                           const int64_t *shape, void **data, attn_error *error);

/* Takes a tensor out and frees what the container owns of it; pointers to it end here.  ATTN_ERR_ARGUMENT: NULL, or no tensor has
 * this name. */
ATTN_API attn_status attn_archive_remove(attn_archive *archive, const char *name, attn_error *error);

/* Sets or replaces one text; both are copied.  ATTN_ERR_ARGUMENT: NULL or not UTF-8; ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_archive_set_metadata(attn_archive *archive, const char *key, const char *value, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
