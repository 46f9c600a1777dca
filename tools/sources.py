# SPDX-License-Identifier: MIT
"""sources.py - sources without their comments, for scripts that search them."""
import io
import re
import tokenize

C_TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|/\*.*?\*/|//[^\n]*', re.S)


def without_comments_c(text):
    """Each comment becomes a blank and the newlines that it holds, so numbers of lines remain."""
    return C_TOKENS.sub(lambda token: " " + "\n" * token.group().count("\n") if token.group()[0] == "/" else token.group(), text)


def without_comments_python(text):
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + "\n"
    return "".join(lines)


def without_comments(path):
    """The text of a file: C, Python, and others with comments from # to the end of a line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".c", ".h"):
        return without_comments_c(text)
    if path.suffix == ".py":
        return without_comments_python(text)
    return re.sub(r"(?m)(?:^|(?<=\s))#.*$", "", text)
