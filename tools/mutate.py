#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mutate.py FOLDER COUNT SEED [MINUTES]: do the tests notice when the core is wrong?  COUNT mutations of src/core, drawn from SEED
(tools/mutations.py), all in one build: a copy of the tree in FOLDER, where each mutated expression checks at run time whether its number
is active.  The tests run once with no mutation active, which shows the mutations that each test reaches, and then, for each mutation,
the tests that reach it, the likely killer first, until one fails.  Survivors that are not in tests/mutation/survivors.txt are printed
last.  After MINUTES (default 30) it stops; the next run continues from there.  Status 0: at least 95 % of the mutations that can be
killed were; 1: fewer; 3: incomplete.  script/mutate installs the parser; docs/mutation.md says more."""
import collections, concurrent.futures, hashlib, json, os, random, re, resource, shutil, signal, subprocess, sys, threading, time
import mutations
from mutations import FOLDERS, ROOT
from survivors import KNOWN, known

SUBJECTS = ("analysis api cache combination cost fuzz gradient interface kernels linear mask merge outputs product property "
            "relative scores double_backward unit")
PROGRAM = re.compile(rf"tests/test_(?:{SUBJECTS.replace(' ', '|')})_\w+")
WITH_EACH_ISA = re.compile("combination|linear|gradient")
LEAST = 0.95
WORKERS = 2
QUICK = 3  # CPU seconds: all mutations are tested with tests this short before any is tested with the others
PROBE = 10  # CPU seconds of such tests for a mutation that has a reason, so that a wrong reason is detected


def put(path, data):
    """Writes only changed files, so that the rest is not rebuilt."""
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


def build(folder, orders, count, clock):
    """Draws mutants until the requested number compiles together.  Returns them by number, from 1."""
    tree, out = f"{folder}/tree", f"{folder}/build"
    listed = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], text=True).split("\n")
    for path in filter(lambda p: p and os.path.isfile(f"{ROOT}/{p}"), listed):
        if not path.startswith("src/core/"):
            put(f"{tree}/{path}", open(f"{ROOT}/{path}", "rb").read())
            shutil.copymode(f"{ROOT}/{path}", f"{tree}/{path}")
    put(f"{tree}/mutant.h", HEADER)
    put(f"{tree}/src/core/base/mutant.c", SOURCE)
    core = [p for p in listed if p.startswith("src/core/") and os.path.isfile(f"{ROOT}/{p}")]
    taken = {f: [orders[f].pop(0) for _ in range(min(n, len(orders[f])))] for f, n in mutations.shares(orders, count).items()}
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    while True:
        numbered = dict(enumerate((m for f in FOLDERS for m in sorted(taken[f])), 1))
        of = collections.defaultdict(list)
        for number, m in numbered.items():
            of[m.file].append((number, m))
        for path in core:
            source = open(f"{ROOT}/{path}", "rb").read()
            put(f"{tree}/{path}", mutations.rewritten(source, of[path]) if path in of else source)
        subprocess.run(["cmake", "-S", tree, "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DATTN_TESTS=ON",
                        "-DATTN_HARDEN=ON", "-DATTN_IO=ON", "-DATTN_CLI=ON", "-DATTN_LAYERS=OFF", "-DCMAKE_C_FLAGS_RELEASE=-O2",
                        f"-DCMAKE_C_FLAGS=-w -include {tree}/mutant.h", *launcher],
                       check=True, stdout=subprocess.DEVNULL)
        targets = subprocess.check_output(["ninja", "-C", out, "-t", "targets", "all"], text=True)
        programs = sorted(set(re.findall(PROGRAM.pattern + "(?=:)", targets)))
        with open(f"{folder}/build.log", "w") as log:
            process = subprocess.Popen(["ninja", "-C", out, "-k", "0", f"-j{WORKERS}", *programs], stdout=log, stderr=subprocess.STDOUT)
            try:
                status = process.wait(max(0, clock.left()))
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
                sys.exit(unfinished("the build"))
        log = open(f"{folder}/build.log").read()
        if status == 0:
            return numbered
        wrong = {(os.path.relpath(os.path.normpath(os.path.join(out, f)), tree), int(line))
                 for f, line in re.findall(r"(?:^|inlined from .* at )(\S+?):(\d+):\d+(?:: error|: note|: fatal|:$|,$)", log, re.M)}
        if not re.search(r"error:", log):
            sys.exit(f"the copy does not build: {folder}/build.log")
        bad = [m for m in numbered.values() if any(m.file == f and m.line <= at <= m.last for f, at in wrong)]
        bad = bad or [m for m in numbered.values() if any(m.file == f for f, _ in wrong)]
        if not bad:
            sys.exit(f"the copy does not build, and no mutation is to blame: {folder}/build.log")
        for f in FOLDERS:
            keep = [m for m in taken[f] if m not in bad]
            taken[f] = keep + [orders[f].pop(0) for _ in range(min(len(taken[f]) - len(keep), len(orders[f])))]
        print(f"{len(bad)} do not compile; drawing others", flush=True)


def tests_of(folder):
    """The tests.  The results of a test are valid as long as its program has the same bytes."""
    listed = json.loads(subprocess.check_output(["ctest", "--test-dir", f"{folder}/build", "--show-only=json-v1"], text=True))
    digests, out = {}, []
    for test in listed["tests"]:
        name, command = test["name"], test.get("command", [""])
        labels = next((p["value"] for p in test["properties"] if p["name"] == "LABELS"), [])
        if PROGRAM.search(command[0]):
            if command[0] not in digests:
                digests[command[0]] = hashlib.sha256(open(command[0], "rb").read()).hexdigest()[:16]
            for isa in ["", "scalar", "avx2"] if "isa" in labels and WITH_EACH_ISA.match(name) else [""]:
                out.append(Test(name + (f" {isa}" if isa else ""), command, {"ATTN_ISA": isa} if isa else {}, digests[command[0]]))
    return out


class Test:
    def __init__(self, name, command, environment, digest):
        self.name, self.command, self.environment, self.digest = name, command, environment, digest
        self.seconds, self.met, self.killed = 0, set(), collections.Counter()


class Clock:
    """The time limit."""

    def __init__(self, minutes):
        self.begun, self.end = time.monotonic(), time.monotonic() + 60 * minutes

    def left(self):
        return self.end - time.monotonic()


class Kept:
    """Results by name, in a file that is rewritten from time to time, atomically."""

    def __init__(self, path):
        self.path, self.lock, self.written = path, threading.Lock(), time.monotonic()
        self.all = json.load(open(path)) if os.path.exists(path) else {}

    def put(self, name, value):
        with self.lock:
            self.all[name] = value
            if time.monotonic() - self.written > 2:
                self.write()

    def write(self):
        put(f"{self.path}.new", json.dumps(self.all, indent=1))
        os.replace(f"{self.path}.new", self.path)
        self.written = time.monotonic()


def run(folder, test, extra, seconds, clock):
    """The status, or "time" if the test exceeds `seconds` of CPU, or "stopped" if the time is up."""
    def limits():
        for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 1 << 28), (resource.RLIMIT_AS, 12 << 30),
                           (resource.RLIMIT_CPU, seconds)):
            resource.setrlimit(what, (most, resource.getrlimit(what)[1]))  # a test may set limits of its own

    process = subprocess.Popen(test.command, cwd=f"{folder}/tree", env={**os.environ, **test.environment, **extra},
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True, preexec_fn=limits)
    # A deadlocked test uses no CPU.  The loop counts seconds during which this program runs, so a suspended machine kills no mutation.
    for _ in range(60 + 10 * seconds):
        try:
            status = process.wait(1)
            return "time" if status in (-signal.SIGXCPU, -signal.SIGKILL) else status
        except subprocess.TimeoutExpired:
            if clock.left() <= 0:
                break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return "stopped" if clock.left() <= 0 else "time"


def baseline(folder, clock):
    """The tests, each with its CPU seconds and the mutations that it reaches when none is active.  Results are kept per program."""
    kept, tests = Kept(f"{folder}/baseline.json"), tests_of(folder)

    def ask(numbered):
        number, test = numbered
        if clock.left() <= 0 or kept.all.get(test.name, {}).get("digest") == test.digest:
            return
        met_in = f"{folder}/met/{number}"
        shutil.rmtree(met_in, ignore_errors=True)
        os.makedirs(met_in)
        status = run(folder, test, {"ATTN_MUTANTS_MET": met_in}, 1800, clock)
        if status != "stopped":
            lines = [open(f"{met_in}/{f}").read().split() for f in os.listdir(met_in)]
            kept.put(test.name, {"digest": test.digest, "status": status, "seconds": sum(float(line[0]) for line in lines if line),
                                 "met": sorted({int(n) for line in lines for n in line[1:]})})

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(ask, enumerate(tests)))
    kept.write()
    if any(kept.all.get(test.name, {}).get("digest") != test.digest for test in tests):
        sys.exit(unfinished("the tests without a mutation"))
    out = []
    for test in tests:
        found = kept.all[test.name]
        test.seconds, test.met = found["seconds"], set(found["met"])
        if found["status"] in (0, 77):
            out.append(test)
        else:
            print(f"left out, it fails without a mutation: {test.name} ({found['status']})", flush=True)
    print(f"{len(out)} tests, {sum(t.seconds for t in out):.0f} s of CPU", flush=True)
    return out


def unfinished(what):
    print(f"the time was up before {what} ended; the next run continues from here")
    return 3


def names_of(mutants):
    """{number: name}; a name is valid as long as the mutated code is unchanged."""
    seen, out = collections.Counter(), {}
    for number, m in mutants.items():
        name = f"{m.file}: {m.function}: {m.before}: {m.after or 'deleted'}"
        seen[name] += 1
        out[number] = name + (f" ({seen[name]})" if seen[name] > 1 else "")
    return out


class Judge:
    """Runs the tests on one mutation after the other."""

    def __init__(self, folder, mutants, tests, clock):
        self.folder, self.mutants, self.tests, self.clock = folder, mutants, {t.name: t for t in tests}, clock
        self.names, self.kept = names_of(mutants), Kept(f"{folder}/results.json")
        for number in mutants:
            killer = self.killer(number)
            if killer:
                self.credit(number, self.tests[killer])

    def known(self, number):
        return self.kept.all.get(self.names[number], {"asked": {}})

    def killer(self, number):
        """The test that killed it, if that test is unchanged."""
        return next((name for name, (digest, status) in self.known(number)["asked"].items()
                     if status not in (0, 77) and name in self.tests and self.tests[name].digest == digest), None)

    def asked(self, number):
        """Whether some current test has run on it."""
        return any(name in self.tests and self.tests[name].digest == digest
                   for name, (digest, _) in self.known(number)["asked"].items())

    def credit(self, number, test):
        test.killed[self.mutants[number].file] += 1
        test.killed[self.mutants[number].file.split("/")[2]] += 1

    def pending(self, number, most):
        """The tests still to run on it: first those that killed it before the test or the core changed, then those with a low cost
        per kill in this file and this folder."""
        asked, file = self.known(number)["asked"], self.mutants[number].file
        reaching = [t for t in self.tests.values() if number in t.met and t.seconds <= most]
        out = [t for t in reaching if asked.get(t.name, [None])[0] != t.digest]

        def rank(test):
            before = asked.get(test.name, [None, 0])[1] not in (0, 77)
            return (not before, (test.seconds + 0.02) / (0.2 + test.killed[file] + 0.1 * test.killed[file.split("/")[2]]))

        return sorted(out, key=rank)

    def ask(self, number, most, budget=float("inf")):
        """Runs tests until one fails, the time is up, or the budget of CPU seconds is spent."""
        while not self.killer(number) and self.clock.left() > 0:
            tests = self.pending(number, most)
            budget -= tests[0].seconds if tests else 0
            if not tests or budget < 0:
                return
            status = run(self.folder, tests[0], {"ATTN_MUTANT": str(number)}, int(5 + 10 * tests[0].seconds), self.clock)
            if status == "stopped":
                return
            if status not in (0, 77):
                self.credit(number, tests[0])
            self.kept.put(self.names[number], {"asked": {**self.known(number)["asked"], tests[0].name: [tests[0].digest, status]}})

    def ask_all(self, numbers, *limits):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda number: self.ask(number, *limits), numbers))
        self.kept.write()

    def fate(self, number):
        killer = self.killer(number)
        if killer:
            return f"killed by {killer} ({self.known(number)['asked'][killer][1]})"
        reach, left = sum(number in t.met for t in self.tests.values()), len(self.pending(number, float("inf")))
        return f"survived {reach - left} of {reach} tests that reach it" if left else f"survived all {reach} tests that reach it"


def main():
    folder, count, seed = os.path.abspath(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    clock = Clock(float(sys.argv[4]) if len(sys.argv) > 4 else 30)
    orders = mutations.draw(seed)
    print(", ".join(f"{f} {len(orders[f])}" for f in FOLDERS), "possible", flush=True)
    mutants = build(folder, orders, count, clock)
    judge, reasons = Judge(folder, mutants, baseline(folder, clock), clock), known()
    equal = {n for n, m in mutants.items() if (m.file, m.function, m.before, m.after or "deleted") in reasons}

    # The quick tests run first for all, in random order, so that a run that is stopped early has covered all folders.  Mutations with a
    # reason get a few tests at the end.
    order = random.Random(seed).sample(sorted(mutants), len(mutants))
    judge.ask_all([n for n in order if n not in equal], QUICK)
    judge.ask_all([n for n in order if n not in equal], float("inf"))
    judge.ask_all([n for n in order if n in equal and not judge.asked(n)], QUICK, PROBE)
    open_ = [n for n in sorted(mutants) if not judge.killer(n) and n not in equal and judge.pending(n, float("inf"))]

    put(f"{folder}/results.txt", "".join(
        f"{n} {m.file}:{m.line} {m.function} {m.kind}\n    {m.before}\n    {m.after or 'deleted'}\n    {judge.fate(n)}"
        f"{', has a reason' if n in equal else ''}\n" for n, m in sorted(mutants.items())))
    killed = [n for n in mutants if judge.killer(n)]
    for n in sorted(equal.intersection(killed)):
        print(f"has a reason in {KNOWN}, but: {n} {mutants[n].file}:{mutants[n].line} {judge.fate(n)}")
    print(f"\nsurvivors without a reason in {KNOWN}:")
    for n, m in sorted(mutants.items()):
        if n not in equal and n not in killed:
            print(f"{m.file}: {m.function}\n  {m.before}\n  {m.after or 'deleted'}\n  [{n}, line {m.line}, {judge.fate(n)}]\n")
    excused = len(equal.difference(killed))
    rate = len(killed) / max(len(mutants) - excused, 1)
    print(f"{len(mutants)} mutations: {len(killed)} killed, {excused} survive with a reason, "
          f"{len(mutants) - len(killed) - excused} without ({len(open_)} of these not fully tested); {time.monotonic() - clock.begun:.0f} s\n"
          f"killed of those that can be: {'at least ' if open_ else ''}{rate:.1%}")
    return unfinished("all tests") if open_ else int(rate < LEAST)


if __name__ == "__main__":
    sys.exit(main())
