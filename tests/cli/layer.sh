# SPDX-License-Identifier: MIT
# layer.sh - a layer with its weights: a real one, small ones, and what is refused.
. tests/cli/tap.sh
"$ATTN" layer --help >/dev/null 2>&1 || {
    echo "skipped: built without libattn_layers"
    exit 77
}
REAL=$ROOT/examples/data/animal_street_layer2.safetensors

"$ATTN" layer "$REAL" -o real.safetensors --heads=12 --weights --compare --json >real.json 2>err.txt
ok "a real layer: status 0" same "$?" 0
ok "  nothing on standard error" same "$(cat err.txt)" ""
ok "  y and weights" same "$(grep -oE '"(y|weights)"' real.json | wc -l)" 4
# sums of 384 products of numbers around 1, twice: 2 * 384 * 2^-24 = 4.6e-05 at the very worst
ok "  equal to the model's own" same "$(grep -cE '"largest":[^0-9]*[0-9.]+e-0[67]' real.json)" 2

small='x:f32:2x5x8 wq:f32:8x8 wk:f32:4x8 wv:f32:4x8 wo:f32:8x8 bq:f32:8 bo:f32:8'
# shellcheck disable=SC2086
"$MAKE" small.safetensors $small dy:f32:2x5x8 lengths_kv:i32:2:3
"$ATTN" layer small.safetensors -o y.safetensors --heads=4 --heads-kv=2 --causal --backward --weights-mean
ok "gradients: status 0" same "$?" 0
"$ATTN" layer small.safetensors -o y.npz --heads=4 --heads-kv=2 --causal --backward --json >y.json
ok "  all that there are, and no more" same "$(grep -oE '"(y|d[a-z]+)"' y.json | sort | tr -d '\n')" '"dbo""dbq""dwk""dwo""dwq""dwv""dx""y"'
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
rm -f y.safetensors

refused 2 "attn layer: no input file; for example: attn layer IN.safetensors -o OUT.safetensors --heads=12" layer
refused 2 "attn layer: no output file; for example: attn layer IN.safetensors -o OUT.safetensors --heads=12" layer small.safetensors
refused 2 "attn layer: no number of heads; for example: attn layer IN.safetensors -o OUT.safetensors --heads=12" layer small.safetensors -o out.npz
refused 2 "attn layer: out.npy: expected a name that ends in .safetensors or .npz" layer small.safetensors -o out.npy --heads=4
refused 2 "attn layer: small.safetensors: the width of x (8) is not a multiple of --heads (3); set --head-dim" \
    layer small.safetensors -o out.npz --heads=3
refused 2 "attn layer: small.safetensors: layer: tensor 'wk' has shape [4, 8]; the layer has [8, 8]" layer small.safetensors -o out.npz --heads=4
refused 2 "attn layer: x.safetensors: layer: no tensor is named q_proj_weight, q_proj.weight or wq" layer x.safetensors -o out.npz --heads=4
refused 2 "attn layer: x.safetensors: no tensor is named dy" \
    layer x.safetensors -o out.npz --heads=2 --weights-file=weights.safetensors --prefix=a. --backward
refused 3 "attn layer: small.safetensors: a layer takes no layout; x is [batch, token, channel]" \
    layer small.safetensors -o out.npz --heads=4 --layout=bshd
"$MAKE" flat.safetensors x:f32:8
refused 2 "attn layer: flat.safetensors: tensor 'x' has shape [8]; expected [token, channel] or [batch, token, channel]" \
    layer flat.safetensors -o out.npz --heads=4
"$MAKE" half.safetensors x:f16:5x8
refused 3 "attn layer: half.safetensors: tensor 'x' is f16; a layer computes in f32 or f64" layer half.safetensors -o out.npz --heads=4

tap_done
