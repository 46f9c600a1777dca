# SPDX-License-Identifier: MIT
"""libattn.capture: what models of PyTorch and transformers compute with, compared with the weights that they return themselves."""
import concurrent.futures
import importlib.util
import json
import subprocess
import threading

import numpy as np
import pytest

import libattn
from libattn import _command, files
from problems import close

torch = pytest.importorskip("torch")
F = torch.nn.functional
EPS = 2.0**-23


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    torch.set_num_threads(2)


class Attention(torch.nn.Module):
    """Grouped heads over a cache that grows, as decoders have them."""

    def __init__(self, heads=4, groups=2, dim=8, **options):
        super().__init__()
        self.q, self.kv = torch.nn.Linear(16, heads * dim), torch.nn.Linear(16, 2 * groups * dim)
        self.sizes, self.options, self.cache, self.made = (heads, groups, dim), options, None, None

    def forward(self, x, mask=None):
        heads, groups, dim = self.sizes
        q = self.q(x).unflatten(-1, (heads, dim)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2 * groups, dim)).transpose(1, 2).chunk(2, 1)
        if self.cache is not None:
            k, v = torch.cat([self.cache[0], k], 2), torch.cat([self.cache[1], v], 2)
        self.cache = (k, v)
        causal = mask is None and q.shape[2] > 1
        self.made = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True, **self.options)
        return self.made


class Model(torch.nn.Module):
    def __init__(self, layers=2, **options):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.ModuleDict({"attention": Attention(**options)}) for _ in range(layers))

    def forward(self, x, mask=None):
        return [block["attention"](x, mask) for block in self.blocks]

    def forget(self):
        for block in self.blocks:
            block["attention"].cache = None
        return self


def recorded(model, *args, **kwargs):
    with libattn.capture(model) as record, torch.no_grad():
        result = model(*args, **kwargs)
    return record, result


def test_what_is_recorded():
    record, made = recorded(Model(), torch.randn(3, 5, 16))
    assert list(record) == ["blocks.0.attention", "blocks.1.attention"] and len(record) == 2 and repr(record) == "Record(2 layers of Model)" and repr(recorded(Model(1), torch.randn(1, 2, 16))[0]) == "Record(1 layer of Model)"
    for name, o in zip(record, made):
        layer = record[name]
        assert layer.q.shape == (3, 4, 5, 8) and layer.k.shape == layer.v.shape == (3, 2, 5, 8) and layer.weights.shape == (3, 4, 5, 5)
        assert layer.q.dtype == np.float32 and not np.triu(layer.weights, 1).any()
        close(layer.weights.sum(-1), np.ones((3, 4, 5)), 8 * EPS)
        close(layer.o, o, 16 * EPS)
    assert record["blocks.1"] is record[1] is record[-1] is record["blocks.1.attention"] and record.calls(1) == (record[1],)
    assert repr(record[0]) == "Layer('blocks.0.attention', q [3, 4, 5, 8], k [3, 2, 5, 8], mask)"


def test_nothing_of_the_model_changes():
    model, x = Model(), torch.randn(1, 5, 16)
    expected = model(x)
    before = [(module, dict(module._forward_hooks), dict(module._forward_pre_hooks)) for module in model.modules()]
    record, found = recorded(model.forget(), x)
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
    assert all((dict(module._forward_hooks), dict(module._forward_pre_hooks)) == (after, ahead) for module, after, ahead in before)
    model.forget()(x)
    assert record[0].q.shape == (1, 4, 5, 8) and len(record.calls(0)) == 1  # not recorded after the block


def test_gradients_flow_through():
    model, x = Model(), torch.randn(1, 5, 16, requires_grad=True)
    with libattn.capture(model) as record:
        sum(o.sum() for o in model(x)).backward()
    assert x.grad.abs().sum() > 0 and len(record) == 2


def test_steps_over_a_cache_are_one_triangle():
    model, x = Model(), torch.randn(2, 7, 16)
    whole, _ = recorded(model, x)
    model.forget()
    with libattn.capture(model) as record, torch.no_grad():
        for part in x.split([4, 1, 1, 1], 1):
            model(part)
    for name in whole:
        assert len(record.calls(name)) == 1 and record[name].q.shape == (2, 4, 7, 8)
        close(record[name].weights, whole[name].weights, 16 * EPS)


def test_separate_calls_are_kept_apart():
    model, first, second = Model(), torch.randn(1, 5, 16), torch.randn(1, 3, 16)
    with libattn.capture(model) as record, torch.no_grad():
        model(first)
        model.forget()(second)
    assert [layer.q.shape[2] for layer in record.calls(0)] == [5, 3] and record[0].q.shape[2] == 3
    assert record.view(call=0).html != record.view().html
    with pytest.raises(ValueError, match="blocks.0.attention has no call 2; 2 were recorded"):
        record.view(call=2)


def test_another_cache_of_the_right_length_is_no_continuation():
    model = Model(1)
    with libattn.capture(model) as record, torch.no_grad():
        model(torch.randn(1, 4, 16))
        model.blocks[0]["attention"].cache = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
        model(torch.randn(1, 4, 16))
    assert [layer.k.shape[2] for layer in record.calls(0)] == [4, 8]


@pytest.mark.parametrize("kind", ["bool", "added", "bias", "rank 2", "scale"])
def test_masks(kind):
    x, options = torch.randn(2, 5, 16), {"scale": 0.5} if kind == "scale" else {}
    seen = torch.rand(2, 1, 5, 5) > 0.3
    seen[..., 0] = True
    mask = {"bool": seen, "added": torch.zeros(2, 1, 5, 5).masked_fill(~seen, torch.finfo(torch.float32).min), "rank 2": seen[0, 0],
            "bias": torch.randn(1, 4, 5, 5).masked_fill(~seen[:1], -torch.inf), "scale": None}[kind]
    record, made = recorded(Model(**options), x, mask)
    for name, o in zip(record, made):
        close(record[name].o, o, 16 * EPS)
    assert set(record[0].options) == {"bias": {"bias", "mask"}, "scale": {"scale", "mask"}}.get(kind, {"mask"})
    assert kind == "bias" or record[0].options["mask"] is record[1].options["mask"]  # kept once


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("mask", ["none", "padding", "causal", "per head", "added"])
def test_multi_head_attention(mask, batch_first):
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first).eval()
    x = torch.randn(*((2, 5) if batch_first else (5, 2)), 16)
    options = {"none": {}, "padding": {"key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])},
               "causal": {"attn_mask": torch.ones(5, 5).triu(1).bool(), "is_causal": True}, "per head": {"attn_mask": torch.rand(8, 5, 5) > 0.8},
               "added": {"attn_mask": torch.randn(5, 5), "key_padding_mask": torch.randn(2, 5)}}[mask]
    if mask == "per head":
        options["attn_mask"][..., 0] = False
    with libattn.capture(layer) as record, torch.no_grad():
        layer(x, x, x, need_weights=False, **options)
        _, expected = layer(x, x, x, average_attn_weights=False, **options)
    assert list(record) == ["MultiheadAttention"] and len(record.calls(0)) == 2
    for call in record.calls(0):
        close(call.weights, expected, 16 * EPS)


def test_multi_head_attention_with_extra_keys():
    layer = torch.nn.MultiheadAttention(16, 4, kdim=6, vdim=7, add_bias_kv=True, add_zero_attn=True).eval()
    x, k, v = torch.randn(5, 2, 16), torch.randn(4, 2, 6), torch.randn(4, 2, 7)
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    record, (_, expected) = recorded(layer, x, k, v, average_attn_weights=False, key_padding_mask=padding)
    assert expected.shape == (2, 4, 5, 6)
    close(record[0].weights, expected, 16 * EPS)


def test_encoder_and_decoder():
    model = torch.nn.Transformer(16, 4, 2, 2, 32, batch_first=True).eval()
    source, target = torch.randn(2, 6, 16), torch.randn(2, 4, 16)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    masks = {"tgt_mask": torch.ones(4, 4).triu(1).bool(), "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    record, _ = recorded(model, source, target, **masks)
    assert len(record) == 6 and record["encoder.layers.1.self_attn"].q.shape == (2, 4, 6, 4)
    cross = record["decoder.layers.1.multihead_attn"]
    assert cross.weights.shape == (2, 4, 4, 6) and not cross.weights[1, ..., 4:].any()
    with pytest.raises(ValueError, match="the layers have 3 different shapes; choose some with layers"):
        record.view()
    assert '"layers":[0,1]' in record.view(layers="multihead_attn").html.replace(" ", "")
    assert len(record.chosen("encoder")) == 2 and len(record.chosen(["decoder.layers.0.self_attn"])) == 1


def test_compiled_models_run_without_their_graphs():
    model = Model(1)
    compiled, x = torch.compile(model, backend="eager"), torch.randn(1, 5, 16)
    record, _ = recorded(compiled, x)
    assert list(record) == ["blocks.0.attention"]


def ours(**options):
    """A model over libattn.torch.attention."""
    from libattn.torch import attention

    class Ours(torch.nn.Module):
        def forward(self, x, k):
            return attention(x, k, k, return_weights=True, **options)

    return Ours()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("options", [
    {}, {"causal": True, "window": (2, 0), "scale": 0.5}, {"causal": "top-left", "softcap": 2.0, "temperature": 1.5}, {"layout": "bshd", "chunk": 2},
    {"alibi_slopes": torch.tensor([0.5, 0.25, 0.5, 0.25]), "lengths_kv": torch.tensor([3, 5])}, {"sink": torch.ones(4), "scale": torch.arange(1.0, 5)},
    {"bias_table": torch.randn(4, 8), "bias_table_max_distance": 16, "mask": torch.ones(5, 6).tril(1).bool()}], ids=lambda options: "-".join(options) or "none")
def test_libattn_s_own_attention(options, grad):
    sizes = ((2, 5, 4, 8), (2, 6, 2, 8)) if "layout" in options else ((2, 4, 5, 8), (2, 2, 6, 8))
    q, k = torch.randn(*sizes[0], requires_grad=grad), torch.randn(*sizes[1])
    model = ours(**options)
    with libattn.capture(model) as record:
        _, weights = model(q, k)
    assert record[0].q.shape == (2, 4, 5, 8) and set(record[0].options) <= {"mask", "bias", "scale", "softcap", "sink", "temperature"}
    close(record[0].weights, weights.detach(), 16 * EPS)


def test_libattn_s_modules_and_what_is_not_recorded():
    from libattn.torch import flex_attention, nn

    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    record, (_, expected) = recorded(layer, x, x, x, average_attn_weights=False)
    close(record[0].weights, expected, 16 * EPS)

    class Flex(torch.nn.Module):
        def forward(self, q):
            return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s - 0.5 * (i - j), -torch.inf))

    q = torch.randn(1, 2, 5, 8)
    record, o = recorded(Flex(), q)
    close(record[0].o, o, 16 * EPS)
    for options, name in (({"score": "cosine"}, "score"), ({"normaliser": "relu"}, "normaliser")):
        with pytest.raises(NotImplementedError, match=f"capture: libattn.torch.attention with {name} is not recorded"):
            recorded(ours(**options), q, q)


def command(*words):
    done = subprocess.run([_command.find(), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["causal", "padding", "bias"])
def test_saved_files(tmp_path, kind):
    if _command.find() is None:
        pytest.skip("the package has no command")
    model, x, path = Model(3, scale=0.6), torch.randn(2, 5, 16), tmp_path / "heads.safetensors"
    seen = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    seen[1, ..., 3:] = False
    mask = {"causal": None, "padding": seen, "bias": torch.randn(1, 4, 5, 5).masked_fill(~seen[1:], -torch.inf)}[kind]
    record, _ = recorded(model, x, mask)
    tokens = [list("abcde"), list("fgh")]
    record.save(path, tokens, metadata={"sentence": "Letters."})
    held = files.load(path)
    assert held["q"].shape == (3, 2, 4, 5, 8) and held["k"].shape == (3, 2, 2, 5, 8) and held["weights"].shape == (3, 2, 4, 5, 5)
    close(held["weights"][:, 0], np.stack([record[i].weights[0] for i in range(3)]), 0)
    command("run", path, "-o", tmp_path / "again.safetensors", "--weights")
    again = files.load(tmp_path / "again.safetensors")  # from q, k, v and the rest of the problem
    close(again["weights"][:, 0], held["weights"][:, 0], 16 * EPS)
    close(again["weights"][:, 1, :, :3, :3], held["weights"][:, 1, :, :3, :3] if kind == "padding" else again["weights"][:, 1, :, :3, :3], 16 * EPS)
    links = json.loads(command("top", path, "--token", "g", "--json"))["links"]
    assert {link["query_token"] for link in links} == {"g"} and {link["key_token"] for link in links} <= set("fgh")
    assert len(json.loads(command("analyze", path, "--json"))) and "Letters." in command("view", path, "-o", tmp_path / "page.html") + (tmp_path / "page.html").read_text()
    record.save(path, tokens, entry=1, layers=[2, "blocks.0"])
    one = files.load(path)
    assert one["q"].shape == (2, 1, 4, 5, 8) and np.array_equal(one["q"][0, 0], record[2].q[1]) and (one["lengths_kv"] == 3).all()


def test_tokens_and_lengths():
    record, _ = recorded(Model(), torch.randn(2, 5, 16))
    page = record.view(list("abcde"), title="Two sentences")
    assert "Two sentences" in page.html and '"a"' in page.html and "blocks.1.attention" in page.html
    assert record.view([list("abcde"), list("fgh")]).html == record.view([list("abcde"), list("fgh")], lengths=[5, 3]).html
    for call, sentence in [
        (lambda: record.view([list("abcde")]), "tokens has 1 lists for 2 batch entries"),
        (lambda: record.view(lengths=[5]), r"lengths is \[5\]; it must have 2 numbers from 0 to 5"),
        (lambda: record.view(lengths=[5, 6]), r"lengths is \[5, 6\]; it must have 2 numbers from 0 to 5"),
        (lambda: record.view(entry=2), "entry is 2; there are 2 batch entries"),
        (lambda: record.view(list("abcdef")), "6 tokens for 5 queries and 5 keys"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_errors():
    with pytest.raises(TypeError, match="model is of type function; it must be a torch.nn.Module"):
        with libattn.capture(recorded):
            pass
    record, _ = recorded(torch.nn.Linear(2, 2), torch.ones(1, 2))
    for use in (record.view, lambda: record.save("x.safetensors")):
        with pytest.raises(ValueError, match="no attention was recorded: the model was not called in the block"):
            use()
    record, _ = recorded(Model(), torch.randn(1, 5, 16))
    for key, sentence in [("blocks", "2 layers have 'blocks' in their name, and it must say which: blocks.0.attention, blocks.1.attention"),
                          ("layers.7", "no layer has 'layers.7' in its name; recorded: blocks.0.attention, blocks.1.attention"),
                          (2, "there is no layer 2; 2 were recorded")]:
        with pytest.raises(KeyError, match=sentence):
            record[key]
    with pytest.raises(KeyError, match="no layer has 'attn' in its name"):
        record.view(layers="attn")
    with pytest.raises(KeyError, match=r"no layer has 'layers.7' in its name; recorded: blocks.0.attention, blocks.1.attention, .*, \.\.\., .*blocks.10.attention \(11 layers\)"):
        recorded(Model(11), torch.randn(1, 2, 16))[0]["layers.7"]
    record[0].options["scale"] = 2.0
    with pytest.raises(ValueError, match="the layers differ in their scale, and a file has one"):
        record.save("x.safetensors")


def test_a_failing_model_leaves_nothing_behind():
    model = Model()
    with pytest.raises(RuntimeError):
        with libattn.capture(model) as record:
            model(torch.randn(1, 5, 3))
    assert not record and not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not recorded(model.forget(), torch.randn(1, 5, 16))[0].calls(0)[1:]


# ---- modules that run in other threads, begin before the block, or end after it


class Waiting(torch.nn.Module):
    """A Model whose forward waits in its midst."""

    def __init__(self):
        super().__init__()
        self.model, self.reached, self.free = Model(), threading.Event(), threading.Event()

    def forward(self, x):
        made = self.model(x)
        self.reached.set()
        assert self.free.wait(60)
        return made


def elsewhere(call):
    """call() in another thread, and a function that waits for its end and raises what it raised."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    future = pool.submit(call)
    return lambda: (future.result(60), pool.shutdown())[0]


def test_other_threads_have_modules_of_their_own():
    waiting, x = Waiting(), torch.randn(1, 5, 16)
    with libattn.capture(waiting) as record:
        end = elsewhere(lambda: waiting(x))  # this thread is not recorded, and stays within `waiting` while the other one runs
        assert waiting.reached.wait(60)
        F.scaled_dot_product_attention(*[torch.randn(1, 2, 3, 4)] * 3)  # of no module
        waiting.model.forget()(x)
        waiting.free.set()
        end()
    assert list(record) == ["model.blocks.0.attention", "model.blocks.1.attention"]
    assert all(len(record.calls(name)) == 1 and record[name].k.shape[2] == 5 for name in record)


def test_a_forward_that_began_before_the_block():
    waiting, x = Waiting(), torch.randn(1, 5, 16)
    waiting.register_forward_hook(lambda *_: None)  # without any hook at its begin, a module calls none at its end
    end = elsewhere(lambda: waiting(x))
    assert waiting.reached.wait(60)
    with libattn.capture(waiting) as record:
        waiting.free.set()
        assert len(end()) == 2  # its hooks are left without having been entered
    assert not record


def test_hooks_that_others_remove_and_an_interrupt():
    model, x = Model(), torch.randn(1, 5, 16)
    with libattn.capture(model) as record:
        handle = model.blocks[0]["attention"].register_forward_pre_hook(lambda module, _: module._forward_hooks.clear())
        model(x)  # the first attention is entered, and never left
        F.scaled_dot_product_attention(*[torch.randn(1, 2, 3, 4)] * 3)  # of no module
        handle.remove()
        stop = model.blocks[1]["attention"].q.register_forward_pre_hook(lambda *_: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            model.forget()(x)
        stop.remove()
        model.forget()(x)
    assert list(record) == ["blocks.0.attention", "blocks.1.attention"] and len(record.calls(1)) == 2


# ---- transformers


@pytest.mark.parametrize("name", ["sdpa", "eager", "flash_attention_2"])
def test_masks_of_two_axes(name):
    """[queries, keys], but padding of keys with a causal triangle for names with "flash" in them."""
    from libattn._capture import Record
    from libattn._capture_torch import Recorder

    module = torch.nn.Linear(1, 1)
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    mask = torch.tensor([[False, True, True, True, True]])
    *_, options = Recorder(module, Record()).of_interface(name, module, q, k, k, mask)
    seen = np.arange(5) >= 1
    seen = seen & (np.arange(5) <= np.arange(3)[:, None] + 2) if "flash" in name else np.broadcast_to(seen, (3, 5))
    assert (options["mask"] == seen).all() and options["mask"].shape == (1, 1, 3, 5)



def models():
    """(name, model, its inputs, the weights that it returns itself)"""
    import transformers
    import libattn.transformers

    libattn.transformers.register()
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 50}
    ids, mask = torch.randint(3, 50, (2, 6)), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    both = {"input_ids": ids, "attention_mask": mask}
    grouped = {**small, "num_key_value_heads": 2}
    yield "bert", transformers.BertModel(transformers.BertConfig(**small)), both, lambda out: out.attentions
    yield "llama", transformers.LlamaModel(transformers.LlamaConfig(**grouped)), both, lambda out: out.attentions
    config = transformers.Gemma2Config(**grouped, head_dim=8, sliding_window=3, query_pre_attn_scalar=16)
    yield "gemma2", transformers.Gemma2Model(config), {"input_ids": ids}, lambda out: out.attentions
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, vocab_size=50)
    yield "t5", transformers.T5Model(config), {**both, "decoder_input_ids": ids[:, :4]}, lambda out: [
        *out.encoder_attentions, *(one for pair in zip(out.decoder_attentions, out.cross_attentions) for one in pair)]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="transformers is not installed")
def test_transformers():
    for name, model, inputs, weights in models():
        model.eval().set_attn_implementation("eager")
        with torch.no_grad():
            expected = weights(model(**inputs, output_attentions=True))
        for implementation in ("eager", "libattn", "sdpa", "flex_attention")[:2 if name == "gemma2" else 3 if name == "t5" else 4]:
            model.set_attn_implementation(implementation)
            record, _ = recorded(model, **inputs)
            assert len(record) == len(expected), (name, implementation, list(record))
            for layer, theirs in zip(record, expected):
                found, rows = record[layer].weights, slice(None) if name == "t5" else slice(0, 4)  # (rows of padding are arbitrary)
                close(found[:, :, rows], theirs[:, :, rows], 64 * EPS)
        assert (name == "gemma2") == ("softcap" in record[0].options)
        assert record[0].k.shape[1] == (2 if name in ("llama", "gemma2") else 4)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="transformers is not installed")
def test_generated_text_is_one_triangle():
    import transformers

    config = transformers.LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=32, vocab_size=50)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(3, 50, (1, 6))
    with libattn.capture(model) as record, torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, min_new_tokens=4, do_sample=False)
    whole, _ = recorded(model, out[:, :-1])
    for name in whole:
        assert len(record.calls(name)) == 1 and record[name].q.shape == (1, 4, 9, 8)
        close(record[name].weights, whole[name].weights, 64 * EPS)
