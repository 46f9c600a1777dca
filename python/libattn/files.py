# SPDX-License-Identifier: MIT
"""Named tensors in files: .safetensors, .npz and .npy, and .gguf for reading.  (The header attn/io.h; docs/io.md has the formats and their limits.)

    tensors = files.load("layer.safetensors")               # a dict of arrays
    files.save("out.npz", {"q": q, "k": k}, metadata={"tokens": "[...]"})

    with files.Archive.map("large.safetensors") as file:    # nothing is read before it is used
        q, tokens = file["q"], file.metadata["tokens"]

Quantised tensors of .gguf files are decoded to float32, and lists in their metadata are JSON: json.loads(file.metadata[key]).

Files are untrusted: every size, offset, type, name and number is checked before it is used, and nothing in a file is executed.  An
error is one line, `bad.safetensors: tensor 'q': offsets [0, 100] hold 100 bytes, shape [2, 13] of f32 needs 104`: a ValueError where the
file is not what it claims to be, NotImplementedError for an element type, a rank (above 8) or a compression that is not known, OSError
(FileNotFoundError, ...) where the operating system failed, MemoryError.
"""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from . import _abi, _native
from ._arguments import text
from ._arrays import TYPES, Array, asarray, dtype_of

__all__ = ["Archive", "Metadata", "file_write", "load", "save"]

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def load(path: Path) -> dict[str, Array]:
    """All tensors of a file by name, in order of name, as arrays of their own memory; metadata is left out (Archive.read has it).

    The format is detected from the content, not the name.  The tensor of an .npy file has the file's name without directory and
    extension.  bfloat16 needs the package ml_dtypes.
    """
    with Archive.read(path) as file:
        return {name: np.array(tensor) for name, tensor in file.items()}


def save(path: Path, tensors: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None) -> None:
    """Writes arrays of any library by name, in the format of the path's extension: .safetensors, .npz, or .npy (exactly one; its name and
    the metadata are dropped).  The same tensors give the same bytes every time.

    Written atomically: to a temporary file in the same directory, which is synced and renamed to `path`, and removed if anything
    fails; an existing file is then unchanged.  A symbolic link is followed.

    Raises ValueError for any other extension, more or less than one tensor for .npy, and a name that is empty, not Unicode or
    "__metadata__" (reserved); NotImplementedError for bfloat16 in .npz and .npy, which have no such type, and more than 8 axes.
    """
    with Archive(tensors, metadata=metadata) as file:
        file.write(path)


def file_write(path: Path, data: Any) -> None:
    """Writes bytes (anything with the buffer protocol) to a file of any name, atomically in the same way."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError("data is not contiguous")
    block = np.frombuffer(view.cast("B") if view.nbytes else b"", np.uint8)
    place = _path(path)
    try:
        _native.call("attn_file_write", place, block.ctypes.data, block.size)
    except OSError as error:
        raise _os_error(error, os.path.dirname(place) or b".") from None


def _path(path: Path) -> bytes:
    try:
        place = os.fsencode(path)
    except TypeError:
        raise TypeError(f"path is of type {type(path).__name__}; it must be a str, bytes or a path") from None
    if b"\0" in place:
        raise ValueError("path has a NUL character")
    return place


def _os_error(error: OSError, place: bytes) -> OSError:
    """The same sentence as FileNotFoundError, NotADirectoryError, ... where that is why."""
    try:
        os.stat(place)
    except OSError as why:
        return type(why)(str(error))
    return PermissionError(str(error)) if not os.access(place, os.R_OK) else error


class _Handle:
    """A container of C.  Arrays over its memory refer to it, so that it is destroyed with the last of them."""

    def __init__(self, address: int | None, borrowed: Any = None) -> None:
        self.address = address
        weakref.finalize(self, _destroy, address, borrowed).atexit = False


def _destroy(address: int | None, borrowed: Any) -> None:
    _native.call("attn_archive_destroy", address)


def _items(mapping: Any, name: str) -> list[tuple[Any, Any]]:
    """The items of a mapping, or of an object with `keys`, as dict() takes it; none of None."""
    if mapping is None:
        return []
    if not hasattr(mapping, "keys"):
        raise TypeError(f"{name} is of type {type(mapping).__name__}; it must be a mapping of names")
    return [(key, mapping[key]) for key in mapping.keys()]


class _Memory:
    """Memory of a container as NumPy sees it, read-only."""

    def __init__(self, handle: _Handle, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.handle = handle
        typestr = np.dtype(np.uint16).str if dtype.name == "bfloat16" else dtype.str
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": typestr, "data": (address, True)}


class Metadata(MutableMapping[str, str]):
    """The named strings beside the tensors of an archive, in order of key: a mapping that can be changed."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __getitem__(self, key: str) -> str:
        with self._archive._lock:
            found = _native.call("attn_archive_get_metadata", self._archive._address(), text(key, "key"))
        if found is None:
            raise KeyError(key)
        return found.decode()

    def __setitem__(self, key: str, value: str) -> None:
        name, what = text(key, "key"), text(value, f"metadata[{key!r}]")
        with self._archive._lock:
            _native.call("attn_archive_set_metadata", self._archive._address(), name, what)

    def __delitem__(self, key: str) -> None:
        with self._archive._lock:
            self[key]
            self._archive._rebuild(without_key=key)

    def __iter__(self) -> Iterator[str]:
        with self._archive._lock:
            handle = self._archive._address()
            count = _native.call("attn_archive_metadata_count", handle)
            keys = [_native.call("attn_archive_metadata_at", handle, i).contents.key.decode() for i in range(count)]
        return iter(keys)

    def __len__(self) -> int:
        with self._archive._lock:
            return _native.call("attn_archive_metadata_count", self._archive._address())

    def __repr__(self) -> str:
        return f"Metadata({dict(self)})" if self._archive._handle else "Metadata(closed)"


class Archive(MutableMapping[str, Array]):
    """Tensors by name, and strings by key (`metadata`), in order of name: what a file holds, or will hold.

    A mapping: archive["q"] is a read-only array over the archive's memory; archive["q"] = array borrows the array of any library, which
    must not change until the archive is written (it is copied only if it is not dense); `del` removes a tensor.  Arrays stay valid when
    the tensor is removed or the archive closed, since they keep the memory alive.

    A context manager: `close`, or the end of the block, lets go of the file; any use after that is a ValueError.  Any number of threads
    may use one archive.  Copies and pickles are archives with the same tensors, of their own memory where they are pickled.
    """

    def __init__(self, tensors: Mapping[str, Any] | None = None, *, metadata: Mapping[str, str] | None = None) -> None:
        self._lock = threading.RLock()
        self._source = ""
        self._kept: dict[str, Array] = {}
        self._handle: _Handle | None = _create()
        for name, tensor in _items(tensors, "tensors"):
            self[name] = tensor
        for key, value in _items(metadata, "metadata"):
            self.metadata[key] = value

    @classmethod
    def read(cls, path: Path, *, only: Callable[[str], bool] | None = None) -> Archive:
        """All tensors and metadata of a file (a regular file, or a pipe, which is read to its end).

        The whole file is copied into memory before anything is parsed, so later changes to it have no effect.  The format is detected
        from the content, not the name; the tensor of an .npy file has the file's name without directory and extension.

        `only` is called with the name of each tensor and says whether to read it.  The others are checked, but neither decoded nor in the
        archive: one layer of a quantised .gguf takes the memory of a layer.

            with files.Archive.read("model.gguf", only=lambda name: name.startswith("blk.3.")) as layer: ...
        """
        if only is None:
            return cls._open("attn_archive_read", path)
        raised: list[BaseException] = []

        def wanted(_: Any, tensor: Any) -> int:
            try:
                return 0 if raised else int(bool(only(tensor.contents.name.decode())))
            except BaseException as error:  # pylint: disable=broad-exception-caught  # C lies between it and the caller
                raised.append(error)
                return 0

        made = cls._open("attn_archive_read_some", path, _abi.attn_archive_wanted(wanted), None)
        if raised:
            made.close()
            raise raised[0]
        return made

    @classmethod
    def map(cls, path: Path) -> Archive:
        """The same without the copy, for large files of which little is used: data of .safetensors and .npy files is read on access.

        Replacing the file, as `write` does, is safe.  But nobody may change it in place or truncate it while the archive or an array
        of it lives: numbers would change under the reader, and touching truncated data kills the process.
        """
        return cls._open("attn_archive_map", path)

    @classmethod
    def read_memory(cls, data: Any, *, name: str = "memory") -> Archive:
        """A file that is already in memory: bytes, or anything with the buffer protocol, borrowed, which must not change while the archive
        or an array of it lives.  `name` replaces the path in messages and in the name of an .npy tensor."""
        view = memoryview(data)
        if not view.c_contiguous:
            raise ValueError("data is not contiguous")
        block = np.frombuffer(view.cast("B") if view.nbytes else b"", np.uint8)
        made = cls()
        made._source = name
        address = ctypes.c_void_p()
        _native.call("attn_archive_read_memory", ctypes.byref(address), text(name, "name"), block.ctypes.data, block.size)
        made._handle = _Handle(address.value, block)
        return made

    @classmethod
    def _open(cls, function: str, path: Path, *more: Any) -> Archive:
        place = _path(path)
        address = ctypes.c_void_p()
        try:
            _native.call(function, ctypes.byref(address), place, *more)
        except OSError as error:
            raise _os_error(error, place) from None
        made = cls()
        made._handle, made._source = _Handle(address.value), os.fsdecode(place)
        return made

    def write(self, path: Path) -> None:
        """Writes all tensors and metadata in the format of the path's extension, atomically: libattn.files.save."""
        place = _path(path)
        with self._lock:
            handle = self._address()
            try:
                _native.call("attn_archive_write", handle, place)
            except OSError as error:
                raise _os_error(error, os.path.dirname(place) or b".") from None

    def close(self) -> None:
        """Lets go of the tensors; arrays that were taken out stay valid.  Closing twice is not an error."""
        with self._lock:
            self._handle = None
            self._kept.clear()

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._handle is None

    @property
    def metadata(self) -> Metadata:
        """The strings beside the tensors."""
        return Metadata(self)

    def allocate(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """Adds a tensor of zeros and returns its array, for the caller to fill."""
        array = np.zeros(shape, dtype)
        self[name] = array
        return self._kept[name]

    def __getitem__(self, name: str) -> Array:
        with self._lock:
            found = _native.call("attn_archive_find", self._address(), text(name, "name"))
            if not found:
                raise KeyError(name)
            tensor, handle = found.contents, self._handle
            assert handle is not None
            shape, dtype = tuple(tensor.shape[: tensor.rank]), dtype_of(tensor.dtype)
            if tensor.bytes == 0:
                empty = np.empty(shape, dtype)
                empty.flags.writeable = False
                return empty
            if name in self._kept:
                kept = self._kept[name].view()
                kept.flags.writeable = False
                return kept
            return np.asarray(_Memory(handle, tensor.data, shape, dtype)).view(dtype)

    def __setitem__(self, name: str, tensor: Any) -> None:
        if isinstance(tensor, np.ndarray) and not tensor.dtype.isnative:
            tensor = tensor.astype(tensor.dtype.newbyteorder("="))
        array = np.require(asarray(tensor, f"tensor {name!r}"), requirements=["C", "A"])
        if array.ndim > _abi.ATTN_MAX_RANK:
            raise NotImplementedError(f"tensor {name!r} has {array.ndim} axes; at most {_abi.ATTN_MAX_RANK} are possible")
        encoded = text(name, "name")
        with self._lock:
            if encoded and _native.call("attn_archive_find", self._address(), encoded):
                self._rebuild(replace=(name, array))
            else:
                _add(self._address(), encoded, array)
                self._kept[name] = array

    def __delitem__(self, name: str) -> None:
        with self._lock:
            if not _native.call("attn_archive_find", self._address(), text(name, "name")):
                raise KeyError(name)
            self._rebuild(without=name)

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            handle = self._address()
            count = _native.call("attn_archive_count", handle)
            names = [_native.call("attn_archive_at", handle, i).contents.name.decode() for i in range(count)]
        return iter(names)

    def __len__(self) -> int:
        with self._lock:
            return _native.call("attn_archive_count", self._address())

    def __contains__(self, name: object) -> bool:
        with self._lock:
            handle = self._address()
            return isinstance(name, str) and "\0" not in name and bool(_native.call("attn_archive_find", handle, text(name, "name")))

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other  # of mappings of arrays, the elements' == has no truth value

    def __enter__(self) -> Archive:
        self._address()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        what = f"{self._source!r}, " if self._source else ""
        return f"Archive({what}{'closed' if self.closed else f'{len(self)} tensors'})"

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return _restore, (type(self), self._source, dict(self), dict(self.metadata))

    def _address(self) -> int:
        if self._handle is None or self._handle.address is None:
            raise ValueError("the archive is closed")
        return self._handle.address

    def _rebuild(self, *, without: str | None = None, without_key: str | None = None, replace: tuple[str, Array] | None = None) -> None:
        """Another container without a tensor or key, or with another tensor: the old one lives on while arrays over its memory do."""
        tensors: dict[str, Array] = {name: self._kept.get(name, self[name]) for name in self if name != without}
        if replace:
            tensors[replace[0]] = replace[1]
        made = _create()
        for name, array in tensors.items():
            _add(made.address, name.encode(), array)
        for key, value in self.metadata.items():
            if key != without_key:
                _native.call("attn_archive_set_metadata", made.address, key.encode(), value.encode())
        self._handle, self._kept = made, tensors


def _create() -> _Handle:
    address = ctypes.c_void_p()
    _native.call("attn_archive_create", ctypes.byref(address))
    return _Handle(address.value)


def _add(archive: int | None, name: bytes, array: Array) -> None:
    shape = (ctypes.c_int64 * _abi.ATTN_MAX_RANK)(*array.shape)
    _native.call("attn_archive_add", archive, name, TYPES[array.dtype], array.ndim, shape, array.ctypes.data if array.size else None)


def _restore(kind: type[Archive], source: str, tensors: dict[str, Array], metadata: dict[str, str]) -> Archive:
    made = kind(tensors, metadata=metadata)
    made._source = source
    return made
