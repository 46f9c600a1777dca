# SPDX-License-Identifier: MIT
# top.sh - attn top: the links of a token in a real sentence, and in small generated tensors.
. tests/cli/tap.sh

# The example sentence: in layer 3, head 1, "it" attends to "animal".
"$ATTN" top "$STREET" --token it --layer 3 --head 1 --count 1 --json >out.json 2>err.txt
ok "top --json: status 0" same "$?" 0
ok "  layer 3" grep -qE '"layer":[[:space:]]*3,' out.json
ok "  head 1" grep -qE '"head":[[:space:]]*1,' out.json
ok "  query 9" grep -qE '"query":[[:space:]]*9,' out.json
ok "  key 2" grep -qE '"key":[[:space:]]*2,' out.json
ok "  from it" grep -qE '"query_token":[[:space:]]*"it"' out.json
ok "  to animal" grep -qE '"key_token":[[:space:]]*"animal"' out.json
ok "  weight 0.687" grep -qE '"weight":[[:space:]]*0\.68690' out.json
ok "  tokens first" grep -qE '"tokens":[[:space:]]*\["\[CLS\]", "the", "animal"' out.json
ok "  nothing on standard error" same "$(cat err.txt)" ""

weights() { sed -n 's/.*"weight":[^0-9]*\([0-9.e-]*\).*/\1/p' "$1"; }
"$ATTN" top "$STREET" --token it --json >all.json
ok "all links: 6 layers x 12 heads x 14 keys" same "$(weights all.json | wc -l)" 1008
ok "strongest first" same "$(weights all.json)" "$(weights all.json | sort -g -r)"
ok "the strongest is layer 0, head 2" same "$(grep -m1 '"layer"' all.json | tr -cd 0-9) $(grep -m1 '"head"' all.json | tr -cd 0-9)" "0 2"
"$ATTN" top "$STREET" --token the --count 5000 --json >the.json
ok "a token that stands twice is found twice" same "$(weights the.json | wc -l) $(grep -c '"query":[^0-9]*1,' the.json)" "2016 1008"
ok "the order does not depend on --count" same "$("$ATTN" top "$STREET" --token it --count 7 --json | grep -c weight)" 7

# The table
"$ATTN" top "$STREET" --token it >table.txt
ok "a table of 20, with a title and a header" same "$(wc -l <table.txt)" 22
ok "says how many there are" grep -qx "the strongest 20 of 1008 links from 'it'" table.txt
ok "has the link to animal" grep -qE '^ +3 +1 +9 it +2 animal +0\.687 +#+$' table.txt
"$ATTN" top "$STREET" --token it --content --count 3 --quiet >content.txt
ok "--content leaves [CLS] out" same "$(grep -c CLS content.txt)" 0
ok "--quiet leaves the title out" same "$(wc -l <content.txt)" 4
printed "any case" "'IT'" top "$STREET" --token IT
printed "by position" ' 9 it ' top "$STREET" --token '#9'

# A masked key gives no link.
"$MAKE" blocks.safetensors q:f32:3x4x8 k:f32:3x5x8 blocks:bool:2x3:0 sink:f32:3 slopes:f32:3
"$ATTN" top blocks.safetensors --token '#2' --block=3,2 --json >blocks.json
ok "a block mask that drops all: no link" same "$(weights blocks.json | wc -l)" 0
"$MAKE" blocks.safetensors q:f32:1x4x8 k:f32:1x5x8 blocks:bool:1x3:1 sink:f32:1:9
"$ATTN" top blocks.safetensors --token '#2' --block=4,2 --causal --json >blocks.json
"$ATTN" top blocks.safetensors --token '#2' --ignore=blocks --ignore=sink --causal --json >plain.json
ok "a block mask that keeps all: 3 links" same "$(weights blocks.json | wc -l)" 3
ok "a sink takes from the weights" test "$(weights blocks.json | head -1)" != "$(weights plain.json | head -1)"
"$ATTN" top "$STREET" --token it --causal --json >causal.json
ok "causal: 10 of 14 keys" same "$(weights causal.json | wc -l)" 720
"$ATTN" top "$STREET" --token it --window=0,0 --json >window.json
ok "a window of itself" same "$(weights window.json | sort -u) $(grep -c '"key":[^0-9]*9,' window.json)" "1 72"
"$ATTN" top "$STREET" --token it --dtype f64 --isa scalar --layer 3 --head 1 --count 1 >double.txt
ok "in double" grep -q 0.687 double.txt

# Axes: metadata `layout` names the layer axis; there is one list of tokens per batch entry.
"$MAKE" batch.safetensors q:f32:2x3x4x8 k:f32:2x3x4x8 lengths_kv:i32:2:3 'tokens=[["a","b","c","d"],["d","x","y","z"]]'
"$ATTN" top batch.safetensors --token d --json >batch.json
ok "lists: the entries differ" same "$(grep '"entry"' batch.json | sort -u | tr -cd '01')" 01
ok "  the token is query 3 of entry 0 and query 0 of entry 1" same "$(grep '"query":' batch.json | sort -u | tr -cd '0-9')" 03
ok "  keys beyond the length are no links" same "$(weights batch.json | wc -l) $(grep -c '"key_token":[^a-z]*"[dz]"' batch.json)" "18 3"
"$ATTN" top batch.safetensors --token d --entry 1 --json >one.json
ok "--entry chooses" same "$(weights one.json | wc -l) $(grep -c '"entry":[^0-9]*1' one.json)" "9 9"
"$MAKE" layers.safetensors q:f32:2x3x4x8 k:f32:2x3x4x8 'tokens=["a","b","c","d"]' 'layers=[4, 7]' 'layout=q k: [layer, head, token, 8]'
"$ATTN" top layers.safetensors --token d --layer 7 --json >layers.json
ok "numbers of layers are the file's own" same "$(grep '"layer"' layers.json | sort -u | tr -cd '0-9')" 7
rejected 2 "attn top: --layer: there is no 5, only 4, 7" top layers.safetensors --token d --layer=5
"$MAKE" plain.safetensors q:f32:2x3x4x8 k:f32:2x3x4x8
printf 'a\nb\nc\nd\n' >words.txt
"$ATTN" top plain.safetensors --token d --tokens words.txt --json >plain.json
ok "--tokens FILE; a leading axis is the layer" same "$(grep '"layer"' plain.json | sort -u | tr -cd '0-9')" 01
"$ATTN" top plain.safetensors --token '#3' --json >bare.json
ok "without tokens: null" grep -qE '"query_token":[[:space:]]*null' bare.json
"$MAKE" cross.safetensors q:f32:2x8 k:f32:5x8 'tokens=["a","b","c","d","e"]'
"$ATTN" top cross.safetensors --token e --causal=bottom-right --json >cross.json
ok "queries at the end of the keys are named after them" same "$(grep '"query":' cross.json | sort -u | tr -cd '0-9')" 1

# The same tensor, once as [layer, batch] and once as [batch, layer].
"$MAKE" lb.safetensors q:f32:2x3x2x4x8 k:f32:2x3x2x4x8 'layout=q: [layer, batch, head, token, 8]'
"$MAKE" bl.safetensors q:f32:2x3x2x4x8 k:f32:2x3x2x4x8 'layout=q: [batch, layer, head, token, 8]'
"$ATTN" top lb.safetensors --token '#1' --layer 1 --entry 0 --json >lb.json
"$ATTN" top bl.safetensors --token '#1' --layer 0 --entry 1 --json >bl.json
"$ATTN" top bl.safetensors --token '#1' --layer 1 --entry 1 --json >other.json
ok "layout says which axis is the layer" same "$(weights lb.json)" "$(weights bl.json)"
ok "  and another layer is another" test "$(weights bl.json)" != "$(weights other.json)"

tap_done
