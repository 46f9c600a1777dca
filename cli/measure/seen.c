/* SPDX-License-Identifier: MIT
 * seen.c - see seen.h. */
#include "seen.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* n / by, rounded down for negative n too */
static int64_t floor_divide(int64_t n, int64_t by) { return n / by - (n % by < 0); }

static const int64_t *numbers_of(const attn_input *slot) { return slot->data == ATTN_LATER ? NULL : slot->data; }

seen_rules seen_rules_of(const attn_problem *problem, const attn_tensors *tensors, int64_t len_kv)
{
    seen_rules rules = {.mask = problem->mask, .len_kv = len_kv};
    if (!tensors) return rules;
    rules.ranges = numbers_of(&tensors->ranges);
    rules.starts = numbers_of(&tensors->block_starts);
    rules.index = numbers_of(&tensors->block_index);
    return rules;
}

static int is_global(const attn_mask *mask, int64_t position) { return position >= 0 && position < mask->global_q; }

void seen_keys(const seen_rules *rules, int64_t i, int64_t position, seen_interval *near, seen_interval *global)
{
    const attn_mask *mask = &rules->mask;
    seen_interval all = {0, rules->len_kv};
    if (mask->causal) all.high = least(all.high, position + 1);
    if (mask->chunk > 0) {
        const int64_t begin = floor_divide(position, mask->chunk) * mask->chunk;
        all = (seen_interval){most(all.low, begin), least(all.high, begin + mask->chunk)};
    }
    if (rules->ranges) all = (seen_interval){most(all.low, rules->ranges[2 * i]), least(all.high, rules->ranges[2 * i + 1])};
    *near = all;
    *global = (seen_interval){0, 0};
    if (is_global(mask, position)) return;
    /* a window may have any number of keys: sums of those that reach beyond all would overflow */
    const int left = mask->window && mask->window_left >= 0 && mask->window_left < position;
    const int right = mask->window && mask->window_right >= 0 && mask->window_right < rules->len_kv - position;
    if (left) near->low = most(near->low, position - mask->window_left);
    if (right) near->high = least(near->high, position + mask->window_right + 1);
    *global = (seen_interval){all.low, least(all.high, mask->global_kv)};
    if (near->low >= near->high || global->low >= global->high) return;
    if (global->high >= near->low) { /* they touch */
        *near = (seen_interval){least(global->low, near->low), most(near->high, global->high)};
        *global = (seen_interval){0, 0};
    }
}

/* Keys of low .. high-1 at a multiple of the dilation from the position.  (No mask has a dilation and global tokens.) */
static double count_between(const seen_rules *rules, int64_t position, int64_t low, int64_t high)
{
    const int64_t step = rules->mask.dilation;
    if (low >= high) return 0;
    if (step < 2 || is_global(&rules->mask, position)) return (double)(high - low);
    return (double)(floor_divide(high - 1 - position, step) - floor_divide(low - 1 - position, step));
}

static double count_keys(const seen_rules *rules, int64_t i, int64_t position, const seen_interval *keys)
{
    const int64_t block = rules->mask.block_kv;
    double count = 0;
    if (!rules->starts) return count_between(rules, position, keys->low, keys->high);
    const int64_t *row = rules->starts + i / rules->mask.block_q;
    for (int64_t n = row[0]; n < row[1]; n++)
        count += count_between(rules, position, most(keys->low, rules->index[n] * block),
                               least(keys->high, (rules->index[n] + 1) * block));
    return count;
}

double seen_count(const seen_rules *rules, int64_t i, int64_t position)
{
    seen_interval near, global;
    seen_keys(rules, i, position, &near, &global);
    return count_keys(rules, i, position, &near) + count_keys(rules, i, position, &global);
}
