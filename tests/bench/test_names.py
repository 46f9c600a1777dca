# SPDX-License-Identifier: MIT
"""`attn bench`: names, sweeps, layers, decoding, a matrix; how many calls are timed; what is rejected.  No test depends on measured speed."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ATTN, LAYERS = os.path.abspath(sys.argv[1]), sys.argv[2] == "1"
ONCE = ["-i", "1", "-w", "0", "--threads", "1", "--json"]
NAMES = {
    "standard": (["sdpa"], "softmax", "matrix:f32:b2:hq4:sq32:d8"),
    "flash_v2": (["flash"], "softmax", "fwd:f32:b2:hq4:sq32:d8"),
    "xformers": (["memory_efficient"], "softmax", "fwd:f32:b2:hq4:sq32:d8"),
    "triton_flash": (["triton"], "softmax", "fwd:bf16:b2:hq4:sq32:d8"),
    "multi_head": (["mha"], "layer", "layer:mha:fwd:f32:b2:hq4:sq32:d8:m32"),
    "grouped_query": (["gqa"], "layer", "layer:gqa:fwd:f32:b2:hq4:hkv1:sq32:d8:m32"),
    "multi_latent": (["mla"], "layer", "layer:mla:fwd:f32:b2:hq4:sq32:d8:m32:rank=32"),
    "mla_rope": ([], "layer", "layer:mla:fwd:f32:b2:hq4:sq32:d8:m32:rank=32:rotary=4"),
    "linear": (["linear_attention"], "linear", "linear:f32:b2:hq4:sq32:d8"),
    "performer": ([], "linear", "linear:f32:b2:hq4:sq32:d8:phi=favor/256"),
    "triton_linear": (["fast_linear"], "linear", "linear:f32:b2:hq4:sq32:d8:form=chunked"),
}
SMALL = ["-b", "2", "-s", "32", "-e", "32", "-n", "4"]


def attn(*words):
    return subprocess.run([ATTN, "bench", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def measured(*words):
    done = attn(*words, *ONCE)
    assert done.returncode == 0 and done.stderr == "", (words, done.returncode, done.stderr)
    return json.loads(done.stdout)


def problems(*words):
    """The strings in the table, which takes less time than the JSON: without it memory is not filled to be read."""
    done = attn(*words, *ONCE[:-1])
    assert done.returncode == 0 and done.stderr == "", (words, done.returncode, done.stderr)
    return [next(word for word in line.split() if ":" in word) for line in done.stdout.split("\n\n")[1].splitlines()[1:]]


class Names(unittest.TestCase):
    def test_the_list(self):
        rows = json.loads(attn("--list", *SMALL, "--json").stdout)["counterparts"]
        self.assertEqual([(row["name"], row["aliases"], row["type"]) for row in rows], [(name, *about[:2]) for name, about in NAMES.items()])
        every = [word for row in rows for word in (row["name"], *row["aliases"])]
        self.assertEqual(len(every), len(set(every)))
        for row in rows:
            self.assertEqual((row["available"], row["backend"]), (LAYERS or row["type"] != "layer", "cpu"))
            self.assertEqual(row["problem"].replace("layer:mha", "layer:mha:fwd").replace("layer:gqa", "layer:gqa:fwd").replace("layer:mla", "layer:mla:fwd"),
                             NAMES[row["name"]][2])
            self.assertTrue(row["note"])
        text = attn("--list").stdout
        for line in (r"attn_fwd_f32_scalar +--isa=scalar", r"flash_v2 = flash +softmax +fwd:f32:b1:hq12:sq1024:d64$", r"performer +linear +linear:.*phi=favor/256$",
                     r"standard = sdpa +softmax +matrix:.*\n +all scores in memory: two matrix products and a softmax between them$"):
            self.assertRegex(text, rf"(?m)^  {line}")

    def test_every_name_and_alias_runs(self):
        """Each is what the list says, under the name that was given."""
        words, expected = [], []
        for name, (aliases, kind, problem) in NAMES.items():
            for word in (name, *aliases, name.replace("_", "-")):
                if kind != "layer" or LAYERS:
                    words.append(word)
                    expected.append((word, problem))
        rows = measured(*words, *SMALL)["results"]
        self.assertEqual([(row["name"], row["problem"]) for row in rows], expected)
        for row in rows:
            self.assertGreater(row["flops"], 0)
            self.assertGreater(row["tensor_bytes"], 0)

    @unittest.skipUnless(LAYERS, "a build without layers")
    def test_sizes(self):
        found = problems("gqa", "flash", "-b", "1,2", "-s", "8,16", "-e", "64", "-n", "8", "--causal")
        self.assertEqual(found, [f"layer:gqa:fwd:f32:{b}hq8:hkv2:sq{n}:d8:causal:m64" for b in ("", "b2:") for n in (8, 16)]
                         + [f"fwd:f32:{b}hq8:sq{n}:d8:causal" for b in ("", "b2:") for n in (8, 16)])

    def test_the_standard_one_has_a_matrix(self):
        standard, flash = measured("standard", "flash", "-s", "64", "-e", "32", "-n", "4")["results"]
        self.assertEqual(standard["workspace_bytes"], 4 * 64 * 64 * 4)
        self.assertEqual(standard["kernel"], "two products, softmax between them")
        self.assertEqual((standard["flops"], standard["tensor_bytes"]), (flash["flops"], flash["tensor_bytes"]))

    def test_unknown_names(self):
        known = "known: " + ", ".join(NAMES)
        for word, near in (("flsh", " (nearest: flash)"), ("zzzzzzzzzzzz", "")):
            done = attn(word)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, rf"^attn bench: {word}: neither a problem string, which has colons, nor a name{re.escape(near)[:-2]}.*; {known}\n$")


class Sweeps(unittest.TestCase):
    def test_products(self):
        self.assertEqual(problems("fwd,bwd:f32:hq2:sq8,16:d4,8"), [f"{op}:f32:hq2:sq{n}:d{d}" for op in ("fwd", "bwd") for n in (8, 16) for d in (4, 8)])
        self.assertEqual(problems("fwd:f32,bf16,f64:b1,2:sq8:d4"), [f"fwd:{t}:{b}sq8:d4" for t in ("f32", "bf16", "f64") for b in ("", "b2:")])
        self.assertEqual(problems("fwd:sq8,sq9:d4"), ["fwd:f32:sq8:d4", "fwd:f32:sq9:d4"])
        self.assertEqual(problems("decode:sq1:skv16,32:d4"), ["decode:f32:sq1:skv16:d4", "decode:f32:sq1:skv32:d4"])

    def test_options_do_not_sweep(self):
        self.assertEqual(problems("fwd:sq8,16:d4:window=2,0:block=4,4/0.25"), [f"fwd:f32:sq{n}:d4:window=2,0:block=4,4/0.25" for n in (8, 16)])

    @unittest.skipUnless(LAYERS, "a build without layers")
    def test_layers(self):
        self.assertEqual(problems("layer:mha,gqa:fwd,bwd:hq2:sq8:d4:m8,16"),
                         [f"layer:{kind}:{op}:f32:hq2:sq8:d4:m{m}" for kind in ("mha", "gqa") for op in ("fwd", "bwd") for m in (8, 16)])

    def test_files_have_sweeps_and_names(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "list.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("fwd:sq8,9:d4 # two\nflash\n")
            self.assertEqual(problems("--problems", path, "-s", "8", "-e", "4", "-n", "1"), ["fwd:f32:sq8:d4", "fwd:f32:sq9:d4", "fwd:f32:sq8:d4"])


class Sampling(unittest.TestCase):
    def test_iterations(self):
        done = attn("fwd:sq8:d4", "fwd:sq64:d16", "--threads=1", "--json", "--iterations=7", "--warmup=2", "--samples")
        whole = json.loads(done.stdout)
        self.assertEqual((whole["iterations"], "seconds_per_problem" in whole), (7, False))
        for row in whole["results"]:
            self.assertEqual((row["samples"], row["calls_per_sample"], len(row["seconds_all"])), (7, 1, 7))

    def test_the_baseline(self):
        words = ("fwd:sq8:d4", "flash", "fwd:sq32:hq4:d8", "-s", "16", "-e", "4", "-n", "1")
        whole = measured(*words, "--baseline=flash")
        rows = whole["results"]
        self.assertEqual(rows[1]["speedup"], 1)
        for row in rows:
            self.assertEqual(row["baseline"], rows[1]["problem"])
            self.assertAlmostEqual(row["speedup"] * row["seconds"]["median"] / rows[1]["seconds"]["median"], 1, 9)
        for given, place in ((None, 0), ("3", 2), ("fwd:sq32:hq4:d8", 2), ("fwd:f32:hq4:sq32:d8", 2)):
            table = attn(*words, *(["--baseline", given] if given else []), *ONCE[:-1]).stdout.split("\n\n")[1].splitlines()
            self.assertIn(" 1.00x ", table[1 + place], (given, table))

    def test_names_by_length_are_compared_by_length(self):
        words = ("standard", "flash", "-s", "8,16", "-e", "4", "-n", "1")
        for with_, base in ((), (0, 1, 0, 1)), (("--baseline=flash",), (2, 3, 2, 3)), (("--baseline=2",), (1, 1, 1, 1)):
            rows = measured(*words, *with_)["results"]
            self.assertEqual([row["baseline"] for row in rows], [rows[k]["problem"] for k in base], with_)
            for row, k in zip(rows, base):
                self.assertAlmostEqual(row["speedup"] * row["seconds"]["median"] / rows[k]["seconds"]["median"], 1, 9)
        uneven = measured("fwd:sq8,16:d4", "bwd:sq8,16,32:d4")["results"]  # not as many each: one baseline
        self.assertEqual({row["baseline"] for row in uneven}, {"fwd:f32:sq8:d4"})

    def test_the_table(self):
        done = attn("fwd:sq8:d4", "flash", "-s", "16", "-e", "4", "-n", "1", "--threads=1", "-i", "2", "--baseline=2")
        lines = done.stdout.splitlines()
        self.assertEqual(lines[4].split()[:6], ["problem", "median", "p10", "p99", "speed-up", "GFLOP/s"])
        self.assertRegex(lines[5], r"^fwd:f32:sq8:d4 .* \d+\.\d\dx ")
        self.assertRegex(lines[6], r"^flash = fwd:f32:sq16:d4 .* 1\.00x ")


class Decode(unittest.TestCase):
    def test_words(self):
        rows = measured("decode:int8:hq4:hkv2:sq1:skv64:d32:rope:page=16", "decode:f32:sq1:skv64:d8:steps=16", "decode:f32:sq4:skv64:d8")["results"]
        self.assertEqual([row["problem"] for row in rows],
                         ["decode:int8:hq4:hkv2:sq1:skv64:d32:page=16:rope", "decode:f32:sq1:skv64:d8:steps=16", "decode:f32:sq4:skv64:d8"])
        self.assertEqual(rows[1]["flops"], 2 * 16 * sum(range(49, 65)))
        self.assertEqual(rows[2]["flops"], 2 * 16 * (61 + 62 + 63 + 64))
        self.assertAlmostEqual(rows[1]["tokens_per_second"] * rows[1]["seconds"]["median"], 16)


class Nothing(unittest.TestCase):
    """Sizes of 0 are no errors."""

    def test_nothing_to_do(self):
        problems("matrix:b0:sq2:d4", "matrix:sq2:skv0:d4", "decode:b0:hq2:sq1:skv9:d4:rope", "decode:sq0:skv9:d4")

    @unittest.skipUnless(LAYERS, "a build without layers")
    def test_layers(self):
        problems("layer:gqa:decode:b0:hq4:hkv2:sq1:skv9:d4:dv8", "layer:mla:decode:b0:hq2:sq1:skv9:d4", "layer:mha:bwd:sq0:d4")


class Rejections(unittest.TestCase):
    def rejected(self, status, message, *words):
        done = attn(*words)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (status, "", f"attn bench: {message}\n"))

    def test_sweeps(self):
        self.rejected(2, "fwd:sq8,:d4: an empty value in 'sq8,'", "fwd:sq8,:d4")
        self.rejected(2, "fwd:sq8,,9:d4: an empty value in 'sq8,,9'", "fwd:sq8,,9:d4")
        ten = ",".join(str(n) for n in range(1, 12))
        self.rejected(2, f"fwd:sq{ten}:d{ten}:b{ten}: more than 1000 problems; all of them are in memory at the same time", f"fwd:sq{ten}:d{ten}:b{ten}")
        self.rejected(2, "fwd" + ":a" * 48 + ": more than 48 words", "fwd" + ":a" * 48)
        done = attn("a:" + "b" * 300)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "^attn bench: a:b{100,}: a string of 302 characters is too long\n$")

    def test_flags(self):
        self.rejected(2, "--seq-lengths is for names, of which there is none; a string has its own sizes, as in sq256,512", "fwd:sq8:d4", "-s", "8")
        self.rejected(2, "--causal is for names, of which there is none; a string has its own sizes, as in sq256,512", "--causal")
        self.rejected(2, "--embed-dim (768) is not a multiple of --num-heads (5)", "flash", "-n", "5")
        self.rejected(2, "--batch-sizes: '' is not an integer", "flash", "-b", "1,")
        self.rejected(2, "--batch-sizes (0) is not between 1 and 2147483647", "flash", "-b", "0")
        self.rejected(2, "--seq-lengths: more than 32 numbers", "flash", "-s", ",".join(["1"] * 33))
        self.rejected(2, "--iterations (0) is not between 1 and 1000000000", "fwd:sq8:d4", "-i", "0")
        self.rejected(2, "--warmup (-1) is not between 0 and 1000000000", "fwd:sq8:d4", "--warmup=-1")
        self.rejected(2, "--baseline: 'flesh' is none of the 1 problems (nearest: flash)", "flash", "--baseline=flesh", "-s", "8")
        self.rejected(2, "--baseline: '2' is none of the 1 problems (nearest: fwd:sq8:d4)", "fwd:sq8:d4", "--baseline=2")

    def test_decode(self):
        self.rejected(2, "decode:sq9:skv8:d4: sq (9) is more than skv (8), the keys in the cache once the sq new tokens are there", "decode:sq9:skv8:d4")
        self.rejected(2, "decode:sq1:d4:causal: decode is causal from the last key on: causal=bottom-right, or without the word", "decode:sq1:d4:causal")
        self.rejected(2, "decode:sq1:d4:packed: decode takes no packed: each sequence has sq new tokens, its last", "decode:sq1:d4:packed")
        self.rejected(2, "decode:sq1:skv9:d4:lens: decode takes no lens=both or lens=q: it appends sq tokens to every sequence", "decode:sq1:skv9:d4:lens")
        self.rejected(2, "decode:sq3:skv8:d4:steps=3: 3 steps of sq3 do not fit: the cache ends with skv8 keys", "decode:sq3:skv8:d4:steps=3")
        self.rejected(2, "decode:sq1:skv8:d4:steps=3:schedule: steps and schedule are both set; a schedule is of the lengths of one step",
                      "decode:sq1:skv8:d4:steps=3:schedule")
        self.rejected(2, "decode:b2:sq1:skv8:d4:page=4:prefix=8: prefix=8 reaches into the new tokens, which sequences do not share",
                      "decode:b2:sq1:skv8:d4:page=4:prefix=8")
        self.rejected(2, "decode:sq33:skv64:d32:ktype=q4_1c: keys of q4_1c keep their last 32 exactly, so no more can be appended again and again",
                      "decode:sq33:skv64:d32:ktype=q4_1c")
        self.rejected(2, "fwd:sq8:d4:steps=2: steps is a word of decode in attn bench, which appends so many times in a call", "fwd:sq8:d4:steps=2")

    def test_a_matrix(self):
        words = "fwd f32 b hq hkv sq skv d dv causal scale seed"
        self.rejected(2, f"matrix:f64:sq8:d4: matrix takes no 'f64' (its words: {words})", "matrix:f64:sq8:d4")
        self.rejected(2, f"matrix:sq8:d4:softcap=2: matrix takes no 'softcap=2' (its words: {words})", "matrix:sq8:d4:softcap=2")
        self.rejected(2, "matrix:sq8:d4:causal=bottom-right: matrix takes causal and scale=X above 0, in no other form", "matrix:sq8:d4:causal=bottom-right")

    def test_layers(self):
        words = "fwd bwd decode f32 f64 b hq hkv sq skv d dv causal window chunk softcap scale page ktype vtype rope seed prefill m rank rank-query rotary"
        bad = {
            "layer:mla2:sq8:d4": "unknown layer 'mla2' (known: mha, gqa, mla)",
            "layer:mha:bf16:sq8:d4": f"a layer takes no 'bf16' (its words: {words})",
            "layer:mha:sq8:d4:bias": f"a layer takes no 'bias' (its words: {words})",
            "layer:mha:sq8": "d is missing (the width of a query, as in d64)",
            "layer:mha:sq8:d4:m8:m8": "m is given twice",
            "layer:mha:sq8:d4:m0": "m (0) is not between 1 and 2147483647",
            "layer:mha:bwd:prefill:sq8:d4": "prefill and bwd are both set",
            "layer:mha:prefill:sq8:skv9:d4": "prefill begins with an empty cache: skv is sq, and may be left out",
            "layer:mha:decode:sq8:skv4:d4": "sq (8) is more than skv (4), the keys in the cache once the sq new tokens are there",
            "layer:mha:sq8:skv9:d4": "skv is for decode; a layer attends to its own sq tokens",
            "layer:mha:sq8:d4:page=4": "page, ktype and vtype are of a cache: they need decode or prefill",
            "layer:mha:hq4:hkv2:sq8:d4": "mha has a key head for each query head; hkv is for layer:gqa",
            "layer:mla:hq4:hkv2:sq8:d4": "mla takes no hkv, rope and vtype: its heads share a latent (rank), and rotary channels rotate",
            "layer:gqa:sq8:d4:rank=8": "rank, rank-query and rotary are words of layer:mla",
            "layer:mla:sq8:d4:rotary=3": "rotary (3) is odd; channels rotate in pairs",
            "layer:mha:" + "a" * 81 + ":sq8:d4": f"a word of 81 characters is too long: '{'a' * 40}...'",
        }
        for string, message in bad.items():
            self.rejected(2, f"{string}: {message}", string)

    @unittest.skipIf(LAYERS, "a build with layers")
    def test_a_build_without_layers(self):
        self.rejected(3, "layer:mha:sq8:d4: layers need libattn_layers, which this build was made without", "layer:mha:sq8:d4")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
