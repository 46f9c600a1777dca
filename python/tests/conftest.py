# SPDX-License-Identifier: MIT
"""Many files are tested in one process: each finds PyTorch with as many threads as it had at first, or as its own THREADS says."""
import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def threads_of_torch(request):
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(getattr(request.module, "THREADS", before))
    yield
    torch.set_num_threads(before)
