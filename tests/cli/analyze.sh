# SPDX-License-Identifier: MIT
# analyze.sh - attn analyze: known values, JSON, gradients, rejected arguments.
. tests/cli/tap.sh

printed "a table" '^layer  head  entropy  normalised  effective keys  largest  information$' analyze "$STREET"
ok "  a line for each head" same "$(grep -cE '^ +[0-9]+ +[0-9]+ +[0-9.]+ ' out.txt)" 72
ok "  a line for each layer" same "$(grep -cE '^ +[0-9]+   all  head diversity 0\.[0-9]+$' out.txt)" 6
printed "json" '"heads":' analyze "$STREET" --json
for field in layers head entropy normalised_entropy effective_keys largest_weight mutual_information head_diversity; do
    ok "  has $field" grep -q "\"$field\":" out.txt
done

# A very high temperature: 14 equal weights, all heads alike; a window of one key: entropy 0.
printed "a hot softmax is uniform" '^ +0 +0 +2\.639 +1\.000 +14\.00 +0\.071 +0\.000$' analyze "$STREET" --temperature=1e9
ok "  and its heads are the same" grep -q '^ *0   all  head diversity 0\.000$' out.txt
printed "one key has no entropy" '^ +0 +0 +0\.000 +0\.000 +1\.00 +1\.000 +2\.639$' analyze "$STREET" --window=0,0

# Weights of a softmax alone have an entropy.  sigmoid(0) = 1/2, and relu(0) / 14 = 0: in no row is there a weight.
printed "sigmoid has sums" '^layer  head  row sum  largest$' analyze "$STREET" --normaliser=sigmoid --scale=0
ok "  of 14 halves" same "$(grep -cE '^ +[0-9]+ +[0-9]+ +7\.000 +0\.500$' out.txt)" 72
ok "  and its heads are the same" grep -q '^ *0   all  head diversity 0\.000$' out.txt
printed "relu has them too" '^ +0 +0 +0\.000 +0\.000$' analyze "$STREET" --normaliser=relu --scale=0
printed "in json" '"row_sum":' analyze "$STREET" --normaliser=sigmoid --json
ok "  without entropies" same "$(grep -cE 'entropy|effective|information' out.txt)" 0
printed "softmax-one has sums: 14 / (1 + 14)" '^ +5 +11 +0\.933 +0\.067$' analyze "$STREET" --normaliser=softmax-one --scale=0
"$MAKE" sink.safetensors q:f32:2x4x8 k:f32:2x4x8 sink:f32:2:0
printed "so has a sink of 0: 4 / (1 + 4)" '^ +0 +1 +0\.800 +0\.200$' analyze sink.safetensors --scale=0
printed "without the sink, an entropy: log 4" '^ +0 +1 +1\.386 ' analyze sink.safetensors --scale=0 --ignore=sink
ok "steps of a sigmoid" "$ATTN" analyze "$STREET" --normaliser=sigmoid --steps=sigmoid.safetensors --quiet

printed "gradients" '^gradients of \|o\|\^2 / 2$' analyze "$STREET" --gradients --causal
for name in do dweights dscores dq dk dv; do
    ok "  |$name|" grep -qE "^  \|$name\| +[0-9.e+]+$" out.txt
done
ok "  hold against differences" grep -qE '^  96 elements against finite differences: .*: right$' out.txt
printed "gradients as json" '"gradient_norms":' analyze "$STREET" --gradients --json
for field in verification checked max_error relative_error limit correct dq dk dv; do
    ok "  has $field" grep -q "\"$field\":" out.txt
done

# F = <E> - T H and from_uniform = log n - H, for every head; at a high temperature H = log 14 and from_uniform = 0.
printed "states" '^layer  head  log partition  free energy  mean energy  entropy  heat capacity  from uniform  response$' \
    analyze "$STREET" --states --temperature=2
ok "  agree with each other" awk '/^layer/ { table = $3 } table == "log" && /^ +[0-9]/ {
    rows++; if (($4 - $5 + 2 * $6) ^ 2 > 1e-5 || ($4 + 2 * $3) ^ 2 > 1e-5 || ($6 + $8 - log(14)) ^ 2 > 1e-5) wrong++
} END { exit wrong || rows != 72 }' out.txt
printed "states of a hot softmax" '^ +0 +0 +2\.639 +-2639[0-9.]+ .* 2\.639 +0\.000 +0\.000 +0\.000$' analyze "$STREET" --states --temperature=1e9
printed "a sweep" '^layer  head  entropy at temperature 0.5, 1, 1e\+09$' analyze "$STREET" --sweep=0.5,1,1e9
ok "  rises to log 14" awk '/^layer/ { table = $3 " " $4 } table == "entropy at" && /^ +[0-9]/ {
    rows++; if ($3 > $4 || $4 > $5 || $5 != 2.639) wrong++
} END { exit wrong || rows != 72 }' out.txt
printed "both as json" '"states":' analyze "$STREET" --states --sweep=1,2 --json
for field in log_partition free_energy mean_energy heat_capacity from_uniform response temperatures sweep; do
    ok "  has $field" grep -q "\"$field\":" out.txt
done
ok "steps" "$ATTN" analyze "$STREET" --steps=steps.safetensors --quiet
ok "  are those of the model" python3 - steps.safetensors "$STREET" <<'PYTHON'
import json, struct, sys
def read(path, name, code):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    about = json.loads(data[8:8 + n])[name]
    begin, end = about["data_offsets"]
    return about["shape"], struct.unpack("<%d%s" % ((end - begin) // struct.calcsize(code), code), data[8 + n + begin:8 + n + end])
for name in ("o", "weights"):
    (shape, ours), (theirs, model) = read(sys.argv[1], name, "d"), read(sys.argv[2], name, "f")
    assert shape == theirs and max(abs(a - b) for a, b in zip(ours, model)) < 2e-6, name
(_, raw), (_, scores), (_, z), (shape, logs) = (read(sys.argv[1], n, "d") for n in ("raw", "scores", "partition", "log_partition"))
import math
assert shape == [6, 12, 14] and all(abs(a / math.sqrt(32) - b) < 1e-12 for a, b in zip(raw, scores))
assert all(abs(math.log(a) - b) < 1e-12 for a, b in zip(z, logs))
assert all(abs(sum(map(math.exp, scores[14 * i:14 * i + 14])) / a - 1) < 1e-12 for i, a in enumerate(z))
PYTHON

for kind in sigmoid relu softmax-one; do
    for flag in states sweep; do
        rejected 2 "attn analyze: $STREET: --$flag is set and --normaliser is $kind; it is for softmax only" \
            analyze "$STREET" --normaliser=$kind --$flag$([ $flag = states ] || echo =1,2)
    done
done
"$MAKE" sink.safetensors q:f32:2x4x8 k:f32:2x4x8 sink:f32:2
rejected 2 "attn analyze: sink.safetensors: --states is set and sink is present; it is for softmax without a sink" \
    analyze sink.safetensors --states
printed "without the sink" '^layer  head  log partition' analyze sink.safetensors --states --ignore=sink
rejected 2 "attn analyze: --sweep (1,,2) is not a list of numbers above 0" analyze "$STREET" --sweep=1,,2
rejected 2 "attn analyze: --sweep (0) is not a list of numbers above 0" analyze "$STREET" --sweep=0
rejected 2 "attn analyze: --sweep (1,0x2) is not a list of numbers above 0" analyze "$STREET" --sweep=1,0x2
rejected 2 "attn analyze: --sweep has more than 16 numbers" analyze "$STREET" --sweep=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
rejected 2 "attn analyze: out.npy: expected a name that ends in .safetensors or .npz" analyze gone.safetensors --steps=out.npy
rejected 2 "attn analyze: no input file; for example: attn analyze IN.safetensors" analyze

tap_done
