# SPDX-License-Identifier: MIT
"""libattn in ONNX Runtime: an execution provider for attention, for models as they are; and fusion of attention that was exported as
matrix products and a softmax."""
from ._fuse import fuse
from ._provider import register, session_options, stats

__all__ = ["fuse", "register", "session_options", "stats"]
