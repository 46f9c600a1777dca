# SPDX-License-Identifier: MIT
# hopfield.sh - attn hopfield retrieves noisy patterns of a file, with energies that never rise; rejected arguments.
. tests/cli/tap.sh

"$MAKE" p.safetensors patterns:f32:5x32 || exit 1
"$MAKE" s.safetensors patterns:f32:5x32 states:f32:3x32 || exit 1
"$MAKE" w.safetensors patterns:f32:5x32 states:f32:3x31 || exit 1
"$MAKE" r.safetensors patterns:f32:32 || exit 1
"$MAKE" i.safetensors patterns:i32:4x8:1 || exit 1
"$MAKE" n.safetensors q:f32:4x8 || exit 1
ok "--json" python3 -c 'import json, subprocess, sys
states = json.loads(subprocess.run([sys.argv[1], "hopfield", "p.safetensors", "--json", "--beta=9", "--noise=0.05", "--seed=3"], capture_output=True).stdout)["states"]
assert [s["pattern"] for s in states] == list(range(5)), states
for s in states:
    assert len(s["energies"]) == s["iterations"] + 1
    assert all(b <= a + 1e-5 for a, b in zip(s["energies"], s["energies"][1:])), s
    assert s["distance"] < 0.1' "$ATTN"
ok "states of the file, and an output" "$ATTN" hopfield s.safetensors -o made.npz --iterations=4
ok "what the output has" python3 -c 'import zipfile
assert sorted(zipfile.ZipFile("made.npz").namelist()) == [n + ".npy" for n in ("beta", "energies", "found", "iterations", "path", "patterns")]'
"$ATTN" hopfield s.safetensors -o made.safetensors --iterations=4 >/dev/null
ok "paths begin at the states and end where found says" python3 -c 'import json, struct
def load(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return {n: data[8 + size:][slice(*t["data_offsets"])] for n, t in json.loads(data[8:8 + size]).items() if n[0] != "_"}
made, given = load("made.safetensors"), load("s.safetensors")
row = 32 * 4
for i in range(3):
    path = made["path"][i * 5 * row:][:5 * row]
    assert path[:row] == given["states"][i * row:][:row] and path[4 * row:] == made["found"][i * row:][:row]
assert made["patterns"] == given["patterns"] and struct.unpack("<d", made["beta"]) == (1,)'
ok "the same seed, the same lines" same "$("$ATTN" hopfield p.safetensors --seed=1)" "$("$ATTN" hopfield p.safetensors --seed=1)"

case $(uname -m) in
aarch64 | arm64) other=avx2 ;;
*) other=neon ;;
esac
rejected 3 "attn hopfield: p.safetensors: this build has no kernel for f32 on $other" hopfield p.safetensors --isa=$other
rejected 2 "attn hopfield: n.safetensors: no tensor 'patterns' (available: q)" hopfield n.safetensors
rejected 2 "attn hopfield: r.safetensors: tensor 'patterns' is not [row, channel] with at least one row and one channel" hopfield r.safetensors
rejected 3 "attn hopfield: i.safetensors: tensor 'patterns' is i32; it must be f32 or f64" hopfield i.safetensors
rejected 2 "attn hopfield: w.safetensors: tensor 'states' is f32 with 31 channels, and patterns are f32 with 32" hopfield w.safetensors
"$MAKE" nan.safetensors patterns:f32:5x4 states:f32:2x4:nan
rejected 2 "attn hopfield: nan.safetensors: tensor 'states' has nan at row 0, channel 0" hopfield nan.safetensors
rejected 2 "attn hopfield: out.npy: expected a name that ends in .safetensors or .npz" hopfield gone.safetensors -o out.npy
rejected 2 "attn hopfield: gone.safetensors: cannot open: No such file or directory" hopfield gone.safetensors
mkdir folder.safetensors
rejected 2 "attn hopfield: folder.safetensors: is a directory" hopfield p.safetensors -o folder.safetensors
rejected 2 "attn hopfield: folder.safetensors: is a directory" hopfield folder.safetensors
rejected 2 "attn hopfield: none/out.npz: cannot create a file beside it: No such file or directory" hopfield p.safetensors -o none/out.npz
rejected 2 "attn hopfield: --beta: '0' is not a number above 0" hopfield p.safetensors --beta=0
rejected 2 "attn hopfield: --noise: 'x' is not a number of at least 0" hopfield p.safetensors --noise=x

tap_done
