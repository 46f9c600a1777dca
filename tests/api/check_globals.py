#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A library has no mutable data of its own, so any thread may call any function at any time, and every name that a static library
brings into a program begins with attn_.

Tables of pointers live in .data.rel.ro, constant after relocation, and do not count.  Four objects are allowed: the CPU's features and
its caches, each detected once and the same for every caller, the thread pool, and the mutex that guards a global of cJSON.

Usage: tests/api/check_globals.py ARCHIVE...
"""
import re
import subprocess
import sys

ALLOWED = re.compile(  # as gcc and clang name them
    r"(pool\.c\.o: pool|cpu\.c\.o: (known(_caches)?\.\d+|attn_cpu_(features\.known|caches\.known_caches(\.\d+)?))|json\.c\.o: (turn\.\d+|\w+\.turn))$"
)


def bare_names(archive):
    """Names that a program cannot use for its own functions."""
    lines = subprocess.run(["nm", "-g", "--defined-only", archive], check=True, capture_output=True, text=True).stdout.splitlines()
    names = [line.split()[2] for line in lines if len(line.split()) == 3]
    assert any(name.startswith("attn_") for name in names)
    return sorted({name for name in names if not name.startswith("attn_")})


def main():
    faults = seen = 0
    for archive in sys.argv[1:]:
        for name in bare_names(archive):
            faults += 1
            print(f"{archive}: {name} does not begin with attn_")
        text = subprocess.run(["objdump", "-t", archive], check=True, capture_output=True, text=True).stdout
        member = ""
        for line in text.splitlines():
            if re.match(r"\S+:\s+file format", line):
                member = line.split(":")[0]
                seen += 1
            # value flags section size name; flags are 7 columns, the last of them O for an object
            match = re.match(r"[0-9a-f]+ .{6}O (\.data|\.bss|\.tdata|\.tbss|\*COM\*)(\S*)\s+[0-9a-f]+\s+(?:\.hidden )?(\S+)", line)
            if match and not match.group(2).startswith(".rel.ro"):
                if ALLOWED.match(f"{member}: {match.group(3)}"):
                    continue
                faults += 1
                print(f"{archive}: {member}: mutable data: {match.group(3)} in {match.group(1)}{match.group(2)}")
    print(f"{seen} objects, {faults} faults")
    return 1 if faults or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
