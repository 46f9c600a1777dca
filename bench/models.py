#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch and models of transformers as they are, with libattn in the place of PyTorch's attention and without:

    PYTHONPATH=build/release/python OMP_NUM_THREADS=2 bench/models.py [--seconds=S] [--json] [CASE...]

Weights are random.  Results are compared first; then both are timed alternately, S seconds for each case (default 10).  Printed are the
median and the best decile of both, and the median of the ratios of neighbouring samples (PyTorch's time over libattn's).
"""
import argparse
import json
import math
import platform
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import libattn.torch


def heads(tokens, count=8, dim=64):
    return [torch.randn(1, count, tokens, dim, requires_grad=True) for _ in range(3)]


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
                         vocab_size=500, max_position_embeddings=4096)
    return LlamaForCausalLM(config), torch.randint(0, 500, (1, 2048))


def forward(model, **inputs):
    model.eval()

    def run():
        with torch.inference_mode():
            return model(**inputs)[0]
    return run


def llama_forward():
    model, tokens = llama()
    return forward(model, input_ids=tokens, logits_to_keep=1)


def llama_step():
    model, tokens = llama()

    def run():
        model.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return torch.stack([loss.detach(), *[p.grad.norm() for p in model.parameters()]])
    return run


def generate(count):
    model, tokens = llama()
    model.eval()
    return lambda: model.generate(tokens[:, :count], max_new_tokens=32, do_sample=False, pad_token_id=0)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_embd=384, n_layer=2, n_head=6, vocab_size=500))
    return forward(model, input_ids=torch.randint(0, 500, (1, 1024)), logits_to_keep=1)


def bert():
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(hidden_size=384, num_hidden_layers=2, num_attention_heads=6, intermediate_size=1536, vocab_size=500))
    lengths = torch.linspace(30, 128, 16).round().long()
    mask = (torch.arange(128) < lengths[:, None]).long()
    run = forward(model, input_ids=torch.randint(0, 500, (16, 128)), attention_mask=mask)
    return lambda: run() * mask[..., None]  # what stands at padding means nothing


def training(call, tokens=2048):
    q, k, v = heads(tokens)
    grad = torch.randn(1, 8, tokens, 64)

    def run():
        o = call(q, k, v)
        return [o.detach(), *torch.autograd.grad(o, (q, k, v), grad)]
    return run


def dropout():
    run = training(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True))
    return lambda: [torch.stack([x.norm() for x in run()[:1]])]  # other weights are dropped: only sizes compare


def flex(window):
    """FlexAttention has no backward on a CPU, so PyTorch's side is what is done instead: all scores, and autograd."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(b, h, i, j):
        return (i >= j) & (i - j <= window) if window else i >= j
    blocks = create_block_mask(seen, None, None, 2048, 2048, device="cpu")
    place = torch.arange(2048)
    hidden = ~seen(0, 0, place[:, None], place)

    def call(q, k, v):
        if libattn.torch.enabled():
            return flex_attention(q, k, v, block_mask=blocks)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
        return scores.softmax(-1) @ v
    return training(call)


CASES = {
    "llama": ("Llama with 8/2 heads, 2 layers, 2048 tokens", 1.25, llama_forward),
    "llama-step": ("the same, a step of training without the optimizer", 1.2, llama_step),
    "gpt2": ("GPT-2 with 6 heads, 2 layers, 1024 tokens", 1.2, gpt2),
    "bert": ("BERT with 6 heads, 2 layers, 16 texts of 30 to 128 tokens, padded", 1.07, bert),
    "generate": ("Llama, 32 tokens after 64", 1, lambda: generate(64)),
    "generate-2048": ("Llama, 32 tokens after 2048", 1, lambda: generate(2048)),
    "dropout": ("attention of 8 heads, causal, dropout 0.1, 2048 tokens, forward and backward", 3, dropout),
    "flex": ("FlexAttention of 8 heads, causal, 2048 tokens, forward and backward, over all scores", 4, lambda: flex(0)),
    "flex-window": ("the same with a window of 256", 10, lambda: flex(256)),
}


def compare(name, theirs, ours):
    for a, b in zip(theirs if isinstance(theirs, list) else [theirs], ours if isinstance(ours, list) else [ours], strict=True):
        wide = 0.05 if name == "dropout" else 1e-4
        if not torch.allclose(a.double(), b.double(), rtol=wide, atol=wide * a.double().abs().max().item()):
            raise SystemExit(f"{name}: results differ by {(a.double() - b.double()).abs().max():g}")


def sample(run, enabled):
    if enabled:
        libattn.torch.enable()
    try:
        begin = time.perf_counter()
        found = run()
        return time.perf_counter() - begin, found
    finally:
        if enabled:
            libattn.torch.disable()


def measure(name, seconds):
    words, aim, make = CASES[name]
    torch.manual_seed(0)
    run = make()
    compare(name, sample(run, False)[1], sample(run, True)[1])
    times = {False: [], True: []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[True]) < 5:
        for enabled in (False, True):
            times[enabled].append(sample(run, enabled)[0])
    ratios = [a / b for a, b in zip(times[False], times[True], strict=True)]
    low = {which: statistics.quantiles(found, n=10)[0] for which, found in times.items()}
    return {
        "case": name, "words": words, "aim": aim, "samples": len(ratios), "ratio": round(statistics.median(ratios), 2),
        "ratio_best": round(low[False] / low[True], 2), "pytorch_ms": float(f"{1e3 * statistics.median(times[False]):.3g}"),
        "libattn_ms": float(f"{1e3 * statistics.median(times[True]):.3g}"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; default: all")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object, for bench/results.py")
    words = parser.parse_args()
    unknown = set(words.case) - set(CASES)
    if unknown:
        parser.error(f"no case {unknown.pop()!r}; known: {', '.join(CASES)}")
    found = [measure(name, words.seconds) for name in words.case or CASES]
    if words.json:
        versions = {"libattn": libattn.__version__, "torch": torch.__version__, "python": platform.python_version()}
        if "transformers" in sys.modules:
            versions["transformers"] = sys.modules["transformers"].__version__
        print(json.dumps({"kind": "models", "threads": torch.get_num_threads(), "versions": versions, "results": found}, indent=1))
        return 0
    print("| case | PyTorch, ms | libattn, ms | ratio, median | of best deciles | wanted |\n|---|--:|--:|--:|--:|--:|")
    for row in found:
        print(f"| {row['words']} | {row['pytorch_ms']:g} | {row['libattn_ms']:g} | {row['ratio']} | {row['ratio_best']} | {row['aim']} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
