# SPDX-License-Identifier: MIT
"""What tests of one command share: its calls, that must succeed without a word on stderr, and those that are rejected."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check

ATTN = os.path.abspath(sys.argv[1])


def attn(*words):
    return subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def done(*words):
    made = attn(*words)
    check(" ".join(words), made.returncode == 0 and made.stderr == "", made.stderr)
    return made.stdout


def rejects(command, status, message, *words):
    """One line on stderr, the status, and no file."""
    before = sorted(os.listdir("."))
    made = attn(command, *words)
    check(f"{' '.join(words)}: {message}", (made.returncode, made.stderr, made.stdout) == (status, f"attn {command}: {message}\n", ""), (made.returncode, made.stderr))
    check("  nothing written", sorted(os.listdir(".")) == before)
