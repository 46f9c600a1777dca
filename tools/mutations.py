# SPDX-License-Identifier: MIT
"""The mutations of tools/mutate.py: the candidates in the core, the draw from a seed, and sources with all drawn mutations, each
switched on by its number at run time (`ATTN_MUTANT(17) ? a <= b : a < b`)."""
import collections, math, os, random, re, subprocess
import tree_sitter, tree_sitter_c

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["kernels", "walk", "tile", "gradient", "visible", "prepare", "plan"]

RELATIONS = ["<", "<=", ">", ">=", "==", "!="]
OTHER = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "&&": "||", "||": "&&", "&": "|", "|": "&", "<<": ">>", ">>": "<<",
         "+=": "-=", "-=": "+=", "*=": "/=", "|=": "&=", "&=": "|="}
VECTOR = {"vf_add": "vf_sub", "vf_sub": "vf_add", "vf_max": "vf_min", "vf_min": "vf_max", "vf_gt": "vf_ge", "vf_ge": "vf_gt",
          "vm_and": "vm_or", "vm_or": "vm_and", "vm_any": "vm_all", "vm_all": "vm_any", "attn_min": "attn_max", "attn_max": "attn_min",
          "vf_mul": "vf_add"}
SWAPPED = {"vf_select": (1, 2), "vf_sub": (0, 1), "vf_div": (0, 1), "vf_gt": (0, 1), "vf_ge": (0, 1), "vf_fma": (1, 2)}
# Nodes that need constants, do not run, or only affect speed.
CONSTANT = {"array_declarator", "enumerator_list", "sizeof_expression", "alignof_expression", "subscript_designator", "preproc_def",
            "preproc_function_def", "preproc_call", "attribute_specifier", "bitfield_clause", "static_assert_declaration"}
HINTS = {"__builtin_prefetch", "VF_PIN", "_Static_assert", "__asm__"}

Mutant = collections.namedtuple("Mutant", "file line last function kind start end before after statement")


def flat(text):
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.S)).strip()


def candidates(path):
    """All mutations of a file."""
    with open(os.path.join(ROOT, path), "rb") as f:
        source = f.read()
    # Macros that are not C by themselves become blanks; offsets stay.
    source = re.sub(rb"\b(VF_UNROLL|VF_ROLLED|VF_INLINE|VF_TARGET|VF_NOINLINE)\b", lambda m: b" " * len(m[0]), source)
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    found, function = [], [""]

    def text(node):
        return flat(node.text.decode())

    def add(node, kind, after, statement=False):
        found.append(Mutant(path, node.start_point.row + 1, node.end_point.row + 1, function[0], kind, node.start_byte, node.end_byte,
                            text(node), after, statement))

    def binary(node):
        left, op, right = (text(node.child_by_field_name(f)) for f in ("left", "operator", "right"))
        if op in RELATIONS:
            for other in RELATIONS:
                if other != op:
                    add(node, "relation", f"({left} {other} {right})")
            for step in ("+ 1", "- 1"):
                add(node, "boundary", f"({left} {op} ({right}) {step})")
        elif op in OTHER:
            add(node, "logic" if op in ("&&", "||") else "arithmetic", f"({left} {OTHER[op]} {right})")

    def call(node):
        name, arguments = text(node.child_by_field_name("function")), node.child_by_field_name("arguments").named_children
        arguments = [text(a) for a in arguments if a.type != "comment"]
        if name in VECTOR:
            add(node, "vector", f"{VECTOR[name]}({', '.join(arguments)})")
        if name in SWAPPED and len(arguments) == 3 - (len(arguments) == 2):
            i, j = SWAPPED[name]
            arguments[i], arguments[j] = arguments[j], arguments[i]
            add(node, "swapped", f"{name}({', '.join(arguments)})")

    def constant(node, after):
        add(node, "constant", after)
        line = source.split(b"\n")[node.start_point.row].decode()
        found[-1] = found[-1]._replace(before=f"{text(node)} in {flat(line)}")  # a number alone is not informative

    def visit(node):
        kind = node.type
        if kind in CONSTANT or node.is_missing or kind == "ERROR":
            return
        if kind == "declaration" and any(c.type == "storage_class_specifier" and c.text == b"static" for c in node.children):
            return
        if kind == "call_expression" and text(node.child_by_field_name("function")) in HINTS:
            return
        if kind == "binary_expression":
            binary(node)
        elif kind == "call_expression":
            call(node)
        elif kind == "number_literal" and re.fullmatch(r"\d+", text(node)):
            constant(node, f"({text(node)} {random.Random(node.start_byte).choice('+-')} 1)")
        elif kind == "number_literal":
            constant(node, f"({text(node)} * 2)")
        elif kind in ("if_statement", "while_statement", "conditional_expression"):
            condition, body = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
            add(condition, "negated", f"!({text(condition)})")
            if kind == "if_statement" and body.type in ("return_statement", "continue_statement", "break_statement"):
                add(condition, "early", f"(({text(condition)}) && 0)")
        elif kind == "assignment_expression" and text(node.child_by_field_name("operator")) in OTHER:
            op = text(node.child_by_field_name("operator"))
            add(node, "arithmetic", f"({text(node.child_by_field_name('left'))} {OTHER[op]} {text(node.child_by_field_name('right'))})")
        elif kind == "expression_statement" and node.named_children:
            what = node.named_children[0]
            hint = what.type == "call_expression" and text(what.child_by_field_name("function")) in HINTS
            if what.type in ("call_expression", "assignment_expression", "update_expression", "comma_expression") and not hint:
                add(node, "deleted", "", statement=True)
        for child in node.children:
            if not (kind == "case_statement" and child == node.child_by_field_name("value")):
                visit(child)

    def functions(node):
        if node.type == "function_definition":
            name = node.child_by_field_name("declarator")
            while name is not None and name.child_by_field_name("declarator") is not None:
                name = name.child_by_field_name("declarator")
            function[0] = text(name) if name is not None else ""
            visit(node.child_by_field_name("body"))
        else:
            for child in node.children:
                functions(child)

    functions(parser.parse(source).root_node)
    return found


def draw(seed):
    """For each folder its mutations in the order in which they are taken: a random kind, then one of that kind."""
    files = subprocess.check_output(["git", "-C", ROOT, "ls-files", "src/core"], text=True).split()
    orders = {}
    for folder in FOLDERS:
        kinds = collections.defaultdict(list)
        for path in files:
            if path.startswith(f"src/core/{folder}/") and path.endswith((".c", ".h")) and "emulate" not in path:
                for mutant in candidates(path):
                    kinds[mutant.kind].append(mutant)
        chance, order = random.Random(f"{seed} {folder}"), []
        for kind in sorted(kinds):
            chance.shuffle(kinds[kind])
        while any(kinds.values()):
            order.append(kinds[chance.choice(sorted(k for k in kinds if kinds[k]))].pop())
        orders[folder] = order
    return orders


def shares(orders, count):
    """The number for each folder: in proportion to the square root of its candidates, so that no folder is left out or dominates."""
    roots = {folder: math.sqrt(len(orders[folder])) for folder in orders}
    take = {folder: int(count * roots[folder] / sum(roots.values())) for folder in orders}
    for folder in sorted(orders, key=roots.get, reverse=True):
        take[folder] += sum(take.values()) < count
    take[FOLDERS[0]] += count - sum(take.values())
    return take


def rewritten(source, mutants):
    """The source with all its mutants, (number, Mutant); line numbers do not change."""
    spans = sorted({(m.start, -m.end) for _, m in mutants})

    def render(start, end, depth):
        out, at = "", start
        for first, last in spans:
            last = -last
            if (first, -last) in depth or first < at or last > end:
                continue
            out += source[at:first].decode()
            inner = render(first, last, depth | {(first, -last)})
            for number, m in mutants:
                if (m.start, m.end) != (first, last):
                    continue
                if m.statement:
                    inner = f"{{ if (!ATTN_MUTANT({number})) {inner} }}"
                else:
                    inner = f"(ATTN_MUTANT({number}) ? {m.after} : ({inner}))"
            out, at = out + inner, last
        return out + source[at:end].decode()

    return render(0, len(source), frozenset())
