# SPDX-License-Identifier: MIT
# analyze.sh - attn analyze: numbers that are known, JSON, gradients, and what it refuses.
. tests/cli/tap.sh

printed "a table" '^layer  head  entropy  normalized  effective keys  largest  information$' analyze "$STREET"
ok "  a line for each head" same "$(grep -cE '^ +[0-9]+ +[0-9]+ +[0-9.]+ ' out.txt)" 72
ok "  a line for each layer" same "$(grep -cE '^ +[0-9]+   all  head diversity 0\.[0-9]+$' out.txt)" 6
printed "json" '"heads":' analyze "$STREET" --json
for field in layers head entropy normalized_entropy effective_keys largest_weight mutual_information head_diversity; do
    ok "  has $field" grep -q "\"$field\":" out.txt
done

# A temperature that drowns all scores: 14 keys alike, all heads alike; a window of one key: nothing to choose.
printed "a hot softmax is uniform" '^ +0 +0 +2\.639 +1\.000 +14\.00 +0\.071 +0\.000$' analyze "$STREET" --temperature=1e9
ok "  and its heads are the same" grep -q '^ *0   all  head diversity 0\.000$' out.txt
printed "one key has no entropy" '^ +0 +0 +0\.000 +0\.000 +1\.00 +1\.000 +2\.639$' analyze "$STREET" --window=0,0

printed "gradients" '^gradients of \|o\|\^2 / 2$' analyze "$STREET" --gradients --causal
for name in do dweights dscores dq dk dv; do
    ok "  |$name|" grep -qE "^  \|$name\| +[0-9.e+]+$" out.txt
done
ok "  hold against differences" grep -qE '^  96 elements against differences: .*: right$' out.txt
printed "gradients as json" '"gradient_norms":' analyze "$STREET" --gradients --json
for field in verification checked max_error relative_error limit correct dq dk dv; do
    ok "  has $field" grep -q "\"$field\":" out.txt
done

refused 2 "attn analyze: no input file; for example: attn analyze IN.safetensors" analyze

tap_done
