#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tensors from text: numbers on the command line, CSV and JSON files and standard input, for every role and every command that
reads tensors; their numbers on standard output; and messages with the line and column of what is wrong.

usage: text.py ATTN
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = sys.argv[1]
Q, K, V = [[1.5, 0.25], [-0.5, 2]], [[1, 0.125], [0, -1], [3, 0.5]], [[1, 2, 3], [4, 5, 6], [7, 8, 10]]


def attn(*words, text=None, status=0):
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, input=text or "")
    if done.returncode != status:
        check(f"status {status}: attn {' '.join(words)}", False, f"{done.returncode} {done.stderr}")
    return done


def rows_of(tensor, between="; "):
    """'1 0; 0 1' for a matrix, '1 2' for a vector."""
    if isinstance(tensor[0], list):
        return between.join(" ".join(str(x) for x in row) for row in tensor)
    return " ".join(str(x) for x in tensor)


def flat(tensor):
    return [x for row in tensor for x in flat(row)] if isinstance(tensor, list) else [tensor]


def shape(tensor):
    return [len(tensor), *shape(tensor[0])] if isinstance(tensor, list) else []


def outputs(*words, text=None):
    attn("run", *words, "-o", "out.safetensors", text=text)
    tensors, _ = tensor_file.read("out.safetensors")
    os.remove("out.safetensors")
    return tensors


# {role: (its flag, type, tensor, other flags)}
ROLES = {
    "mask": ("mask", "BOOL", [[1, 0, 1], [1, 1, 0]], []), "bias": ("bias", "F32", [[0.5, float("-inf"), 1], [2, 0, -1]], []),
    "slopes": ("slopes", "F32", [0.25], []), "sink": ("sink", "F32", [0.5], []), "lengths_kv": ("lengths-kv", "I64", [2], []),
    "lengths_q": ("lengths-q", "I64", [1], []), "offset": ("offset", "I64", [1], ["--causal"]),
    "bias_table": ("bias-table", "F32", [[1, 2, 3, 4, 5]], ["--clipped=2"]), "relative_keys": ("relative-keys", "F32", [[1, 2], [3, 4], [5, 6]], ["--rel=shaw/1"]),
    "w": ("w", "F32", [[1, 2], [3, 4]], ["--score=general"]), "blocks": ("block-mask", "BOOL", [[1, 0]], ["--block=2,2"]),
    "dropout_keep": ("dropout-given", "BOOL", [[1, 0, 1], [1, 1, 1]], ["--dropout=0.5"]),
    "cu_seqlens_q": ("cu-seqlens-q", "I64", [0, 1, 2], ["--cu-seqlens-kv=0 1 3"]), "cu_seqlens_kv": ("cu-seqlens-kv", "I64", [0, 1, 3], ["--cu-seqlens-q=[0, 1, 2]"]),
    "do": ("do", "F32", [[1, 2, 3], [4, 5, 6]], ["--backward"]), "tan_q": ("tan-q", "F32", [[1, 2], [3, 4]], ["--jvp"]),
    "positions_q": ("positions-q", "I64", [3, 1], ["--rope", "--positions-kv=0 1 2"]),
    "k": ("key", "F32", K, []), "v": ("value", "F32", V, []), "q": ("query", "F32", Q, []),
}


def roles():
    three = {"q": ("F32", shape(Q), flat(Q)), "k": ("F32", shape(K), flat(K)), "v": ("F32", shape(V), flat(V))}
    for role, (flag, dtype, tensor, more) in ROLES.items():
        given = {**three, role: (dtype, shape(tensor), flat(tensor))}
        tensor_file.write("all.safetensors", given)
        expected = outputs("all.safetensors", *more)
        del given[role]
        tensor_file.write("rest.safetensors", given)
        with open("t.csv", "w") as file:
            file.write("# a comment\n" + rows_of(tensor, "\n").replace(" ", ",\t") + "\n")
        if isinstance(tensor[0], list):
            column = None
        else:  # a vector in a column, too
            column = "\n".join(str(x) for x in tensor)
        with open("t.json", "w") as file:
            json.dump(tensor, file)
        for other in ("t.tsv", "t.txt"):
            with open(other, "w") as file:
                file.write(rows_of(tensor, "\n").replace(" ", "\t"))
        ways = {".tsv": "t.tsv", ".txt": "@t.txt", "rows": rows_of(tensor), "brackets": json.dumps(tensor), "@CSV": "@t.csv", "CSV": "t.csv", "JSON": "t.json"}
        for way, value in ways.items():
            check(f"{flag} in {way}", outputs("rest.safetensors", f"--{flag}={value}", *more) == expected)
        check(f"{flag} from standard input", outputs("rest.safetensors", f"--{flag}=-", *more, text=rows_of(tensor)) == expected)
        if column:
            check(f"{flag} as a column", outputs("rest.safetensors", f"--{flag}=@-", *more, text=column) == expected)
        object_of = {name: tensor if name == role else {"q": Q, "k": K, "v": V}[name] for name in {**given, role: 0}}
        check(f"{role} in an object of JSON", outputs("-", *more, text=json.dumps(object_of)) == expected)


def rows_and_names():
    short = outputs("--q=" + rows_of(Q), "--k=" + rows_of(K), "--v=" + rows_of(V))
    check("--q, --k and --v", short == outputs("--query=" + rows_of(Q), "--key=" + rows_of(K), "--value=" + rows_of(V)))
    check("  by position of the flags' values", short["o"][1] == [2, 3])
    check("NumPy's way of printing", short == outputs("--q=[[ 1.5   0.25]\n [-0.5   2.  ]]", "--k=" + json.dumps(K), "--v=" + json.dumps(V)))
    check("a semicolon at the end of each line", short == outputs("--q=" + rows_of(Q, ";\n") + ";\n", "--k=" + rows_of(K), "--v=" + rows_of(V)))
    for end in ("\r", "\r\n"):
        check(f"lines that end in {end!r}", short == outputs("--q=" + rows_of(Q, end), "--k=" + rows_of(K, f" # of keys{end}") + end, "--v=" + rows_of(V)))
    check("one row is one query", outputs("--q=1.5 0.25", "--k=" + rows_of(K), "--v=" + rows_of(V))["o"] == ("F32", [1, 3], short["o"][2][:3]))
    check("  with a semicolon, too", outputs("--q=1.5 0.25;", "--k=" + rows_of(K), "--v=" + rows_of(V))["o"] == ("F32", [1, 3], short["o"][2][:3]))
    heads = outputs(f"--q={[Q, Q]}", f"--k={[K, K]}", f"--v={[V, V]}")
    check("two heads in brackets", heads["o"] == ("F32", [2, 2, 3], short["o"][2] * 2))
    wide = outputs("--q=0.1 0.2", "--k=0.3 0.4", "--v=0.1", "--dtype=f64")
    check("--dtype=f64 reads all digits", wide["o"] == ("F64", [1, 1], (0.1,)), wide)
    check("--dtype=f64 of a file", outputs("-", "--dtype=f64", text='{"q": [[0.1]], "k": [[0.3]], "v": [[0.1]]}')["o"] == ("F64", [1, 1], (0.1,)))
    # A name of the file comes first, whatever it looks like.
    tensor_file.write("names.safetensors", {**{name: ("F32", [1, 1], [1]) for name in "qk"}, "2": ("F32", [1, 1], [5]), "v": ("F32", [1, 1], [7])})
    check("a tensor named like a number", outputs("names.safetensors", "--v=2")["o"][2] == (5,))
    check("  and a number", outputs("names.safetensors", "--v=3")["o"][2] == (3,))
    tensor_file.write("other.safetensors", {name: ("F32", [1, 1], [n]) for n, name in enumerate("qkv")})
    check("@FILE of several takes the one with the role's name", outputs("names.safetensors", "--v=@other.safetensors")["o"][2] == (2,))
    attn("run", "-", "-o", "out.npz", text='{"q": [[1]], "k": [[1]], "v": [[2]], "tokens": ["a"], "note": "n \\u00e9", "about": {"x": [1]}}')
    check("texts, lists of texts and objects are metadata", json.loads(attn("view", "-", "-o", "v.html", "--json", text='{"q": [[1]], "k": [[1]], "tokens": ["a"]}').stdout) is not None)
    attn("run", "-", "-o", "out.safetensors", text='{"q": [[1]], "k": [[1]], "v": [[2]], "tokens": ["a"], "note": "n \\u00e9", "about": {"x": [1]}}')
    metadata = tensor_file.read("out.safetensors")[1]
    check("  which are carried over", (metadata["tokens"], metadata["note"], metadata["about"]) == ('["a"]', "n é", '{"x":[1]}'), metadata)
    check("booleans need no role", tuple(outputs("-", "--bias=[[0.5]]", "--mask=m", text='{"q": [[1]], "k": [[1]], "v": [[2]], "m": [[true]]}')["o"][2]) == (2,))


def printed():
    done = attn("run", "--q=1 0; 0 1", "--k=1 0; 0 1", "--v=1 0; 0 10", "-o", "-", "--weights")
    check("-o - prints the numbers", done.stdout == "o f32 [2, 2]\n  0.669762  3.302384\n  0.330238  6.697616\n\n"
          "weights f32 [2, 2]\n  0.669762  0.330238\n  0.330238  0.669762\n", done.stdout)
    done = attn("run", "--q=1 0", "--k=1 0", "--v=1 0", "-o", "-", "--json", status=2)
    check("  and not beside --json", done.stderr == "attn run: -o - and --json both print on standard output; give one of them\n", done.stderr)
    check("  nothing is named -", not os.path.exists("-"))


def commands():
    """Standard input and text in every command that reads tensors."""
    text = json.dumps({"q": Q, "k": [Q[0], Q[1]], "v": Q, "tokens": ["a", "b"]})
    with open("in.json", "w") as file:
        file.write(text)
    for words in (["run", "-o", "out.npz"], ["top", "--token=a"], ["view", "-o", "out.html"], ["analyze"]):
        by_name = attn(words[0], "in.json", *words[1:]).stdout
        check(f"attn {words[0]} -", attn(words[0], "-", *words[1:], text=text).stdout == by_name.replace("in.json", "-"))
    check("attn top of numbers", "0.5" in attn("top", "--q=1 0", "--k=0 1; 0 1", "--token=#0").stdout)
    raw = open("all.safetensors", "rb").read()
    piped = subprocess.run([ATTN, "run", "-", "-o", "piped.npz", "--rope", "--positions-kv=0 1 2"], input=raw, capture_output=True)
    check("a binary file through a pipe", piped.returncode == 0, piped.stderr)
    for name, value in (("patterns.csv", "1 1 -1\n-1 1 1\n"), ("patterns.json", '{"patterns": [[1, 1, -1], [-1, 1, 1]]}')):
        with open(name, "w") as file:
            file.write(value)
        check(f"attn hopfield {name}", "pattern" in attn("hopfield", name).stdout)
    layer = {"x": [[1, 2], [3, 4]], **{f"w{x}": [[1, 0], [0, 1]] for x in "qkvo"}}
    if attn("--help").stdout.find("attn layer") > 0:
        check("attn layer -", attn("layer", "-", "--heads=1", "-o", "-", text=json.dumps(layer)).stdout.startswith("y f32 [2, 2]\n"))
    with open("map.csv", "w") as file:
        file.write("1,0\n1,1\n")
    check("attn mask --map of a CSV file", attn("mask", "map/2/2", "-n", "4", "--map=map.csv", "--text").stdout.count("\n") > 4)
    for name, value in (("w.csv", "1,0\n0.5,0.5\n"), ("w.json", '{"weights": [[1, 0], [0.5, 0.5]]}')):
        with open(name, "w") as file:
            file.write(value)
        attn("plot", "weights", name, "-o", "named.svg")
        attn("plot", "weights", "-", "-o", "piped.svg", text=value)
        check(f"attn plot of {name}, and piped", os.path.getsize("named.svg") > 1000 and os.path.getsize("piped.svg") > 1000)


def messages():
    run = ["run", "--k=1 0; 0 1", "--v=1 0; 0 1", "-o", "out.npz"]
    flags = {
        "1 0; 0 x": "line 1, column 8: 'x' is not a number", "1 0; 0": "line 1, column 6: row 2 has 1 number, and the rows before it have 2",
        "1 0;; 0 1": "line 1, column 5: no number is in the row before this ';'", "1,,0": "line 1, column 3: no number precedes this comma",
        "1,0,": "line 1, column 4: no number follows this comma", "1e999": "line 1, column 1: 1e999 is beyond the range of a double",
        "1e39": "tensor 'q': 1e39 is not in the range of f32; --dtype=f64 takes it", "[[1, 0], [0]]": "line 1, column 12: the list that ends here has 1 element, and those before it have 2",
        "[[1, 0], 2]": "line 1, column 10: a number is where the lists before it have lists", "[1, [2]]": "line 1, column 5: a list begins where the lists before it have numbers",
        "[[1, 0]": "line 1, column 8: a ']' is missing", "[1] 2": "line 1, column 5: '2' is after the end of the list", "[[1,]]": "line 1, column 4: no number follows this comma",
        "[[[[[[[[[1]]]]]]]]]": "line 1, column 9: lists in more than 8 levels", "1 2\n3 é4": "line 2, column 3: 'é4' is not a number",
        "[null]": "line 1, column 2: 'null' is not a number", "[,1]": "line 1, column 2: no number precedes this comma",
    }
    for value, said in flags.items():
        done = attn(*run, f"--q={value}", status=2)
        where = said if said.startswith("line") else "line 1, column 1: " + said
        check(f"--q={value!r}", done.stderr == f"attn run: --q: {where}\n", done.stderr)
    done = attn(*run, "--q=1 0; 0 1", "--mask=1 0; 2 1", status=2)
    check("a mask of 2", done.stderr == "attn run: --mask: line 1, column 6: tensor 'mask': 2 is not 0 or 1 (1 = keep)\n", done.stderr)
    done = attn(*run, "--q=1 0; 0 1", "--mask=0 -inf; 0 0", status=2)
    check("a mask to be added", done.stderr == "attn run: --mask: line 1, column 3: tensor 'mask': -inf is not 0 or 1 (1 = keep); --bias adds numbers to scores\n", done.stderr)
    done = attn(*run, "--q=1 0; 0 1", "--lengths-kv=1.5", status=2)
    check("a length of 1.5", done.stderr == "attn run: --lengths-kv: line 1, column 1: tensor 'lengths_kv': 1.5 is not an integer\n", done.stderr)
    done = attn(*run, "--q=-", "--mask=-", status=2, text="1 0")
    check("standard input twice", done.stderr == "attn run: -: standard input can be read once\n", done.stderr)
    done = attn(*run, "--q=-", status=2, text="")
    check("empty standard input", done.stderr == "attn run: standard input is empty\n", done.stderr)
    done = attn("run", "all.safetensors", "--v=@rest.safetensors", "-o", "out.npz", status=0)
    tensor_file.write("two.safetensors", {name: ("F32", [1], [1]) for name in "ab"})
    done = attn(*run, "--q=@two.safetensors", status=2)
    check("two tensors for one role", done.stderr == "attn run: two.safetensors: 2 tensors, none of which is 'q'; a file with one tensor was expected\n", done.stderr)
    done = attn("run", "all.safetensors", "-o", "out.npz", "--v=0.weigth", status=2)
    check("a name that begins with a digit", done.stderr.startswith("attn run: all.safetensors: no tensor '0.weigth'"), done.stderr)
    files = {
        "a.csv": {"1,2\n3,x\n": "line 2, column 3: 'x' is not a number", "a,b\n1,2\n": "line 1, column 1: 'a' is not a number; with a '#' before it, a line of names is a comment", "\n# nothing\n": "line 2, column 1: there is no number",
                  "1;2\n3;4\n": "line 2, column 1: both a ';' and the end of a line end rows here; between the numbers of a row is a comma",
                  "1,2\r3,x\r": "line 2, column 3: 'x' is not a number", "1,2\r\n3,x\r\n": "line 2, column 3: 'x' is not a number",
                  "1,2\n\n3\n": "line 3, column 1: row 2 has 1 number, and the rows before it have 2"},
        "a.json": {'{"q": [[1, 2],\n [3, "x"]]}': "line 2, column 6: '\"' is not a number", '{"q" [1]}': 'line 1, column 2: expected "NAME": VALUE, as in {"q": [[1, 0], [0, 1]]}',
                   '{"q": [[1]]': "line 1, column 12: expected a comma and another member, or '}'", '{"q": [[1]],}': "line 1, column 12: expected a comma and another member, or '}'",
                   '{"q": [[1]]} x': "line 1, column 14: there is more after the end of the object", '{"note": "\\x"}': "line 1, column 10: the value of 'note' is not JSON",
                   '{"q"': 'line 1, column 2: expected "NAME": VALUE, as in {"q": [[1, 0], [0, 1]]}',
                   '{"q": [[1], [2]': 'line 1, column 2: expected "NAME": VALUE, as in {"q": [[1, 0], [0, 1]]}'},
    }
    for name, rows in files.items():
        for value, said in rows.items():
            with open(name, "w") as file:
                file.write(value)
            done = attn("run", name, "-o", "out.npz", status=2)
            check(f"{name}: {value!r}", done.stderr == f"attn run: {name}: {said}\n", done.stderr)
    with open("zero.csv", "wb") as file:
        file.write(b"1\0")
    done = attn("run", "zero.csv", "-o", "out.npz", status=2)
    check("a byte of 0", done.stderr == "attn run: zero.csv: a byte of 0: this is neither text nor a file of tensors\n", done.stderr)
    done = attn("run", "missing.csv", "-o", "out.npz", status=2)
    check("no such file", done.stderr == "attn run: missing.csv: No such file or directory\n", done.stderr)


def words():
    """`--tokens` of run: labels of what it writes, for the commands that show it."""
    with open("words.txt", "w") as file:
        file.write("the\ncat\n")
    run = ["run", "--q=1 0; 0 1", "--k=1 0; 0 1", "--v=1 0; 0 1", "--weights", "-o", "labelled.safetensors"]
    attn(*run, "--tokens=words.txt")
    found = tensor_file.read("labelled.safetensors")[1]
    check("run --tokens: words in the metadata", json.loads(found["tokens"]) == ["the", "cat"], found)
    check("  top finds them", "0 the" in attn("top", "labelled.safetensors", "--token=cat").stdout)
    attn("run", "labelled.safetensors", *run[1:-2], "-o", "again.safetensors", "--tokens=other.txt", status=2)
    with open("other.txt", "w") as file:
        file.write("a\ndog\n")
    attn("run", "labelled.safetensors", *run[1:-2], "-o", "again.safetensors", "--tokens=other.txt")
    found = tensor_file.read("again.safetensors")[1]
    check("  in place of those of the input", json.loads(found["tokens"]) == ["a", "dog"], found)
    with open("other.txt", "w") as file:
        file.write("a\ndog\nbarks\n")
    done = attn(*run[:-1], "three.safetensors", "--tokens=other.txt", status=2)
    check("three words for two tokens", done.stderr == "attn run: other.txt: 3 tokens for 2 queries and 2 keys\n", done.stderr)
    check("  write nothing", not os.path.exists("three.safetensors"))


def main():
    words()
    roles()
    rows_and_names()
    printed()
    commands()
    messages()
    return finish()


run_in_folder(main)
