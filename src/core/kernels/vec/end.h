/* SPDX-License-Identifier: MIT
 * end.h - closes the target pragma of avx2.h or avx512.h; the last line of a kernel's file.  No guard: it is used once per file. */
#if defined(VF_TARGET) && defined(__clang__)
#pragma clang attribute pop
#elif defined(VF_TARGET)
#pragma GCC pop_options
#endif
