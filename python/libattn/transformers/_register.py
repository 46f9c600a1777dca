# SPDX-License-Identifier: MIT
"""libattn.transformers.register and unregister."""
from __future__ import annotations

import functools
from typing import Any

import transformers.modeling_flash_attention_utils as flash
from transformers import AttentionInterface, AttentionMaskInterface

from ..torch import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from . import _masks
from ._attention import attention_forward, flash_attention_forward

NAME, FLASH_NAME = "libattn", "flash_libattn"

_registered = False
_wrapped: tuple[Any, Any] | None = None  # a private function of transformers, and ours that calls it


def register() -> None:
    """Adds libattn to the attention implementations of transformers: attn_implementation="libattn".

    Any model that takes its attention by name then computes it with libattn on a CPU, in training too, with its softcap, sinks,
    windows, chunks, position bias and grouped heads:

        >>> libattn.transformers.register()
        >>> model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="libattn")
        >>> model.set_attn_implementation("libattn")   # or afterwards

    Masks are two numbers for each query, the first key that it sees and one past the last, wherever a model's mask has this form:
    causal, windows, chunks, padding on either side, packed sequences, prefixes and images that see themselves.  Other masks are
    matrices, as in transformers.  A query that sees no key, such as one in padding, gets zeros.

    output_attentions=True as an argument of a call returns the weights: before dropout, and without gradients.

    "flash_libattn" is the same for what transformers does only for names with "flash" in it: continuous batching
    (generate_batch), and packed images (Qwen-VL), both as packed sequences.  For this one private function of
    transformers is wrapped; in a release that does not have it, the name is left out.

    libattn.torch.stats() counts the calls.  Calling register() again has no effect; unregister() takes it back.
    """
    global _registered
    _masks.verify()
    _add(NAME, attention_forward)
    if hasattr(flash, "_lazy_imports"):
        _provide_functions()
        _add(FLASH_NAME, flash_attention_forward)
    _registered = True


def unregister() -> None:
    """transformers is as it was before register(): it no longer knows the names, and its private function is its own again.

    Give models with attn_implementation="libattn" another one first (model.set_attn_implementation("sdpa")): calls of them raise
    KeyError afterwards.  Without a register() before, unregister() has no effect.
    """
    global _registered, _wrapped
    _registered = False
    for name in (NAME, FLASH_NAME):
        for interface in (AttentionInterface, AttentionMaskInterface):
            interface._global_mapping.pop(name, None)
    if _wrapped is None:
        return
    original, ours = _wrapped
    if flash._lazy_imports is ours:  # else another wrapped it too: ours stays below, and only passes calls on
        flash._lazy_imports = original
        _wrapped = None
    if getattr(flash, "_loaded_implementation", None) == FLASH_NAME:
        flash._loaded_implementation = None


def _add(name: str, function: Any) -> None:
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, _masks.attention_mask)


def _provide_functions() -> None:
    """A name with "flash" in it must have functions of the package flash-attn, which transformers imports when a model is made."""
    global _wrapped
    original = flash._lazy_imports
    if _wrapped is not None and original is _wrapped[1]:
        return

    @functools.wraps(original)
    def imports(implementation: Any, *arguments: Any, **options: Any) -> Any:
        if implementation != FLASH_NAME or not _registered:
            return original(implementation, *arguments, **options)
        return flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, flash._pad_input, flash._unpad_input

    _wrapped = original, imports
    flash._lazy_imports = imports
