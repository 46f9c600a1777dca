# SPDX-License-Identifier: MIT
"""The declarations of python/torch/stable.h are those of the installed PyTorch; and its caches know the schemas of libattn's operators."""
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

from problems import ROOT  # noqa: E402

HEADERS = pathlib.Path(torch.__file__).parent / "include" / "torch" / "csrc"
NEW = {"torch_delete_stable_ivalue"}  # STABLE_NEW_NAMES
FILES = [HEADERS / "inductor" / "aoti_torch" / "c" / "shim.h", HEADERS / "stable" / "c" / "shim.h"]


def plain(text):
    """A declaration without spaces and comments."""
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"\s*([*,()])\s*", r"\1", re.sub(r"\s+", " ", text)).strip().replace("(void)", "()")


@pytest.fixture(scope="module")
def headers():
    if not all(path.exists() for path in FILES):
        pytest.skip("this PyTorch has no headers")
    return plain("\n".join(path.read_text() for path in FILES))


def rows():
    text = (ROOT / "python" / "torch" / "stable.h").read_text().replace("\\\n", " ")
    for found in re.finditer(r"\bF\(([\w ]+), (\w+),\s*\(([^()]*)\)\)", text):
        yield found.groups()


def test_there_are_rows():
    assert len(list(rows())) >= 28


@pytest.mark.parametrize("result, name, parameters", [row for row in rows() if row[1] != "name"], ids=lambda x: x if x.isidentifier() else "")
def test_declaration(headers, result, name, parameters):
    if name in NEW and name not in headers:
        pytest.skip("this PyTorch is older than the function, and is used without it")
    ours = plain(f"{result} {name}({parameters})").replace("BoxedKernel fn", "void(*fn)(StableIValue*,uint64_t,uint64_t)")
    assert ours in headers, ours


def test_types(headers):
    for declared in ("using TorchLibraryHandle = TorchLibraryOpaque*", "using StableIValue = uint64_t",
                     "typedef void(*ParallelFunc)(int64_t begin,int64_t end,void*ctx)"):
        assert plain(declared) in headers, declared


def test_caches_of_compiled_graphs_know_the_schemas(monkeypatch):
    """A graph that was compiled with other schemas, whose arguments may mean something else, is compiled anew."""
    import torch._inductor.config as settings
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    import libattn.torch
    from libattn.torch import _fake

    x = torch.randn(1, 2, 3, 4)
    calls = [lambda x: libattn.torch.attention(x, x, x, causal=True), lambda x: libattn.torch.linear_attention(x, x, x)]
    for call in [*calls, lambda x: libattn.torch.flex_attention(x, x, x, lambda score, *_: 0.5 * score)]:

        def found(call=call):
            torch._dynamo.reset()
            counters.clear()
            torch.testing.assert_close(torch.compile(call)(x), call(x), rtol=0, atol=1e-5)
            return counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"]

        with fresh_cache():
            assert found() == 0 and found() > 0
            with monkeypatch.context() as other:
                other.setattr(_fake, "signature", lambda: "another release")
                assert found() == 0
            assert found() > 0
    assert settings.unsafe_marked_cacheable_functions == {"torch.ops.libattn": _fake.signature()} and len(_fake.signature()) == 64
