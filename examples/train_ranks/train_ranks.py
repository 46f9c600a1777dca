#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The model of train_copy over several ranks, each of which has a part of every sequence: it learns to copy and to reverse.

    torchrun --nproc-per-node 4 train_ranks.py [FOLDER [STEPS]]     processes of PyTorch, which gloo joins
    mpirun -n 4 python3 train_ranks.py [FOLDER [STEPS]]             the same over MPI, by mpi4py
    python3 train_ranks.py [FOLDER [STEPS]]                         one rank

Rank 0 writes loss.csv in FOLDER (default: the current one; 600 steps).  Any number of ranks has the same losses, bit for bit.  Exits with
1 if a held-out sequence comes out wrong.
"""
import math
import os
import pathlib
import sys
import time

import torch
from torch import nn

from libattn import distributed

N, LETTERS, BATCH, STEPS, HELD_OUT = 10, 16, 64, 600, 16
COPY, REVERSE, VOCABULARY, LENGTH = LETTERS, LETTERS + 1, LETTERS + 2, 2 * N
WIDTH, HEADS, HIDDEN, BLOCKS, RATE = 64, 4, 128, 2, 3e-3
SPLIT = {"layout": "zigzag", "part": 5}  # tokens of a part: bits depend on it, and not on the ranks that have the parts


def join():
    """The group of all ranks, as whatever started this program has it: None alone."""
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun
        torch.distributed.init_process_group("gloo")
        return torch.distributed.group.WORLD
    if any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):  # mpirun
        from mpi4py import MPI

        return MPI.COMM_WORLD
    return None


class Start(nn.Module):
    """Tokens and places to rows."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens, places):
        return self.tokens(tokens) + self.places(places)


class Before(nn.Module):
    """Rows to queries, keys and values, [batch, tokens, heads, channels]."""

    def __init__(self):
        super().__init__()
        self.norm, self.project = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, x):
        return self.project(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).unbind(2)


class After(nn.Module):
    """Rows and what attention made of them to rows, with the hidden layer."""

    def __init__(self):
        super().__init__()
        self.project, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, x, o):
        x = x + self.project(o.flatten(2))
        return x + self.hidden(self.norm(x))


class End(nn.Module):
    """Rows to the sum of their losses, [1, 1], and whether each target is the most likely one; 0 and True where there is no target."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x, targets):
        logits = self.out(self.norm(x))
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-1, reduction="sum")
        return loss.view(1, 1), (logits.argmax(-1) == targets) | (targets < 0)


class Model(nn.Module):
    """A causal Transformer.  What treats tokens apart is applied to each part apart, so that its bits are those of the part."""

    def __init__(self, group):
        super().__init__()
        self.how = {"group": group, **SPLIT}
        self.start, self.end = Start(), End()
        self.before, self.after = (nn.ModuleList(kind() for _ in range(BLOCKS)) for kind in (Before, After))

    def forward(self, tokens, places, targets):
        x = distributed.by_parts(self.start, tokens, places, **self.how)
        for before, after in zip(self.before, self.after):
            q, k, v = distributed.by_parts(before, x, **self.how)
            o = distributed.attention(q, k, v, axes="bshd", causal=True, **self.how)
            x = distributed.by_parts(after, x, o, **self.how)
        return distributed.by_parts(self.end, x, targets, **self.how)


def draw(generator):
    """Sequences [task, x_1 .. x_N, y_1 .. y_N-1]; the target of each position from x_N on is the next token."""
    letters = torch.randint(LETTERS, (BATCH, N), generator=generator)
    task = torch.randint(2, (BATCH, 1), generator=generator)
    words = torch.cat([letters, torch.where(task == 0, letters, letters.flip(1))], 1)
    tokens = torch.cat([task + COPY, words[:, :-1]], 1)
    targets = torch.where(torch.arange(LENGTH) < N, -1, words)
    return tokens, torch.arange(LENGTH).expand(BATCH, LENGTH), targets


def run(model, batch):
    """The mean loss of all targets, and which sequences are right: the same on all ranks."""
    losses, right = model(*(distributed.shard(x, 1, **model.how) for x in batch))  # [1, parts of this rank]
    loss = distributed.sum_parts(losses[0], group=model.how["group"], layout=SPLIT["layout"]) / (BATCH * N)
    return loss, distributed.unshard(right, 1, **model.how).all(1)


class Adam:
    """Kingma and Ba 2015.  (torch.optim is as good; its import takes longer than this training.)"""

    def __init__(self, parameters, b1=0.9, b2=0.99):
        self.parameters, self.b1, self.b2, self.steps = list(parameters), b1, b2, 0
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]

    @torch.no_grad()
    def step(self, rate):
        self.steps += 1
        scale1, scale2 = 1 / (1 - self.b1**self.steps), 1 / (1 - self.b2**self.steps)
        for p, (first, second) in zip(self.parameters, self.moments):
            first.mul_(self.b1).add_(p.grad, alpha=1 - self.b1)
            second.mul_(self.b2).addcmul_(p.grad, p.grad, value=1 - self.b2)
            p.addcdiv_(first, (second * scale2).sqrt_().add_(1e-8), value=-rate * scale1)
            p.grad = None


def rate_at(step, steps):
    """Linear warm-up over the first tenth, then cosine decay."""
    done = step / steps
    return RATE * done / 0.1 if done < 0.1 else RATE * 0.5 * (1 + math.cos(math.pi * (done - 0.1) / 0.9))


def main():
    folder, steps = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."), int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    torch.set_num_threads(1)  # bits of a matrix product may depend on their number
    group = join()
    first = not distributed.parts(1, group=group) == []  # rank 0 has the first token
    torch.manual_seed(1)  # the same weights on all ranks
    model = Model(group)
    adam = Adam(model.parameters())
    generator, begin, losses = torch.Generator().manual_seed(1), time.process_time(), []
    for step in range(steps):
        loss, _ = run(model, draw(generator))
        loss.backward()
        adam.step(rate_at(step + 1, steps))
        losses.append(loss.item())
    with torch.no_grad():
        generator.manual_seed(0x5EED)
        right = sum(int(run(model, draw(generator))[1].sum()) for _ in range(HELD_OUT))
    if first:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "loss.csv").write_text("step,loss\n" + "".join(f"{n + 1},{loss:.9g}\n" for n, loss in enumerate(losses)))
        print(f"loss {losses[0]:.4f} at first, {losses[-1]:.9g} at last; {time.process_time() - begin:.1f} seconds of CPU time of rank 0")
        print(f"held out: {right} of {HELD_OUT * BATCH} sequences right")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0 if right == HELD_OUT * BATCH else 1


if __name__ == "__main__":
    sys.exit(main())
