# SPDX-License-Identifier: MIT
"""The declarations of python/torch/stable.h are those of the installed PyTorch."""
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

from problems import ROOT  # noqa: E402

HEADERS = pathlib.Path(torch.__file__).parent / "include" / "torch" / "csrc"
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
    ours = plain(f"{result} {name}({parameters})").replace("BoxedKernel fn", "void(*fn)(StableIValue*,uint64_t,uint64_t)")
    assert ours in headers, ours


def test_types(headers):
    for declared in ("using TorchLibraryHandle = TorchLibraryOpaque*", "using StableIValue = uint64_t",
                     "typedef void(*ParallelFunc)(int64_t begin,int64_t end,void*ctx)"):
        assert plain(declared) in headers, declared
