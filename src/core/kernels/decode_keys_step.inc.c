/* SPDX-License-Identifier: MIT
 *
 * decode_keys_step.inc.c - decode: one function for each storage type of keys.  Included by decode.inc.c.
 */
#ifdef VF_LANES

/* FOR_KEYS(f, parameters, arguments) defines f for each storage type of keys in this compute type, and EACH_KEYS calls the one for
 * `dtype`.  Each is a function with registers of its own: gcc 12 takes half as long as for all types in one, and decode up to a
 * fifth less.  (Not in plain C, where decode in bf16 would take a third more.)  Aligned to cache lines, since the time of the loops
 * in them, up to a fifth, depends on where in a line they begin. */
#if VF_LANES > 1
#define FUNCTION_FOR_KEYS(f, suffix, dtype, parameters, ...)                                                                       \
    static VF_NOINLINE __attribute__((aligned(ATTN_LINE))) void f##suffix parameters { f(dtype, __VA_ARGS__); }
#define CALL_FOR_KEYS(f, suffix, dtype, ...) f##suffix(__VA_ARGS__)
#else
#define FUNCTION_FOR_KEYS(f, suffix, dtype, parameters, ...)
#define CALL_FOR_KEYS(f, suffix, dtype, ...) f(dtype, __VA_ARGS__)
#endif
#if REAL_BITS == 32
#define FOR_KEYS(f, parameters, ...)                                                                                               \
    FUNCTION_FOR_KEYS(f, _f32, ATTN_F32, parameters, __VA_ARGS__)                                                                  \
    FUNCTION_FOR_KEYS(f, _f16, ATTN_F16, parameters, __VA_ARGS__)                                                                  \
    FUNCTION_FOR_KEYS(f, _i8, ATTN_I8, parameters, __VA_ARGS__)                                                                    \
    FUNCTION_FOR_KEYS(f, _bf16, ATTN_BF16, parameters, __VA_ARGS__)
/* The types that keys do not have in place: f8 and blocks are unpacked first.  Without a `default`, a new type fails to compile
 * here instead of being read as another. */
#define NOT_KEYS                                                                                                                   \
    case ATTN_DTYPE_DEFAULT:                                                                                                       \
    case ATTN_F64:                                                                                                                 \
    case ATTN_BOOL:                                                                                                                \
    case ATTN_U8:                                                                                                                  \
    case ATTN_I16:                                                                                                                 \
    case ATTN_U16:                                                                                                                 \
    case ATTN_I32:                                                                                                                 \
    case ATTN_U32:                                                                                                                 \
    case ATTN_I64:                                                                                                                 \
    case ATTN_U64:                                                                                                                 \
    case ATTN_F8_E4M3:                                                                                                             \
    case ATTN_F8_E5M2:                                                                                                             \
    case ATTN_Q8_0:                                                                                                                \
    case ATTN_Q4_0:                                                                                                                \
    case ATTN_Q4_1:                                                                                                                \
    case ATTN_Q4_1C
#define EACH_KEYS(f, dtype, ...)                                                                                                   \
    do {                                                                                                                           \
        switch (dtype) {                                                                                                           \
        case ATTN_F32:                                                                                                             \
            CALL_FOR_KEYS(f, _f32, ATTN_F32, __VA_ARGS__);                                                                         \
            break;                                                                                                                 \
        case ATTN_F16:                                                                                                             \
            CALL_FOR_KEYS(f, _f16, ATTN_F16, __VA_ARGS__);                                                                         \
            break;                                                                                                                 \
        case ATTN_I8:                                                                                                              \
            CALL_FOR_KEYS(f, _i8, ATTN_I8, __VA_ARGS__);                                                                           \
            break;                                                                                                                 \
        case ATTN_BF16:                                                                                                            \
            CALL_FOR_KEYS(f, _bf16, ATTN_BF16, __VA_ARGS__);                                                                       \
            break;                                                                                                                 \
        NOT_KEYS:                                                                                                                  \
            break;                                                                                                                 \
        }                                                                                                                          \
    } while (0)
#else
#define FOR_KEYS(f, parameters, ...) FUNCTION_FOR_KEYS(f, _f64, ATTN_F64, parameters, __VA_ARGS__)
#define EACH_KEYS(f, dtype, ...)     ((void)(dtype), CALL_FOR_KEYS(f, _f64, ATTN_F64, __VA_ARGS__))
#endif

/* In whole vectors, since a vector is loaded from several smaller stores only after these have left for the cache. */
static void step_gather_rows(int64_t n, const char *const *rows, int64_t bytes, char *to)
{
    for (int64_t i = 0; i < n; i++, to += bytes) {
        const char *const from = rows[i];
        int64_t at = 0;
        for (vf x; at + (int64_t)sizeof x <= bytes; at += (int64_t)sizeof x) {
            memcpy(&x, from + at, sizeof x);
            memcpy(to + at, &x, sizeof x);
        }
        if (at < bytes) memcpy(to + at, from + at, (size_t)(bytes - at));
    }
}

#endif
