# SPDX-License-Identifier: MIT
"""Transports of message systems: process groups of PyTorch, communicators of mpi4py."""
from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

from .._arrays import Array
from ._transport import Transport

TAGS = 23000  # of libattn's messages in a group that has others: below the least limit of MPI (32767)
PIECE = 1 << 26  # bytes: MPI counts in ints
NOT_AMONG = "group: this process is not among its ranks"


class Alone(Transport):
    """One rank, without messages."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def send(self, to: int, tag: int, data: Array) -> Any:
        raise AssertionError("one rank has nobody to send to")

    def receive(self, source: int, tag: int, data: Array) -> Any:
        raise AssertionError("one rank has nobody to receive from")

    def wait(self, requests: list[Any]) -> None:
        return None


class ProcessGroup(Transport):
    """The ranks of a process group of torch.distributed whose backend takes tensors on the CPU: gloo, or MPI."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        rank = dist.get_rank(group)
        if rank < 0:
            raise ValueError(NOT_AMONG)
        super().__init__(rank, dist.get_world_size(group))
        self._group = weakref.ref(group)  # (the transport is kept by its group)

    def _begin(self, function: str, other: int, tag: int, data: Array) -> Any:
        import torch
        import torch.distributed as dist

        side = "group_dst" if function == "isend" else "group_src"
        return getattr(dist, function)(torch.from_numpy(data), group=self._group(), tag=TAGS + tag, **{side: other})

    def send(self, to: int, tag: int, data: Array) -> Any:
        return self._begin("isend", to, tag, data)

    def receive(self, source: int, tag: int, data: Array) -> Any:
        return self._begin("irecv", source, tag, data)

    def wait(self, requests: list[Any]) -> None:
        for work in requests:
            work.wait()


class Communicator(Transport):
    """The ranks of a communicator of mpi4py."""

    def __init__(self, communicator: Any) -> None:
        super().__init__(communicator.Get_rank(), communicator.Get_size())
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]  # (the communicator is of it)

        self._mpi: Any = MPI
        self._communicator = communicator

    def _begin(self, function: Any, other: int, tag: int, data: Array) -> Any:
        return [function([data[at:at + PIECE], self._mpi.BYTE], other, TAGS + tag) for at in range(0, data.size, PIECE)]

    def send(self, to: int, tag: int, data: Array) -> Any:
        return self._begin(self._communicator.Isend, to, tag, data)

    def receive(self, source: int, tag: int, data: Array) -> Any:
        return self._begin(self._communicator.Irecv, source, tag, data)

    def wait(self, requests: list[Any]) -> None:
        self._mpi.Request.Waitall([piece for request in requests for piece in request])

    def progress(self) -> None:
        self._communicator.Iprobe()


@functools.cache
def _attribute(mpi: Any) -> int:
    """Where MPI keeps the transport of a communicator."""
    return mpi.Comm.Create_keyval()


def _of_communicator(mpi: Any, communicator: Any) -> Transport:
    """The transport of a communicator, which lives as long as it does: what has failed stays so."""
    if communicator == mpi.COMM_NULL:
        raise ValueError(NOT_AMONG)
    if communicator.Is_inter():
        raise TypeError("group is an intercommunicator; merge it, group.Merge()")
    found: Transport | None = communicator.Get_attr(_attribute(mpi))
    if found is None:
        found = Communicator(communicator)
        communicator.Set_attr(_attribute(mpi), found)
    return found


_known: weakref.WeakKeyDictionary[Any, Transport] = weakref.WeakKeyDictionary()
_ALONE = Alone()


def transport_of(group: Any) -> Transport:
    """The transport of what `group=` may be: None (PyTorch's default group if there is one, else one rank), a Transport, a process
    group or a mesh of one axis of PyTorch, or a communicator of mpi4py."""
    if isinstance(group, Transport):
        return group
    torch, mpi = sys.modules.get("torch"), sys.modules.get("mpi4py.MPI")
    if group is None:
        if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return _ALONE
        group = torch.distributed.group.WORLD
    if mpi is not None and isinstance(group, mpi.Comm):
        return _of_communicator(mpi, group)
    if torch is not None and hasattr(group, "get_group") and hasattr(group, "mesh_dim_names"):
        if group.ndim != 1:
            raise ValueError(f"group is a mesh of {group.ndim} axes; pass the axis of the sequence, mesh[\"name\"]")
        group = group.get_group()
    if torch is not None and torch.distributed.is_available() and isinstance(group, torch.distributed.ProcessGroup):
        if group not in _known:
            _known[group] = ProcessGroup(group)
        return _known[group]
    if torch is not None and torch.distributed.is_available() and type(group) is int and group == torch.distributed.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(NOT_AMONG)
    raise TypeError(f"group is of type {type(group).__name__}; it must be a process group or a mesh of PyTorch, a communicator of mpi4py, "
                    "a libattn.distributed.Transport, or None")
