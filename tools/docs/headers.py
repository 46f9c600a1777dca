# SPDX-License-Identifier: MIT
"""Pages of the public headers: the contents of include/attn/*.h, in order, as reStructuredText for Sphinx's C domain.

The headers have no markup for a tool.  A comment belongs to the declaration below it, or on its line; a comment followed by an empty
line is separate text.  In a comment, indented lines keep their layout; the rest are paragraphs, and names become links.
"""
import re

SECTION = re.compile(r"^-{4} (.*?) -+$")
ESCAPED = re.compile(r"([\\*`|_])")
WORD = re.compile(r"`([^`]+)`|\b(attn_\w+\.\w+|attn_\w+|ATTN_\w+)\b|\b(attn/\w+\.h)\b|\b(docs/[\w/]+\.md)\b")
FIELD = re.compile(r"^(?P<type>[^(]*?[\s*])(?P<names>\w+(?:\[[^\]]*\])*(?:\s*,\s*\**\w+(?:\[[^\]]*\])*)*)$", re.S)


class Scanner:
    """Splits a text into comments and declarations."""

    def __init__(self, text, end):
        self.text, self.at, self.end = text, 0, end

    def items(self):
        """(kind, text, newlines before it, newlines after it) of comments, preprocessor lines and declarations."""
        while True:
            space = re.compile(r"\s*").match(self.text, self.at)
            self.at = space.end()
            if self.at >= len(self.text):
                return
            kind, length = self.one(self.text[self.at:])
            found = self.text[self.at:self.at + length]
            self.at += length
            after = re.compile(r"\s*").match(self.text, self.at)[0].count("\n")
            yield kind, found, space[0].count("\n"), after

    def one(self, rest):
        if rest.startswith("/*"):
            return "comment", rest.index("*/") + 2
        if rest.startswith("#"):
            return "hash", re.compile(r"(?:[^\n\\]|\\\n|\\.)*").match(rest).end()
        depth, skip = 0, 0
        for n, letter in enumerate(rest):
            if n < skip:
                continue
            if depth and rest.startswith("/*", n):
                skip = rest.index("*/", n) + 2
                continue
            depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(letter, 0)
            if rest.startswith("/*", n) and not depth:
                return "code", n  # the last of an enum, followed by its comment
            if depth == 0 and letter in self.end:
                return "code", n + 1
            if depth == 0 and letter == "}" and rest.startswith("static inline"):
                return "code", n + 1
        return "code", len(rest)


def plain(comment):
    """The text of a comment without its stars, layout kept."""
    lines = comment[2:-2].split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^\s*\* ?", "", line).rstrip() if re.match(r"\s*\*", line) else line.strip() for line in lines[1:]]
    return "\n".join(lines).strip("\n").rstrip()


class Text:
    """Writes comments as reStructuredText; `known` has the role of every public name, `pages` the documents that can be linked."""

    def __init__(self, known, pages):
        self.known, self.pages = known, pages

    def inline(self, text, literal=False):
        out, at = [], 0
        for match in WORD.finditer(text):
            out.append(ESCAPED.sub(r"\\\1", text[at:match.start()]))
            at = match.end()
            code, name, header, page = match.groups()
            field = name and name.split(".")[0] in self.known and name in self.known
            if code is not None:
                link = f"``{code}``" if not literal else f"\\`{ESCAPED.sub(chr(92) * 2 + '1', code)}\\`"
            elif name and (name in self.known or field):
                link = f":c:{self.known[name]}:`{name}`"
            elif name and name.split(".")[0] in self.known:
                first = name.split(".")[0]
                link = f":c:{self.known[first]}:`{first}`" + ESCAPED.sub(r"\\\1", name[len(first):])
            elif header and header in self.pages:
                link = f":doc:`{header} <{self.pages[header]}>`"
            elif page and page in self.pages:
                link = f":doc:`{page} <{self.pages[page]}>`"
            else:
                link = ESCAPED.sub(r"\\\1", match[0])
            # Roles need a non-letter on both sides.
            link = link if link.startswith("\\") or not link.startswith((":", "`")) else f"\\ {link}\\ "
            out.append(link)
        return "".join(out) + ESCAPED.sub(r"\\\1", text[at:])

    def write(self, text, indent=""):
        """The lines of a comment."""
        out, group, kind = [], [], None

        def flush():
            if kind == "text":
                out.extend([indent + self.inline(" ".join(group)), ""])
            elif kind == "item":
                out.extend([indent + "* " + self.inline(" ".join(group)), ""])
            elif kind == "layout":
                least = min(len(line) - len(line.lstrip()) for line in group if line)
                out.extend([indent + ".. parsed-literal::", ""])
                out.extend(indent + "   " + self.inline(line[least:], True) if line else "" for line in "\n".join(group).rstrip().split("\n"))
                out.append("")
            group.clear()

        for line in text.split("\n"):
            item = re.match(r" ?- (.*)", line)
            now = "item" if item else None if not line else "layout" if line.startswith(" ") else "text"
            if kind == "item" and now == "layout" and re.match(r" {2,3}\S", line):
                now = "item"
            if now != kind or item:
                if not (kind == "layout" and now is None):
                    flush()
                    kind = now
            if item:
                group.append(item[1])
            elif kind is not None:
                group.append(line if kind == "layout" else line.strip())
            if now not in (kind, None):
                kind = now
        flush()
        return out


def squeeze(code):
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", " ", code, flags=re.S)).strip()


def fields(body):
    """[(declarations, comment before, comment after)] of a struct's body."""
    found, before = [], []
    for kind, text, newlines, after in Scanner(body, ";").items():
        if kind == "comment" and found and not newlines:
            found[-1][2].append(plain(text))
        elif kind == "comment":
            before.append(plain(text))
        elif kind == "code":
            code = squeeze(text).rstrip(";")
            match = FIELD.match(code)
            names = [name.strip() for name in match["names"].split(",")] if match else []
            first = re.match(r"(.*?)(\**)$", match["type"].strip(), re.S) if match else None
            each = [f"{first[1].strip()} {first[2] if n == 0 else ''}{name}" for n, name in enumerate(names)] if match else [code]
            found.append((each, before, []))
            before = []
    return found


def enumerators(body):
    found, before = [], []
    for kind, text, newlines, _ in Scanner(body, ",").items():
        if kind == "comment" and found and not newlines:
            found[-1][2].append(plain(text))
        elif kind == "comment":
            before.append(plain(text))
        elif squeeze(text).rstrip(","):
            found.append(([squeeze(text).rstrip(",")], before, []))
            before = []
    return found


def declarations(text):
    """The declarations of a header, in order: (kind, name, parts, comment)."""
    text = re.sub(r"#ifdef __cplusplus\n.*?\n#endif\n", "", text[text.index("*/") + 2:], flags=re.S)
    waiting = []
    for kind, code, newlines, after in Scanner(text, ";").items():
        if kind == "comment":
            yield from (("text", "", None, comment) for comment in waiting)
            waiting = [plain(code)]
            if after > 1 or SECTION.match(waiting[0]):
                yield "text", "", None, waiting.pop()
            continue
        comment, waiting = "\n\n".join(waiting), []
        if kind == "hash":
            macro = re.match(r"#define (ATTN_\w+) (\S.*)", code)
            if macro and macro[1] != "ATTN_API":
                yield "macro", macro[1], squeeze(macro[2]), comment
            continue
        struct = re.match(r"typedef (struct|enum) (\w+)(?:\s*\{(.*)\}\s*\w+)?[^;]*;$", code, re.S)
        flat = squeeze(code)
        constant = re.match(r"enum \{ (\w+ = \w+) \};", flat)
        if struct:
            parts = None if struct[3] is None else fields(struct[3]) if struct[1] == "struct" else enumerators(struct[3])
            yield struct[1], struct[2], parts, comment
        elif constant:
            yield "enumerator", constant[1].split()[0], constant[1], comment
        elif flat.startswith("typedef "):
            name = re.search(r"(\w+)\s*\(", flat)[1]
            yield "type", name, flat[8:].rstrip(";"), comment
        elif flat.startswith(("ATTN_API ", "static inline ")):
            prototype = re.sub(r"\s*\{.*", "", re.sub(r"^(ATTN_API|static inline) ", "", flat)).rstrip(";")
            yield "func", re.search(r"(\w+)\s*\(", prototype)[1], prototype, comment
        else:
            raise SystemExit(f"headers.py does not recognise this: {flat[:100]}")


def member(declaration):
    """The name in a declaration of a field."""
    pointer = re.match(r".*?\(\*(\w+)\)", declaration)
    return pointer[1] if pointer else re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", declaration))[-1]


def roles(headers):
    """The role of every public name, fields as struct.field."""
    known = {}
    for text in headers.values():
        for kind, name, parts, _ in declarations(text):
            if kind == "text":
                continue
            known[name] = kind
            for each, _, _ in parts if kind in ("struct", "enum") and parts else []:
                for one in each:
                    known[one.split()[0] if kind == "enum" else f"{name}.{member(one)}"] = "enumerator" if kind == "enum" else "member"
    return known


def page(name, text, known, pages):
    """The page of one header."""
    write = Text(known, pages).write
    head = plain(text[:text.index("*/") + 2]).replace("SPDX-License-Identifier: MIT\n", "").lstrip("\n")
    head = re.sub(r"^\w+\.h - ", "", head)
    title = f"attn/{name}"
    out = [title, "=" * len(title), "", *write(head[0].upper() + head[1:])]
    for kind, symbol, parts, comment in declarations(text):
        section = SECTION.match(comment) if kind == "text" else None
        if section:
            out += [section[1][0].upper() + section[1][1:], "-" * len(section[1]), ""]
        elif kind == "text":
            out += write(comment)
        elif kind in ("macro", "enumerator"):
            out += [f".. c:{kind}:: {symbol}", "", f"   ``{parts}``", "", *write(comment, "   ")]
        elif kind in ("func", "type"):
            out += [f".. c:{'function' if kind == 'func' else 'type'}:: {parts}", "", *write(comment, "   ")]
        else:
            out += [f".. c:{kind}:: {symbol}", "", *write(comment, "   ")]
            for each, before, behind in parts or []:
                for one in before:
                    out += write(one, "   ")
                for n, one in enumerate(each):
                    last = write("\n".join(behind), "      ") if n == len(each) - 1 else []
                    out += [f"   .. c:{'enumerator' if kind == 'enum' else 'member'}:: {one}", "", *last]
    return "\n".join(out) + "\n"
