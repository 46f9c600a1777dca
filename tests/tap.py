# SPDX-License-Identifier: MIT
"""TAP output of the Python tests of the command: a line for each check, then their number."""
import os
import sys
import tempfile

count = failed = 0


def check(name, good, why=""):
    global count, failed
    count, failed = count + 1, failed + (not good)
    print(f"{'ok' if good else 'not ok'} {count} - {name}{'' if good or not why else f': {why}'}")
    return good


def finish():
    """Prints how many checks there were; the exit status."""
    print(f"1..{count}")
    return 1 if failed else 0


def run_in_folder(main):
    """Calls main in an empty folder, which is then removed, and exits with its status."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        status = main()
        os.chdir("/")
    sys.exit(status)
