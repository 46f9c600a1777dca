/* SPDX-License-Identifier: MIT
 *
 * test_bits.c - the same bits every time (properties P19 and P26 of docs/coverage.md): for any number and kind of threads, any
 * batch around an entry, any alignment and layout; and other orders of summation differ only by rounding.
 */
#include "attend.h"

#include <math.h>
#include <pthread.h>

#define FOR_EACH(n, count) for (int64_t n = 0; n < (count); n++)

/* ---- the test's own thread pool ---- */

typedef struct shared_tasks {
    pthread_mutex_t lock;
    int64_t next, n;
    void (*body)(void *context, int64_t i);
    void *context;
} shared_tasks;

static void *worker_of_pool(void *argument)
{
    shared_tasks *c = argument;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        const int64_t i = c->next++;
        pthread_mutex_unlock(&c->lock);
        if (i >= c->n) return NULL;
        c->body(c->context, c->n - 1 - i); /* backwards, for once */
    }
}

static void pool_for(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    const int threads = *(const int *)context;
    pthread_t thread[16];
    shared_tasks c = {.n = n, .body = body, .context = body_context};
    pthread_mutex_init(&c.lock, NULL);
    for (int t = 0; t < threads; t++)
        if (pthread_create(&thread[t], NULL, worker_of_pool, &c) != 0) abort();
    for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL);
    pthread_mutex_destroy(&c.lock);
}

/* Many options at once, so that threads have more to get wrong. */
static attend *busy(const variant *v, attn_shape shape, uint64_t seed)
{
    attend *a = attend_create(v, shape, seed);
    random_state random = {seed};
    a->problem.mask.causal = 1;
    a->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    a->tensors.lengths_kv.data = a->tensors.lengths_q.data = ATTN_LATER;
    a->tensors.mask.data = a->tensors.bias.data = ATTN_LATER;
    FOR_EACH(b, shape.batch)
    {
        a->lengths_q[b] = random_between(&random, shape.len_q / 2, shape.len_q);
        a->lengths_kv[b] = random_between(&random, shape.len_kv / 2, shape.len_kv);
        FOR_EACH(h, shape.heads_q) FOR_EACH(i, shape.len_q) FOR_EACH(j, shape.len_kv)
        {
            *mask_at(a, b, h, i, j) = random_below(&random, 8) != 0;
            put(a, BIAS, b, h, i, j, random_bell(&random));
        }
    }
    return a;
}

/* The last has so many heads of small sequences that a task computes a whole one. */
static const attn_shape shapes[] = {
    {2, 4, 2, 90, 300, 24, 19}, {1, 2, 1, 1, 4200, 8, 8}, {1, 1, 1, 150, 70, 40, 8}, {4, 4, 2, 60, 70, 24, 24}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void p26_any_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 5, 8};
    int number = 0;
    FOR_EACH_VARIANT(v, 1)
    FOR_EACH(n, SHAPES)
    for (int kind = 0; kind < 4; kind++) {
        if (number++ % EVERY(1) != 0) continue;
        attend *one = kind % 2 ? attend_create(v, shapes[n], 1) : busy(v, shapes[n], 1);
        if (kind >= 2) one->tensors.weights.data = NULL; /* then few queries are decoded */
        attend_run(one);
        for (int t = 0; t < 4; t++) {
            attend *many = attend_copy(one);
            many->options.threads = threads[t];
            attend_run(many);
            assert_same_bits(one, many);
            many->options.parallel_for = pool_for;
            many->options.parallel_context = (void *)&threads[t];
            attend_run(many);
            assert_same_bits(one, many);
            attend_destroy(many);
        }
        attend_destroy(one);
    }
}

static void p26_again(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = busy(v, shapes[0], 2), *b = attend_copy(a);
        attend_run(a);
        attend_run(b);
        assert_same_bits(a, b);
        attend_destroy(a);
        attend_destroy(b);
    }
}

/* An entry in a batch of five, whose others are NaN, equals the entry on its own. */
static void p26_any_batch_around(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    FOR_EACH(n, SHAPES)
    {
        attn_shape many = shapes[n];
        many.batch = 5;
        attn_shape single = shapes[n];
        single.batch = 1;
        attend *one = attend_create(v, single, 3), *all = attend_create(v, many, 4);
        one->problem.mask.causal = all->problem.mask.causal = 1;
        one->problem.mask.align = all->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
        for (int which = Q; which <= V; which++) {
            int64_t size[4];
            size_of(all, (part)which, size);
            FOR_EACH(b, 5) FOR_EACH(h, size[1]) FOR_EACH(i, size[2])
            {
                if (b == 2) copy_row(all, b, h, i, one, (part)which, 0, h, i);
                else put(all, (part)which, b, h, i, 0, NAN);
            }
        }
        attend_run(one);
        attend_run(all);
        FOR_EACH(h, single.heads_q)
        FOR_EACH(i, single.len_q)
        for (int which = O; which <= WEIGHTS; which++) assert_same_row(one, all, (part)which, 0, h, i, 2, h, i);
        attend_destroy(one);
        attend_destroy(all);
    }
}

/* Pointers at every element offset in a cache line. */
static void p26_any_alignment(void **state)
{
    (void)state;
    const attn_shape shape = {1, 2, 2, 37, 70, 24, 19};
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, shape, 5);
        attend_run(a);
        const size_t element = attn_dtype_size(v->dtype), bytes = 2 * 70 * 24 * element;
        char *scratch[4];
        for (int t = 0; t < 4; t++) {
            scratch[t] = aligned_alloc(64, bytes + 128 - bytes % 64);
            assert_non_null(scratch[t]);
        }
        for (size_t shift = 0; shift < 64; shift += element) {
            attn_tensors t = attend_tensors(a);
            attn_plan *plan = NULL;
            memcpy(scratch[0] + shift, a->q, 2 * 37 * 24 * element);
            memcpy(scratch[1] + (shift + element) % 64, a->k, 2 * 70 * 24 * element);
            memcpy(scratch[2] + (shift + 3 * element) % 64, a->v, 2 * 70 * 19 * element);
            t.q.data = scratch[0] + shift;
            t.k.data = scratch[1] + (shift + element) % 64;
            t.v.data = scratch[2] + (shift + 3 * element) % 64;
            t.o.data = scratch[3] + (shift + 5 * element) % 64;
            assert_int_equal(attn_plan_create(&plan, &a->problem, &a->tensors, &a->options, NULL), ATTN_OK);
            const size_t size = attn_plan_workspace_size(plan);
            char *workspace = malloc(size + 64);
            assert_non_null(workspace);
            assert_int_equal(attn_execute(plan, &t, workspace + shift / element % 7, size, NULL), ATTN_OK);
            assert_memory_equal(t.o.data, a->o, 2 * 37 * 19 * element);
            free(workspace);
            attn_plan_destroy(plan);
        }
        for (int t = 0; t < 4; t++) free(scratch[t]);
        attend_destroy(a);
    }
}

/* Keys and values stored token by token, or with a gap after each row; for one query they are walked in several pieces. */
static void p26_any_layout(void **state)
{
    (void)state;
    enum { HEADS = 2, KEYS = 1200, D = 40 };
    static const int64_t strides[][2] = {{D, HEADS * D}, {KEYS * (D + 24), D + 24}}; /* of heads, of tokens */
    static const int64_t queries[] = {1, 37};
    FOR_EACH_VARIANT(v, 1)
    FOR_EACH(n, 4)
    {
        const int64_t *stride = strides[n % 2], len_q = queries[n / 2];
        attend *a = attend_create(v, (attn_shape){1, HEADS, HEADS, len_q, KEYS, D, D}, 5);
        a->tensors.weights.data = NULL; /* then few queries are decoded */
        attend_run(a);
        const size_t row = D * attn_dtype_size(v->dtype), all = HEADS * KEYS * (D + 24) * attn_dtype_size(v->dtype);
        char *keys = malloc(all), *values = malloc(all), *o = malloc(HEADS * (size_t)len_q * row);
        assert_true(keys && values && o);
        memset(keys, 0xff, all), memset(values, 0xff, all); /* NaN in the gaps */
        FOR_EACH(h, HEADS) FOR_EACH(j, KEYS)
        {
            const size_t to = (size_t)(h * stride[0] + j * stride[1]) * attn_dtype_size(v->dtype);
            memcpy(keys + to, row_of(a, K, 0, h, j), row);
            memcpy(values + to, row_of(a, V, 0, h, j), row);
        }
        attn_tensors t = attend_tensors(a);
        attn_plan *plan = NULL;
        for (int which = 0; which < 2; which++) {
            attn_input *slot = which ? &t.v : &t.k;
            slot->stride[0] = HEADS * KEYS * (D + 24);
            slot->stride[1] = stride[0], slot->stride[2] = stride[1], slot->stride[3] = 1;
        }
        t.k.data = keys, t.v.data = values, t.o.data = o;
        assert_int_equal(attn_plan_create(&plan, &a->problem, &t, &a->options, NULL), ATTN_OK);
        char *workspace = malloc(attn_plan_workspace_size(plan));
        assert_non_null(workspace);
        assert_int_equal(attn_execute(plan, &t, workspace, attn_plan_workspace_size(plan), NULL), ATTN_OK);
        assert_memory_equal(o, a->o, HEADS * (size_t)len_q * row);
        free(workspace), free(keys), free(values), free(o);
        attn_plan_destroy(plan);
        attend_destroy(a);
    }
}

/* ---- equal up to rounding ---- */

/* All kernels, whatever their tiles, agree with loops in double. */
static void p19_tiles_do_not_matter(void **state)
{
    (void)state;
    const attn_shape shape = {1, 2, 1, 50, 600, 16, 8};
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 6);
        attend_run(a);
        FOR_EACH(h, 2) FOR_EACH(i, 50)
        {
            double s[600], sum = 0, o[8] = {0};
            FOR_EACH(j, 600)
            {
                s[j] = 0;
                FOR_EACH(c, 16) s[j] += get(a, Q, 0, h, i, c) * get(a, K, 0, 0, j, c) / 4;
                sum += exp(s[j]);
            }
            FOR_EACH(j, 600) FOR_EACH(c, 8) o[c] += exp(s[j]) / sum * get(a, V, 0, 0, j, c);
            FOR_EACH(c, 8) assert_close(get(a, O, 0, h, i, c), o[c], v->rtol, 1);
            assert_close(get(a, LSE, 0, h, i, 0), log(sum), v->rtol, 5);
        }
        attend_destroy(a);
    }
}

/* Keys split in two anywhere, attended to separately and merged by lse, equal the whole.  A part may be empty. */
static void p19_merging_parts(void **state)
{
    (void)state;
    const int64_t n = 300, rows = 20;
    static const int64_t cuts[] = {0, 1, 64, 100, 256, 299, 300};
    FOR_EACH_VARIANT(v, 0)
    {
        attend *whole = attend_create(v, (attn_shape){1, 1, 1, rows, n, 16, 8}, 7);
        attend_run(whole);
        for (size_t cut = 0; cut < sizeof cuts / sizeof *cuts; cut++) {
            attend *part_of[2];
            for (int p = 0; p < 2; p++) {
                const int64_t from = p ? cuts[cut] : 0, to = p ? n : cuts[cut];
                part_of[p] = attend_create(v, (attn_shape){1, 1, 1, rows, to - from, 16, 8}, 0);
                FOR_EACH(i, rows) copy_row(part_of[p], 0, 0, i, whole, Q, 0, 0, i);
                for (int64_t j = from; j < to; j++) {
                    copy_row(part_of[p], 0, 0, j - from, whole, K, 0, 0, j);
                    copy_row(part_of[p], 0, 0, j - from, whole, V, 0, 0, j);
                }
                attend_run(part_of[p]);
            }
            FOR_EACH(i, rows)
            {
                const double a = get(part_of[0], LSE, 0, 0, i, 0), b = get(part_of[1], LSE, 0, 0, i, 0),
                             lse = get(whole, LSE, 0, 0, i, 0);
                assert_close(log(exp(a) + exp(b)), lse, v->rtol, 5);
                FOR_EACH(c, 8)
                assert_close(exp(a - lse) * get(part_of[0], O, 0, 0, i, c) + exp(b - lse) * get(part_of[1], O, 0, 0, i, c),
                             get(whole, O, 0, 0, i, c), 2 * v->rtol, 1);
            }
            attend_destroy(part_of[0]);
            attend_destroy(part_of[1]);
        }
        attend_destroy(whole);
    }
}

/* Each entry of a batch has the same bits as on its own if only queries, or only keys, have lengths: some are small sequences,
 * which take another walk. */
static void p26_lengths_of_one_side(void **state)
{
    static const int64_t lengths[2][4] = {{300, 20, 100, 3}, {40, 300, 256, 64}};
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    for (int n = 0; n < 8; n++) {
        const int keys = n & 1, groups = 1 + (n >> 1 & 1), causal = n >> 2;
        const attn_shape shape = {4, 2 * groups, 2, keys ? 40 : 300, keys ? 300 : 64, 16, 16};
        attend *all = attend_create(v, shape, 12);
        all->problem.mask.causal = causal;
        all->tensors.weights.data = NULL; /* with weights, small sequences do not take that walk */
        (keys ? &all->tensors.lengths_kv : &all->tensors.lengths_q)->data = ATTN_LATER;
        memcpy(keys ? all->lengths_kv : all->lengths_q, lengths[keys], sizeof lengths[keys]);
        attend_run(all);
        FOR_EACH(b, 4)
        {
            const attn_shape own = {1, 2 * groups, 2, all->lengths_q[b], all->lengths_kv[b], 16, 16};
            attend *single = attend_create(v, own, 13);
            single->problem.mask.causal = causal;
            single->tensors.weights.data = NULL;
            FOR_EACH(h, own.heads_q) FOR_EACH(i, own.len_q) copy_row(single, 0, h, i, all, Q, b, h, i);
            FOR_EACH(h, own.heads_kv) FOR_EACH(j, own.len_kv)
            {
                copy_row(single, 0, h, j, all, K, b, h, j);
                copy_row(single, 0, h, j, all, V, b, h, j);
            }
            attend_run(single);
            for (int out = O; out <= LSE; out++)
                FOR_EACH(h, own.heads_q) FOR_EACH(i, own.len_q) assert_same_row(all, single, (part)out, b, h, i, 0, h, i);
            attend_destroy(single);
        }
        attend_destroy(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p26_any_number_of_threads), cmocka_unit_test(p26_again),         cmocka_unit_test(p26_any_batch_around),
        cmocka_unit_test(p26_lengths_of_one_side),   cmocka_unit_test(p26_any_alignment), cmocka_unit_test(p26_any_layout),
        cmocka_unit_test(p19_tiles_do_not_matter),   cmocka_unit_test(p19_merging_parts),
    };
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("p26_any_number_of_threads"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
