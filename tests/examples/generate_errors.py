#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/generate says what is wrong with its options and with a file, and exits with 2.

usage: generate_errors.py PROGRAM
"""
import os
import subprocess
import sys

import small_model
from tap import check, finish, run_in_folder

PROGRAM = os.path.abspath(sys.argv[1])


def put(key, value):
    return lambda _, metadata: metadata.update({key: value})


def drop(key):
    return lambda _, metadata: metadata.pop(key)


FILES = [
    (put("general.architecture", "mamba"), "general.architecture: is not llama"),
    (drop("llama.block_count"), "llama.block_count: the file's metadata lacks this"),
    (put("llama.block_count", 3), "blk.2.attn_norm.weight: the file lacks this tensor"),
    (put("llama.block_count", "two"), "llama.block_count: a number that no model has"),
    (put("llama.feed_forward_length", 64), "blk.0.ffn_gate.weight: has another shape than the file's metadata says"),
    (put("llama.attention.head_count", 3), "llama.attention.head_count: does not divide the width, or is no multiple of that of keys"),
    (put("llama.rope.dimension_count", 18), "llama.rope.dimension_count: is odd or above the channels of a head"),
    (put("llama.rope.scaling.type", "yarn"), "llama.rope.scaling.type: rotations with a scaling are not read"),
    (put("tokenizer.ggml.model", "llama"), "tokenizer.ggml.model is not gpt2: no byte-pair encoding"),
    (put("tokenizer.ggml.pre", "qwen2"), "tokenizer.ggml.pre, the pattern of words, is neither smollm nor gpt-2"),
    (put("tokenizer.ggml.merges", ["t h", "th"]), "a merge is not of two tokens to one"),
    (put("tokenizer.ggml.token_type", [1]), "token_type and tokens have different lengths"),
    (drop("tokenizer.ggml.tokens"), "no metadata has the key 'tokenizer.ggml.tokens'"),
    (put("tokenizer.chat_template", "[INST]"), "the file's chat template is not of the form <|im_start|>...<|im_end|>: use --raw"),
    (put("llama.context_length", 4), "a prompt is longer than the model's context"),
    (lambda tensors, _: tensors.pop("blk.1.ffn_up.weight"), "blk.1.ffn_up.weight: the file lacks this tensor"),
    (lambda tensors, _: tensors.pop("token_embd.weight"), "token_embd.weight: the file lacks this tensor"),
]
OPTIONS = [
    (["--most=0", "x"], "--most=0: expected a number of tokens from 1 on"),
    (["--most=2.5", "x"], "--most=2.5: expected a number of tokens from 1 on"),
    (["--page=", "x"], "--page=: expected a number of tokens from 1 to 65536"),
    (["--top-p=1.5", "x"], "--top-p=1.5: expected a probability"),
    (["--cache=q4", "x"], "--cache=q4: expected f32, f16, bf16, i8, f8_e4m3, f8_e5m2, q8_0, q4_0, q4_1 or q4_1c"),
    (["--cache=q4_1c", "--page=48", "x"], "--page: expected a multiple of 32 with --cache=q4_1c"),
    (["--cache=q4_1c", "--drafts=33", "x"], "--drafts: expected at most 32 with --cache=q4_1c"),
    (["--colour", "x"], "--colour: expected an option that --help lists"),
    ([], "no prompt: expected MODEL.gguf and a PROMPT; --help says more"),
    (["--raw", ""], "a prompt has no tokens"),
]


def run(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test():
    for change, message in FILES:
        small_model.write("model.gguf", change)
        found = run("model.gguf", "Why?")
        check(message, found == (2, "", f"generate: {message}\n"), str(found))
    small_model.write("model.gguf")
    for words, message in OPTIONS:
        found = run("model.gguf", *words)
        check(message, found == (2, "", f"generate: {message}\n"), str(found))
    check("no file", run("none.gguf", "x")[2] == "generate: none.gguf: cannot open: No such file or directory\n")
    check("--help", run("--help")[0] == 0 and "usage: generate MODEL.gguf" in run("--help")[1])
    return finish()


run_in_folder(test)
