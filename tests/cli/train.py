#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn train`: the same bits for any number of threads, and with --resume those of a run that was never interrupted; the pictures
and the layers that its files give; every message.  With `learns`: after their default steps the tasks are learned.

usage: train.py ATTN [learns]
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = os.path.abspath(sys.argv[1])
WORDS = "the cat sat on the mat; a dog looked at the cat, and both were glad.\n"


def attn(*words):
    return subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def done(*words):
    made = attn(*words)
    check(" ".join(words), made.returncode == 0 and made.stderr == "", made.stderr)
    return made.stdout


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def rejected(status, message, *words):
    before = sorted(os.listdir("."))
    made = attn("train", *words)
    check(f"train {' '.join(words)}: {message}", (made.returncode, made.stderr, made.stdout) == (status, f"attn train: {message}\n", ""),
          (made.returncode, made.stderr, made.stdout))
    check("  nothing written", sorted(os.listdir(".")) == before)


def learns():
    with open("text.txt", "w") as file:
        file.write(WORDS * 40)
    for task in (["copy"], ["reverse"], ["seq2seq"], ["text", "text.txt", "--steps=200"]):
        out = json.loads(done("train", *task, "--json"))
        least = 0.95 if task[0] == "text" else 1
        check(f"  learned: accuracy {out['accuracy']}, loss {out['loss']['last']:.3g}", out["accuracy"] >= least and out["loss"]["last"] < 0.3, out)
        check("  the accuracy is the share that is right", out["accuracy"] == out["right"] / out["tested"])
    few = json.loads(done("train", "copy", "--steps=20", "--json"))
    check("  not in 20 steps", few["accuracy"] < 0.1, few)
    done("train", "seq2seq", "-q", "-o", "seq2seq.safetensors")
    weights = tensor_file.read("seq2seq.safetensors")[0]["weights"]
    check("the weights of seq2seq are the antidiagonal", weights[1] == [10, 10] and all(weights[2][10 * i + 9 - i] > 0.9 for i in range(10)), weights)


def same_bits(name, *task):
    for threads in "123":
        done("train", *task, "--steps=8", "--seed=5", "-q", f"--threads={threads}", "-o", f"{name}{threads}.safetensors")
    whole = bytes_of(f"{name}1.safetensors")
    check(f"{name}: the same bits for 1, 2 and 3 threads", whole == bytes_of(f"{name}2.safetensors") == bytes_of(f"{name}3.safetensors"))
    done("train", *task, "--steps=3", "--seed=5", "-q", "-o", f"{name}_half.safetensors")
    check(f"{name}: other bits after 3 steps", whole != bytes_of(f"{name}_half.safetensors"))
    done("train", *task, "--steps=8", f"--resume={name}_half.safetensors", "-q", "-o", f"{name}_resumed.safetensors")
    check(f"{name}: --resume gives the file of an uninterrupted run", whole == bytes_of(f"{name}_resumed.safetensors"))
    done("train", *task, "--steps=8", "-q", "-o", f"{name}_other.safetensors")
    check(f"{name}: another seed, other bits", whole != bytes_of(f"{name}_other.safetensors"))


def files():
    tensors, about = tensor_file.read("copy1.safetensors")
    check("a loss for each step", tensors["loss"][:2] == ("F64", [8]))
    count = sum(len(t[2]) for name, t in tensors.items() if name not in ("loss", "weights", "moment1", "moment2"))
    check("moments for each parameter", tensors["moment1"][1] == tensors["moment2"][1] == [count], count)
    printed = done("train", "seq2seq", "--steps=2", "-o", "-")
    check("-o - prints the tensors and nothing else", printed.splitlines()[0].endswith("]") and "parameters" not in printed and "\nweights f32 [10, 10]\n" in printed, printed[:200])
    out = json.loads(done("train", "copy", "--steps=2", "--json"))
    check("--json", set(out) == {"task", "parameters", "steps", "steps_before", "loss", "tested", "right", "accuracy", "seconds"}
          and (out["task"], out["parameters"], out["steps"], out["steps_before"], out["tested"]) == ("copy", count, 2, 0, 1024), out)
    weights = tensors["weights"]
    check("weights by block, head, query and key, whose rows sum to 1",
          weights[1] == [2, 4, 20, 20] and all(abs(sum(weights[2][20 * i:20 * i + 20]) - 1) < 20 * 2 ** -23 for i in range(160)))
    tokens = json.loads(about["tokens"])
    check("with its tokens", len(tokens) == 20 and tokens[0] == "copy" and all(len(t) == 1 for t in tokens[1:]), tokens)
    text = json.loads(done("train", "text", "text.txt", "--steps=2", "--json"))
    check("a text has bits and a sample too", abs(text["bits_per_character"] * 0.6931471805599453 - text["held_out_loss"]) < 1e-12 and
          len(text["sample"]) == 160 and set(text["sample"]) <= set(WORDS), text)
    check("  its vocabulary", json.loads(tensor_file.read("text1.safetensors")[1]["vocabulary"]) == sorted(set(WORDS)))
    for words in (["plot", "loss", "copy1.safetensors", "-o", "loss.svg"], ["plot", "heads", "copy1.safetensors", "-o", "heads.svg"],
                  ["plot", "heads", "seq2seq1.safetensors", "-o", "mean.svg"], ["view", "text1.safetensors", "-o", "text.html"]):
        done(*words)
    tensor_file.write("x.safetensors", {"x": ("F32", [5, 64], [0.01 * (n % 37) for n in range(320)])})
    done("layer", "x.safetensors", "-o", "y.safetensors", "--heads=4", "--causal", "--weights-file=copy1.safetensors", "--prefix=blocks.0.")
    done("train", "seq2seq", "--steps=8", "--seed=5", "--save-every=5", "-q", "-o", "saved.safetensors")
    check("--save-every does not change the end", bytes_of("saved.safetensors") == bytes_of("seq2seq1.safetensors"))


def saved_on_the_way():
    """A run that is killed leaves what --save-every wrote, and goes on from there."""
    running = subprocess.Popen([ATTN, "train", "seq2seq", "--save-every=2", "--seed=5", "-q", "-o", "killed.safetensors"])
    while not os.path.exists("killed.safetensors") and running.poll() is None:
        pass
    running.kill()
    running.wait()
    steps = int(tensor_file.read("killed.safetensors")[1]["attn_train_steps"])
    total = str(steps + 1)
    done("train", "seq2seq", "--resume=killed.safetensors", f"--steps={total}", "-q", "-o", "on.safetensors")
    done("train", "seq2seq", "--seed=5", f"--steps={total}", "-q", "-o", "whole.safetensors")
    check("  the bits of a run without a kill", bytes_of("on.safetensors") == bytes_of("whole.safetensors"))


def rejections():
    with open("short.txt", "w") as file:
        file.write("too short")
    with open("bytes.txt", "wb") as file:
        file.write(b"a" * 700 + b"\xff")
    with open("zero.txt", "wb") as file:
        file.write(b"a" * 3 + b"\0" * 700)
    with open("kinds.txt", "w") as file:
        file.write("".join(chr(0x4e00 + n) for n in range(1025)))
    with open("large.txt", "wb") as file:
        file.truncate(2 ** 26 + 1)
    with open("other.txt", "w") as file:
        file.write(WORDS[::-1] * 40)
    os.mkdir("folder.npz")
    help_text = "`attn train --help` lists them"
    rejected(2, f"unknown task 'cpy' (nearest: copy); {help_text}", "cpy")
    rejected(2, "no task; for example: attn train copy -o copy.safetensors")
    rejected(2, "no text; for example: attn train text book.txt -o book.safetensors", "text")
    rejected(2, "unexpected argument 'text.txt'; copy draws its own sequences", "copy", "text.txt")
    rejected(2, "--save-every has no effect without -o FILE", "copy", "--save-every=3")
    rejected(2, "--save-every has no effect without -o FILE", "copy", "--save-every=3", "-o", "-")
    rejected(2, "--steps (0) is not between 1 and 10000000", "copy", "--steps=0")
    rejected(2, "out.npy: expected a name that ends in .safetensors or .npz", "copy", "-o", "out.npy")
    rejected(2, "folder.npz: cannot be written: Is a directory", "copy", "-o", "folder.npz")
    rejected(2, "gone.txt: cannot open: No such file or directory", "text", "gone.txt")
    rejected(2, "folder.npz: cannot be read: Is a directory", "text", "folder.npz")
    rejected(2, "short.txt: has 9 characters; at least 650 are needed", "text", "short.txt")
    rejected(2, "bytes.txt: byte 700 (0xff) is not of a text in UTF-8", "text", "bytes.txt")
    rejected(2, "zero.txt: byte 3 (0x00) is not of a text in UTF-8", "text", "zero.txt")
    rejected(3, "kinds.txt: has 1025 different characters; at most 1024 can be learned", "text", "kinds.txt")
    rejected(3, "large.txt: has more than 67108864 bytes", "text", "large.txt")
    os.link("text.txt", "text.npz")
    rejected(2, "text.npz: this output is an input, which would be replaced", "text", "text.txt", "-o", "text.npz")

    half, about = tensor_file.read("seq2seq_half.safetensors")
    keys = {key: about[key] for key in ("attn_train", "attn_train_steps", "attn_train_seed", "attn_train_random")}

    def damaged(message, tensors=None, status=2, task=("seq2seq",), **metadata):
        kept = {key: value for key, value in {**keys, **metadata}.items() if value is not None}
        tensor_file.write("bad.safetensors", {n: t for n, t in {**half, **(tensors or {})}.items() if t}, **kept)
        rejected(status, message, *task, "--resume=bad.safetensors", "-o", "never.safetensors")

    written = "`attn train -o` writes it"
    damaged(f"bad.safetensors: no metadata 'attn_train'; {written}", attn_train=None)
    damaged("bad.safetensors: was trained on the task copy, not seq2seq", attn_train="copy")
    damaged(f"bad.safetensors: no metadata 'attn_train_steps'; {written}", attn_train_steps=None)
    damaged("bad.safetensors: metadata 'attn_train_seed' ('-1') is not an integer of at least 0", attn_train_seed="-1")
    damaged("bad.safetensors: tensor 'loss' does not have one number for each of 4 steps", attn_train_steps="4")
    damaged("bad.safetensors: tensor 'loss' does not have one number for each of 3 steps", {"loss": None})
    damaged(f"bad.safetensors: no tensor 'recurrent'; {written}", {"recurrent": None})
    damaged("bad.safetensors: tensor 'recurrent' does not have the type and shape of this model's", {"recurrent": ("F32", [64], [0.0] * 64)})
    damaged("bad.safetensors: tensor 'moment2' has nan at 1", {"moment2": ("F32", half["moment2"][1], (0.0, float("nan"), *half["moment2"][2][2:]))})
    huge = ("F32", half["out"][1], [3e38] * len(half["out"][2]))
    damaged("the loss is not a number after step 4", {"out": huge}, 3)
    rejected(2, "seq2seq_half.safetensors: was trained with the seed 5; --seed cannot change it", "seq2seq", "--resume=seq2seq_half.safetensors", "--seed=6")
    rejected(2, "seq2seq_half.safetensors: has 3 steps already; --steps must be more", "seq2seq", "--resume=seq2seq_half.safetensors", "--steps=3")
    rejected(2, "text_half.safetensors: was trained on another text", "text", "other.txt", "--resume=text_half.safetensors")
    rejected(2, "gone.npz: cannot open: No such file or directory", "copy", "--resume=gone.npz")


def main():
    if "learns" in sys.argv:
        learns()
        return finish()
    with open("text.txt", "w") as file:
        file.write(WORDS * 40)
    same_bits("copy", "copy")
    same_bits("seq2seq", "seq2seq")
    same_bits("text", "text", "text.txt")
    files()
    saved_on_the_way()
    rejections()
    return finish()


run_in_folder(main)
