/* SPDX-License-Identifier: MIT
 * draws.c - choices from a fuzzer's bytes, then from a generator. */
#include "draws.h"

draws draws_from(const uint8_t *bytes, size_t size)
{
    draws d = {bytes, size, random_from(0x9E3779B97F4A7C15u)};
    for (size_t i = 0; i < size; i++) d.random.state = (d.random.state ^ bytes[i]) * 0x100000001B3u + 1;
    return d;
}

uint64_t draw_word(draws *d) { return random_bits(&d->random); }

static uint64_t draw_byte(draws *d)
{
    if (d->left == 0) return draw_word(d) & 255;
    d->left--;
    return *d->bytes++;
}

int64_t draw_below(draws *d, int64_t n)
{
    uint64_t x = draw_byte(d);
    if (n <= 0) return 0;
    if (n > 256) x = x << 8 | draw_byte(d);
    for (int i = 0; n > 65536 && i < 2; i++) x = x << 8 | draw_byte(d);
    return (int64_t)(x % (uint64_t)n);
}

int draw_one_in(draws *d, int n) { return draw_below(d, n) == 0; }

int64_t draw_hostile(draws *d)
{
    static const int64_t numbers[] = {INT64_MIN,
                                      INT64_MIN + 1,
                                      INT64_MAX,
                                      INT64_MAX - 1,
                                      INT64_MAX / 2,
                                      INT64_MIN / 2,
                                      INT64_MAX / 8,
                                      (int64_t)1 << 62,
                                      -((int64_t)1 << 62),
                                      (int64_t)1 << 60,
                                      (int64_t)1 << 40,
                                      (int64_t)1 << 32,
                                      (int64_t)1 << 31,
                                      INT32_MAX,
                                      INT32_MIN,
                                      -1,
                                      -2,
                                      0,
                                      1,
                                      2,
                                      3,
                                      65536,
                                      (int64_t)1 << 53,
                                      (int64_t)1 << 61,
                                      INT64_MAX / 4};
    return numbers[draw_below(d, (int64_t)(sizeof numbers / sizeof *numbers))];
}

int64_t draw_vast(draws *d)
{
    static const int64_t sizes[] = {0,
                                    1,
                                    2,
                                    3,
                                    64,
                                    INT32_MAX,
                                    (int64_t)1 << 31,
                                    (int64_t)1 << 32,
                                    (int64_t)1 << 40,
                                    (int64_t)1 << 47,
                                    ((int64_t)1 << 48) - 1,
                                    (int64_t)1 << 48,
                                    ((int64_t)1 << 48) + 1,
                                    (int64_t)1 << 56,
                                    (int64_t)1 << 60,
                                    INT64_MAX / 8,
                                    (int64_t)1 << 62,
                                    INT64_MAX - 1,
                                    INT64_MAX};
    return draw_one_in(d, 3) ? draw_below(d, 3) : sizes[draw_below(d, (int64_t)(sizeof sizes / sizeof *sizes))];
}

void draw_vast_fields(draws *d, int64_t *fields, int n)
{
    const int all = draw_one_in(d, 3);
    fields[draw_below(d, n)] = draw_vast(d);
    for (int i = 0; i < n; i++)
        if (all || draw_one_in(d, 2)) fields[i] = draw_vast(d);
}
