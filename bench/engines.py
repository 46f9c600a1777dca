#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares examples/generate with engines that a user has, on one model and the same prompts: first the texts, then the time.

    bench/engines.py build/gcc/tests/example_generate SmolLM2-135M-Instruct.Q4_1.gguf

Engines are llama.cpp (the package xllamacpp) and transformers (with torch, gguf and accelerate; it decodes the weights to f32); those
that are not installed are left out, with the reason.  Each runs on one thread, one prompt at a time, and writes the most likely tokens.
Prints tokens a second of CPU time, the best of --repeat runs, and how much of the text is that of examples/generate.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

ASKED = ["What is the capital of France?", "Tell me a story about a river.", "Explain how a bicycle stays upright.",
         "Write a function in Python that reverses a list."]
PROMPTS = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in ASKED]


class Generate:
    """examples/generate, which says itself how long it took."""
    name = "libattn"

    def __init__(self, program, model, cache):
        self.words = [program, model, "--raw", "--threads=1", f"--cache={cache}"]
        self.name = f"libattn, {cache} cache"

    def run(self, prompt, most):
        """The text, the CPU seconds of reading and of writing, and the tokens that were read and written (the first is read's)."""
        done = subprocess.run([*self.words, f"--most={most}", prompt], capture_output=True, text=True, errors="replace", check=True)
        found = re.search(r"read (\d+) tokens, \S+ a second, (\S+) a second of CPU time; wrote (\d+), \S+ and (\S+)", done.stderr)
        read, read_rate, written, write_rate = map(float, (text.rstrip(";") for text in found.groups()))
        return done.stdout[:-1], read / read_rate, written / max(write_rate, 1e-9), read, written


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, model):
        import xllamacpp  # pylint: disable=import-error,import-outside-toplevel
        settings = xllamacpp.CommonParams()
        settings.model.path, settings.n_ctx, settings.n_parallel = str(model), 2048, 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        self.server = xllamacpp.Server(settings)
        self.name += f" (xllamacpp {xllamacpp.__version__})"

    def timed(self, prompt, most):
        begin = time.process_time()
        found = self.server.handle_completions({"prompt": prompt, "max_tokens": most, "temperature": 0, "top_k": 1, "cache_prompt": False})
        return found, time.process_time() - begin

    def run(self, prompt, most):
        _, read = self.timed(prompt, 1)
        found, both = self.timed(prompt, most)
        return found["choices"][0]["text"], read, both - read, found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"] - 1


class Transformers:
    name = "transformers"

    def __init__(self, model):
        import torch  # pylint: disable=import-error,import-outside-toplevel
        import transformers  # pylint: disable=import-error,import-outside-toplevel
        transformers.logging.set_verbosity_error()
        torch.set_num_threads(1)
        folder, file = model.parent, model.name
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
        self.name += f" {transformers.__version__}, torch {torch.__version__}"

    def timed(self, tokens, most):
        begin = time.process_time()
        found = self.model.generate(**tokens, max_new_tokens=most, do_sample=False)
        return found[0][tokens["input_ids"].shape[1]:], time.process_time() - begin

    def run(self, prompt, most):
        tokens = self.tokenizer(prompt, return_tensors="pt")
        _, read = self.timed(tokens, 1)
        written, both = self.timed(tokens, most)
        text = self.tokenizer.decode(written, skip_special_tokens=True)
        return text, read, both - read, tokens["input_ids"].shape[1], len(written) - 1


def engines(arguments):
    """Those that can be used; says why the others can not."""
    yield Generate(arguments.program, arguments.model, "f32")
    yield Generate(arguments.program, arguments.model, "bf16")
    for kind in (LlamaCpp, Transformers):
        try:
            yield kind(arguments.model)
        except (ImportError, OSError, RuntimeError, ValueError) as reason:
            print(f"{kind.name} is left out: {str(reason).splitlines()[0]}", file=sys.stderr)


def agreement(texts, others):
    """The part of the characters before the first that differs, of all texts."""
    same = sum(len(os.path.commonprefix([text.rstrip(), other.rstrip()])) for text, other in zip(texts, others))
    return same / max(1, sum(len(text.rstrip()) for text in others))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="examples/generate, built")
    parser.add_argument("model", type=pathlib.Path, help="a .gguf file")
    parser.add_argument("--tokens", type=int, default=64, help="that each text may have (64)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (3)")
    arguments = parser.parse_args()
    used, texts, rates = list(engines(arguments)), {}, {}
    for _ in range(arguments.repeat):
        for engine in used:
            runs = [engine.run(prompt, arguments.tokens) for prompt in PROMPTS]
            texts[engine.name] = [run[0] for run in runs]
            _, read, write, reads, writes = (sum(column) if k else None for k, column in enumerate(zip(*runs)))
            now = reads / read, writes / max(write, 1e-9)
            rates[engine.name] = tuple(map(max, now, rates.get(engine.name, now)))
    first = texts[used[0].name]
    print(f"| engine, one thread | read, tokens/s | written, tokens/s | text as {used[0].name} |\n|---|---|---|---|")
    for engine in used:
        read, written = rates[engine.name]
        print(f"| {engine.name} | {read:.0f} | {written:.0f} | {agreement(texts[engine.name], first):.0%} |")
    for asked, *answers in zip(ASKED, *(texts[engine.name] for engine in used)):
        print(f"\n{asked}")
        for engine, text in zip(used, answers):
            print(f"  {engine.name}: {' '.join(text.split())[:160]}")


if __name__ == "__main__":
    main()
