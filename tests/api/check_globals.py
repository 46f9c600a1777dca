#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A library has no mutable data of its own, so any thread may call any function at any time.

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


def main():
    faults = seen = 0
    for archive in sys.argv[1:]:
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
    print(f"{seen} objects, {faults} mutable data")
    return 1 if faults or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
