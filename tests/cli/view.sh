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

# The page holds q and k as base64 of f32 [token][channel], a block for each head; after q, the lse of each row.
block() { sed -n "s/.*id=\"attn-$2\">\([^<]*\)<.*/\1/p" "$1" | base64 -d; }
number() { od -A n -t f4 -j "$1" -N 4 | tr -d ' '; }
ok "it holds q and k" grep -q '"holds":[^"]*"q k"' out.txt
printed "q and k in place of weights" '"largest_difference":[^0-9]*0$' view "$STREET" -o page.html --json
"$ATTN" run "$STREET" -o lse.npz --lse >out.txt 2>&1
unzip -p lse.npz lse.npy | tail -c $((4 * 6 * 12 * 14)) | tail -c +$((4 * (3 * 12 + 1) * 14 + 1)) | head -c 56 | od -A n -t f4 -v -w4 | awk '{printf "%.4f\n", $1}' >expected.txt
block page.html q-0-3-1 | tail -c 56 | od -A n -t f4 -v -w4 | awk '{printf "%.4f\n", $1}' >found.txt
ok "the lse is that of attn run --lse" cmp expected.txt found.txt
"$ATTN" view "$STREET" -o one.html --layer 3 --head 1
for part in q k; do
    block page.html $part-0-3-1 >expected.bin
    block one.html $part-0-0-0 | cmp - expected.bin
    ok "one layer and one head are the same $part" same "$?" 0
done
"$ATTN" view "$STREET" -o rows.html --layer 3 --head 1 --queries 9-10
block page.html q-0-3-1 | tail -c +$((4 * 9 * 32 + 1)) | head -c $((4 * 2 * 32)) >expected.bin
block rows.html q-0-0-0 | head -c $((4 * 2 * 32)) | cmp - expected.bin
ok "two queries are the same numbers" same "$?" 0
"$MAKE" batch.safetensors q:f64:3x2x4x8 k:f64:3x2x4x8 lengths_kv:i64:3:2 lengths_q:i64:3:2 'tokens=[["a","b"],["c","d"],["e","f"]]'
printed "a batch of lists, in f64" '"entries":[^0-9]*3' view batch.safetensors -o batch.html --json

# What the page cannot compute by itself is there as weights.
for flags in --score=cosine --normaliser=relu --empty=uniform; do
    printed "weights with $flags" '"holds":[^"]*"weights"' view "$STREET" -o odd.html --json $flags
done
"$MAKE" wide.safetensors q:f32:1x2x4:1e5 k:f32:1x2x4:1e-5
printed "numbers beyond f16 stay f32" '"largest_difference":[^0-9]*0$' view wide.safetensors -o odd.html --json

# Two files on one page.
"$MAKE" repeated.safetensors q:f32:2x3x4x8 k:f32:2x3x4x8
printed "with another file" '"entries":[^0-9]*1' view repeated.safetensors -o two.html --with=repeated.safetensors --json
ok "  both are there" sh -c "grep -q 'attn-q-0-1-2' two.html && grep -q 'attn-q-1-1-2' two.html"
ok "  and named" same "$(grep -o '"sources":\["[^"]*","[^"]*"\]' two.html | grep -o 'repeated.safetensors: softmax' | wc -l | tr -d ' ')" 2

# A picture of one head.
printed "a picture of one head" '"export":[^"]*"head.svg"' view "$STREET" --export=head.svg --layer=3 --head=1 --json
ok "  and no page" sh -c "! grep -q bytes out.txt"
ok "  it is XML" python3 -c "import xml.dom.minidom; xml.dom.minidom.parse('head.svg')"
ok "  a rectangle for each weight" same "$(grep -c 'class="cell"' head.svg)" 196
ok "  labels are text" same "$(grep -c 'class="query"\|class="key"' head.svg)" 28
ok "  with values" grep -q '<title>it &#8594; animal 0.687</title>' head.svg
"$MAKE" long.safetensors q:f32:70x4 k:f32:70x4 'tokens=["<&>"]'
printed "a page and a picture" '"output":[^"]*"long.html"' view long.safetensors -o long.html --export=long.svg --title='<&>' --json
ok "  beyond 64 rows it has an image" same "$(grep -c '<image class="cells"' long.svg)/$(grep -c 'class="cell"' long.svg)" 1/0
ok "  which is a PNG" same "$(sed -n 's/.*base64,\([^"]*\)".*/\1/p' long.svg | base64 -d | head -c 4 | tail -c 3)" PNG
ok "  XML too, with a title that looks like it" python3 -c "import xml.dom.minidom; assert '<&>' == xml.dom.minidom.parse('long.svg').getElementsByTagName('title')[0].firstChild.data"

# Files written by attn run --weights: weights, and no q.  The page holds them as base64 of f32 [head][query][key], a block per layer.
"$ATTN" run "$STREET" -o made.safetensors --weights
printed "weights of attn run" '"layers":[^0-9]*6' view made.safetensors -o made.html --json
ok "  it holds weights" grep -q '"holds":[^"]*"weights"' out.txt
ok "  layer 3, head 1: it attends to animal" sh -c "expr '$(block made.html weights-0-3 | number $((4 * ((1 * 14 + 9) * 14 + 2))))' : '0.6869' >/dev/null"
ok "  with the same tokens" grep -q '"animal"' made.html
block made.html weights-0-3 | tail -c +785 | head -c 784 | tail -c +$((4 * 9 * 14 + 1)) | head -c $((4 * 2 * 14)) >expected.bin
"$ATTN" view made.safetensors -o rows.html --layer 3 --head 1 --queries 9-10
block rows.html weights-0-0 | head -c 112 | cmp - expected.bin
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
