# SPDX-License-Identifier: MIT
"""The execution provider: registered with ONNX Runtime, added to sessions, counted (python/ort)."""
from __future__ import annotations

import ctypes
import functools
from typing import Any

from .. import _native
from .._arguments import integer

NAME = "LibattnExecutionProvider"
LIBRARY = _native.FOLDER.parent / "_ort.so"
OLDEST = (1, 24)


@functools.cache
def _shim() -> ctypes.CDLL:
    shim = ctypes.CDLL(str(LIBRARY.resolve()))
    text = ctypes.POINTER(ctypes.c_char_p)
    shim.attn_ort_count.argtypes = [ctypes.c_int, text, text, ctypes.POINTER(ctypes.c_int64)]
    return shim


def _devices(runtime: Any) -> list[Any]:
    return [device for device in runtime.get_ep_devices() if device.ep_name == NAME]


def register() -> None:
    """Registers the execution provider LibattnExecutionProvider with ONNX Runtime, once in a process; session_options() does so too.

    Its devices are then among onnxruntime.get_ep_devices(), for SessionOptions.add_provider_for_devices, which takes the option
    "threads"; by default as many as ATTN_THREADS or the affinity gives.

    Raises ImportError without ONNX Runtime, NotImplementedError if it is older than 1.24.
    """
    import onnxruntime

    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if version < OLDEST:
        raise NotImplementedError(f"onnxruntime is {onnxruntime.__version__}; libattn.onnx needs 1.24 or newer")
    if not _devices(onnxruntime):
        onnxruntime.register_execution_provider_library("libattn", str(LIBRARY.resolve()))


def session_options(options: Any = None, *, threads: int | None = None) -> Any:
    """onnxruntime.SessionOptions for sessions that compute attention with libattn, and everything else as before.

        session = onnxruntime.InferenceSession("model.onnx", libattn.onnx.session_options())

    The provider takes the nodes Attention of opset 23 to 25, LinearAttention of opset 27, and MultiHeadAttention, GroupQueryAttention
    and LinearAttention of com.microsoft, with masks, caches and rotary positions; a node with a type or an option that libattn lacks is
    left to the runtime (stats() says why).  fuse() makes such nodes from matrix products and softmaxes.  Do not pass providers to the
    session too: ONNX Runtime then ignores those of the options.

    options  the SessionOptions to add the provider to, or None for new ones
    threads  1 to 1024; default: options.intra_op_num_threads, or if this is 0, the runtime's default, what ATTN_THREADS or the
             affinity gives.  The threads themselves are the runtime's.

    Returns options.  Raises ImportError without ONNX Runtime, NotImplementedError if it is older than 1.24, ValueError or TypeError for
    threads.
    """
    import onnxruntime

    register()
    made = onnxruntime.SessionOptions() if options is None else options
    asked = None if threads is None else integer(threads, "threads")
    if asked is not None and not 1 <= asked <= 1024:
        raise ValueError(f"threads is {threads}; it must be 1 to 1024")
    count = asked or made.intra_op_num_threads
    made.add_provider_for_devices(_devices(onnxruntime)[:1], {"threads": str(count)} if count else {})
    return made


def stats(reset: bool = False) -> dict[str, dict[str, int]]:
    """How often libattn computed a node, and which nodes were left to the runtime.

    Returns {"libattn": {operator: runs}, "onnxruntime": {"operator: why": nodes}}; counters of all sessions, since the start or the
    last stats(True).  A node counts once for each time that the runtime asked for it, which may be twice for a session.
    """
    found = {
        "libattn": {what: count - _base.get(what, 0) for what, count in _counts(False).items()},
        "onnxruntime": {what: count - _base.get(what, 0) for what, count in _counts(True).items()},
    }
    if reset:
        _base.update({**_counts(False), **_counts(True)})
    return {where: {what: count for what, count in counts.items() if count} for where, counts in found.items()}


_base: dict[str, int] = {}


def _counts(left: bool) -> dict[str, int]:
    name, reason, count = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int64()
    found: dict[str, int] = {}
    index = 0
    while not _shim().attn_ort_count(index, ctypes.byref(name), ctypes.byref(reason), ctypes.byref(count)):
        text = (name.value or b"").decode()
        if left == (reason.value is not None):
            what = f"{text}: {reason.value.decode()}" if reason.value is not None else text
            found[what] = found.get(what, 0) + count.value  # (an operator may be of two domains)
        index += 1
    return found
