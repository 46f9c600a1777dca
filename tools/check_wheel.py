#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks a wheel of the Python package, for script/wheel.

check_wheel.py [--draft] WHEEL     its tags, size, files, licenses, and what its libraries export and need; --draft: not the size, and
                                   libraries of the system may be needed
check_wheel.py --installed         the installed package: it imports no framework, computes, and its command runs
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

SIZE = 3_000_000  # bytes
LIBC = re.compile(r"lib(c|m|pthread|dl)\.so\.\d+|ld-linux.*")
BUNDLED = ("cjson", "libpng", "libzip", "zlib")
FRAMEWORKS = ("torch", "jax", "tensorflow", "onnxruntime", "transformers", "ml_dtypes")


def elf(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def objects(names):
    """The programs and shared objects among the files."""
    return [name for name in names if name.endswith(".so") or name.endswith("/bin/attn")]


def wrong_files(names, draft):
    folder = {name.split("/")[0] for name in names}
    info = next((name for name in folder if name.endswith(".dist-info")), "no dist-info")
    for wanted in ("libattn/__init__.py", "libattn/py.typed", "libattn/_abi.py", "libattn/lib/libattn.so", "libattn/bin/attn", f"{info}/licenses/LICENSE"):
        if wanted not in names:
            yield f"there is no {wanted}"
    for extra in sorted(folder - {"libattn", info, info.replace(".dist-info", ".data")}):
        yield f"{extra} belongs to no package of ours"  # such as libattn.libs, which auditwheel makes of foreign libraries
    for name in names:
        if re.search(r"\.so\.\d|\.a$|\.pc$|\.h$|__pycache__|/tests?/", name):
            yield f"{name} does not belong in a wheel"
        if name.endswith(".so") and "cpython" in name:
            yield f"{name} is for one version of Python only"
    for bundled in () if draft else BUNDLED:
        if not any(name.startswith(f"{info}/licenses/{bundled}/LICENSE") for name in names):
            yield f"there is no license of {bundled}"


def wrong_object(name, path, draft):
    dynamic = elf("readelf", "-dW", path)
    ours = r"libattn(_io|_layers)?\.so"
    for needed in re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic):
        if not re.fullmatch(ours, needed) and not LIBC.fullmatch(needed) and not draft:
            yield f"{name} needs {needed}"
    for run_path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*?)\]", dynamic):
        if not run_path.startswith("$ORIGIN"):
            yield f"{name} searches {run_path}"
    if name.endswith(".so"):
        for symbol in elf("nm", "-D", "--defined-only", "--format=posix", path).splitlines():
            word = symbol.split("@")[0].split()[0]
            if not re.fullmatch(r"attn_\w+|ATTN_[\d.]+|PyInit_\w+|CreateEpFactories|ReleaseEpFactory|_init|_fini", word):
                yield f"{name} exports {word}"
    if ".symtab" in elf("readelf", "-SW", path):
        yield f"{name} is not stripped"


def wrong(path, draft):
    tag = r"linux_\w+" if draft else r"manylinux_\d+_\d+_\w+"
    if not re.fullmatch(rf"libattn-[\d.]+-cp311-abi3-{tag}\.whl", path.name):
        yield f"the name {path.name} is not libattn-VERSION-cp311-abi3-manylinux_..."
    if path.stat().st_size > SIZE and not draft:
        yield f"it has {path.stat().st_size} bytes, more than {SIZE}"
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        names = wheel.namelist()
        yield from wrong_files(names, draft)
        for name in objects(names):
            yield from wrong_object(name, wheel.extract(name, folder), draft)


def installed():
    import numpy as np

    before = set(sys.modules)
    import libattn

    loaded = [name for name in FRAMEWORKS if name in set(sys.modules) - before]
    if loaded:
        yield f"import libattn imports {loaded}"
    if not pathlib.Path(libattn.__file__).is_relative_to(sys.prefix):
        yield f"{libattn.__file__} is not what was installed"
    q = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32).reshape(1, 1, 3, 2)
    v = np.array([[2, 0], [0, 2], [1, 1]], dtype=np.float32).reshape(1, 1, 3, 2)
    o = libattn.attention(q, q, v, causal=True)
    if not np.allclose(o[0, 0, 0], [2, 0]) or o.dtype != np.float32:
        yield f"attention is {o}"
    for command in (["attn"], [sys.executable, "-m", "libattn"]):
        said = elf(*command, "--version").split()
        if said != ["attn", libattn.__version__]:
            yield f"{command} --version says {said}, the package is {libattn.__version__}"


def main():
    words = sys.argv[1:]
    if words == ["--installed"]:
        found = list(installed())
    elif words and words[-1].endswith(".whl") and words[:-1] in ([], ["--draft"]):
        found = list(wrong(pathlib.Path(words[-1]), len(words) == 2))
    else:
        sys.exit(__doc__)
    print("\n".join(found) or "nothing is wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
