# SPDX-License-Identifier: MIT
# layer.sh - attn layer: a real layer, small ones, rejected arguments.
. tests/cli/tap.sh
"$ATTN" layer --help >/dev/null 2>&1 || {
    echo "skipped: built without libattn_layers"
    exit 77
}
REAL=$ROOT/examples/data/animal_street_layer2.safetensors

"$ATTN" layer "$REAL" -o real.safetensors --heads=12 --weights --compare --json >real.json 2>err.txt
ok "a real layer: status 0" same "$?" 0
ok "  nothing on standard error" same "$(cat err.txt)" ""
ok "  y and weights" same "$(sed -n '/"written"/,$p' real.json | grep -oE '"(y|weights)"' | wc -l)" 4
# two sums of 384 products of numbers around 1: error at most 2 * 384 * 2^-24 = 4.6e-05
ok "  equal to the model's own" same "$(grep -cE '"largest":[^0-9]*[0-9.]+e-0[67]' real.json)" 2

small='x:f32:2x5x8 wq:f32:8x8 wk:f32:4x8 wv:f32:4x8 wo:f32:8x8 bq:f32:8 bo:f32:8'
# shellcheck disable=SC2086
"$MAKE" small.safetensors $small dy:f32:2x5x8 lengths_kv:i32:2:3
"$ATTN" layer small.safetensors -o y.safetensors --heads=4 --heads-kv=2 --causal --backward --weights-mean
ok "gradients: status 0" same "$?" 0
"$ATTN" layer small.safetensors -o y.npz --heads=4 --heads-kv=2 --causal --backward --json >y.json
ok "  all that there are, and no more" same "$(sed -n 's/.*"written"//p' y.json | grep -oE '"(y|d[a-z]+)"' | sort | tr -d '\n')" '"dbo""dbq""dwk""dwo""dwq""dwv""dx""y"'
# shellcheck disable=SC2086
"$MAKE" cross.safetensors $small context:f32:2x7x8
"$ATTN" layer cross.safetensors -o y.safetensors --heads=4 --heads-kv=2 --quiet
ok "a context" same "$?" 0
"$MAKE" weights.safetensors a.in_proj_weight:f32:24x8 a.out_proj.weight:f32:8x8
"$MAKE" x.safetensors x:f32:5x8
"$ATTN" layer x.safetensors -o y.safetensors --heads=2 --weights-file=weights.safetensors --prefix=a.
ok "weights of another file" same "$?" 0
# shellcheck disable=SC2086
"$MAKE" extra.safetensors $small dy:f32:2x5x8 bias_k:f32:1x1x4 bias_v:f32:4
"$ATTN" layer extra.safetensors -o y.npz --heads=4 --heads-kv=2 --weights-mean --backward --json >y.json
ok "a learned key: its gradients, too" same "$(grep -oE '"dbias_[kv]"' y.json | sort | tr -d '\n')" '"dbias_k""dbias_v"'
ok "  and a column of the weights" grep -q '"weights_mean"' y.json
# shellcheck disable=SC2086
"$MAKE" short.safetensors $small dy:f32:2x5x8 slopes:f32:4
# shellcheck disable=SC2086
"$MAKE" whole.safetensors $small dy:f32:2x5x8 alibi_slopes:f32:4
for names in short whole; do
    "$ATTN" layer $names.safetensors -o $names.npz --heads=4 --heads-kv=2 --backward --json | sed -n 's/.*"written"//p' | grep -oE '"d[a-z]+"' | sort >$names.txt
done
ok "the name of the library's slot: the same gradients" cmp short.txt whole.txt
ok "  that of the slopes among them" grep -q '"dslopes"' whole.txt
"$ATTN" layer whole.safetensors -o y.npz --heads=4 --heads-kv=2 --backward --json --ignore=alibi_slopes >y.json
ok "  but where it is ignored" same "$(grep -c '"dslopes"' y.json)" 0
ok "  and is listed as unused" grep -q '"unused":.\["alibi_slopes"\]' y.json
# shellcheck disable=SC2086
"$MAKE" more.safetensors $small dy:f32:2x5x8 other:f32:4
"$ATTN" layer more.safetensors -o y.npz --heads=4 --heads-kv=2 --json | tr -d '\n\t ' >y.json
ok "what is used is told" grep -q '"used":\[.*{"name":"wk","dtype":"f32","shape":\[4,8\]}.*"unused"' y.json
ok "  and what is left" grep -q '"unused":\["dy","other"\]' y.json
rm -f y.safetensors

rejected 2 "attn layer: --ignore: no tensor 'slpoes' can be left out (nearest: slopes); known: mask, bias, slopes, bias_table, relative_keys, relative_values, relative_u, relative_v, sink, scale, w" \
    layer small.safetensors -o out.npz --heads=4 --ignore=slpoes
cp small.safetensors same.safetensors
rejected 2 "attn layer: same.safetensors: this output is an input, which would be replaced" \
    layer same.safetensors -o same.safetensors --heads=4 --heads-kv=2
rejected 2 "attn layer: same.safetensors: this output is an input, which would be replaced" \
    layer small.safetensors -o same.safetensors --heads=4 --heads-kv=2 --config=same.safetensors
rejected 2 "attn layer: same.safetensors: this output is an input, which would be replaced" \
    layer small.safetensors -o same.safetensors --heads=4 --heads-kv=2 --names=same.safetensors
rejected 2 "attn layer: no input file; for example: attn layer IN.safetensors -o OUT.safetensors --heads=12" layer
rejected 2 "attn layer: no output file (-o - prints the numbers); for example: attn layer IN.safetensors -o OUT.safetensors --heads=12" layer small.safetensors
rejected 2 "attn layer: small.safetensors: a multi-head layer needs --heads=N, or --config=FILE of the model" layer small.safetensors -o out.npz
rejected 2 "attn layer: out.npy: expected a name that ends in .safetensors or .npz" layer small.safetensors -o out.npy --heads=4
rejected 2 "attn layer: small.safetensors: the queries have 8 channels, which is not a multiple of the heads (3)" \
    layer small.safetensors -o out.npz --heads=3
rejected 2 "attn layer: small.safetensors: layer: tensor 'wk' has shape [4, 8]; the layer has [8, 8]" layer small.safetensors -o out.npz --heads=4 --heads-kv=4
rejected 2 "attn layer: x.safetensors: layer: no tensor 'q_proj_weight', 'q_proj.weight' or 'wq'; --names=FILE gives other names" layer x.safetensors -o out.npz --heads=4
rejected 2 "attn layer: x.safetensors: no tensor 'dy' (available: x)" \
    layer x.safetensors -o out.npz --heads=2 --weights-file=weights.safetensors --prefix=a. --backward
rejected 3 "attn layer: small.safetensors: a layer takes no layout; x is [batch, token, channel]" \
    layer small.safetensors -o out.npz --heads=4 --layout=bshd
"$MAKE" flat.safetensors x:f32:8
rejected 2 "attn layer: flat.safetensors: tensor 'x' has shape [8]; expected [token, channel] or [batch, token, channel]" \
    layer flat.safetensors -o out.npz --heads=4
"$MAKE" half.safetensors x:f16:5x8
rejected 3 "attn layer: half.safetensors: tensor 'x' is f16; a layer computes in f32 or f64" layer half.safetensors -o out.npz --heads=4

# Bad weights for every kind of layer: one line that names the tensor, and no output file.
# rejected_weights MESSAGE FLAGS STATUS WEIGHT...: runs the layer on a file of x, context and these weights.
rejected_weights() {
    tap_says=$1
    tap_flags=$2
    tap_code=$3
    shift 3
    "$MAKE" bad.safetensors x:f32:5x8 context:f32:7x6 "$@"
    # shellcheck disable=SC2086
    rejected "$tap_code" "attn layer: bad.safetensors: $tap_says" layer bad.safetensors -o out.npz $tap_flags
}
good='wq:f32:8x8 wk:f32:8x6 wv:f32:8x6'
# shellcheck disable=SC2086
{
    rejected_weights "layer: no tensor 'out_proj.weight', 'o_proj.weight' or 'wo'; --no-output leaves the heads side by side" --heads=2 2 $good
    rejected_weights "layer: tensor 'wo' has shape [8, 9]; the layer has [8, 8]" --heads=2 2 $good wo:f32:8x9
    rejected_weights "layer: tensor 'wo' is f64; the layer is f32" --heads=2 3 $good wo:f64:8x8
    rejected_weights "layer: tensor 'wo' has a NaN at element 0" --heads=2 2 $good wo:f32:8x8:nan
    rejected_weights "layer: tensor 'bq' has shape [7]; the layer has [8]" --heads=2 2 $good wo:f32:8x8 bq:f32:7
}
good='q_proj.weight:f32:10x8 kv_a_proj_with_mqa.weight:f32:6x8'
# shellcheck disable=SC2086
{
    good="$good kv_b_proj.weight:f32:14x4"
    rejected_weights "no tensor 'o_proj.weight'" --heads=2 2 $good
    rejected_weights "layer: tensor 'o_proj.weight' has shape [8, 9]; the layer has [8, 8]" --heads=2 2 $good o_proj.weight:f32:8x9
    rejected_weights "layer: tensor 'o_proj.weight' is f64; the layer is f32" --heads=2 3 $good o_proj.weight:f64:8x8
    rejected_weights "layer: tensor 'o_proj.weight' has a NaN at element 0" --heads=2 2 $good o_proj.weight:f32:8x8:nan
    rejected_weights "tensor 'o_proj.weight' has shape [8]; expected [out, in]" --heads=2 2 $good o_proj.weight:f32:8
    rejected_weights "q_proj.weight has 10 rows and kv_b_proj.weight 14; both must be multiples of --heads (4)" --heads=4 2 $good o_proj.weight:f32:8x8
    rejected_weights "q_proj.weight has 10 rows, kv_a_proj_with_mqa.weight 6 and kv_b_proj.weight is [4, 4]: of 2 heads, no channels are left for the values" \
        --heads=2 2 q_proj.weight:f32:10x8 kv_a_proj_with_mqa.weight:f32:6x8 kv_b_proj.weight:f32:4x4 o_proj.weight:f32:8x8
    rejected_weights "--rope is for multi-head layers; the weights of a latent layer determine what is rotated" "--heads=2 --rope" 2 $good o_proj.weight:f32:8x8
    rejected_weights "--heads-kv, --head-dim and --head-dim-v are for multi-head layers; the weights of a latent layer determine them" \
        "--heads=2 --heads-kv=1" 2 $good o_proj.weight:f32:8x8
    rejected_weights "--rel is for multi-head layers" "--heads=2 --rel=full" 2 $good o_proj.weight:f32:8x8
    rejected_weights "a latent layer needs --heads=N, or --config=FILE of the model" "" 2 $good o_proj.weight:f32:8x8
}
good='w:f32:4 state.weight:f32:4x8'
# shellcheck disable=SC2086
{
    rejected_weights "layer: no tensor 'memory.weight'" "" 2 $good
    rejected_weights "layer: tensor 'memory.weight' has shape [6, 4]; the layer has [4, 6]" "" 2 $good memory.weight:f32:6x4
    rejected_weights "layer: tensor 'memory.weight' is f64; the layer is f32" "" 3 $good memory.weight:f64:4x6
    rejected_weights "layer: tensor 'memory.weight' has a NaN at element 0" "" 2 $good memory.weight:f32:4x6:nan
    rejected_weights "--heads, --heads-kv, --head-dim, --head-dim-v and --rope are not for layers of kind additive" --heads=2 2 $good memory.weight:f32:4x6
    rejected_weights "layer: tensor 'w' has shape [8, 5]; the layer has [8, 6]" "" 2 w:f32:8x5
    rejected_weights "seq2seq: dim_state (8) is not dim_memory (6), which a dot product needs" --kind=dot 2 w:f32:8x5
}
"$MAKE" alone.safetensors x:f32:5x8 w:f32:8x6
rejected 2 "attn layer: alone.safetensors: no tensor 'context', which a layer of kind general attends to" layer alone.safetensors -o out.npz
rejected 2 "attn layer: --kind: 'mla' is not multi-head, latent, additive, general or dot" layer small.safetensors -o out.npz --kind=mla
rejected 2 "attn layer: --rope-pairs: 'half' is not interleaved or halves" layer small.safetensors -o out.npz --heads=4 --rope-pairs=half
rejected 2 "attn layer: --rope-base: '0' is not a number above 0" layer small.safetensors -o out.npz --heads=4 --rope-base=0
for flag in rope-pairs=halves rope-pairs=interleaved rope-base=5; do
    rejected 2 "attn layer: small.safetensors: --${flag%%=*} needs --rope" layer small.safetensors -o out.npz --heads=4 --heads-kv=2 --$flag
    ok "  which takes --$flag" "$ATTN" layer small.safetensors -o out.npz --heads=4 --heads-kv=2 --rope --$flag
    rm -f out.npz
done
"$MAKE" still.safetensors x:f32:5x8 q_proj.weight:f32:8x8 kv_a_proj_with_mqa.weight:f32:4x8 kv_a_layernorm.weight:f32:4 kv_b_proj.weight:f32:14x4 o_proj.weight:f32:8x6
rejected 2 "attn layer: still.safetensors: --rope-base has no effect: this layer rotates no channels" layer still.safetensors -o out.npz --heads=2 --rope-base=5
rejected 2 "attn layer: small.safetensors: --align has no effect without --causal, --window, --sparse, --chunk, --alibi, --t5, --clipped, --rel or --rope: nothing else depends on the positions of queries" \
    layer small.safetensors -o out.npz --heads=4 --align=bottom-right
rejected 2 "attn layer: --decode (0) is not between 1 and 2147483647" layer small.safetensors -o out.npz --heads=4 --decode=0

# Options that --decode rejects; lengths, offsets and masks that do not fit.
heads='--heads=4 --heads-kv=2'
# shellcheck disable=SC2086
{
    rejected 2 "attn layer: small.safetensors: --decode takes no later tokens into account; it needs --causal" \
        layer small.safetensors -o out.npz $heads --decode
    rejected 2 "attn layer: small.safetensors: --decode takes no gradients; --backward needs all tokens at once" \
        layer small.safetensors -o out.npz $heads --causal --decode --backward
    rejected 2 "attn layer: small.safetensors: --decode takes no dropout, which is for training" \
        layer small.safetensors -o out.npz $heads --causal --decode --dropout=0.1
    rejected 2 "attn layer: cross.safetensors: --decode takes no --causal with a context, all of which is visible" \
        layer cross.safetensors -o out.npz $heads --causal --decode
    for flag in --window=1,1 --chunk=2 --sparse=longformer/2/1; do
        rejected 2 "attn layer: cross.safetensors: --decode takes no window, chunk or term by distance with a context, in which a token has no position" \
            layer cross.safetensors -o out.npz $heads --decode $flag
    done
    rejected 2 "attn layer: small.safetensors: --page-size is for the cache of --decode" layer small.safetensors -o out.npz $heads --page-size=4
    "$MAKE" odd.safetensors $small mask:bool:4x5
    rejected 2 "attn layer: odd.safetensors: tensor 'mask' [4, 5] does not broadcast to [2, 4, 5, 5] (batch, head, query, key); --ignore=mask leaves it out" \
        layer odd.safetensors -o out.npz $heads
    "$MAKE" odd.safetensors $small mask:f32:5x5
    rejected 2 "attn layer: odd.safetensors: tensor 'mask' is a mask and has 0.412118 at [0, 0]; expected 0 and 1" layer odd.safetensors -o out.npz $heads
    rejected 2 "attn layer: small.safetensors: --mask-drop says what a mask means, and there is none; --mask=NAME chooses one" \
        layer small.safetensors -o out.npz $heads --mask-drop
    rejected 2 "attn layer: small.safetensors: --decode takes no --sparse but masks that are windows: longformer, strided, dilated, diagonal, local, radius, sliding, window" \
        layer small.safetensors -o out.npz $heads --causal --decode --sparse=prefix/2
    "$MAKE" odd.safetensors $small bias:f64:5x5
    rejected 3 "attn layer: odd.safetensors: tensor 'bias' is f64; expected f32" layer odd.safetensors -o out.npz $heads
    "$MAKE" odd.safetensors $small mask:bool:5x5:1
    rejected 2 "attn layer: odd.safetensors: --decode takes no tensor 'mask'; --ignore=mask leaves it out" \
        layer odd.safetensors -o out.npz $heads --causal --decode
    "$MAKE" odd.safetensors $small sink:f32:2
    rejected 2 "attn layer: odd.safetensors: tensor 'sink' is f32 [2]; expected f32 [4]" layer odd.safetensors -o out.npz $heads
    rejected 2 "attn layer: small.safetensors: --t5 needs a tensor 'bias_table' [4, 32]" layer small.safetensors -o out.npz $heads --t5
    rejected 2 "attn layer: small.safetensors: --rel needs a tensor 'relative_keys' [4, 7, 2]" layer small.safetensors -o out.npz $heads --rel=shaw/3
    "$MAKE" odd.safetensors $small bias_table:f32:4x7
    rejected 2 "attn layer: odd.safetensors: tensor 'bias_table' is f32 [4, 7]; expected f32 [4, 5]" layer odd.safetensors -o out.npz $heads --clipped=2
    "$MAKE" odd.safetensors $small lengths_kv:i32:3:3
    rejected 2 "attn layer: odd.safetensors: tensor 'lengths_kv' has 3 numbers; x has a batch of 2" layer odd.safetensors -o out.npz $heads
    "$MAKE" odd.safetensors $small lengths_kv:i32:2:6
    rejected 2 "attn layer: odd.safetensors: tensor 'lengths_kv': number 0 (6) is not between 0 and 5" layer odd.safetensors -o out.npz $heads
    "$MAKE" odd.safetensors $small lengths_q:f32:2
    rejected 2 "attn layer: odd.safetensors: tensor 'lengths_q' is f32 [2]; expected integers, one for each batch entry" \
        layer odd.safetensors -o out.npz $heads
    "$MAKE" odd.safetensors $small cu_seqlens_q:i32:2:0
    rejected 2 "attn layer: odd.safetensors: tensor 'cu_seqlens_q': packed sequences are [token, channel], and x has 3 axes" \
        layer odd.safetensors -o out.npz $heads
}
packed='x:f32:5x8 wq:f32:8x8 wk:f32:8x8 wv:f32:8x8 wo:f32:8x8'
# shellcheck disable=SC2086
{
    "$MAKE" odd.safetensors $packed cu_seqlens_q:i32:2:0
    rejected 2 "attn layer: odd.safetensors: tensor 'cu_seqlens_q': number 1 (0) is not between 5 and 5" layer odd.safetensors -o out.npz --heads=2
    "$MAKE" odd.safetensors $packed cu_seqlens_q:i32:3:1
    rejected 2 "attn layer: odd.safetensors: tensor 'cu_seqlens_q': number 0 (1) is not between 0 and 0" layer odd.safetensors -o out.npz --heads=2
    "$MAKE" odd.safetensors $packed cu_seqlens_q:i32:0
    rejected 2 "attn layer: odd.safetensors: tensor 'cu_seqlens_q' is empty; it begins with 0" layer odd.safetensors -o out.npz --heads=2
    "$MAKE" odd.safetensors $packed cu_seqlens_q:i32:1:0
    rejected 2 "attn layer: odd.safetensors: tensor 'cu_seqlens_q' holds no sequence; x has 5 tokens" layer odd.safetensors -o out.npz --heads=2
    "$MAKE" odd.safetensors $packed cu_seqlens_kv:i32:1:0
    rejected 2 "attn layer: odd.safetensors: no tensor 'cu_seqlens_q', and x is packed" layer odd.safetensors -o out.npz --heads=2
    "$MAKE" odd.safetensors $packed context:f32:5x8 cu_seqlens_q:i32:1:0
    rejected 2 "attn layer: odd.safetensors: tensor 'cu_seqlens_q' holds no sequence; x has 5 tokens" layer odd.safetensors -o out.npz --heads=2
}

tap_done
