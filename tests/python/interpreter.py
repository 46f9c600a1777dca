# SPDX-License-Identifier: MIT
"""Which Python runs the tests of the package: that of ATTN_TEST_PYTHON, else the one of build/test/venv (venv.py), else this one."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / "build/test/venv"


def interpreter():
    if chosen := os.environ.get("ATTN_TEST_PYTHON"):
        return chosen
    return str(VENV / "bin/python") if (VENV / "installed").exists() else sys.executable


def environment(build):
    """The environment in which `import libattn` is the package of a build; no file is written beside the sources.

    Every test is a process of its own.  Modules are compiled once for all of them, below the build folder (PyTorch's take 6 s of a
    processor), whatever the caller's environment says; and Inductor neither starts workers that import PyTorch again nor compiles
    programs to see whether this CPU has the instruction set that it names.  What it compiles is kept below the build folder too: it
    does not notice that another build's operators take other arguments.  Threads of PyTorch and OpenBLAS with nothing to do wait
    without a processor, which the test beside this one needs.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    build = pathlib.Path(build).resolve()
    return {
        "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1", "OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1", **kept,
        "TORCHINDUCTOR_CACHE_DIR": str(build / "inductor"),
        "PYTHONPATH": str(build / "python"), "PYTHONPYCACHEPREFIX": str(build / "pycache"),
    }


def program(name):
    """A program of the interpreter's environment, such as ruff; exits with 77 where there is none."""
    path = pathlib.Path(interpreter()).parent / name
    if VENV in path.parents and path.exists():
        return str(path)
    skip(f"there is no {name} in build/test/venv{missing(name)}")


def missing(name):
    """Why venv.py could not install a package, for the end of a sentence."""
    try:
        lines = (VENV / "missing").read_text().splitlines()
    except OSError:
        return ""
    return "".join(": " + line.partition(" ")[2] for line in lines if line.split("==")[0] == name)


def skip(reason):
    print(f"skipped: {reason}")
    raise SystemExit(77)
