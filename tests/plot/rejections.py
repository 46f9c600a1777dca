# SPDX-License-Identifier: MIT
"""What `attn plot` rejects: one line, and no picture."""
import json
import math
import os
import subprocess

from files import ATTN, save
import tap


def rejected(status, message, *words):
    done = subprocess.run([ATTN, "plot", *words], capture_output=True, text=True)
    tap.check(f"rejected: {message}", (done.returncode, done.stdout, done.stderr) == (status, "", f"attn plot: {message}\n") and not os.path.exists("out.svg"),
              f"{done.returncode} {done.stderr}")


def check_rejections():
    def poisoned(path, name, value, shape=(1, 2, 2)):
        numbers = [0.5] * math.prod(shape)
        numbers[3] = value
        save(path, **{name: (list(shape), numbers)})

    out = ("-o", "out.svg")
    poisoned("nan.safetensors", "weights", math.nan)
    poisoned("inf.safetensors", "scores", math.inf)
    poisoned("negative.safetensors", "weights", -0.25)
    poisoned("ways_nan.safetensors", "path", math.nan)
    save("empty.safetensors", weights=([0, 4], []))
    save("one.safetensors", weights=([4], [1, 0, 0, 0]))
    save("other.safetensors", weights=([1, 2, 3], [0.5] * 6))
    save("good.safetensors", weights=([1, 2, 2], [0.5] * 4))
    with open("broken.json", "w") as file:
        file.write('{"results": [')
    with open("nothing.json", "w") as file:
        file.write('{"a": 1}')
    with open("null.json", "w") as file:
        json.dump({"results": [{"problem": "fwd:f32:sq8:d8", "seconds": {"median": None}}]}, file)
    with open("one.json", "w") as file:
        json.dump({"results": [{"problem": "fwd:f32:sq8:d8", "seconds": {"median": 1, "p90": 1, "p99": 1}}]}, file)
    with open("word.json", "w") as file:
        json.dump({"results": [{"problem": "fwd:f33:sq8:d8", "seconds": {"median": 1}}]}, file)
    with open("ragged.csv", "w") as file:
        file.write("problem,seconds_median\nfwd:f32:sq8:d8\n")
    open("nil", "w").close()
    with open("junk", "w") as file:
        file.write("{ not JSON")

    with open("roles.json", "w") as file:
        json.dump({"heads": [{"layer": 0, "head": 0, "previous": 1}]}, file)
    with open("plain.json", "w") as file:
        json.dump({"heads": [{"layer": 0, "head": 0, "entropy": 1}]}, file)
    with open("wide.json", "w") as file:
        json.dump({"heads": [{"layer": k, "head": 999 * k, "previous": 1} for k in range(200)]}, file)
    rejected(2, "nothing.json: no 'heads'; `attn analyze --roles --json` writes them", "roles", "nothing.json", *out)
    rejected(2, "good.safetensors: no 'heads'; `attn analyze --roles --json` writes them", "roles", "good.safetensors", *out)
    rejected(2, "plain.json: a head has no layer, head or roles; `attn analyze --roles --json` writes them", "roles", "plain.json", *out)
    rejected(2, "--entry: there is no 1, only 0", "roles", "roles.json", "--entry=1", *out)
    rejected(3, "wide.json: 200 layers of 198802 heads are too many for a picture", "roles", "wide.json", *out)
    rejected(2, "--layer has no effect on a picture of kind roles; it is for weights, heads, steps, compare, entropy, temperature, gradients, mask",
             "roles", "roles.json", "--layer=0", *out)
    rejected(2, "no kind of picture; for example: attn plot weights OUT.safetensors -o weights.svg")
    rejected(2, "no input file; for example: attn plot weights OUT.safetensors -o weights.svg", "weight")
    rejected(2, "unknown kind 'weight' (nearest: weights); `attn plot --help` lists them", "weight", "good.safetensors", *out)
    rejected(2, "no input file; for example: attn plot weights OUT.safetensors -o weights.svg", "weights", *out)
    rejected(2, "no output file; for example: attn plot weights OUT.safetensors -o weights.svg", "weights", "good.safetensors")
    rejected(2, "out.png: expected a name that ends in .svg or .html", "weights", "good.safetensors", "-o", "out.png")
    rejected(2, "weights takes 1 file, not 2", "weights", "good.safetensors", "good.safetensors", *out)
    rejected(2, "none.safetensors: cannot open: No such file or directory", "weights", "none.safetensors", *out)
    rejected(2, "nil: is empty", "weights", "nil", *out)
    os.mkdir("folder.safetensors")
    rejected(2, "folder.safetensors: is a directory", "weights", "folder.safetensors", *out)
    for device in ("/dev/null", "/dev/full"):  # the latter never ends
        rejected(2, f"{device}: is neither a file nor a pipe", "weights", device, *out)
    rejected(2, "junk: is not complete JSON", "weights", "junk", *out)
    rejected(2, "broken.json: is not complete JSON", "runtime", "broken.json", *out)
    rejected(2, "nan.safetensors: tensor 'weights': number 3 is nan", "weights", "nan.safetensors", *out)
    rejected(2, "inf.safetensors: tensor 'scores': number 3 is inf", "temperature", "inf.safetensors", *out)
    rejected(2, "negative.safetensors: tensor 'weights' does not hold weights: -0.25 is below 0", "weights", "negative.safetensors", *out)
    rejected(2, "good.safetensors: no tensor 'scores' (available: weights); attn run --scores=biased writes it", "temperature", "good.safetensors", *out)
    rejected(2, "bench.json: holds no tensors; attn run --weights writes 'weights'", "weights", "bench.json", *out)
    rejected(2, "empty.safetensors: tensor 'weights' has an axis of size 0: nothing to draw", "weights", "empty.safetensors", *out)
    rejected(2, "one.safetensors: tensor 'weights' has 1 axes; at least 2 are needed", "weights", "one.safetensors", *out)
    rejected(2, "good.safetensors: no tensor 'loss' (available: weights); attn train -o writes it", "loss", "good.safetensors", *out)
    save("table.safetensors", loss=([1, 2], [1.0, 2.0]))
    rejected(2, "table.safetensors: tensor 'loss' is not [step] with at least one step", "loss", "table.safetensors", *out)
    rejected(2, "compare needs at least two files", "compare", "good.safetensors", *out)
    rejected(2, "other.safetensors: [1, 2, 3] weights do not fit those of good.safetensors, [1, 2, 2]", "compare", "good.safetensors", "other.safetensors", *out)
    rejected(2, "--layer: there is no 9, only 0 to 5", "weights", "out.safetensors", "--layer=9", *out)
    rejected(2, "--head: there is no 12, only 0 to 11", "weights", "out.safetensors", "--head=12", *out)
    rejected(2, "--layer and --head name 12 matrices; this picture shows one", "weights", "out.safetensors", "--head=0-11", *out)
    rejected(2, "--entry: there is no 1, only 0", "weights", "out.safetensors", "--entry=1", *out)
    rejected(2, "--query: there is no 14, only 0 to 13", "temperature", "out.safetensors", "--query=14", *out)
    every = "weights, heads, steps, compare, entropy, temperature, gradients, mask"
    for kind, flag, others in (("weights", "--query=77", "compare, temperature"), ("mask", "--query=0", "compare, temperature"),
                               ("entropy", "--tensor=x", "weights, heads, compare, temperature, mask"),
                               ("mask", "--high=max", "weights, heads, compare"), ("runtime", "--layer=0", every), ("latency", "--entry=0", every.replace("entropy", "entropy, roles")),
                               ("peers", "--head=0", every), ("hopfield", "--layer=9", every)):
        rejected(2, f"{flag.split('=')[0]} has no effect on a picture of kind {kind}; it is for {others}", kind, "good.safetensors", flag, *out)
    rejected(2, "--high: '0' is not a number above 0, or max", "weights", "out.safetensors", "--high=0", *out)
    rejected(2, "good.safetensors: has no queries, 'q'; give the file that attn run read, too: attn plot steps OUT IN -o steps.svg", "steps", "good.safetensors", *out)
    rejected(2, "good.safetensors: no tensor 'dq' (available: weights); attn run --backward writes it", "gradients", "good.safetensors", *out)
    rejected(2, "nothing.json: no 'gradient_norms'; `attn analyze --gradients --json` writes them", "gradients", "nothing.json", *out)
    rejected(2, "nothing.json: no 'states'; `attn hopfield --json` writes them", "hopfield", "nothing.json", *out)
    rejected(2, "ways_nan.safetensors: tensor 'path': number 3 is nan", "hopfield", "ways_nan.safetensors", *out)
    rejected(2, "good.safetensors: no tensor 'path' (available: weights); attn hopfield -o writes it", "hopfield", "good.safetensors", *out)
    rejected(2, "nothing.json: no 'results'; `attn bench --json` or --csv writes them", "runtime", "nothing.json", *out)
    rejected(2, "null.json: fwd:f32:sq8:d8: 'seconds.median' is not a number", "runtime", "null.json", *out)
    rejected(2, "one.json: one result alone; a picture compares lengths or variants", "runtime", "one.json", *out)
    rejected(2, "one.json: fwd:f32:sq8:d8 has no 'seconds_all' and no 'histogram'; `attn bench --json --samples` writes both", "latency", "one.json", *out)
    for name, row, why in (("noscaling.json", {"problem": "fwd"}, "a result has no 'scaling'; `attn-mpi bench --json` writes it"),
                           ("noranks.json", {"problem": "fwd", "scaling": "weak"}, "fwd, weak has no 'ranks'"),
                           ("zeroranks.json", {"problem": "fwd", "scaling": "weak", "ranks": 0}, "fwd, weak: 'ranks' is 0; it is too small")):
        with open(name, "w") as file:
            json.dump({"results": [row]}, file)
        rejected(2, f"{name}: {why}", "scaling", name, *out)
    for name, content, why in (
            ("norows.json", {"rows": []}, "no list 'rows' of 1 to 64 entries; such files are in bench/results"),
            ("nowords.json", {"rows": [{"ratios": {"One": 1}}]}, "a row has no 'words' or no 'ratios'"),
            ("zero.json", {"rows": [{"words": "fwd", "ratios": {"One": 0}}]}, "fwd: 'One' is not a number above 0"),
            ("many.json", {"rows": [{"words": "fwd", "ratios": {str(n): 1 for n in range(9)}}]}, "more than 8 names in 'ratios'")):
        with open(name, "w") as file:
            json.dump(content, file)
        rejected(3 if name == "many.json" else 2, f"{name}: {why}", "peers", name, *out)
    rejected(2, "ragged.csv: line 2 does not have as many fields as the first (2)", "runtime", "ragged.csv", *out)
    rejected(2, "nowhere/out.svg: cannot create a file beside it: No such file or directory", "weights", "good.safetensors", "-o", "nowhere/out.svg")
