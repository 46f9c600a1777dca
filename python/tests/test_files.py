# SPDX-License-Identifier: MIT
"""libattn.files against NumPy's own reader and writer, and files of a real model."""
import copy
import gc
import io
import json
import os
import pathlib
import pickle
import struct
import threading
import weakref

import numpy as np
import pytest

import libattn
from libattn import files
from problems import arrays, close, data

RNG = np.random.default_rng(4)
TYPES = ["f4", "f8", "f2", "?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (1, 2, 3, 1, 2, 1, 1, 2)]


def tensors():
    return {f"{dtype} {shape}": (RNG.normal(size=shape) * 50).astype(dtype) for dtype in TYPES for shape in SHAPES}


def equal(found, expected):
    assert list(found) == sorted(expected, key=str.encode)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape and np.array_equal(found[name], array), name


@pytest.mark.parametrize("extension", ["npz", "safetensors"])
def test_every_type_and_shape(tmp_path, extension):
    path, made = tmp_path / f"all.{extension}", tensors()
    files.save(path, made, metadata={"tokens": '["a"]', "leer": ""})
    equal(files.load(path), made)
    for reader in (files.Archive.read, files.Archive.map):
        with reader(path) as file:
            equal(file, made)
            assert dict(file.metadata) == {"leer": "", "tokens": '["a"]'}
    equal(files.Archive.read_memory(path.read_bytes()), made)
    if extension == "npz":
        with np.load(path) as found:
            assert all(np.array_equal(found[name], made[name]) for name in made)
    os.remove(path)


def test_npy_is_numpy_s(tmp_path):
    array = RNG.normal(size=(3, 4))
    files.save(tmp_path / "ours.npy", {"any": array}, metadata={"dropped": "x"})
    assert np.array_equal(np.load(tmp_path / "ours.npy"), array)
    np.save(tmp_path / "theirs.npy", np.asfortranarray(array))
    equal(files.load(tmp_path / "theirs.npy"), {"theirs": array})
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=array, b=array.astype(">f4"))
    equal(files.Archive.read_memory(buffer.getvalue()), {"a": array, "b": array.astype("f4")})


def test_bfloat16(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = RNG.normal(size=(3, 4)).astype(ml_dtypes.bfloat16)
    files.save(tmp_path / "b.safetensors", {"x": array})
    equal(files.load(tmp_path / "b.safetensors"), {"x": array})
    for name in ("b.npz", "b.npy"):
        with pytest.raises(NotImplementedError, match="bf16"):
            files.save(tmp_path / name, {"x": array})
        assert not (tmp_path / name).exists()


@arrays
def test_arrays_of_other_libraries(tmp_path, make):
    array = RNG.normal(size=(3, 4))
    files.save(tmp_path / "a.npz", {"x": make(array), "list": [1, 2], "number": 2.5, "view": array[::2, ::2].T, "big": array.astype(">f8")})
    equal(files.load(tmp_path / "a.npz"), {"x": array, "list": np.array([1, 2]), "number": np.array(2.5), "view": array[::2, ::2].T, "big": array})


def test_loaded_arrays_are_the_caller_s(tmp_path):
    files.save(tmp_path / "a.npz", {"x": np.arange(3)})
    loaded = files.load(tmp_path / "a.npz")["x"]
    loaded += 1
    assert np.array_equal(loaded, [1, 2, 3])


def test_a_real_file():
    path = data("animal_street.safetensors")
    with files.Archive.map(path) as file:
        assert {"q", "k", "v", "o", "weights"} <= set(file) and len(file) == len(list(file))
        tokens = json.loads(file.metadata["tokens"])
        q, k, v, o = (file[name].astype(float) for name in "qkvo")
    raw = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    assert header["q"]["shape"] == list(q.shape) and len(tokens) == q.shape[-2]
    begin, end = header["q"]["data_offsets"]
    assert np.array_equal(np.frombuffer(raw[8 + length + begin:8 + length + end], "<f4").reshape(q.shape), q)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    close(weights / weights.sum(-1, keepdims=True) @ v, o, 8e-7 * 4)


def test_an_archive_is_a_mapping(tmp_path):
    archive = files.Archive({"b": [1.0, 2], "a": np.eye(2)}, metadata={"k": "v"})
    assert list(archive) == ["a", "b"] and len(archive) == 2 and "a" in archive and "c" not in archive and 3 not in archive and "a\0" not in archive
    assert [name for name, _ in archive.items()] == ["a", "b"] and archive.get("c") is None
    archive["a"] = np.zeros(3)
    assert archive["a"].shape == (3,) and np.array_equal(archive["b"], [1, 2]) and archive.metadata["k"] == "v"
    del archive["b"]
    assert list(archive) == ["a"] and dict(archive.metadata) == {"k": "v"}
    for missing in (lambda: archive["b"], lambda: archive.pop("b"), lambda: archive.metadata["x"], lambda: archive.metadata.pop("x")):
        with pytest.raises(KeyError):
            missing()
    archive.metadata.update({"k": "w", "l": "ü"})
    del archive.metadata["k"]
    assert dict(archive.metadata) == {"l": "ü"} and list(archive) == ["a"] and len(archive.metadata) == 1
    room = archive.allocate("room", (2, 2), "f8")
    room[:] = 7
    archive.write(tmp_path / "out.npz")
    equal(files.load(tmp_path / "out.npz"), {"a": np.zeros(3), "room": np.full((2, 2), 7.0)})
    assert repr(archive) == "Archive(2 tensors)" and repr(archive.metadata) == "Metadata({'l': 'ü'})"


@pytest.mark.parametrize("extension", ["npz", "safetensors"])
def test_a_file_is_changed_and_written_over_itself(tmp_path, extension):
    path = tmp_path / f"x.{extension}"
    files.save(path, {"a": np.arange(4.0), "b": np.arange(3)}, metadata={"k": "v"})
    for reader in (files.Archive.read, files.Archive.map):
        with reader(path) as file:
            kept = file["a"]
            del file["a"]
            file["c"] = kept
            file["b"] = kept[:2]
            file.write(path)
            assert np.array_equal(kept, np.arange(4.0))
        equal(files.load(path), {"b": np.arange(2.0), "c": np.arange(4.0)})
        files.save(path, {"a": np.arange(4.0), "b": np.arange(3)})


def test_arrays_outlive_their_archive(tmp_path):
    array = RNG.normal(size=(100, 100))
    files.save(tmp_path / "a.npz", {"x": array, "y": array})
    with files.Archive.read(tmp_path / "a.npz") as file:
        x, handle = file["x"], weakref.ref(file._handle)
    gc.collect()
    assert np.array_equal(x, array) and not x.flags.writeable and handle() is not None
    del x
    gc.collect()
    assert handle() is None
    borrowed = files.Archive.read_memory(bytearray((tmp_path / "a.npz").read_bytes()))["x"]
    gc.collect()
    assert np.array_equal(borrowed, array)


def test_tensors_are_borrowed(tmp_path):
    array = np.zeros(3)
    archive = files.Archive({"x": array})
    array += 1
    assert np.array_equal(archive["x"], [1, 1, 1]) and not archive["x"].flags.writeable and array.flags.writeable


def test_a_closed_archive():
    archive = files.Archive({"x": [1]}, metadata={"k": "v"})
    metadata = archive.metadata
    with archive as same:
        assert same is archive and not archive.closed
    archive.close()
    assert archive.closed and repr(archive) == "Archive(closed)" and repr(metadata) == "Metadata(closed)"
    for use in (lambda: archive["x"], lambda: len(archive), lambda: list(archive), lambda: "x" in archive, lambda: archive.write("x.npz"),
                lambda: archive.update(x=[1]), lambda: archive.pop("x"), lambda: metadata["k"], lambda: len(metadata), archive.__enter__,
                lambda: pickle.dumps(archive)):
        with pytest.raises(ValueError, match="the archive is closed"):
            use()


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda archive: pickle.loads(pickle.dumps(archive))])
def test_copies(tmp_path, twin):
    files.save(tmp_path / "a.npz", {"x": np.arange(3), "y": np.ones(())}, metadata={"k": "v"})
    archive = files.Archive.read(tmp_path / "a.npz")
    other = twin(archive)
    archive.close()
    equal(other, {"x": np.arange(3), "y": np.ones(())})
    assert dict(other.metadata) == {"k": "v"} and other != archive and other == other and len({other, archive}) == 2


def test_threads_may_share_an_archive():
    archive, failed = files.Archive({"x": np.arange(5)}), []

    def work(number):
        try:
            for i in range(100):
                archive[f"{number} {i}"] = np.full(3, i)
                assert archive[f"{number} {i}"][0] == i and archive["x"][4] == 4
                archive[f"{number} {i}"] = np.full(2, i)
                if i % 3:
                    del archive[f"{number} {i}"]
        except Exception as error:  # reported by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(archive) == 1 + 4 * 34


def test_file_write(tmp_path):
    for content in (b"", b"abc", bytearray(b"x" * 100000), memoryview(np.arange(4))):
        files.file_write(tmp_path / "any.txt", content)
        assert (tmp_path / "any.txt").read_bytes() == bytes(content)
    files.file_write(os.fsencode(tmp_path / "name"), b"1")
    assert sorted(os.listdir(tmp_path)) == ["any.txt", "name"]
    with pytest.raises(ValueError, match="data is not contiguous"):
        files.file_write(tmp_path / "any.txt", memoryview(b"abcd")[::2])
    with pytest.raises(TypeError):
        files.file_write(tmp_path / "any.txt", "text")


def test_a_failed_write_leaves_the_file(tmp_path):
    files.save(tmp_path / "a.npy", {"x": [1]})
    before = (tmp_path / "a.npy").read_bytes()
    with pytest.raises(ValueError, match="npy"):
        files.save(tmp_path / "a.npy", {"x": [1], "y": [2]})
    assert (tmp_path / "a.npy").read_bytes() == before and os.listdir(tmp_path) == ["a.npy"]


@pytest.mark.parametrize("wrong, error, sentence", [
    (lambda folder: files.load(folder / "none.npz"), FileNotFoundError, "none.npz"), (lambda folder: files.load(folder), OSError, "not a regular file|directory"),
    (lambda folder: files.Archive.map(folder / "none.npz"), FileNotFoundError, "none.npz"),
    (lambda folder: files.save(folder / "no" / "x.npz", {}), FileNotFoundError, "x.npz"),
    (lambda folder: files.file_write(folder / "no" / "x", b""), FileNotFoundError, "no"),
    (lambda folder: files.save(folder / "x.txt", {}), ValueError, "x.txt"), (lambda folder: files.load(3), TypeError, "path is of type int"),
    (lambda folder: files.load("a\0b"), ValueError, "path has a NUL"), (lambda folder: files.save(folder / "x.npz", {"": [1]}), ValueError, "name"),
    (lambda folder: files.save(folder / "x.npz", {"__metadata__": [1]}), ValueError, "__metadata__"),
    (lambda folder: files.save(folder / "x.npz", {3: [1]}), TypeError, "name is of type int"), (lambda folder: files.save(folder / "x.npz", {"a\0": [1]}), ValueError, "name has a NUL"),
    (lambda folder: files.save(folder / "x.npz", {"\ud800": [1]}), ValueError, "name is not Unicode"),
    (lambda folder: files.save(folder / "x.npz", {"z": [1j]}), TypeError, "tensor 'z' has type complex128"), (lambda folder: files.save(folder / "x.npz", {"z": "text"}), TypeError, "tensor 'z'"),
    (lambda folder: files.save(folder / "x.npz", {"z": np.ones((1,) * 9)}), NotImplementedError, "tensor 'z' has 9 axes"),
    (lambda folder: files.save(folder / "x.npz", {}, metadata={"k": 3}), TypeError, r"metadata\['k'\] is of type int"),
    (lambda folder: files.save(folder / "x.npz", {}, metadata={3: "k"}), TypeError, "key is of type int"),
    (lambda folder: files.save(folder / "x.npz", np.ones(3)), TypeError, "tensors is of type ndarray; it must be a mapping of names"),
    (lambda folder: files.save(folder / "x.npz", [1]), TypeError, "tensors is of type list"),
    (lambda folder: files.save(folder / "x.npz", {}, metadata="k"), TypeError, "metadata is of type str"),
    (lambda folder: files.Archive.read_memory(b""), ValueError, "memory"), (lambda folder: files.Archive.read_memory(b"nonsense", name="mine"), ValueError, "mine"),
    (lambda folder: files.Archive.read_memory("text"), TypeError, "bytes"), (lambda folder: files.Archive()["x"], KeyError, "x"),
])
def test_errors(tmp_path, wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        wrong(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_file_that_lies(tmp_path):
    header = json.dumps({"q": {"dtype": "F32", "shape": [2, 13], "data_offsets": [0, 100]}}).encode()
    (tmp_path / "bad.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(100))
    with pytest.raises(ValueError, match=r"bad.safetensors: tensor 'q': offsets \[0, 100\] hold 100 bytes, shape \[2, 13\] of f32 needs 104"):
        files.load(tmp_path / "bad.safetensors")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path):
    files.save(tmp_path / "a.npz", {"x": [1]})
    os.chmod(tmp_path / "a.npz", 0)
    with pytest.raises(PermissionError, match="a.npz"):
        files.load(tmp_path / "a.npz")


def test_the_module_is_public():
    assert libattn.files is files


def test_some_of_the_tensors(tmp_path):
    path = tmp_path / "three.npz"
    files.save(path, {name: np.full(3, n, np.float32) for n, name in enumerate("abc")})
    asked = []
    with files.Archive.read(path, only=lambda name: asked.append(name) or name != "b") as file:
        assert sorted(asked) == ["a", "b", "c"] and sorted(file) == ["a", "c"] and file["c"].tolist() == [2, 2, 2]
    with pytest.raises(ZeroDivisionError):
        files.Archive.read(path, only=lambda name: 1 // 0)
