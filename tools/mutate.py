#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mutate.py FOLDER COUNT SEED [SECONDS]: do the tests notice when the core is wrong?  COUNT mutations of src/core, drawn by SEED, all in one
build: a copy of the tree in FOLDER, where each mutated expression asks for its number at run time (`17 is on ? a <= b : a < b`).
The tests run once with no number, which tells which of them reach which mutation, and then, for each number, those that reach it,
the quickest first (those that take no more than SECONDS of CPU), until one fails.  What survives and is not in tests/mutation/survivors.txt is printed last; 1 where
less than 95 % of what can be killed was.  script/mutate brings the parser and says more."""
import collections, concurrent.futures, json, math, os, random, re, resource, shutil, signal, subprocess, sys, time
import tree_sitter, tree_sitter_c

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["kernels", "walk", "tile", "gradient", "visible", "prepare", "plan"]
SUBJECTS = "analysis api cache combination cost gradient interface kernels linear mask merge outputs product property relative scores second unit"
PROGRAM = re.compile(rf"tests/test_(?:{SUBJECTS.replace(' ', '|')})_\w+")
WITH_EACH_ISA = re.compile("combination|linear|gradient")
KNOWN = "tests/mutation/survivors.txt"
LEAST = 0.95
WORKERS = 2
QUICK = 3  # seconds of CPU

RELATIONS = ["<", "<=", ">", ">=", "==", "!="]
OTHER = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "&&": "||", "||": "&&", "&": "|", "|": "&", "<<": ">>", ">>": "<<",
         "+=": "-=", "-=": "+=", "*=": "/=", "|=": "&=", "&=": "|="}
VECTOR = {"vf_add": "vf_sub", "vf_sub": "vf_add", "vf_max": "vf_min", "vf_min": "vf_max", "vf_gt": "vf_ge", "vf_ge": "vf_gt",
          "vm_and": "vm_or", "vm_or": "vm_and", "vm_any": "vm_all", "vm_all": "vm_any", "attn_min": "attn_max", "attn_max": "attn_min",
          "vf_mul": "vf_add"}
SWAPPED = {"vf_select": (1, 2), "vf_sub": (0, 1), "vf_div": (0, 1), "vf_gt": (0, 1), "vf_ge": (0, 1), "vf_fma": (1, 2)}
# What asks for constants, is not run, or makes nothing but speed.
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
    # Macros that are no C by themselves become blanks; offsets stay.
    source = re.sub(rb"\b(VF_UNROLL|VF_ROLLED|VF_INLINE|VF_TARGET|VF_APART)\b", lambda m: b" " * len(m[0]), source)
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
            add(node, "constant", f"({text(node)} {random.Random(node.start_byte).choice('+-')} 1)")
        elif kind == "number_literal":
            add(node, "constant", f"({text(node)} * 2)")
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
    """For each folder its mutations in the order in which they are taken: a kind by chance, then one of that kind."""
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
    """How many of each folder: as the roots of what there is, so that no folder is left out and none takes all."""
    roots = {folder: math.sqrt(len(orders[folder])) for folder in orders}
    take = {folder: int(count * roots[folder] / sum(roots.values())) for folder in orders}
    for folder in sorted(orders, key=roots.get, reverse=True):
        take[folder] += sum(take.values()) < count
    take[FOLDERS[0]] += count - sum(take.values())
    return take


def rewritten(source, mutants):
    """The source with all its mutants, (number, Mutant); lines stay where they are."""
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


def put(path, data):
    """Writes what is new, so that the rest is not built again."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    if not os.path.exists(path) or open(path, "rb").read() != data:
        with open(path, "wb") as f:
            f.write(data)


HEADER = """extern __attribute__((visibility("hidden"))) int attn_mutant;
extern __attribute__((visibility("hidden"))) unsigned char attn_mutants_met[];
#define ATTN_MUTANT(n) (attn_mutants_met[n] = 1, attn_mutant == (n))
"""
SOURCE = """#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int attn_mutant;
unsigned char attn_mutants_met[10000];
static __attribute__((constructor)) void begin(void)
{
    const char *number = getenv("ATTN_MUTANT");
    if (number) attn_mutant = atoi(number);
}
static __attribute__((destructor)) void end(void)
{
    const char *folder = getenv("ATTN_MUTANTS_MET");
    char name[4096];
    if (!folder) return;
    snprintf(name, sizeof name, "%s/%d", folder, (int)getpid());
    FILE *f = fopen(name, "w");
    if (f) fprintf(f, "%f\\n", (double)clock() / CLOCKS_PER_SEC);
    for (int n = 0; f && n < (int)sizeof attn_mutants_met; n++)
        if (attn_mutants_met[n]) fprintf(f, "%d\\n", n);
    if (f) fclose(f);
}
"""


def build(folder, orders, count):
    """Draws mutants until as many as asked for compile together.  Returns them by number, from 1."""
    tree, out = f"{folder}/tree", f"{folder}/build"
    listed = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], text=True).split("\n")
    for path in filter(lambda p: p and os.path.isfile(f"{ROOT}/{p}"), listed):
        if not path.startswith("src/core/"):
            put(f"{tree}/{path}", open(f"{ROOT}/{path}", "rb").read())
            shutil.copymode(f"{ROOT}/{path}", f"{tree}/{path}")
    put(f"{tree}/mutant.h", HEADER)
    put(f"{tree}/src/core/base/mutant.c", SOURCE)
    core = [p for p in listed if p.startswith("src/core/") and os.path.isfile(f"{ROOT}/{p}")]
    taken = {f: [orders[f].pop(0) for _ in range(min(n, len(orders[f])))] for f, n in shares(orders, count).items()}
    launcher = [f"-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    while True:
        numbered = dict(enumerate((m for f in FOLDERS for m in sorted(taken[f])), 1))
        of = collections.defaultdict(list)
        for number, m in numbered.items():
            of[m.file].append((number, m))
        for path in core:
            source = open(f"{ROOT}/{path}", "rb").read()
            put(f"{tree}/{path}", rewritten(source, of[path]) if path in of else source)
        subprocess.run(["cmake", "-S", tree, "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DATTN_TESTS=ON", "-DATTN_HARDEN=OFF", "-DATTN_IO=ON", "-DATTN_CLI=ON", "-DATTN_LAYERS=OFF",
                        "-DCMAKE_C_FLAGS_RELEASE=-O2", f"-DCMAKE_C_FLAGS=-w -include {tree}/mutant.h", *launcher],
                       check=True, stdout=subprocess.DEVNULL)
        targets = subprocess.check_output(["ninja", "-C", out, "-t", "targets", "all"], text=True)
        programs = sorted(set(re.findall(PROGRAM.pattern + "(?=:)", targets)))
        done = subprocess.run(["ninja", "-C", out, "-k", "0", f"-j{WORKERS}", *programs], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        put(f"{folder}/build.log", done.stdout)
        if done.returncode == 0:
            if "no work to do" not in done.stdout and os.path.exists(f"{folder}/baseline.json"):
                os.remove(f"{folder}/baseline.json")
            return numbered
        wrong = {(os.path.relpath(os.path.normpath(os.path.join(out, f)), tree), int(line))
                 for f, line in re.findall(r"^(\S+?):(\d+):\d+: (?:error|note|fatal)", done.stdout, re.M)}
        if not re.search(r"error:", done.stdout):
            sys.exit(f"the copy does not build: {folder}/build.log")
        bad = [m for m in numbered.values() if any(m.file == f and m.line <= at <= m.last for f, at in wrong)]
        bad = bad or [m for m in numbered.values() if any(m.file == f for f, _ in wrong)]
        if not bad:
            sys.exit(f"the copy does not build, and no mutation is to blame: {folder}/build.log")
        for f in FOLDERS:
            keep = [m for m in taken[f] if m not in bad]
            taken[f] = keep + [orders[f].pop(0) for _ in range(min(len(taken[f]) - len(keep), len(orders[f])))]
        print(f"{len(bad)} do not compile; others are drawn", flush=True)


def tests_of(folder):
    """(name, command, environment) of what is asked."""
    listed = json.loads(subprocess.check_output(["ctest", "--test-dir", f"{folder}/build", "--show-only=json-v1"], text=True))
    for test in listed["tests"]:
        name, command = test["name"], test.get("command", [""])
        labels = next((p["value"] for p in test["properties"] if p["name"] == "LABELS"), [])
        if PROGRAM.search(command[0]):
            for isa in ["", "scalar", "avx2"] if "isa" in labels and WITH_EACH_ISA.match(name) else [""]:
                yield name + (f" {isa}" if isa else ""), command, {"ATTN_ISA": isa} if isa else {}


def limits():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))


def run(folder, command, extra, seconds):
    """The status; None is too long."""
    process = subprocess.Popen(command, cwd=f"{folder}/tree", env={**os.environ, **extra}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limits)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def baseline(folder, longest):
    """The tests with no mutation on: [(seconds of CPU, name, command, environment, what it meets)], the quickest first.  What was
    found is kept until something is built."""
    def ask(number, name, command, extra):
        met_in = f"{folder}/met/{number}"
        shutil.rmtree(met_in, ignore_errors=True)
        os.makedirs(met_in)
        status = run(folder, command, {**extra, "ATTN_MUTANTS_MET": met_in}, 1800)
        if status not in (0, 77):
            print(f"left out, it fails without a mutation: {name} ({status})", flush=True)
        lines = [open(f"{met_in}/{f}").read().split() for f in os.listdir(met_in)]
        return name, status, sum(float(line[0]) for line in lines if line), sorted({int(n) for line in lines for n in line[1:]})

    tests, kept = list(tests_of(folder)), f"{folder}/baseline.json"
    if not os.path.exists(kept):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            put(kept, json.dumps(list(pool.map(lambda t: ask(t[0], *t[1]), enumerate(tests)))))
    found = {name: (seconds, met) for name, status, seconds, met in json.load(open(kept)) if status == 0}
    asked = sorted(((found[t[0]][0], *t, set(found[t[0]][1])) for t in tests if t[0] in found), key=lambda t: t[0])
    long = [t for t in asked if t[0] > longest]
    if long:
        print("left out, they are long: " + ", ".join(f"{t[1]} ({t[0]:.0f} s)" for t in long), flush=True)
    asked = [t for t in asked if t[0] <= longest]
    print(f"{len(asked)} tests, {sum(t[0] for t in asked):.0f} s of CPU", flush=True)
    return asked


def known():
    """{(file, function, before, after): reason} of survivors.txt."""
    out = {}
    blocks = re.sub(r"^#.*\n", "", open(f"{ROOT}/{KNOWN}").read(), flags=re.M)
    for block in filter(None, (b.strip() for b in blocks.split("\n\n"))):
        where, before, after, *reason = (line.strip() for line in block.split("\n"))
        file, function = where.split(": ")
        out[file, function, before, after] = " ".join(reason)
    return out


def main():
    folder, count, seed = os.path.abspath(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    orders = draw(seed)
    print(", ".join(f"{f} {len(orders[f])}" for f in FOLDERS), "possible", flush=True)
    mutants = build(folder, orders, count)
    asked = baseline(folder, float(sys.argv[4]) if len(sys.argv) > 4 else math.inf)
    reasons, begun = known(), time.monotonic()
    log = open(f"{folder}/results.txt", "w")

    def judge(number, tests):
        reaching = [t for t in tests if number in t[4]]
        for seconds, name, command, extra, _ in reaching:
            status = run(folder, command, {**extra, "ATTN_MUTANT": str(number)}, 60 + 20 * seconds)
            if status not in (0, 77):
                return number, f"killed by {name} ({'time' if status is None else status})"
        return number, None

    # The quick tests first for all, in an order of chance: what is stopped early has looked at all folders.
    left, killed = random.Random(seed).sample(sorted(mutants), len(mutants)), 0
    for tests in ([t for t in asked if t[0] <= QUICK], [t for t in asked if t[0] > QUICK]):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for done in concurrent.futures.as_completed([pool.submit(judge, number, tests) for number in left]):
                number, fate = done.result()
                m = mutants[number]
                print(f"{number} {m.file}:{m.line} {m.function} {m.kind}\n    {m.before}\n    {m.after or 'deleted'}\n"
                      f"    {fate or 'survived ' + ('the quick tests' if tests and tests[0][0] <= QUICK else 'all')}", file=log, flush=True)
                if fate:
                    killed += 1
                    left.remove(number)
    survivors = [(number, mutants[number], sum(number in t[4] for t in asked)) for number in sorted(left)]
    equal = [s for s in survivors if (s[1].file, s[1].function, s[1].before, s[1].after or "deleted") in reasons]
    print(f"\nsurvivors without a reason in {KNOWN}:")
    for number, m, reached in survivors:
        if not any(number == s[0] for s in equal):
            print(f"{m.file}: {m.function}\n  {m.before}\n  {m.after or 'deleted'}\n  [{number}, line {m.line}, {reached} tests reach it]\n")
    rate = killed / max(len(mutants) - len(equal), 1)
    print(f"{len(mutants)} mutations, {killed} killed ({killed / len(mutants):.1%}), {len(equal)} survived with a reason, "
          f"{len(survivors) - len(equal)} without: {rate:.1%} of those that can be killed; {time.monotonic() - begun:.0f} s")
    return rate < LEAST


if __name__ == "__main__":
    sys.exit(main())
