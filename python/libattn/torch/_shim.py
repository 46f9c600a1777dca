# SPDX-License-Identifier: MIT
"""The operators torch.ops.libattn: the shared object that has their kernels, and their options."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Any, Sequence

import torch

from .. import _native

OLDEST = (2, 10)  # torch_parallel_for


def _load() -> ctypes.PyDLL:
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST:
        raise ImportError(f"libattn.torch needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer; this is {torch.__version__}")
    _native.library("attn")
    shim = ctypes.PyDLL(str(_native.FOLDER.parent / "_torch.so"))
    shim.attn_torch_load.restype = ctypes.c_char_p
    shim.attn_torch_calls.restype = ctypes.c_int64
    missing = shim.attn_torch_load(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so").encode())
    if missing:
        raise ImportError(f"libattn.torch: PyTorch {torch.__version__} does not have {missing.decode()}")
    return shim


SHIM = _load()
OPS = torch.ops.libattn

# The options that all operators take behind tensors of their own: names, defaults, and which are tensors.
_arguments = OPS.attention.default._schema.arguments[3:-1]
NAMES: tuple[str, ...] = tuple(argument.name for argument in _arguments)
DEFAULTS: tuple[Any, ...] = tuple(argument.default_value for argument in _arguments)
IS_TENSOR: tuple[bool, ...] = tuple("Tensor" in str(argument.type) for argument in _arguments)
AT = {name: i for i, name in enumerate(NAMES)}
# Those with gradients: the outputs requested of attention_backward, in the order of its results.
WANTS = {
    "bias": 1, "alibi_slopes": 2, "sink": 4, "scales": 8, "bias_table": 16, "score_matrix": 32, "relative_keys": 64, "relative_values": 128,
    "relative_u": 256, "relative_v": 512,
}


def split(options: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The options that are tensors, and the others."""
    return (
        tuple(x for x, tensor in zip(options, IS_TENSOR, strict=True) if tensor),
        tuple(x for x, tensor in zip(options, IS_TENSOR, strict=True) if not tensor),
    )


def join(tensors: Sequence[Any], numbers: Sequence[Any]) -> tuple[Any, ...]:
    """The options again."""
    tensor, number = iter(tensors), iter(numbers)
    return tuple(next(tensor) if is_tensor else next(number) for is_tensor in IS_TENSOR)


def error(raised: RuntimeError) -> Exception:
    """What a failure of a kernel means to a caller: the exception that libattn raises elsewhere for it, or the same one."""
    message = str(raised).split("\n")[0]
    status = SHIM.attn_torch_status(message.encode())
    return _native.exception(status, message) if status else raised
