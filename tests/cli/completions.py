#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn completions: bash completes with the script that it prints, from the tables of --help; zsh and fish read theirs, where they are
installed; attn help; no colours.

usage: completions.py ATTN
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from on_terminal import on_terminal
from tap import check, finish, run_in_folder

ATTN = sys.argv[1]


def attn(*words, status=0):
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check(f"attn {' '.join(words)}: status {status}", done.returncode == status, done.stderr)
    return done


def flags_of(command):
    return re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", attn(command, "--help").stdout, re.M)


def complete(script, *words):
    """What bash offers for the last of the words, as it splits them."""
    split = [part for word in words for part in (re.split(r"(=)", word) if word.startswith("--") and "=" in word else [word])]
    split = split[:-1] if words[-1].endswith("=") and split[-1] == "" else split
    quoted = " ".join("'" + word + "'" for word in split)
    done = subprocess.run(["bash", "--norc", "-c", f'source "{script}" && COMP_WORDS=({quoted}) COMP_CWORD={len(split) - 1} && _attn && printf "%s\\n" "${{COMPREPLY[@]}}"'],
                          capture_output=True, text=True)
    if done.stderr:
        check(f"bash of {words}", False, done.stderr)
    return sorted(done.stdout.split())


def bash(commands):
    script = os.path.abspath("attn.bash")
    with open(script, "w") as file:
        file.write(attn("completions", "bash").stdout)
    check("bash reads the script", subprocess.run(["bash", "--norc", "-eu", "-c", f'source "{script}"; complete -p attn'], capture_output=True).returncode == 0)
    for line in open(script):
        if len(re.findall("'", line)) % 2:
            check("quotes are closed", False, line)
    check("commands", complete(script, "attn", "") == sorted([*commands, "help", "completions", "--help", "--version"]))
    check("  those that begin so", complete(script, "attn", "e") == ["einsum", "explain"])
    check("help COMMAND", complete(script, "attn", "help", "") == sorted(commands))
    check("completions SHELL", complete(script, "attn", "completions", "") == ["bash", "fish", "zsh"])
    for command in commands:
        offered = sorted(flag.strip("-=") for flag in complete(script, "attn", command, "--"))
        check(f"flags of {command} are those of its --help", offered == sorted(set(flags_of(command))), set(offered) ^ set(flags_of(command)))
    check("a flag that needs a value", complete(script, "attn", "run", "--wind") == ["--window="])
    check("  and one that may have one", complete(script, "attn", "run", "--caus") == ["--causal"])
    check("values after =", complete(script, "attn", "run", "--causal=") == ["bottom-right", "offset", "top-left"])
    check("  those that begin so", complete(script, "attn", "run", "--causal=b") == ["bottom-right"])
    check("values in the next word", complete(script, "attn", "run", "--layout", "bs") == ["bshd"])
    open("an.npz", "w").close()
    os.mkdir("anotherfolder")
    check("  but not where a value needs the =", complete(script, "attn", "run", "--causal", "an") == ["an.npz", "anotherfolder"])
    check("instruction sets", complete(script, "attn", "info", "--isa=") == ["avx2", "avx512", "neon", "scalar", "wasm128"])
    check("files", complete(script, "attn", "run", "an") == ["an.npz", "anotherfolder"])
    check("kinds of pictures", "entropy" in complete(script, "attn", "plot", "e"))
    check("masks", "longformer" in complete(script, "attn", "mask", "l"))
    check("words of problem strings", {"softcap", "score", "spread", "sink"} <= set(complete(script, "attn", "explain", "fwd", ":", "s")))


def others(commands):
    zsh, fish = attn("completions", "zsh").stdout, attn("completions", "fish").stdout
    check("zsh knows the command", zsh.startswith("#compdef attn\n"))
    for command in commands:
        flags = set(flags_of(command))
        part = zsh.split(f"\n    {command})\n")[1].split(";;")[0]
        check(f"zsh has the flags of {command}", set(re.findall(r"'--([a-z0-9-]+)", part)) == flags)
        rows = re.findall(rf"-n '__fish_seen_subcommand_from {command}' -l ([a-z0-9-]+)", fish)
        check(f"fish has the flags of {command}", sorted(rows) == sorted(flags), set(rows) ^ flags)
    for name, text in (("zsh", zsh), ("fish", fish)):
        check(f"{name}: quotes are closed", all(line.count("'") % 2 == 0 for line in text.splitlines()))
        with open(f"attn.{name}", "w") as file:
            file.write(text)
        if shutil.which(name):
            check(f"{name} reads it", subprocess.run([name, "-n", f"attn.{name}"]).returncode == 0)


def messages(commands):
    for words, said in ((["completions"], "attn completions: no shell; for example: attn completions bash"), (["completions", "tcsh"], "attn completions: 'tcsh' is not bash, zsh or fish"),
                        (["completions", "bash", "x"], "attn completions: unexpected argument 'x'"), (["help", "ru"], "attn: unknown command 'ru' (nearest: run)")):
        done = attn(*words, status=2)
        check(f"refuses {' '.join(words)}", done.stderr.strip().startswith(said) and not done.stdout, done.stderr)
    for command in commands:
        check(f"attn help {command}", attn("help", command).stdout == attn(command, "--help").stdout)


def colours():
    """None: NO_COLOR has nothing to change."""
    attn("make", "fwd:hq2:sq4:d8:causal", "-o", "in.npz", "-q")
    for words in (["--help"], ["run", "--help"], ["run", "in.npz", "-o", "out.npz", "--causal"], ["show", "in.npz", "q"], ["mask", "causal", "-n", "4"],
                  ["explain", "fwd:sq4:d8"], ["info"], ["run", "in.npz", "-o", "-"]):
        status, printed = on_terminal([ATTN, *words], TERM="xterm-256color")
        check(f"no colours: {' '.join(words)}", status == 0 and printed and b"\x1b" not in printed, printed[-200:])


def main():
    commands = re.findall(r"^  attn ([a-z]+) ", attn("--help").stdout, re.M)
    bash(commands)
    others(commands)
    messages(commands)
    colours()
    return finish()


run_in_folder(main)
