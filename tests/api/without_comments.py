#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tools/sources.py takes for a comment.

usage: without_comments.py
"""
import os
import pathlib
import sys
import tempfile

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), *way) for way in ([".."], ["..", "..", "tools"])]
import sources
from tap import check, finish

FILES = [
    ("C", ".c", 'f("/* kept */", \'"\'); /* lost "lost"\nlost */ g(); // lost\nh("//kept\\"");\n',
     'f("/* kept */", \'"\');  \n g();  \nh("//kept\\"");\n'),
    ("Python", ".py", 'x = "# kept"  # lost\ny = """\n# kept\n"""\n', 'x = "# kept"  \ny = """\n# kept\n"""\n'),
    ("shell", ".sh", "# lost\nkept ${a#b} '#4' # lost\n", "\nkept ${a#b} '#4' \n"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, suffix, text, expected in FILES:
            path = pathlib.Path(folder, "file" + suffix)
            path.write_text(text)
            found = sources.without_comments(path)
            check(name, found == expected, repr(found))
    return finish()


sys.exit(main())
