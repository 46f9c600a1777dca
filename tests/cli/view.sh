# SPDX-License-Identifier: MIT
# view.sh - `attn view` writes one self-contained page; the command knows every kind of score.  (tests/view opens pages in a browser.)
. tests/cli/tap.sh

printed view '"heads":[^0-9]*12' view "$STREET" -o page.html --json
ok "the page is there" test -s page.html
ok "it has the sentence as its title" grep -q '"title":"The animal did not cross the street' page.html
ok "it names the model" grep -q 'all-MiniLM-L6-v2' page.html
ok "it asks no network for anything" same "$(grep -oE '(src|href)="[^"#]+"|url\([^)]*\)|@import' page.html | grep -v 'data:')" ""
"$ATTN" view "$STREET" -o again.html >out.txt 2>&1
ok "silent where there is no terminal" same "$(cat out.txt)" ""
ok "the same bytes again" cmp page.html again.html
"$ATTN" view "$STREET" -o causal.html --causal
ok "options change the page" sh -c '! cmp -s page.html causal.html'

# The page says how the weights were computed.
source_is() { # FORMULA FLAG...
    local formula=$1
    shift
    "$ATTN" view "$STREET" -o source.html "$@"
    ok "source: $formula" grep -qF ": $formula, computed by attn" source.html
}
source_is "softmax(0.1768 q k\u1d40)"
source_is "softmax(0.1768 q k\u1d40), causal" --causal
source_is "softmax(0.08839 q k\u1d40)" --temperature=2
source_is "softmax(5 tanh(0.5 q k\u1d40 / 5))" --scale=1 --temperature=2 --softcap=5
source_is "sigmoid(0.1768 q k\u1d40 - 2.5)" --normaliser=sigmoid --shift=-2.5
source_is "relu(0.1768 q k\u1d40) / visible keys" --normaliser=relu
source_is "softmax-one(cos(q, k))" --score=cosine --normaliser=softmax-one
source_is "softmax(0.1768 q k\u1d40), q and k rotated" --rope
source_is "softmax(10 (-|q - k|\u00b2))" --score=distance --scale=10
source_is "softmax(0.1768 q k\u1d40), at most 3 keys back, at most 1 ahead" --window=3,1

# Every kind of score that the library has: its words in the command and the manual, and its formula if it needs no weights.
formulas=
for kind in $(sed -n 's/^    ATTN_SCORE_\([A-Z]*\) = [1-9].*/\1/p' "$ROOT/tests/install/abi.txt" | tr A-Z a-z); do
    printed "score=$kind" "^options +score=$kind " explain "sq4:d4:score=$kind"
    rejected 3 "attn explain: jvp:sq4:d4:score=$kind: score is $kind and op is neither fwd nor bwd; the other operations are for dot products only" \
        explain "jvp:sq4:d4:score=$kind"
    ok "  in the manual" grep -qxE "\.Cm $kind( ,)?" "$ROOT/cli/attn.1.in"
    "$ATTN" explain "sq4:d4:w=heads:score=$kind" >out.txt 2>&1 || formulas="$formulas $kind"
done
ok "there are kinds without weights" test -n "$formulas"
for kind in $formulas; do
    ok "view --score=$kind" "$ATTN" view "$STREET" -o source.html --score=$kind
    ok "  has a formula of it" grep -qE ": softmax\([^q]*q.*k.*\), computed by attn" source.html
done

printed "choices" '"queries":[^0-9]*5' view "$STREET" -o part.html --layer 3,5 --head 0-1 --queries 9-13 --title 'A part' --json
ok "  layers" grep -qE '"layers":[^0-9]*2' out.txt
ok "  heads" grep -qE '"heads":[^0-9]*2' out.txt
ok "  title" grep -q '"title":"A part"' part.html

# The page holds weights as base64 of f32 [head][query][key], one block per layer.
block() { sed -n "s/.*id=\"attn-weights-0-$2\">\([^<]*\)<.*/\1/p" "$1" | base64 -d; }
number() { od -A n -t f4 -j "$1" -N 4 | tr -d ' '; }
ok "layer 3, head 1: it attends to animal" sh -c "expr '$(block page.html 3 | number $((4 * ((1 * 14 + 9) * 14 + 2))))' : '0.6869' >/dev/null"
"$ATTN" view "$STREET" -o one.html --layer 3 --head 1
block page.html 3 | tail -c +785 | head -c 784 >expected.bin
block one.html 0 | head -c 784 >one.bin
ok "one layer and one head are the same numbers" cmp expected.bin one.bin
"$ATTN" view "$STREET" -o rows.html --layer 3 --head 1 --queries 9-10
block rows.html 0 | head -c 112 >rows.bin
tail -c +$((4 * 9 * 14 + 1)) expected.bin | head -c $((4 * 2 * 14)) >expected_rows.bin
ok "two queries are the same numbers" cmp expected_rows.bin rows.bin
"$MAKE" batch.safetensors q:f64:3x2x4x8 k:f64:3x2x4x8 lengths_kv:i64:3:2 lengths_q:i64:3:2 'tokens=[["a","b"],["c","d"],["e","f"]]'
printed "a batch of lists, in f64" '"entries":[^0-9]*3' view batch.safetensors -o batch.html --json

# Files written by attn run --weights: weights, and no q.
"$ATTN" run "$STREET" -o made.safetensors --weights
printed "weights of attn run" '"layers":[^0-9]*6' view made.safetensors -o made.html --json
for layer in 0 3 5; do
    block page.html $layer >expected.bin
    block made.html $layer >found.bin
    ok "  layer $layer: the numbers that it computes itself" cmp expected.bin found.bin
done
ok "  with the same tokens" grep -q '"animal"' made.html
"$ATTN" view made.safetensors -o rows.html --layer 3 --head 1 --queries 9-10
block rows.html 0 | head -c 112 | cmp - expected_rows.bin
ok "  two queries of one head" same "$?" 0
"$MAKE" odd.safetensors weights:f64:3x5:0.2
printed "one head, in f64" '"keys":[^0-9]*5' view odd.safetensors -o odd.html --json
ok "  no word about weights that sum to 1" grep -q ': the weights that are in it"' odd.html

# What no softmax gives is said on the page.
doubts() { # SENTENCE TENSOR
    "$MAKE" odd.safetensors "$2"
    "$ATTN" view odd.safetensors -o odd.html
    ok "page: $1" grep -qF "it; $1\"" odd.html
}
doubts "6 of 6 rows sum neither to 1 nor to 0" weights:f32:2x3x5:0.3
doubts "6 of 6 rows have numbers that are not finite" weights:f32:2x3x5:nan
doubts "1 of 1 rows has numbers that are not finite" weights:f16:1x5:inf
doubts "3 of 3 rows have numbers below 0" weights:bf16:3x5:-0.25
"$MAKE" odd.safetensors weights:f32:3x5:0
"$ATTN" view odd.safetensors -o odd.html
ok "rows that see nothing are no doubt" grep -q ': the weights that are in it"' odd.html
"$MAKE" odd.safetensors q:f32:1x3x4:nan k:f32:1x3x4:1
"$ATTN" view odd.safetensors -o odd.html
ok "nor are NaN that are computed hidden" grep -qF "; 3 of 3 rows have numbers that are not finite\"" odd.html
"$ATTN" view "$STREET" -o odd.html --normaliser=relu
ok "but other sums are where they are said" grep -q 'computed by attn [0-9.]*"' odd.html
rejected 2 "attn view: made.safetensors has weights and no q: the flags of a mechanism need scores, which cannot be computed from weights" view made.safetensors -o out.html --causal
"$MAKE" odd.safetensors weights:i32:3x5
rejected 2 "attn view: odd.safetensors: tensor 'weights' is i32 with 2 axes; expected floats, [head, query, key]" view odd.safetensors -o out.html

tap_done
