# SPDX-License-Identifier: MIT
"""A command that runs on a terminal."""
import os
import pty
import subprocess


def on_terminal(command, stdout=None, **environment):
    """Exit status, and what the command writes to the terminal: standard error, and standard output unless `stdout` is a file."""
    mine, its = pty.openpty()
    with subprocess.Popen(command, stdout=its if stdout is None else stdout, stderr=its, env={**os.environ, **environment}) as process:
        os.close(its)
        printed = b""
        while True:
            try:
                part = os.read(mine, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            printed += part
    os.close(mine)
    return process.returncode, printed.replace(b"\r\n", b"\n")
