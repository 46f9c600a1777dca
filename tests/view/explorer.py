# SPDX-License-Identifier: MIT
"""What the tests of pages that hold q and k share: their files, what such a page says, and how the tests of a module are run."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tensor_file  # pylint: disable=wrong-import-position
from harness import run_all  # pylint: disable=wrong-import-position

OPTIONS = argparse.Namespace()
FOLDER = tempfile.TemporaryDirectory()
HERE = pathlib.Path(FOLDER.name)


def attn(*words):
    return subprocess.run([OPTIONS.attn, *map(str, words)], capture_output=True, text=True, check=False)


def view(path, *words):
    """Writes the page; what --json says of it, or None."""
    done = attn("view", *words, "-o", path, "--json")
    return json.loads(done.stdout) if done.returncode == 0 else print("# " + done.stderr.strip())


# ---- what the page says


def readout(page):
    """The number of the readout in full."""
    return float(page.browser.evaluate("document.querySelector('#readout b').title"))


def go(page, fragment):
    """Changes the address of an open page, which follows at once."""
    page.browser.evaluate(f"(history.replaceState(null, '', {'#' + fragment!r}), dispatchEvent(new HashChangeEvent('hashchange')))")


def table(page, selector):
    """The texts of the cells of each line."""
    return page.browser.evaluate(f"[...document.querySelectorAll({selector!r})].map(line => [...line.children].map(cell => cell.textContent))")


def weights_of(path, *words):
    """The weights that attn run computes."""
    out = HERE / "weights.safetensors"
    done = attn("run", path, *words, "--weights", "-o", out)
    assert done.returncode == 0, done.stderr
    return tensor_file.read(out)[0]["weights"]


# ---- running the tests of a module


def main(module):
    """Runs test_PAGE_WHAT of the module over the pages that its write_PAGE(path) write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--attn", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--times", action="store_true", help="times are checks too: on a machine that does nothing else")
    parser.parse_args(namespace=OPTIONS)

    def write(kind, path):
        return module[f"write_{kind}"](path) is not None

    with FOLDER:
        return run_all([value for name, value in module.items() if name.startswith("test_")], write, OPTIONS.only)


def quick(page, what, milliseconds, limit):
    """Prints a time; with --times it must be below the limit."""
    print(f"# {what}: {milliseconds:.0f} ms")
    if OPTIONS.times:
        page.check(f"{what} in less than {limit} ms", milliseconds < limit, milliseconds)
