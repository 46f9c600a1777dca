# SPDX-License-Identifier: MIT
"""Transports: how ranks exchange messages, as objects of Python that the library calls (attn_transport)."""
from __future__ import annotations

import abc
import contextlib
import ctypes
import threading
from typing import Any, Callable, Iterator, TypeVar

import numpy as np

from .. import _abi, _native
from .._arguments import integer
from .._arrays import Array

_LOST: list[Any] = []  # memory that messages may still write to after a failure, and their requests
MOST_RANKS = 2**31 - 1  # the library counts them in ints
SMALL = 4096  # bytes up to which a message is copied: those in which ranks agree lie on the library's stack
Result = TypeVar("Result")


class Transport(abc.ABC):
    """How the ranks of a group exchange messages.  Derive from it for a message system that `group=` does not know:

        class Mine(distributed.Transport):
            def __init__(self, ...):
                super().__init__(rank, ranks)
            def send(self, to, tag, data): ...         # begins to send the bytes of an array of uint8; returns a request
            def receive(self, source, tag, data): ...  # begins to receive them into one; returns a request
            def wait(self, requests): ...              # until all of these are done

    A message is sent once and received once; those from one rank to another with one tag arrive in the order in which they were
    sent.  Tags are 1 to 17.  Nothing may wait but `wait`.  Arrays are the library's memory, which stays until their request was
    waited for or, after an exception, for ever.  An exception ends the call on this rank with ConnectionError, and the transport
    with it: messages may be left on their way, so it cannot be used again.

    One call of libattn.distributed at a time uses a transport, and all ranks make the same calls in the same order.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self.ranks: int = integer(ranks, "ranks", 1, MOST_RANKS)  #: how many there are
        self.rank: int = integer(rank, "rank", 0, self.ranks - 1)  #: of the caller
        self._messages = _Messages(self)

    @abc.abstractmethod
    def send(self, to: int, tag: int, data: Array) -> Any:
        """Begins to send `data`, an array of uint8, and returns a request for `wait`."""

    @abc.abstractmethod
    def receive(self, source: int, tag: int, data: Array) -> Any:
        """Begins to receive into `data`, an array of uint8 of the message's size, and returns a request for `wait`."""

    @abc.abstractmethod
    def wait(self, requests: list[Any]) -> None:
        """Returns when all of these requests of `send` and `receive` are done."""

    def progress(self) -> None:
        """Called now and then while the library computes, for message systems that have no thread of their own."""
        return None


class _Messages:
    """The functions of attn_transport for a Transport, and what became of it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.failure: BaseException | None = None  # once there is one, the transport is lost
        self.pending: dict[int, tuple[Any, Array | None, Array]] = {}  # request, the copy that it receives into, where that goes
        self.copied: list[int] = []  # sends of copies: nobody waits for their memory
        self.number = 0
        self.struct = _native.struct(_abi.attn_transport, rank=transport.rank, ranks=transport.ranks)
        self.functions = {name: kind for name, kind in _abi.attn_transport._fields_ if hasattr(self, f"_{name}")}
        for name, kind in self.functions.items():
            if name != "progress" or type(transport).progress is not Transport.progress:
                setattr(self.struct, name, kind(self._safely(getattr(self, f"_{name}"))))

    def _safely(self, function: Callable[..., None]) -> Callable[..., int]:
        def called(_context: Any, *arguments: Any) -> int:
            if self.failure is not None:
                return 1
            try:
                function(*arguments)
                return 0
            except BaseException as error:  # it is raised when the library returns
                self.failure = error
                return 1

        return called

    def begin(self, sends: bool, other: int, tag: int, data: Array) -> int:
        """Begins a message, of or into memory of the library; 0: it is empty, and not sent."""
        if not data.size:
            return 0
        own = data.copy() if data.size <= SMALL else data
        request = (self.transport.send if sends else self.transport.receive)(other, tag, own)
        self.number += 1
        self.pending[self.number] = request, own if own is not data and not sends else None, data
        if sends and own is not data:
            self.copied.append(self.number)
            return 0
        return self.number

    def finish(self, numbers: list[int]) -> None:
        """Waits for messages that have begun."""
        begun = [self.pending[number] for number in numbers if number]
        if begun:
            self.transport.wait([request for request, _, _ in begun])
        for _, own, data in begun:
            if own is not None:
                data[:] = own
        for number in numbers:
            self.pending.pop(number, None)

    def settle(self) -> None:
        """Waits for sends of copies, at the end of a call.  (A send to a rank that dies meanwhile may never end with gloo; by now, what
        it had to send is missed elsewhere.)"""
        numbers, self.copied = self.copied, []
        self.finish(numbers)

    def _send(self, to: int, tag: int, data: int, size: int, request: Any) -> None:
        request[0] = self.begin(True, to, tag, _memory(data, size)) or None

    def _receive(self, source: int, tag: int, data: int, size: int, request: Any) -> None:
        request[0] = self.begin(False, source, tag, _memory(data, size)) or None

    def _wait(self, count: int, requests: Any) -> None:
        self.finish([requests[n] or 0 for n in range(count)])

    def _progress(self) -> None:
        self.transport.progress()

    def lost(self, sentence: str, *memory: Any) -> BaseException:
        """The exception after a failure; `memory` is kept for messages that are still on their way."""
        _LOST.append((self, memory))
        failure = self.failure
        if failure is not None and not isinstance(failure, Exception):
            return failure  # KeyboardInterrupt
        error = ConnectionError(f"rank {self.transport.rank}: {sentence}" + (f" ({type(failure).__name__}: {failure})" if failure else ""))
        error.__cause__ = failure
        return error

    @contextlib.contextmanager
    def failing(self, sentence: str, *memory: Any) -> Iterator[None]:
        """Makes the exception of a failure of whatever fails within."""
        try:
            yield
        except BaseException as error:
            self.failure = error
            raise self.lost(sentence, *memory) from error

    def check(self) -> None:
        """Raises ConnectionError if a message failed before."""
        if self.failure is not None:
            raise ConnectionError("a message of this group failed before, so others may be left on their way; make a new group")


def _memory(address: int, size: int) -> Array:
    """Bytes at an address."""
    return np.frombuffer((ctypes.c_ubyte * size).from_address(address), np.uint8) if size else np.empty(0, np.uint8)


def messages(transport: Transport) -> _Messages:
    """The messages of a transport."""
    return transport._messages


# ---- threads ----------------------------------------------------------------------------------------------------------------------


class _World:
    """What threads share: messages that were sent and not received yet."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.sent: dict[tuple[int, int, int], list[Array]] = {}
        self.failed = False
        self.returned: set[int] = set()  # ranks that send nothing more


class _Thread(Transport):
    """A rank that is a thread."""

    def __init__(self, world: _World, rank: int, ranks: int) -> None:
        super().__init__(rank, ranks)
        self.world = world

    def send(self, to: int, tag: int, data: Array) -> Any:
        with self.world.changed:
            self.world.sent.setdefault((self.rank, to, tag), []).append(data.copy())
            self.world.changed.notify_all()
        return None

    def receive(self, source: int, tag: int, data: Array) -> Any:
        return (source, self.rank, tag), data

    def wait(self, requests: list[Any]) -> None:
        for key, data in filter(None, requests):
            with self.world.changed:
                self.world.changed.wait_for(lambda key=key: self.world.failed or self.world.sent.get(key) or key[0] in self.world.returned)
                if self.world.failed:
                    raise ConnectionError("another thread has failed")
                if not self.world.sent.get(key):
                    raise ConnectionError(f"the thread of rank {key[0]} has returned")
                data[:] = self.world.sent[key].pop(0)


def in_threads(ranks: int, function: Callable[[Transport], Result]) -> list[Result]:
    """Calls function(transport) in a thread for each of `ranks` ranks, and returns their results in the order of the ranks.

    To try things out, and for tests: the ranks share one process.  If the function raises in one thread, the others get
    ConnectionError where they wait for its messages, as they do if it returns without sending them, and the exception of the lowest rank
    that has another one is raised here.

        >>> distributed.in_threads(4, lambda group: distributed.attention(*mine(group), group=group))
    """
    world, count = _World(), integer(ranks, "ranks", 1)
    results: list[Any] = [None] * count
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = function(_Thread(world, rank, count))
        except BaseException as error:
            errors[rank] = error
            world.failed = True
        with world.changed:
            world.returned.add(rank)
            world.changed.notify_all()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C: those that wait for each other would not let Python end
        with world.changed:
            world.failed = True
            world.changed.notify_all()
        raise
    if errors:
        raise min(errors.items(), key=lambda item: (isinstance(item[1], ConnectionError), item[0]))[1]
    return results
