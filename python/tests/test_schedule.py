# SPDX-License-Identifier: MIT
"""Schedules: the steps of an engine, with the bits that they have without, less memory, and the errors of other steps."""
import pathlib
import resource
import threading

import numpy as np
import pytest
from problems import nothing_leaks

import libattn
from libattn import _core, cache

B, H, HKV, D, PAGE, COLUMNS, MOST = 5, 4, 2, 32, 16, 40, 64
RANDOM = np.random.default_rng(2)
PAGES = [RANDOM.standard_normal((B * COLUMNS, PAGE, HKV, D)).astype("f4") for _ in range(2)]
TABLE = RANDOM.permutation(B * COLUMNS).reshape(B, COLUMNS).astype("i4")
TABLE[:3, :4] = TABLE[0, :4]  # three sequences share a prompt
Spec = libattn.Spec


def plan_of(k=PAGES[0], v=PAGES[1], **options):
    """For any step of at most MOST new tokens of a sequence."""
    return libattn.Plan((MOST, H, D), k, v, **{
        "layout": "thd", "causal": True, "len_q": MOST, "threads": 2, "cu_seqlens_q": Spec((B + 1,), np.dtype("i4")),
        "lengths_kv": Spec((B,), np.dtype("i8")), "page_table": Spec(TABLE.shape, np.dtype("i4")), **options})


def step_of(counts, lengths):
    """The queries of a step, and its arrays."""
    starts = np.concatenate([[0], np.cumsum(counts)]).astype("i4")
    return RANDOM.standard_normal((starts[-1], H, D)).astype("f4"), {"cu_seqlens_q": starts, "lengths_kv": np.array(lengths), "page_table": TABLE}


STEPS = [([1, 1, 1, 40, 0], [300, 200, 640, 45, 0]), ([1, 1, 1, 1, 64], [301, 201, 70, 46, 64]), ([0, 2, 1, 1, 1], [301, 203, 71, 47, 65]), ([0] * 5, [3] * 5)]


@pytest.mark.parametrize("options", [{}, {"window": (100, 0), "softcap": 4.0}, {"invariant": True, "sink": [0.5, 0.0, -1.0, 2.0]}, {"isa": "scalar"}])
@pytest.mark.parametrize("forms", [None, ("q8_0", "q4_1")])
def test_the_same_bits(options, forms):
    k, v = PAGES if forms is None else [cache.quantise(x, form) for x, form in zip(PAGES, forms)]
    plan = plan_of(k, v, **{name: Spec((H,), np.dtype("f4")) if name == "sink" else x for name, x in options.items()})
    for counts, lengths in STEPS:
        q, arrays = step_of(counts, lengths)
        given = {**arrays, **({"sink": np.array(options["sink"], "f4")} if "sink" in options else {})}
        want = plan.execute(q, k, v, **given)
        for known in ({}, {"prefixes": [(0, 3, 64), libattn.Prefix(0, 2, 70)] if max(lengths) > 3 else []},
                      {"nodes": 2, "entry_nodes": [0, 1, -1, 0, 1]}, {"nodes": 2, "entry_nodes": np.zeros(B, np.int64), "worker_nodes": [1, 0]}):
            step = plan.schedule(**arrays, **known)
            for _ in range(2):  # one schedule serves all layers
                assert (plan.execute(q, k, v, **given, schedule=step) == want).all()
            o, lse = libattn.attention(q, k, v, layout="thd", causal=True, len_q=MOST, threads=2, schedule=step, return_lse=True, **{**options, **arrays})
            assert (o == want).all() and lse.shape == q.shape[:2]


def test_against_one_sequence_at_a_time():
    plan = plan_of()
    counts, lengths = STEPS[1]
    q, arrays = step_of(counts, lengths)
    o = plan.execute(q, *PAGES, **arrays, schedule=plan.schedule(**arrays, prefixes=[(0, 3, 64)]))
    for b, length in enumerate(lengths):
        k, v = (x[TABLE[b]].reshape(1, -1, HKV, D)[:, :length] for x in PAGES)
        rows = slice(arrays["cu_seqlens_q"][b], arrays["cu_seqlens_q"][b + 1])
        assert np.allclose(o[rows], libattn.attention(q[None, rows], k, v, layout="bshd", causal=True)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", [None, "q8_0"])
def test_pages_of_other_strides(form):
    """A plan walks over heads or over tokens, as keys lie: the schedule is one for such keys."""
    k, v = ([np.ascontiguousarray(x.swapaxes(1, 2)) for x in PAGES] if form is None else
            [cache.quantise(np.ascontiguousarray(x.swapaxes(1, 2)), form) for x in PAGES])
    k, v = (x.swapaxes(1, 2) if form is None else cache.Blocks(x.data.swapaxes(1, 2), form) for x in (k, v))
    q, arrays = step_of(*STEPS[0])
    plan = plan_of(k, v)
    want = plan.execute(q, k, v, **arrays)
    assert (plan.execute(q, k, v, **arrays, schedule=plan.schedule(**arrays)) == want).all()
    dense = Spec(PAGES[0].shape, np.dtype("f4") if form is None else form)
    assert (plan.execute(q, k, v, **arrays, schedule=plan_of(dense, dense).schedule(**arrays, k=k, v=v)) == want).all()
    with pytest.raises(ValueError, match="schedule was made with a plan of other"):
        plan.execute(q, k, v, **arrays, schedule=plan_of(dense, dense).schedule(**arrays))


def test_lists_of_pages():
    counts, lengths = STEPS[0]
    q, arrays = step_of(counts, lengths)
    pages = [-(-n // PAGE) for n in lengths]
    lists = {"cu_seqlens_q": arrays["cu_seqlens_q"], "page_starts": np.concatenate([[0], np.cumsum(pages)]),
             "page_index": np.concatenate([row[:n] for row, n in zip(TABLE, pages)]), "lengths_last_page": np.array([(n - 1) % PAGE + 1 for n in lengths])}
    plan = libattn.Plan(q, *PAGES, layout="thd", causal=True, len_q=MOST, **lists)
    step = plan.schedule(**lists)
    assert step.describe().keys == sum(lengths)
    o = plan.execute(q, *PAGES, **lists, schedule=step)
    assert (o == plan.execute(q, *PAGES, **lists)).all()
    # Another step has more pages, and other tokens.
    fewer = {**lists, "cu_seqlens_q": np.array([0, 1, 1, 1, 1, 1], "i4"), "page_starts": np.array([0, 2, 2, 2, 2, 2]), "page_index": TABLE[0, :2], "lengths_last_page": np.array([5, 1, 1, 1, 1])}
    plan.execute(q[:1], *PAGES, **fewer, schedule=plan.schedule(**fewer))


@pytest.mark.parametrize("most", [3, 2000])
def test_lists_need_not_be_given(most):
    """Of lists a schedule reads where they begin: neither their entries nor how many the plan was made with."""
    q, arrays = step_of([1, 1, 2, 3, 1], [300, 200, 640, 45, 7])
    pages = [-(-n // PAGE) for n in arrays["lengths_kv"]]
    starts = {"cu_seqlens_q": arrays["cu_seqlens_q"], "page_starts": np.concatenate([[0], np.cumsum(pages)]),
              "lengths_last_page": (arrays["lengths_kv"] - 1) % PAGE + 1}
    index = np.concatenate([row[:n] for row, n in zip(TABLE, pages)])
    plan = libattn.Plan(q, *PAGES, layout="thd", causal=True, len_q=MOST, page_index=Spec((most,), index.dtype), **starts)
    step = plan.schedule(**starts)
    assert step.describe().keys == sum(arrays["lengths_kv"])
    assert (plan.execute(q, *PAGES, **starts, page_index=index, schedule=step) == plan.execute(q, *PAGES, **starts, page_index=index)).all()


def test_a_batch_that_is_not_packed():
    k, v = (RANDOM.standard_normal((3, HKV, 700, D)).astype("f4") for _ in range(2))
    q = RANDOM.standard_normal((3, H, 1, D)).astype("f4")
    plan = libattn.Plan(q, k, v, lengths_kv=Spec((3,), np.dtype("i4")))
    lengths = np.array([700, 3, 150], "i4")
    step = plan.schedule(lengths_kv=lengths, nodes=1, entry_nodes=[0, 0, 0])
    assert step.describe().keys == 853
    assert (plan.execute(q, k, v, lengths_kv=lengths, schedule=step) == libattn.attention(q, k, v, lengths_kv=lengths)).all()
    none = libattn.Plan((0, H, 1, D), (0, HKV, 9, D), (0, HKV, 9, D))
    assert none.schedule(nodes=1, entry_nodes=[]).describe().keys == 0
    bare = libattn.Plan(q[0], k[0], v[0])  # no arrays: the lengths are those of the plan
    assert bare.schedule(nodes=1, entry_nodes=[0]).describe().keys == 700


def test_lists_of_keys():
    q = RANDOM.standard_normal((2, H, 1, D)).astype("f4")
    kept = cache.Cache.empty(2, HKV, 256, D, page_size=16)
    kept.append(*(RANDOM.standard_normal((2, HKV, 200, D)).astype("f4") for _ in range(2)))
    lists = cache.choose_blocks(kept.page_scores(kept.page_bounds(), q), kept.lengths, 4, 16)._asdict()
    options = {"causal": True, "block_heads": True, "block_q": 1, "block_kv": 16}
    plan = libattn.Plan(q, kept.k, kept.v, **options, **lists, **kept.arguments())
    with pytest.raises(TypeError, match="block_starts is missing; the plan was made with it"):
        plan.schedule(**kept.arguments())
    step = plan.schedule(block_starts=lists["block_starts"], **kept.arguments())
    assert step.describe().keys_read == 4 * 16 * 2
    want = libattn.attention(q, kept.k, kept.v, **options, **lists, **kept.arguments())
    assert (plan.execute(q, kept.k, kept.v, **lists, **kept.arguments(), schedule=step) == want).all()


def test_descriptions():
    plan = plan_of()
    q, arrays = step_of(*STEPS[0])
    step = plan.schedule(**arrays, prefixes=[(0, 3, 64)], nodes=2, entry_nodes=[0, 0, 0, 1, 1])
    of = step.describe()
    assert (of.sequences, of.queries, of.keys, of.nodes) == (4, 43, 1185, 2) and of == step.describe(plan.threads)
    assert 0 < of.balance <= 1 and 0 <= of.local <= 1 and of.tasks >= of.items > 0 and of.walks == 2
    assert 0 < of.workspace_bytes < plan.workspace_bytes
    assert of.keys_read <= 1185 and plan.schedule(**arrays).describe().keys_read == 1185
    items = [step.item(i) for i in range(of.items)]
    assert {item.node for item in items} == {0, 1} and sum(item.tasks for item in items) == of.tasks
    assert {item.entry for item in items} == {0, 1, 2, 3}
    long = [700, 600, 640, 45, 0]
    shared = plan_of(page_table=Spec((B, COLUMNS + 4), np.dtype("i4")))
    table = np.concatenate([TABLE, TABLE[:, :4]], 1)
    many = shared.schedule(**{**arrays, "lengths_kv": np.array(long), "page_table": table}, prefixes=[(0, 3, 600)])
    assert many.describe().keys_read == sum(long) - 2 * 512 and 3 in {many.item(i).sequences for i in range(many.describe().items)}
    assert repr(step) == "<libattn.Schedule of 4 sequences, 43 queries, 1185 keys>"
    for call, says in ((lambda: step.describe(0), "workers is 0; it must be between 1 and 1024"), (lambda: step.item(of.items), "number is .*; the schedule has"),
                       (lambda: step.item(-1), "number is -1")):
        with pytest.raises(ValueError, match=says):
            call()


def test_workspace_is_that_of_the_step():
    """With room for 2^20 keys of 64 sequences, a step of few keys does not take what the capacity would."""
    pages = np.zeros((4, 16, 8, 64), np.float16)
    table = np.zeros((64, 2**16), np.int32)
    plan = libattn.Plan((64, 32, 64), pages, pages, layout="thd", causal=True, len_q=64, cu_seqlens_q=Spec((65,), np.dtype("i4")),
                        lengths_kv=Spec((64,), np.dtype("i4")), page_table=Spec(table.shape, np.dtype("i4")))
    assert plan.workspace_bytes > 2**30
    arrays = {"cu_seqlens_q": np.arange(65, dtype="i4"), "lengths_kv": np.full(64, 20, "i4"), "page_table": table}
    step, q = plan.schedule(**arrays), np.ones((64, 32, 64), "f4")
    assert step.describe().workspace_bytes < 2**24
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + 2**29, before[1]))
    try:
        o = plan.execute(q, pages, pages, **arrays, schedule=step)
        with pytest.raises(MemoryError):
            plan.execute(q, pages, pages, **arrays)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert not o.any()


def test_one_plan_serves_all_steps(capfd, monkeypatch):
    """Whatever number of tokens they have."""
    plan = plan_of(threads=1)
    monkeypatch.setenv("ATTN_VERBOSE", "1")  # a line for each plan
    for count in range(2, 20):
        q, arrays = step_of([count, 1, 0, 0, 1], [300, 200, 10, 10, 10])
        plan.execute(q, *PAGES, **arrays, schedule=plan.schedule(**arrays))
    assert capfd.readouterr().err.count("\n") == 1


def test_plans_that_need_more_workspace():
    """Another plan may have outputs, or types that have to be converted, for which the workspace of the schedule is too small."""
    q, arrays = step_of(*STEPS[0])
    step = plan_of(outputs=["row_max"]).schedule(**arrays)
    options = {"layout": "thd", "causal": True, "len_q": MOST, "threads": 2, "outputs": ["row_max", "topk_index"], "topk": 3, **arrays}
    wide = plan_of(outputs=["row_max", "topk_index"], topk=3).schedule(**arrays)
    assert wide.describe().workspace_bytes > step.describe().workspace_bytes
    for a, b in zip(libattn.attention(q, *PAGES, **options, schedule=step), libattn.attention(q, *PAGES, **options), strict=True):
        assert (a == b).all()


# ---- lifetime and threads


def test_it_is_freed_when_nothing_refers_to_it():
    plan = plan_of(threads=1)
    q, arrays = step_of([0, 0, 0, 1, 0], [1, 1, 1, 9, 0])
    nothing_leaks(lambda: plan.execute(q, *PAGES, **arrays, schedule=plan.schedule(**arrays, nodes=1, entry_nodes=[0] * B)), 2000)

    def refused():
        with pytest.raises(ValueError, match="prefixes"):
            plan.schedule(**arrays, prefixes=[(0, 9, 9)])
        with pytest.raises(TypeError, match="schedule must be"):
            plan.execute(q, *PAGES, **arrays, schedule=3)

    nothing_leaks(refused, 2000)


def test_many_threads_use_one():
    plan = plan_of(threads=1)
    q, arrays = step_of(*STEPS[0])
    want = plan.execute(q, *PAGES, **arrays)
    step, wrong = [plan.schedule(**arrays)], []

    def work(own):
        for _ in range(20):
            schedule = own[0] if len(own) else plan.schedule(**arrays)
            if not (plan.execute(q, *PAGES, **arrays, schedule=schedule) == want).all():
                wrong.append(schedule)

    threads = [threading.Thread(target=work, args=(step if n % 2 else [],)) for n in range(6)]
    for thread in threads:
        thread.start()
    step.clear()  # those that run hold what they use
    for thread in threads:
        thread.join()
    assert not wrong


# ---- tokens that differ from step to step


def test_packed_tokens_may_differ():
    plan = plan_of()
    for counts, lengths in STEPS:
        q, arrays = step_of(counts, lengths)
        out = np.empty_like(q)
        assert plan.execute(q, *PAGES, **arrays, o=out) is out
        assert (out == libattn.attention(q, *PAGES, layout="thd", causal=True, threads=2, len_q=MOST, **arrays)).all()
    q, arrays = step_of(*STEPS[0])
    plan.execute(q, *PAGES, **arrays)  # now the plan is kept
    for bad, says in (({"o": np.empty((44, H, D), "f4")}, r"out has the shape \(44, 4, 32\); it must be \(43, 4, 32\)"),
                      ({"cu_seqlens_q": np.array([0, 1, 1, 1, 1, 1], "i4")}, "cu_seqlens_q ends at 1, and the array has 43 tokens"),
                      ({"cu_seqlens_q": np.array([0, 43], "i4")}, "cu_seqlens_q has the shape")):
        with pytest.raises(ValueError, match=says):
            plan.execute(q, *PAGES, **{**arrays, **bad})
    with pytest.raises(ValueError, match="q has the shape"):
        plan.execute(q[:, :2], *PAGES, **arrays)
    k = RANDOM.standard_normal((9, HKV, D)).astype("f4")
    packed = {"layout": "thd", "cu_seqlens_q": [0, 43], "cu_seqlens_kv": [0, 9]}
    libattn.attention(q, k, k, **packed)
    with pytest.raises(ValueError, match=r"v has the shape \(8, 2, 32\); it must be \(9, 2, 32\)"):
        libattn.attention(q, k, k[:8], **packed)
    few = cache.quantise(k)
    libattn.attention(q, few.values, k, k_scale=few.scales, **packed)
    with pytest.raises(ValueError, match=r"k_scale has the shape \(8, 2\); it must be \(9, 2\)"):
        libattn.attention(q, few.values, k, k_scale=few.scales[:8], **packed)


# ---- errors


@pytest.mark.parametrize("known, kind, message", [
    ({"prefixes": [(0, 9, 1)]}, ValueError, r"prefixes\[0\] has 9 entries from 0 on; the batch has 5"),
    ({"prefixes": [(0, 2, 1), (1, 3, 2)]}, ValueError, r"prefixes\[0\] and \[1\] have entries in common"),
    ({"prefixes": [(0, 2, 301)]}, ValueError, r"prefixes\[0\].keys is 301; batch entry 0 has 300 keys"),
    ({"prefixes": [(0, 2, -1)]}, ValueError, r"prefixes\[0\].keys is -1; it must be at least 0"),
    ({"prefixes": [(0, 2)]}, TypeError, r"prefixes\[0\] is \(0, 2\); it must be \(first, count, keys\)"),
    ({"prefixes": [(0, 2, 1.5)]}, TypeError, r"prefixes\[0\].keys is of type float"),
    ({"prefixes": None}, TypeError, r"prefixes is of type NoneType; it must be a list of \(first, count, keys\)"),
    ({"nodes": 2}, ValueError, "entry_nodes is missing, and nodes is 2"),
    ({"nodes": 65, "entry_nodes": [0] * B}, ValueError, "nodes is 65; it must be between 0 and 64"),
    ({"entry_nodes": [0] * B}, ValueError, "entry_nodes is set and nodes is 0"),
    ({"nodes": 2, "entry_nodes": [0, 2, 0, 0, 0]}, ValueError, r"entry_nodes\[1\] is 2; it must be -1 or a node below 2"),
    ({"nodes": 2, "entry_nodes": [0, 1]}, ValueError, "entry_nodes has 2 numbers; it must have one for each of 5 batch entries"),
    ({"nodes": 2, "entry_nodes": [0] * B, "worker_nodes": [0, 3]}, ValueError, r"worker_nodes\[1\] is 3; it must be -1 or a node below 2"),
    ({"nodes": 2, "entry_nodes": [0] * B, "worker_nodes": [0] * 1025}, ValueError, "the number of worker_nodes is 1025; it must be between 0 and 1024"),
    ({"nodes": 2, "entry_nodes": [2**40] * B}, ValueError, "entry_nodes has a number that no node has"),
    ({"nodes": 2, "entry_nodes": [[0] * B]}, ValueError, "entry_nodes has 2 axes; it must have one"),
    ({"lengths_kv": None}, TypeError, "lengths_kv is missing; the plan was made with it"),
    ({"sink": np.zeros(H)}, TypeError, "sink is set; the plan was made without it"),
    ({"lengths_kv": np.array([300, 200, 641, 45, 0])}, ValueError, r"lengths_kv\[2\] \(641\) is not between 0 and 640"),
    ({"lengths_kv": np.array([300, 200])}, ValueError, r"lengths_kv has the shape \(2,\); the plan was made with \(5,\)"),
    ({"cu_seqlens_q": np.array([0, 65, 65, 65, 65, 65], "i4")}, ValueError, r"cu_seqlens_q\[1\] \(65\) minus .* is not between 0 and len_q \(64\)"),
])
def test_what_a_schedule_is_made_of(known, kind, message):
    _, arrays = step_of(*STEPS[0])
    with pytest.raises(kind, match=message):
        plan_of().schedule(**{**arrays, **known})


def test_another_step_or_plan():
    plan = plan_of()
    q, arrays = step_of(*STEPS[0])
    step = plan.schedule(**arrays)
    out = np.full(q.shape, 7, "f4")
    longer = {**arrays, "lengths_kv": arrays["lengths_kv"] + [1, 0, 0, 0, 0]}
    with pytest.raises(ValueError, match="schedule was made for 1 queries and 300 keys of batch entry 0; now it has 1 and 301"):
        plan.execute(q, *PAGES, **longer, schedule=step, o=out)
    for options, says in (({"len_q": 50}, "sizes"), ({"window": (3, 0)}, "masks"), ({"threads": 3}, "threads")):
        with pytest.raises(ValueError, match=f"schedule was made with a plan of other {says}; make one with this plan"):
            plan_of(**options).execute(q, *PAGES, **arrays, schedule=step, o=out)
    assert (out == 7).all()
    for bad in (3, object(), _core, step._capsule):
        with pytest.raises(TypeError, match="schedule must be a libattn.Schedule, not "):
            plan.execute(q, *PAGES, **arrays, schedule=bad)
    with pytest.raises(TypeError, match="schedule is set; a plan is made before its schedules, which execute takes"):
        plan_of(schedule=step)
    assert (plan.execute(q, *PAGES, **arrays, schedule=None) == plan.execute(q, *PAGES, **arrays, schedule=step)).all()


@pytest.mark.parametrize("make, message", [
    (lambda: libattn.Plan((1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), lengths_q=[2]).schedule(), "the plan cannot be scheduled: it has lengths_q"),
    (lambda: libattn.Plan((1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), op="backward").schedule(), "the plan cannot be scheduled: its operation is not forward"),
    (lambda: libattn.Plan((1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), origin=(0, 0, 2, 0, 0)).schedule(), "the plan cannot be scheduled: its calls have an origin"),
])
def test_plans_that_cannot_be_scheduled(make, message):
    with pytest.raises(NotImplementedError, match=message):
        make()
