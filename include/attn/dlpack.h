/* SPDX-License-Identifier: MIT
 *
 * dlpack.h - tensors of other libraries as slots, by DLPack (dmlc.github.io/dlpack): nothing is copied.
 *
 *      attn_dlpack_input(q, "thc", NULL, &tensors.q, &error);              [all new tokens, heads, dim]
 *      attn_dlpack_input(cache, "0bthc", NULL, &tensors.k, &error);        [2, pages, page_size, heads, dim], as in vLLM
 *      attn_dlpack_input(cache, "1bthc", NULL, &tensors.v, &error);
 *      attn_dlpack_input(table, "bc", NULL, &tensors.page_table, &error);  [sequences, columns]
 *      attn_dlpack_output(o, "thc", NULL, &tensors.o, &error);
 */
#ifndef ATTN_DLPACK_H
#define ATTN_DLPACK_H

#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Fills in *slot from a DLTensor: its type, strides and address, byte_offset included.
 *
 *  tensor  [in]  a DLTensor of dlpack.h, whose layout is that of all versions since 0.2: &managed->dl_tensor, not a
 *                DLManagedTensor or DLManagedTensorVersioned.  It is not needed after the call, its memory is
 *  axes    [in]  a character for each axis of the tensor, at most 8: the letters b, h, t, c are the first to the fourth axis of
 *                the slot (batch or page, head, token, channel, or what they are for this tensor); a digit is the index that is
 *                taken of an axis that the slot does not have.  Axes without a letter, and those of size 1, broadcast
 *  shape   [in]  [4]: the sizes that the axes of the slot must have, such as attn_tensor_plan.shape; NULL: they are not
 *                compared.  No later call sees them: of a tensor that is smaller than the problem says, more is read
 *
 * Types: int, uint (8 to 64 bits), float (16, 32, 64), bfloat (16), bool (8), float8_e4m3fn and float8_e5m2; ggml's blocks have no
 * type in DLPack.  Devices: kDLCPU, kDLCUDAHost and kDLROCMHost, whose memory the CPU reads.  Strides of inputs may be 0 or
 * negative.  A tensor without elements becomes ATTN_EMPTY.  Whether an input is read-only, and when its producer is done with
 * writing, is between the engine and the producer.
 *
 * Returns ATTN_ERR_ARGUMENT (NULL; axes; another device; memory that is missing or not aligned to its elements), ATTN_ERR_SHAPE
 * (axes or sizes that differ) or ATTN_ERR_UNSUPPORTED (another type, elements of several lanes), with *slot unchanged.
 */
ATTN_API attn_status attn_dlpack_input(const void *tensor, const char *axes, const int64_t *shape, attn_input *slot,
                                       attn_error *error);
/* The same for a tensor that is written. */
ATTN_API attn_status attn_dlpack_output(const void *tensor, const char *axes, const int64_t *shape, attn_output *slot,
                                        attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
