/* SPDX-License-Identifier: MIT
 * test_problem.c - problem strings: their meaning, how they are printed, and the exact error messages. */
#include "test.h"

#include "cli/base/options.h"
#include "testing/problem/problem.h"
#include "testing/text/nearest.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void prints(const char *text, const char *canonical)
{
    char printed[512];
    problem_spec spec, again;
    attn_error error = {0};
    if (problem_parse(text, &spec, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
    size_t length = problem_print(&spec, printed, sizeof printed);
    assert_string_equal(printed, canonical);
    assert_int_equal(length, strlen(canonical));
    assert_int_equal(problem_parse(printed, &again, &error), ATTN_OK);
    assert_memory_equal(&spec, &again, sizeof spec);
}

static void canonical_strings(void **state)
{
    (void)state;
    static const char *const same[] = {
        "fwd:bf16:b2:hq32:hkv8:sq1024:skv4096:d128:causal",
        "fwd:f32:sq1:d1",
        "fwd:f64:b0:hq0:sq0:skv3:d0:dv5",
        "fwd:f16:sq9:d8:causal=bottom-right:window=5,0",
        "fwd:f32:sq9:d8:align=bottom-right:window=-1,3",
        "fwd:f32:sq9:d8:causal:offset=-7",
        "fwd:f32:sq9:d8:causal:offset",
        "fwd:f32:sq9:d8:mask=0.25:bias=b1h1:lens",
        "fwd:f32:sq9:d8:mask=0.1/b1h1q1k1:bias:lens=kv:scale=-0.5:layout=bshd:lse:weights:seed=18446744073709551615",
        "bwd:f32:sq9:d8:softcap=30:temperature=1.5:dropout=0.1:alibi:sink:packed:dlse:dslopes:dsink:dbias",
        "bwd:f32:sq9:d8:scale=heads:alibi=batch-head:chunk=4:block=2,3:empty=uniform:dscale",
        "fwd:f32:sq9:d8:block=64,128/0.25/b1h1",
        "fwd:f32:sq9:d8:score=additive/128:rel=shaw/64:t5:rope:sparse=longformer/256/16",
        "fwd:f32:sq9:d8:score=cosine",
        "fwd:f32:sq9:d8:sparse=longformer/274877906944/274877906944",
        "fwd:f32:sq9:d8:causal:window=3,-1:sparse=bigbird/2/3/1/1+documents/3/2/4+strided/2",
        "fwd:f32:sq9:d8:score=general/48:w=heads",
        "bwd:f32:sq9:d8:score=metric",
        "fwd:f32:sq9:d8:score=additive:w=heads-bias",
        "fwd:f32:sq9:d8:rel=full:t5=both/64/256:shared",
        "fwd:f32:sq9:d8:rel=xl:shared=rel",
        "fwd:f32:sq9:d8:t5=causal/64:shared=table",
        "fwd:f32:sq9:d8:t5=causal",
        "bwd:f32:sq9:d8:clipped=12:dtable",
        "bwd:bf16:sq9:d8:dscale:score=distance",
        "linear:f32:sq9:d8:rel=xl:phi=elu1",
        "bwd:f32:sq9:d8:rel=shaw-values/3:drel",
        "decode:int8:sq1:skv9:d8",
        "decode:f32:sq1:skv9:d8:steps=4",
        "jvp:f64:sq9:d8:scale=0.30000000000000004",
        "fwd:bf16:sq9:d64:dv32:ktype=q8_0:vtype=q4_0",
        "fwd:f16:sq9:d8:ktype=f8_e5m2-unscaled:vtype=f8_e4m3:packed",
        "fwd:f32:sq9:d8:vtype=i8",
        "fwd:f32:b3:sq9:skv40:d8:lens=kv:ragged=mixed:page=4:prefix=8:tree=9:schedule",
    };
    for (size_t k = 0; k < COUNT(same); k++) prints(same[k], same[k]);
}

static void defaults_and_order(void **state)
{
    (void)state;
    prints("sq9:d8", "fwd:f32:sq9:d8");
    prints("d8:causal=top-left:sq9:hkv4:hq4:skv9:dv8:b1:f32:fwd", "fwd:f32:hq4:sq9:d8:causal");
    prints("sq9:d8:softcap=0:temperature=1:dropout=0:score=dot:seed=0:layout=bhsd", "fwd:f32:sq9:d8");
    prints("sq9:d8:causal=offset:offset=3", "fwd:f32:sq9:d8:causal:offset=3");
    prints("sq9:d8:sparse=longformer/4/1", "fwd:f32:sq9:d8:sparse=longformer/4/1");
    prints("sq9:d8:align=top-left:window=1,2", "fwd:f32:sq9:d8:window=1,2");
    prints("sq9:d8:lens=both:scale=5e-1", "fwd:f32:sq9:d8:lens:scale=0.5");
    prints("schedule:sq9:d8:page=04:ragged=random:lens=kv:spread=even", "fwd:f32:sq9:d8:lens=kv:ragged:page=4:schedule");
    prints("schedule:tree=0:prefix=00:sq9:d8", "fwd:f32:sq9:d8:schedule");
    prints("vtype=i8:sq9:d8:ktype=i8", "fwd:int8:sq9:d8"); /* the type of q, and int8, need no words */
    prints("int8:sq9:d8:ktype=f16", "fwd:f32:sq9:d8:ktype=f16:vtype=i8");
    prints("int8:sq9:d8:ktype=f32:vtype=f32", "fwd:f32:sq9:d8");
    prints("bf16:sq9:d8:ktype=bf16:vtype=f32", "fwd:bf16:sq9:d8:vtype=f32");
    prints("sq9:d8:page=0:ragged=mixed", "fwd:f32:sq9:d8:ragged=mixed");
    prints("sq09223372036854775807:d0", "fwd:f32:sq9223372036854775807:d0");
}

static void rejects(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "the problem string is empty"},
        {":", "an empty word"},
        {"sq9:", "an empty word"},
        {"sq9::d8", "an empty word"},
        {"d8", "sq is missing (the number of queries, as in sq1024)"},
        {"sq9", "d is missing (the width of a query, as in d64)"},
        {"sq9:d8:casual", "unknown word 'casual' (nearest: causal)"},
        {"sq9:d8:softcup=3", "unknown word 'softcup' (nearest: softcap)"},
        {"sq9:d8:soft", "unknown word 'soft' (nearest: softcap, shift)"},
        {"sq9:d8:bf61", "unknown word 'bf61' (nearest: bf16, f64, f16)"},
        {"sq9:d8:b=2", "b=2: '=2' is not a size (an integer, 0 or more)"},
        {"sq9:d8:fwd=1", "op: unknown value 'fwd=1' (nearest: fwd, bwd, bwd2)"},
        {"fwd:bwd:sq9:d8", "op is given twice"},
        {"f16:f32:sq9:d8", "dtype is given twice"},
        {"sq9:sq9:d8", "sq is given twice"},
        {"sq9:d8:causal:causal", "causal is given twice"},
        {"sq:d8", "sq needs a number: sqN"},
        {"sq-1:d8", "sq-1: '-1' is not a size (an integer, 0 or more)"},
        {"sq1.5:d8", "sq1.5: '1.5' is not a size (an integer, 0 or more)"},
        {"sq9223372036854775808:d8", "sq9223372036854775808: '9223372036854775808' is not a size (an integer, 0 or more)"},
        {"sq9:d8:causal=bottom", "causal: unknown value 'bottom' (nearest: bottom-right)"},
        {"sq9:d8:causal=", "causal: unknown value '' (nearest: offset)"},
        {"sq9:d8:causal=offset", "causal=offset needs an offset"},
        {"sq9:d8:causal=bottom-right:offset=1", "offset and causal=bottom-right both set the positions of queries"},
        {"sq9:d8:align=bottom-right:offset", "offset and align both set the positions of queries"},
        {"sq9:d8:causal:align=bottom-right", "causal and align both set the positions of queries; use only causal=KIND"},
        {"sq9:d8:offset=x", "offset: 'x' is not an integer"},
        {"sq9:d8:window", "window needs a value: window=L,R"},
        {"sq9:d8:window=3", "window: '3' is not L,R (two integers of at least -1; -1 for no bound)"},
        {"sq9:d8:window=3,-2", "window: '3,-2' is not L,R (two integers of at least -1; -1 for no bound)"},
        {"sq9:d8:window=3,4,5", "window: '3,4,5' is not L,R (two integers of at least -1; -1 for no bound)"},
        {"sq9:d8:mask", "mask needs a value: mask=P[/AXES]"},
        {"sq9:d8:mask=1.5", "mask: '1.5' is not a fraction between 0 and 1"},
        {"sq9:d8:mask=0.5/b2", "mask: 'b2' does not name axes of size 1, such as b1h1 (letters b h q k)"},
        {"sq9:d8:bias=h", "bias: 'h' does not name axes of size 1, such as b1h1 (letters b h q k)"},
        {"sq9:d8:scale=nan", "scale: 'nan' is not a number"},
        {"sq9:d8:scale=1e999", "scale: '1e999' is not a number"},
        {"sq9:d8:scale=0x10", "scale: '0x10' is not a number"},
        {"sq9:d8:softcap=-1", "softcap is -1; it must be at least 0"},
        {"sq9:d8:temperature=0", "temperature is 0; it must be above 0"},
        {"sq9:d8:dropout=1.1", "dropout (1.1) is not between 0 and 1"},
        {"sq9:d8:chunk=x", "chunk: 'x' is not a number of tokens (an integer above 0; 0 is off)"},
        {"sq9:d8:page=-1", "page: '-1' is not a number of tokens (an integer above 0; 0 is off)"},
        {"sq9:d8:ragged=all", "ragged: unknown value 'all' (nearest: random, mixed)"},
        {"sq9:d8:lens:spread=wide", "spread: unknown value 'wide' (nearest: even, log)"},
        {"sq9:d8:tree", "tree needs a value: tree=N"},
        {"sq9:d8:tree=-1", "tree: '-1' is not a number of tokens (an integer above 0; 0 is off)"},
        {"sq9:d8:page=4:prefix=four", "prefix: 'four' is not a number of tokens (an integer above 0; 0 is off)"},
        {"sq9:d8:ktype", "ktype needs a value: ktype=TYPE"},
        {"sq9:d8:ktype=q4_2", "ktype: unknown value 'q4_2' (nearest: q4_0, q4_1, q8_0)"},
        {"sq9:d8:vtype=f64", "vtype: unknown value 'f64' (nearest: f32, f16, bf16)"},
        {"sq9:d8:block", "block needs a value: block=Q,K[/P]"},
        {"sq9:d8:block=0,4", "block: '0,4' is not Q,K (two integers above 0)"},
        {"sq9:d8:block=4/0.5,4", "block: '4/0.5,4' is not Q,K (two integers above 0)"},
        {"sq9:d8:block=4,4/2", "block: '2' is not a fraction between 0 and 1"},
        {"sq9:d8:block=4,4/0.5/x1", "block: 'x1' does not name axes of size 1, such as b1h1 (letters b h q k)"},
        {"sq9:d8:empty=mean", "empty: unknown value 'mean' (nearest: zero)"},
        {"sq9:d8:alibi=all", "alibi: unknown value 'all' (nearest: head)"},
        {"sq9:d8:scale=head", "scale: 'head' is not a number"},
        {"sq9:d8:lse=1", "lse takes no value, but has '1'"},
        {"sq9:d8:layout=bhds", "layout: unknown value 'bhds' (nearest: bhsd, bshd)"},
        {"sq9:d8:score=additive/0", "score=additive/0: UNITS (0) is not an integer between 1 and 2^38"},
        {"sq9:d8:score=general/274877906945",
         "score=general/274877906945: CHANNELS (274877906945) is not an integer between 1 and 2^38"},
        {"sq9:d8:score=metric/08", "score=metric/08: ROWS (08) is not an integer between 1 and 2^38"},
        {"sq9:d8:score=metric/8/9", "score: unknown value 'metric/8/9' (nearest: metric, metric/ROWS)"},
        {"sq9:d8:sparse=longformer/0/0", "sparse: global-local: width is 0; it must be between 1 and 2^60"},
        {"sq9:d8:sparse=longformer/4/99999999999999999999", "sparse: longformer: '99999999999999999999' is not an integer"},
        {"sq9:d8:sparse=longformer/4", "sparse: longformer: too few numbers; expected longformer/WIDTH/G"},
        {"sq9:d8:sparse=longformr/4/1", "sparse: unknown mask 'longformr' (nearest: longformer)"},
        {"sq9:d8:sparse", "sparse needs a value: sparse=NAME/N..."},
        {"sq9:d8:sparse=radius/2+", "sparse: unknown mask '' (nearest: map)"},
        {"sq9:d8:sparse=radius/ 2", "sparse: radius: ' 2' is not an integer"},
        {"sq9:d8:sparse=fixed/2/3", "sparse: fixed: columns is 3; it must be at most the stride, 2"},
        {"sq9:d8:sparse=causal", "sparse: causal has a word of its own: causal"},
        {"sq9:d8:sparse=radius/2+bottom-right", "sparse: bottom-right has a word of its own: causal=bottom-right"},
        {"sq9:d8:sparse=map/2/2",
         "sparse: map/2/2 needs a tensor: block=Q,K draws one, and --block=Q,K takes the tensor 'blocks' of a file"},
        {"sq9:d8:sparse=radius/1+radius/2+radius/3+radius/4+radius/5+radius/6+radius/7+radius/8+radius/9",
         "sparse: more than 8 masks"},
        {"linear:sq9:d8:phi=favor/0", "phi=favor/0: N (0) is not an integer between 1 and 2^38"},
        {"linear:sq9:d8:phi=favor/-1", "phi=favor/-1: N (-1) is not an integer between 1 and 2^38"},
        {"sq9:d8:rel=shaw/x", "rel=shaw/x: DISTANCE (x) is not an integer between 1 and 2^38"},
        {"sq9:d8:clipped=0", "clipped: '0' is not a distance (an integer above 0)"},
        {"sq9:d8:clipped=3:t5", "t5 and clipped both define the bias by distance"},
        {"sq9:d8:score=generel", "score: unknown value 'generel' (nearest: general)"},
        {"sq9:d8:t5=all", "t5: 'all' is not both or causal, KEYS/BUCKETS or KEYS/BUCKETS/DISTANCE (integers above 0)"},
        {"sq9:d8:t5=both/0", "t5: 'both/0' is not both or causal, KEYS/BUCKETS or KEYS/BUCKETS/DISTANCE (integers above 0)"},
        {"sq9:d8:t5=causal/8/x",
         "t5: 'causal/8/x' is not both or causal, KEYS/BUCKETS or KEYS/BUCKETS/DISTANCE (integers above 0)"},
        {"sq9:d8:shared", "shared needs rel, t5 or clipped: all heads then share one table"},
        {"sq9:d8:t5:shared=rel", "shared needs rel, t5 or clipped: all heads then share one table"},
        {"sq9:d8:w=heads", "w needs score=general, metric or additive: it describes their weights"},
        {"sq9:d8:score=metric:w=bias", "score=metric has no biases; w=heads gives each head its own w"},
        {"sq9:d8:rel=shaw/", "rel: unknown value 'shaw/' (nearest: shaw/DISTANCE)"},
        {"sq9:d8:seed=-1", "seed: '-1' is not an integer between 0 and 2^64 - 1"},
        {"sq9:d8:seed=18446744073709551616", "seed: '18446744073709551616' is not an integer between 0 and 2^64 - 1"},
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        problem_spec spec;
        attn_error error = {0};
        assert_int_equal(problem_parse(rows[k].text, &spec, &error), ATTN_ERR_ARGUMENT);
        assert_int_equal(error.status, ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, rows[k].message);
    }
}

static void rejects_long_words(void **state)
{
    (void)state;
    char text[300];
    problem_spec spec;
    attn_error error;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(problem_parse(text, &spec, &error), ATTN_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "a word of 299 characters is too long: 'xxx"));
}

/* Well-formed words that do not make a problem for a plan. */
static void names_what_is_missing(void **state)
{
    (void)state;
    static const struct {
        const char *words, *missing;
    } rows[] = {
        {"linear", "linear attention"},
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        char text[80], expected[120];
        problem_spec spec;
        attn_problem problem;
        attn_tensors tensors;
        attn_error error;
        snprintf(text, sizeof text, "sq9:d8:%s", rows[k].words);
        snprintf(expected, sizeof expected, "libattn %s has no %s", attn_version(), rows[k].missing);
        assert_int_equal(problem_parse(text, &spec, &error), ATTN_OK);
        assert_int_equal(problem_build(&spec, &problem, &tensors, &error), ATTN_ERR_UNSUPPORTED);
        assert_string_equal(error.message, expected);
    }
    problem_spec spec;
    attn_problem problem;
    attn_tensors tensors;
    attn_error error;
    assert_int_equal(problem_parse("sq9:d8:rope", &spec, &error), ATTN_OK);
    assert_int_equal(problem_build(&spec, &problem, &tensors, &error), ATTN_ERR_UNSUPPORTED);
    assert_string_equal(error.message,
                        "rope rotates queries and keys before there is a problem: attn run, top, view and analyze have --rope");
}

/* Words of linear attention are rejected for every other operation. */
static void names_words_of_linear_attention(void **state)
{
    static const char *const rows[][2] = {{"phi", "phi=favor/8"}, {"decay", "decay=head"}, {"rule", "rule=delta"}};
    (void)state;
    for (size_t k = 0; k < COUNT(rows); k++) {
        char text[80], expected[120];
        problem_spec spec;
        attn_problem problem;
        attn_tensors tensors;
        attn_error error;
        snprintf(text, sizeof text, "sq9:d8:%s", rows[k][1]);
        snprintf(expected, sizeof expected, "%s is a word of linear attention: linear or linear-bwd, or attn run --linear",
                 rows[k][0]);
        assert_int_equal(problem_parse(text, &spec, &error), ATTN_OK);
        assert_int_equal(problem_build(&spec, &problem, &tensors, &error), ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, expected);
    }
}

/* sparse= that does not fit its problem. */
static void rejects_masks_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        attn_status status;
    } rows[] = {
        {"sq9:d8:sparse=documents/5/5",
         "sparse: documents: lengths_q[1] is 5; it must be between 0 and 4, what the documents before it leave", ATTN_ERR_ARGUMENT},
        {"sq9:d8:sparse=prefix/2:offset=1",
         "sparse: prefix/2 needs queries at positions that all batch entries share: neither offset nor align=bottom-right, nor "
         "causal=bottom-right with lens, packed, ragged or page",
         ATTN_ERR_UNSUPPORTED},
        {"sq9:d8:sparse=radius/2+fixed/3/1:causal=bottom-right:packed",
         "sparse: fixed/3/1 needs queries at positions that all batch entries share: neither offset nor align=bottom-right, nor "
         "causal=bottom-right with lens, packed, ragged or page",
         ATTN_ERR_UNSUPPORTED},
        {"sq16777217:d8:sparse=prefix/4", "sparse: prefix/4 is made for at most 2^24 queries and keys", ATTN_ERR_UNSUPPORTED},
        {"sq70000:d8:sparse=bigbird/1/1/1/1", "sparse: bigbird/1/1/1/1 has more than 2^16 blocks", ATTN_ERR_UNSUPPORTED},
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        problem_spec spec;
        attn_problem problem;
        attn_tensors tensors;
        attn_error error;
        assert_int_equal(problem_parse(rows[k].text, &spec, &error), ATTN_OK);
        assert_int_equal(problem_build(&spec, &problem, &tensors, &error), rows[k].status);
        assert_string_equal(error.message, rows[k].message);
    }
}

/* A truncated string is still terminated, and the length returned is that of the full string. */
static void prints_into_small_memory(void **state)
{
    (void)state;
    problem_spec spec;
    attn_error error;
    assert_int_equal(problem_parse("sq9:d8:causal", &spec, &error), ATTN_OK);
    for (size_t size = 0; size <= 30; size++) {
        char text[31];
        memset(text, '#', sizeof text);
        assert_int_equal(problem_print(&spec, text, size), strlen("fwd:f32:sq9:d8:causal"));
        if (size) assert_memory_equal(text, "fwd:f32:sq9:d8:causal", size < 22 ? size - 1 : 22);
        if (size) assert_true(memchr(text, 0, size) != NULL);
        assert_int_equal(text[size], '#');
    }
}

static void edit_distances(void **state)
{
    (void)state;
    assert_int_equal(edit_distance("", ""), 0);
    assert_int_equal(edit_distance("", "abc"), 3);
    assert_int_equal(edit_distance("causal", "casual"), 1);
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("Window", "window"), 0);
}

/* Every word is in the table once, with its help. */
static void the_table_is_whole(void **state)
{
    (void)state;
    int count = 0;
    for (; problem_word_at(count); count++) {
        const problem_word *word = problem_word_at(count);
        assert_true(strlen(word->help) > 3 && strlen(word->help) < 72);
        for (int k = 0; k < count; k++) assert_string_not_equal(word->name, problem_word_at(k)->name);
    }
    assert_true(count > 30);
    assert_null(problem_word_at(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_strings),
        cmocka_unit_test(defaults_and_order),
        cmocka_unit_test(rejects),
        cmocka_unit_test(rejects_long_words),
        cmocka_unit_test(names_what_is_missing),
        cmocka_unit_test(names_words_of_linear_attention),
        cmocka_unit_test(rejects_masks_by_name),
        cmocka_unit_test(prints_into_small_memory),
        cmocka_unit_test(edit_distances),
        cmocka_unit_test(the_table_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
