#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/engine on a small model: the tokens of every request are those that examples/generate writes for it alone, whatever the
places, budget and pages, also where pages are given up.

usage: engine.py ENGINE GENERATE
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import small_model
from tap import check, finish, run_in_folder

ENGINE, GENERATE = map(os.path.abspath, sys.argv[1:3])
PROMPTS = ["the cat and the dog", "Why?", "12 and 34: the other  answer", "a " * 40 + "b", "er", "the the the", "and then", "b " * 25]


def engine(*words, prompts=PROMPTS):
    return subprocess.run([ENGINE, "model.gguf", *words], input="\n".join(prompts) + "\n", capture_output=True, text=True, errors="replace", check=False)


def test():
    small_model.write("model.gguf")
    alone = []
    for prompt in PROMPTS:
        done = subprocess.run([GENERATE, "model.gguf", "--raw", "--ids", "--quiet", "--most=20", "--cache=bf16", prompt], capture_output=True, text=True, check=True)
        alone.append(" ".join(done.stdout.split()))
    given_up = 0
    for words in ([], ["--places=1"], ["--places=3", "--budget=7"], ["--budget=1", "--page=5"], ["--page=1", "--threads=1"],
                  ["--page=4", "--pages=30", "--budget=20"], ["--page=8", "--pages=14", "--places=5", "--threads=3"]):
        done = engine("--ids", "--most=20", *words)
        found = [" ".join(line.split()) for line in done.stdout.splitlines()]
        check(f"tokens with {' '.join(words)}", found == alone, f"{done.stderr}{found}, not {alone}")
        times = re.search(r"(\d+) times pages were given up", done.stderr)
        given_up += int(times[1]) if times else 0
    check("pages were given up", given_up > 0)
    done = engine("--speed", "--most=4", "--places=4")
    check("a line for each number of places", [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["1", "2", "4"], done.stdout)
    done = engine("--pages=2", "--page=4", "--places=3")
    few = re.fullmatch(r"engine: the pages are too few: the (\d+) tokens of a request need (\d+), not 2\n", done.stderr)
    check("the pages are too few", done.returncode == 2 and few is not None and int(few[2]) == -(-int(few[1]) // 4), done.stderr)
    check("as many are enough", few is not None and engine(f"--pages={few[2]}", "--page=4", prompts=PROMPTS[:1]).returncode == 0)
    for words, message in ((["--places=0"], "--places=0 is not between 1 and 1048576"), (["--page=x"], "--page=x is not between 1 and 1048576"),
                           (["--threads=-1"], "--threads=-1 is not between 0 and 1048576"),
                           (["--color"], "--color: no such option, or no =NUMBER; engine --help lists them"),
                           (["--pages"], "--pages: no such option, or no =NUMBER; engine --help lists them")):
        done = engine(*words)
        check(message, done.returncode == 2 and done.stderr == f"engine: {message}\n", done.stderr)
    done = subprocess.run([ENGINE, "--help"], capture_output=True, text=True, check=False)
    options = set(re.findall(r"--[a-z]+", done.stdout))
    check("--help lists the options", done.returncode == 0 and options == {f"--{name}" for name in "places budget pages page most threads ids speed".split()}, done.stdout)
    done = subprocess.run([ENGINE, "--speed"], capture_output=True, text=True, check=False)
    check("the model is missing", done.returncode == 2 and done.stderr == "engine: the model is missing; engine --help says more\n", done.stderr)
    return finish()


run_in_folder(test)
