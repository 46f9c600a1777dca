#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times libattn against PyTorch, ONNX Runtime, JAX and ggml on batches of an inference engine, on this CPU.

    bench/serving.py                     all cases, two threads, a table of ratios
    bench/serving.py --json ragged-f32 mixed-bf16

Sequences of many lengths decode, one of them may bring a chunk of its prompt, and one long sequence has keys and values of 8 or 4
bits.  libattn computes each in one call with a schedule, over caches of equal capacity, as PyTorch, ONNX Runtime and JAX have them,
and again over pages of 64 tokens in no order; peers are compared with the former.  ggml has no lengths: it gets a node for each
sequence, over memory of its own.  Where a library has several ways, all are timed, and the best one counts.  A schedule is made
once for all layers of a step, and so are the masks and block masks of the peers: neither is timed.

All scales of 8 and 4 bits are the same number, which makes the blocks of ggml, the scales by row of libattn and the one scale of ONNX
Runtime the same numbers.  GGML names a folder with libggml.so, to be used in place of the package's, which has AVX2 only.
"""
import ctypes
import importlib
import importlib.util
import math
import os
import pathlib
import random
import sys
import weakref

import peers

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(peers.HOME / "inductor"))  # FlexAttention compiles for a minute
HEADS, HEADS_KV, DIM, PAGE, BLOCK = 32, 8, 128, 64, 32
SHARED, ROW = HEADS // HEADS_KV, HEADS * DIM
TYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "i8": "f32", "q8_0": "f32", "q4_0": "f32"}  # of queries, by that of keys and values


class Batch:
    """Sequences that decode, of lengths up to `longest`, short ones as often as long; the first may have a chunk of 512 of 2048."""

    def __init__(self, name, words, entries, longest, kind, chunk=False):
        draw = random.Random(1)
        self.name, self.words, self.kind, self.dtype = name, words, kind, TYPES[kind]
        self.bound = peers.BOUNDS["bf16" if kind in ("q8_0", "q4_0") else self.dtype]  # ggml rounds queries to q8_0, of 8 bits
        self.lengths = [round(math.exp(draw.uniform(0, math.log(longest)))) for _ in range(entries)] if entries > 1 else [longest]
        self.queries = [1] * entries
        if chunk:
            self.lengths[0], self.queries[0] = 2048, 512
        self.first = 1 if chunk else 0  # that decodes
        self.starts = [sum(self.queries[:entry]) for entry in range(entries + 1)]
        self.capacity = max(self.lengths)

    def flops(self):
        pairs = sum(n * m - n * (n - 1) // 2 for n, m in zip(self.queries, self.lengths, strict=True))
        return 4 * HEADS * DIM * pairs

    def mask(self):
        """Keys that the queries of the chunk see: [query, key]."""
        n, m = self.queries[0], self.lengths[0]
        return np.arange(m)[None, :] <= np.arange(m - n, m)[:, None]

    def decoding(self):
        """Lengths of the sequences that decode."""
        return np.array(self.lengths[self.first :])


RAGGED = "64 sequences decode, lengths to 4096 as often short as long, `hq32:hkv8:d128`, "
MIXED = "the same, and one of them a chunk of 512 of 2048, "
LONG = "one query, `hq32:hkv8:d128`, 32,768 keys and values of "
CASES = [
    Batch("ragged-f32", RAGGED + "f32", 64, 4096, "f32"),
    Batch("ragged-f16", RAGGED + "f16", 64, 4096, "f16"),
    Batch("ragged-bf16", RAGGED + "bf16", 64, 4096, "bf16"),
    Batch("mixed-f32", MIXED + "f32", 64, 4096, "f32", chunk=True),
    Batch("mixed-bf16", MIXED + "bf16", 64, 4096, "bf16", chunk=True),
    Batch("ragged-i8", RAGGED + "i8", 64, 4096, "i8"),
    Batch("ragged-q8_0", RAGGED + "q8_0", 64, 4096, "q8_0"),
    Batch("ragged-q4_0", RAGGED + "q4_0", 64, 4096, "q4_0"),
    Batch("decode-i8", LONG + "i8", 1, 32768, "i8"),
    Batch("decode-q8_0", LONG + "q8_0", 1, 32768, "q8_0"),
    Batch("decode-q4_0", LONG + "q4_0", 1, 32768, "q4_0"),
]

# ---- tensors ----


def quantised(x, kind):
    """Numbers of 8 or 4 bits with one scale, a number of f16 too; those of 4 bits from 0 to 15."""
    most, middle = (7, 8) if kind == "q4_0" else (127, 0)
    scale = np.float32(np.float16(5.5 / most))
    return np.clip(np.rint(x / scale), -most, most).astype(np.int8) + np.int8(middle), scale


def stored(x, kind):
    """The array in a storage type; blocks of ggml are bytes of the last axis."""
    if kind in ("f32", "f16", "bf16"):
        return peers.rounded(x, kind)
    numbers, scale = quantised(x, kind)
    if kind == "i8":
        return numbers
    blocks = numbers.view(np.uint8).reshape(*x.shape[:-1], DIM // BLOCK, BLOCK)
    if kind == "q4_0":
        blocks = blocks[..., : BLOCK // 2] | blocks[..., BLOCK // 2 :] << 4
    head = np.broadcast_to(np.array([scale], np.float16).view(np.uint8), (*blocks.shape[:-1], 2))
    return np.concatenate([head, blocks], axis=-1).reshape(*x.shape[:-1], -1)


class Tensors:
    """Packed queries [token, head, channel]; keys and values of each sequence [head, token, channel]; and all in one cache."""

    def __init__(self, batch):
        draw = np.random.default_rng(1)
        self.q = peers.rounded(draw.standard_normal((batch.starts[-1], HEADS, DIM), dtype=np.float32), batch.dtype)
        drawn = [[draw.standard_normal((HEADS_KV, length, DIM), dtype=np.float32) for length in batch.lengths] for _ in "kv"]
        self.drawn = dict(zip("kv", drawn, strict=True))
        self.made = {}
        self.own = {name: [stored(x, batch.kind) for x in all_of] for name, all_of in self.drawn.items()}

    def cache(self, batch, by_token=False, of=None):
        """Keys and values [entry, head, token, channel] or [entry, token, head, channel], of the storage type, or of what `of` makes
        of the numbers.  Candidates share them: of f32 they are 2 GB."""
        if (by_token, of) not in self.made:
            self.made[by_token, of] = [self.filled(batch, by_token, [of(x) for x in self.drawn[name]] if of else self.own[name]) for name in "kv"]
        return self.made[by_token, of]

    @staticmethod
    def filled(batch, by_token, parts):
        shape = (len(parts), batch.capacity, HEADS_KV) if by_token else (len(parts), HEADS_KV, batch.capacity)
        made = np.empty((*shape, parts[0].shape[-1]), parts[0].dtype)
        made.fill(0)  # as memory that is there: peers read what lies beyond the lengths
        for entry, part in zip(made, parts, strict=True):
            (entry.transpose(1, 0, 2) if by_token else entry)[:, : part.shape[1]] = part
        return made


# ---- candidates: each takes a batch and its tensors, and returns a function to call and one that reads [[token, head, channel]] ----


def libattn_on(paged):
    def make(batch, tensors, threads):
        kinds, entries = attn.values, len(batch.lengths)
        problem, slots = attn.new("attn_problem"), attn.new("attn_tensors")
        shape, mask = problem.shape, problem.mask
        shape.batch, shape.heads_q, shape.heads_kv, shape.dim_qk, shape.dim_v = entries, HEADS, HEADS_KV, DIM, DIM
        shape.len_q, shape.len_kv = max(batch.queries), batch.capacity
        mask.causal, mask.align = 1, kinds["ATTN_ALIGN_BOTTOM_RIGHT"]
        arrays = {"q": tensors.q, "o": np.zeros_like(tensors.q), "lengths_kv": np.array(batch.lengths), "cu_seqlens_q": np.array(batch.starts)}
        if paged:
            rows = [-(-length // PAGE) for length in batch.lengths]
            places = np.random.default_rng(2).permutation(sum(rows))
            problem.paging.page_size, problem.paging.pages = PAGE, len(places)
            arrays["page_table"] = table = np.full((entries, -(-batch.capacity // PAGE)), -1)
            for name in "kv":
                arrays[name] = np.zeros((len(places), HEADS_KV, PAGE, tensors.own[name][0].shape[-1]), tensors.own[name][0].dtype)
            for entry, count in enumerate(rows):
                table[entry, :count] = places[sum(rows[:entry]) : sum(rows[: entry + 1])]
                for name in "kv":
                    for row in range(count):
                        part = tensors.own[name][entry][:, row * PAGE : (row + 1) * PAGE]
                        arrays[name][table[entry, row], :, : part.shape[1]] = part
        else:
            arrays["k"], arrays["v"] = tensors.cache(batch)
        for name in "kv" if batch.kind == "i8" else "":
            arrays[f"{name}_scale"] = np.full(arrays[name].shape[:3], quantised(np.zeros(1), "i8")[1], np.float32)
        for name, array in arrays.items():
            getattr(slots, name).data = array.ctypes.data
        for name in "qkvo":
            getattr(slots, name).dtype = kinds[f"ATTN_{(batch.kind if name in 'kv' else batch.dtype).upper()}"]
        plan = attn.plan(problem, slots, threads)
        plan.schedule(slots)
        return lambda: plan.run(slots), lambda: [peers.widened(arrays["o"])]

    return make


def plain(batch):
    if batch.kind not in ("f32", "f16", "bf16"):
        raise peers.Skip("has no cache of 8 or 4 bits in this format")


def of_torch(threads):
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    return torch, lambda x: torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == np.uint16 else torch.from_numpy(x)


def pytorch(way):
    """scaled_dot_product_attention with a mask over the capacity, or sequence by sequence; FlexAttention, which skips blocks of keys."""

    def make(batch, tensors, threads):
        plain(batch)
        torch, tensor = of_torch(threads)
        attention = torch.nn.functional.scaled_dot_product_attention
        q, (k, v) = tensor(tensors.q), map(tensor, tensors.cache(batch))
        decoding = slice(batch.first, None)
        new, old_k, old_v = q[batch.starts[batch.first] :, :, None], k[decoding], v[decoding]
        lengths = torch.from_numpy(batch.decoding())
        bias = torch.zeros(len(lengths), 1, 1, batch.capacity, dtype=q.dtype)
        bias.masked_fill_(torch.arange(batch.capacity) >= lengths[:, None, None, None], float("-inf"))
        part = [(new[entry : entry + 1], old_k[entry : entry + 1, :, :length], old_v[entry : entry + 1, :, :length])
                for entry, length in enumerate(batch.decoding())]
        if way == "Flex":
            flex = importlib.import_module("torch.nn.attention.flex_attention")
            blocks = flex.create_block_mask(lambda b, h, i, j: j < lengths[b], len(lengths), None, 1, batch.capacity, device="cpu")
            compiled = torch.compile(flex.flex_attention, dynamic=False)

        def decode():
            if way == "Flex":
                return compiled(new, old_k, old_v, block_mask=blocks, enable_gqa=True)
            if way == "loop":
                return torch.cat([attention(*one, enable_gqa=True) for one in part])
            return attention(new, old_k, old_v, attn_mask=bias, enable_gqa=True)

        if batch.first:
            chunk = [q[: batch.queries[0]].transpose(0, 1)[None], k[:1, :, : batch.lengths[0]], v[:1, :, : batch.lengths[0]]]
            seen = torch.zeros(batch.mask().shape, dtype=q.dtype).masked_fill_(~torch.from_numpy(batch.mask()), float("-inf"))
        last = {}

        def call():
            with torch.no_grad():
                last["o"] = decode().squeeze(2)
                if batch.first:
                    last["chunk"] = attention(*chunk, attn_mask=seen, enable_gqa=True)[0].transpose(0, 1)

        return call, lambda: [np.concatenate([last[name].float().numpy() for name in ("chunk", "o") if name in last])]

    return make


def onnx_gqa(batch, tensors, threads):
    """com.microsoft.GroupQueryAttention: the last keys are the new ones, and the cache is its own.  A chunk is another call."""
    if batch.dtype == "bf16":
        raise peers.Skip("has no bf16 on CPUs")
    if batch.kind == "q8_0":
        raise peers.Skip("has i8 with one scale")
    helper = importlib.import_module("onnx").helper
    bits = {"i8": 8, "q4_0": 4}.get(batch.kind)

    def pairs(x):
        numbers = quantised(x, "q4_0")[0].view(np.uint8)
        return numbers[..., ::2] | numbers[..., 1::2] << 4

    def node(entries, n):
        lengths, rows = batch.lengths[entries], slice(batch.starts[entries.start], None if n == 1 else n)
        inputs = {"q": tensors.q[rows].reshape(len(lengths), n, ROW)}
        for name in "kv":
            parts = zip(tensors.drawn[name][entries], lengths, strict=True)
            new = np.stack([x[:, length - n : length].transpose(1, 0, 2).reshape(n, HEADS_KV * DIM) for x, length in parts])
            inputs[name] = peers.rounded(new, batch.dtype)
        inputs["past_k"], inputs["past_v"] = (x[entries] for x in tensors.cache(batch, of=pairs if bits == 4 else None))
        inputs["last"], inputs["all"] = np.array(lengths, np.int32) - 1, np.array([max(lengths)], np.int32)
        places, options = list(inputs), {}
        if bits:
            scale = quantised(np.zeros(1), batch.kind)[1]
            inputs["k_scale"], inputs["v_scale"] = np.array([scale]), np.array([scale])
            places += [""] * 5 + ["k_scale", "v_scale"]
            options = {"kv_cache_bit_width": bits, "k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
        outputs = {"o": np.zeros_like(inputs["q"]), "new_k": inputs["past_k"], "new_v": inputs["past_v"]}
        made = helper.make_node("GroupQueryAttention", places, list(outputs), domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS_KV, **options)
        call, read = peers.session(made, inputs, outputs, threads)
        return call, lambda: peers.widened(read("o")).reshape(-1, HEADS, DIM)

    calls = [node(slice(0, 1), batch.queries[0])] if batch.first else []
    calls.append(node(slice(batch.first, len(batch.lengths)), 1))
    return lambda: [call() for call, _ in calls], lambda: [np.concatenate([read() for _, read in calls])]


def jax_attention(batch, tensors, threads):
    """jax.nn.dot_product_attention with lengths, compiled; a chunk is a second call in the same program."""
    del threads  # XLA uses the cores of the process
    plain(batch)
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def array(x):
        return jax.lax.bitcast_convert_type(jnp.asarray(x), jnp.bfloat16) if batch.kind == "bf16" else jnp.asarray(x)

    q, (k, v), lengths, attention = array(tensors.q), map(array, tensors.cache(batch, by_token=True)), jnp.array(batch.decoding()), jax.nn.dot_product_attention
    first, rows, length = batch.first, batch.starts[batch.first], batch.lengths[0]
    seen = jnp.asarray(batch.mask()) if first else None

    @jax.jit
    def forward(q, k, v, lengths, seen):
        made = attention(q[rows:, None], k[first:], v[first:], key_value_seq_lengths=lengths)[:, 0]
        return jnp.concatenate([attention(q[:rows], k[0, :length], v[0, :length], mask=seen[None]), made]) if first else made

    last = {}

    def call():
        last["o"] = jax.block_until_ready(forward(q, k, v, lengths, seen))

    return call, lambda: [np.asarray(last["o"].astype(jnp.float32))]


class Ggml:
    """The functions of ggml that a graph of attention needs; its enumerators are those of ggml.h."""

    TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q4_0": 2, "q8_0": 8}

    def __init__(self):
        folder = os.environ.get("GGML")
        if not folder:
            folder = pathlib.Path(importlib.util.find_spec("libggml").submodule_search_locations[0]) / "lib64"
        self.base, self.cpu = (ctypes.CDLL(str(pathlib.Path(folder) / f"libggml-{name}.so"), ctypes.RTLD_GLOBAL) for name in ("base", "cpu"))

    def call(self, name, *values):
        """A function that takes pointers, integers and floats, and returns a pointer."""
        function = getattr(self.base, name, None) or getattr(self.cpu, name)
        function.restype = ctypes.c_void_p
        kinds = {int: ctypes.c_int64, float: ctypes.c_float}
        return function(*(kinds[type(x)](x) if type(x) in kinds else x for x in values))

    def tensor(self, context, array, kind):
        """A tensor with the numbers of an array, whose last axis is DIM channels."""
        sizes = [*array.shape[:-1], DIM if kind in ("q8_0", "q4_0") else array.shape[-1]][::-1]
        made = self.call("ggml_new_tensor", context, self.TYPES[kind], len(sizes), (ctypes.c_int64 * len(sizes))(*sizes))
        ctypes.memmove(self.call("ggml_get_data", ctypes.c_void_p(made)), array.ctypes.data, array.nbytes)
        return ctypes.c_void_p(made)


class Parameters(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def ggml(batch, tensors, threads):
    """ggml_flash_attn_ext, a node for each sequence over its own keys, by a pool of threads that is kept.  Queries and results are f32."""
    if batch.kind == "i8":
        raise peers.Skip("has blocks instead of i8")
    library, count = Ggml(), len(batch.lengths)
    size = sum(x.nbytes for name in "kv" for x in tensors.own[name]) + 8 * tensors.q.size * 4 + 2 * 512 * 2048 + (count + 1) * (1 << 16)
    context = ctypes.c_void_p(library.call("ggml_init", Parameters(size, None, False)))
    weakref.finalize(library, library.base.ggml_free, context)
    graph, results = ctypes.c_void_p(library.call("ggml_new_graph", context)), []
    for entry in range(count):
        rows = slice(batch.starts[entry], batch.starts[entry + 1])
        q = library.tensor(context, np.ascontiguousarray(peers.widened(tensors.q[rows]).transpose(1, 0, 2)), "f32")
        k, v = (library.tensor(context, tensors.own[name][entry], batch.kind) for name in "kv")
        mask = None
        if batch.queries[entry] > 1:
            mask = library.tensor(context, np.where(batch.mask(), 0, -np.inf).astype(np.float16), "f16")
        o = ctypes.c_void_p(library.call("ggml_flash_attn_ext", context, q, k, v, mask, 1 / math.sqrt(DIM), 0.0, 0.0))
        library.call("ggml_build_forward_expand", graph, o)
        results.append(o)
    backend = ctypes.c_void_p(library.call("ggml_backend_cpu_init"))
    wanted = ctypes.create_string_buffer(4096)  # a ggml_threadpool_params
    library.call("ggml_threadpool_params_init", wanted, threads)
    library.call("ggml_backend_cpu_set_n_threads", backend, threads)
    library.call("ggml_backend_cpu_set_threadpool", backend, ctypes.c_void_p(library.call("ggml_threadpool_new", wanted)))

    def read():
        parts = [ctypes.string_at(library.call("ggml_get_data", o), n * ROW * 4) for o, n in zip(results, batch.queries, strict=True)]
        return [np.frombuffer(b"".join(parts), np.float32).reshape(-1, HEADS, DIM)]

    return lambda: library.call("ggml_backend_graph_compute", backend, graph), read


def found():
    return {"ggml": ctypes.string_at(Ggml().call("ggml_version")).decode()} if os.environ.get("GGML") else {}


CONTENDERS = {
    "libattn": (None, libattn_on(False)),
    "libattn, pages": (None, libattn_on(True)),
    "PyTorch, padded": ("torch", pytorch("padded")),
    "PyTorch, loop": ("torch", pytorch("loop")),
    "PyTorch, Flex": ("torch", pytorch("Flex")),
    "ORT GQA": ("onnxruntime", onnx_gqa),
    "JAX": ("jax", jax_attention),
    "ggml": ("ggml", ggml),
}

if __name__ == "__main__":
    sys.exit(peers.main(peers.Suite(__file__, __doc__, globals(), CASES, CONTENDERS, Tensors, lambda name: "libattn", found)))
