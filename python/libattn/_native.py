# SPDX-License-Identifier: MIT
"""The C libraries: loaded, typed, and called so that a failure is an exception with the library's sentence.

    native.call("attn_softmax", 3, 1.0, scores, None, out, None)

calls the function of that name of the public headers; the attn_error that most of them end with is supplied here.  Other threads of
Python run meanwhile.
"""
from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any, Callable

try:
    from . import _abi
except ImportError:
    raise ImportError(f"libattn is not built in {pathlib.Path(__file__).parent}: run `pip install .` at the root of the repository, and "
                      "start Python elsewhere, or put the directory python of a build with ATTN_PYTHON=ON on PYTHONPATH") from None

FOLDER = pathlib.Path(__file__).parent / "lib"

# The exception of each status.  ValueError: what was passed is wrong; the others say what is missing.
EXCEPTIONS: dict[int, type[Exception]] = {
    _abi.ATTN_ERR_ARGUMENT: ValueError,
    _abi.ATTN_ERR_SHAPE: ValueError,
    _abi.ATTN_ERR_STRIDE: ValueError,
    _abi.ATTN_ERR_UNSUPPORTED: NotImplementedError,
    _abi.ATTN_ERR_MEMORY: MemoryError,
    _abi.ATTN_ERR_IO: OSError,
    _abi.ATTN_ERR_FORMAT: ValueError,
}


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """libattn ("attn"), libattn_io ("attn_io") or libattn_layers ("attn_layers")."""
    # In a build tree lib/ has links, and a library finds others beside itself.
    return ctypes.CDLL(str((FOLDER / f"lib{name}.so").resolve()))


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """The C function itself, with the types of its result and parameters."""
    folder, result, parameters = _abi.FUNCTIONS[name]
    found = getattr(library(folder), name)
    found.restype, found.argtypes = result, parameters
    return found


def exception(status: int, message: str) -> Exception:
    """The exception that stands for a status, with the library's sentence in the words of Python."""
    if status not in (_abi.ATTN_ERR_IO, _abi.ATTN_ERR_FORMAT):  # (they are about the contents of files)
        from . import _core  # (which imports this module)

        message = _core.sentence(message)
    return EXCEPTIONS.get(status, RuntimeError)(message)


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the public headers.

    Arguments are those of the header without the last one, `attn_error *`, if it has one.  Raises ValueError, NotImplementedError,
    MemoryError or OSError with the library's sentence where the function returns an error, and returns None where it returns
    ATTN_OK; a function that returns no attn_status returns its result.
    """
    found = function(name)
    if len(found.argtypes) == len(arguments):
        result = found(*arguments)
        if name in CHECKED and result:
            raise exception(result, function("attn_status_string")(result).decode())
        return None if name in CHECKED else result
    error = _abi.attn_error()
    result = found(*arguments, ctypes.byref(error))
    if error.status:
        raise exception(error.status, error.message.decode())
    return None if name in CHECKED else result


CHECKED = frozenset(_abi.CHECKED)


def struct(kind: type[ctypes.Structure], **fields: Any) -> Any:
    """A struct of the public headers with struct_size set (where it has one), these fields, and zeros for all others."""
    made = kind(**fields)
    if hasattr(kind, "struct_size"):
        made.struct_size = ctypes.sizeof(kind)
    return made
