# SPDX-License-Identifier: MIT
from typing import Any

def compute(op: int, layout: str, more: dict[str, Any] | None, /, **keywords: Any) -> Any: ...
