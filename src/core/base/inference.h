/* SPDX-License-Identifier: MIT
 *
 * inference.h - what a build with ATTN_INFERENCE_ONLY leaves out: gradients, forward mode, computing in double, and the walks of
 * short heads, which others can do.  (Modules outside the core: src/inference.)  Kernels have no members for the parts that are
 * left out (kernels/parts.def), so code that needs one does not compile.
 */
#ifndef ATTN_BASE_INFERENCE_H
#define ATTN_BASE_INFERENCE_H

#ifdef ATTN_INFERENCE_ONLY
#define ATTN_TRAINS 0
#define ATTN_IF_TRAINS(...)
#define ATTN_OR_NULL(function) 0
/* The end of a sentence that rejects. */
#define ATTN_LEFT_OUT "; this library was built with ATTN_INFERENCE_ONLY"
#else
#define ATTN_TRAINS            1
#define ATTN_IF_TRAINS(...)    __VA_ARGS__
#define ATTN_OR_NULL(function) function
#define ATTN_LEFT_OUT          ""
#endif

#endif
