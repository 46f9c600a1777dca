/* SPDX-License-Identifier: MIT
 *
 * io.h - named tensors in files: .safetensors, .npz and .npy, and .gguf for reading.  The library is libattn_io.
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
 *  - Files are untrusted: every size, offset, type, name and number is checked before it is used.
 *  - Messages are one line: `bad.safetensors: tensor 'q': offsets [0, 100] hold 100 bytes, shape [2, 13] of f32 needs 104`.
 *  - Strings (names, keys, values, paths) are NUL-terminated; names, keys and values are UTF-8.
 *  - Any number of threads may read one container at once; a thread that changes it must have exclusive access.
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
    const void *data; /* aligned at least to the element; not to be read if bytes is 0 */
    size_t bytes;     /* product of shape, times attn_dtype_size(dtype) */
} attn_archive_tensor;

/* A named string beside the tensors. */
typedef struct attn_metadata {
    const char *key;
    const char *value;
} attn_metadata;

/* A set of tensors with distinct names, and of metadata with distinct keys; both are kept sorted by name, bytewise. */
typedef struct attn_archive attn_archive;

/* Makes an empty container.  ATTN_ERR_ARGUMENT, ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_archive_create(attn_archive **archive, attn_error *error);

/* Frees a container, its tensors and its strings; NULL is a no-op. */
ATTN_API void attn_archive_destroy(attn_archive *archive);

/* ---- files ----------------------------------------------------------------------------------------------------- */

/*
 * Reads all tensors and metadata of a file into a new container.  The format is detected from the content, not the name; the tensor
 * of an .npy file gets the file's name without directory and extension.  Quantised tensors of a .gguf file (Q8_0, Q6_K, Q4_K, Q4_1,
 * Q4_0) are decoded to f32, and its metadata becomes text: numbers in decimal, true and false, and lists as JSON
 * (attn_metadata_list_create).  Shapes have the contiguous axis last, as everywhere, where ggml has it first.
 *
 *  archive  [out] the container; NULL on failure
 *  path     [in]  a regular file, or a pipe (which is read to its end)
 *
 * The whole file is copied into memory before anything is parsed, so later changes to it have no effect.  A file that is truncated,
 * written or replaced while it is read gives its contents before or after, or an error, never a crash; a change in place is
 * detected by size and modification time.
 *
 * Returns
 *      ATTN_ERR_IO           the operating system failed to open or read, or the file was changed while it was read
 *      ATTN_ERR_FORMAT       the file is not what it claims to be
 *      ATTN_ERR_UNSUPPORTED  well formed, with an element type, a rank or a compression that no attn_archive_tensor has
 *      ATTN_ERR_MEMORY       out of memory, or an .npz or .gguf that unpacks to more than this machine has
 *      ATTN_ERR_ARGUMENT     NULL
 */
ATTN_API attn_status attn_archive_read(attn_archive **archive, const char *path, attn_error *error);

/* 1 if a tensor of a file is to be read, 0 if not.  The tensor has its name, type (f32 if it is quantised) and shape; its data is
 * NULL, and all of it is gone after the call. */
typedef int attn_archive_wanted(void *context, const attn_archive_tensor *tensor);

/*
 * attn_archive_read with some of the tensors only: those for which `wanted`, which is called once for each, returns 1.  Shapes and
 * places of the others are checked too, but they are neither decoded nor in the container: one layer of a quantised model takes
 * the memory of a layer, beside that of the file.
 *
 *  wanted   [in]  not NULL (ATTN_ERR_ARGUMENT)
 *  context  [in]  its first argument
 *
 * Threads: `wanted` is called by the caller's thread.
 */
ATTN_API attn_status attn_archive_read_some(attn_archive **archive, const char *path, attn_archive_wanted *wanted, void *context,
                                            attn_error *error);

/*
 * attn_archive_read without the copy, for large files of which little is used: the data of .safetensors, .npy and .gguf files stays
 * in the file, which is memory-mapped and read on access; only data that is misaligned, in another byte order, in Fortran order or
 * quantised is copied.
 * Replacing the file, as attn_archive_write does, is safe.  But nobody may change it in place or truncate it while the container
 * lives: numbers would change under the reader, and touching truncated data kills the process (SIGBUS).
 */
ATTN_API attn_status attn_archive_map(attn_archive **archive, const char *path, attn_error *error);

/* The same for a file already in memory.  name replaces the path in messages and in the name of an .npy tensor.  The bytes are
 * borrowed: they must stay unchanged until the container is destroyed.  Any alignment will do. */
ATTN_API attn_status attn_archive_read_memory(attn_archive **archive, const char *name, const void *bytes, size_t size,
                                              attn_error *error);

/*
 * Writes a container in the format of the path's extension: .safetensors, .npz (members stored, as np.savez does), or .npy (exactly
 * one tensor; its name and the metadata are dropped).  The same container gives the same bytes every time.
 *
 * The file is written atomically: the bytes go to a temporary file in the same directory, which is synced and renamed to `path`,
 * and removed if anything fails; an existing file is then unchanged.  The new file has the permissions of any new file (the umask).
 * A symbolic link is followed.
 *
 * Returns
 *      ATTN_ERR_ARGUMENT     NULL, or any other extension (.gguf is read only)
 *      ATTN_ERR_SHAPE        more or less than one tensor for .npy
 *      ATTN_ERR_UNSUPPORTED  bf16 in .npz or .npy, since NumPy has no such type; an .npz name that is too long or has control bytes
 *      ATTN_ERR_IO           the operating system failed to write, or `path` is not a regular file
 *      ATTN_ERR_MEMORY
 */
ATTN_API attn_status attn_archive_write(const attn_archive *archive, const char *path, attn_error *error);

/* Writes bytes to a file of any name, atomically in the same way. */
ATTN_API attn_status attn_file_write(const char *path, const void *bytes, size_t size, attn_error *error);

/*
 * The temporary file of a write, for a program that a signal may kill meanwhile: the library installs no handlers, and a killed
 * process cannot remove its files.
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
 * Must start as zeros, and live as long as the handler may run.  One write at a time may use it.
 */
typedef struct attn_unfinished {
    int there;       /* 1 while there may be a temporary file */
    char path[4096]; /* its name, unique to this write */
} attn_unfinished;

/* attn_archive_write and attn_file_write, with the name of their temporary file in *unfinished (or NULL) while there is one.  A
 * path whose directory is longer than some 4000 bytes is ATTN_ERR_IO. */
ATTN_API attn_status attn_archive_write_watched(const attn_archive *archive, const char *path, attn_unfinished *unfinished,
                                                attn_error *error);
ATTN_API attn_status attn_file_write_watched(const char *path, const void *bytes, size_t size, attn_unfinished *unfinished,
                                             attn_error *error);

/* Removes the temporary file if there is one; NULL is a no-op.  May be called in a signal handler, in any thread: a write in
 * progress fails, or has already renamed its file. */
ATTN_API void attn_unfinished_remove(attn_unfinished *unfinished);

/* ---- reading a container --------------------------------------------------------------------------------------- */

/* Number of tensors; 0 for NULL. */
ATTN_API int64_t attn_archive_count(const attn_archive *archive);

/* Tensor number `index`, in order of name; NULL outside 0 .. count-1.  Pointers to tensors are valid until the container is
 * destroyed or the tensor removed. */
ATTN_API const attn_archive_tensor *attn_archive_at(const attn_archive *archive, int64_t index);

/* The tensor of this name, or NULL. */
ATTN_API const attn_archive_tensor *attn_archive_find(const attn_archive *archive, const char *name);

/* Number of metadata entries; 0 for NULL. */
ATTN_API int64_t attn_archive_metadata_count(const attn_archive *archive);

/* Metadata entry number `index`, in order of key; NULL outside 0 .. count-1.  Valid until that key is set again. */
ATTN_API const attn_metadata *attn_archive_metadata_at(const attn_archive *archive, int64_t index);

/* The value of this key, or NULL.  Valid until that key is set again. */
ATTN_API const char *attn_archive_get_metadata(const attn_archive *archive, const char *key);

/* The items of a metadata value that is a list. */
typedef struct attn_metadata_list {
    int64_t count;
    const char *const *items; /* [count]; of a text the text, of a number, true, false or null its JSON, of a list or object too */
} attn_metadata_list;

/*
 * Makes the list of a metadata value that is a JSON list: the words of a sentence, or of a .gguf file tokens, scores and merges.
 *
 *      attn_metadata_list *tokens;
 *      if (attn_metadata_list_create(&tokens, file, "tokenizer.ggml.tokens", &error) != ATTN_OK) ...
 *      puts(tokens->items[17]);
 *      attn_metadata_list_destroy(tokens);
 *
 *  list  [out] one allocation, independent of the container; NULL on failure
 *
 * ATTN_ERR_ARGUMENT: NULL, or there is no such key; ATTN_ERR_FORMAT: the value is not a JSON list of JSON values, or a text in it
 * has \u0000 or half a surrogate pair; ATTN_ERR_MEMORY.  (The inside of lists and objects in the list is not checked.)
 */
ATTN_API attn_status attn_metadata_list_create(attn_metadata_list **list, const attn_archive *archive, const char *key,
                                               attn_error *error);

/* Frees a list; NULL is a no-op. */
ATTN_API void attn_metadata_list_destroy(attn_metadata_list *list);

/* ---- building a container -------------------------------------------------------------------------------------- */

/*
 * Adds a tensor.  Name and shape are copied.  The data is borrowed: it must stay in place until the container is destroyed or the
 * tensor removed, and may be NULL only if the tensor has no elements.
 *
 * Returns, with the container unchanged,
 *      ATTN_ERR_ARGUMENT  NULL, an invalid dtype, a rank outside 0 .. ATTN_MAX_RANK, data misaligned for its dtype, a name
 *                         that is empty, not UTF-8, taken, or "__metadata__" (which is reserved by the formats)
 *      ATTN_ERR_UNSUPPORTED  a type that files do not have: f8 and blocks
 *      ATTN_ERR_SHAPE     a negative size, or sizes whose product overflows (zeros not counted)
 *      ATTN_ERR_MEMORY
 */
ATTN_API attn_status attn_archive_add(attn_archive *archive, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                                      const void *data, attn_error *error);

/* The same with data that the container owns: *data points to zeroed memory, aligned to 64, for the caller to fill.  It is not
 * NULL, even if the tensor has no elements. */
ATTN_API attn_status attn_archive_allocate(attn_archive *archive, const char *name, attn_dtype dtype, int rank,
                                           const int64_t *shape, void **data, attn_error *error);

/* Removes a tensor and frees what the container owns of it; pointers to it become invalid.  ATTN_ERR_ARGUMENT: NULL, or no tensor
 * has this name. */
ATTN_API attn_status attn_archive_remove(attn_archive *archive, const char *name, attn_error *error);

/* Sets or replaces one metadata entry; key and value are copied.  ATTN_ERR_ARGUMENT: NULL or not UTF-8; ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_archive_set_metadata(attn_archive *archive, const char *key, const char *value, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
