# SPDX-License-Identifier: MIT
# make_messages.sh - attn make: what it prints and writes, and what it refuses.  tests/cli/test_make.c has its numbers.
. tests/cli/tap.sh

printed "the line that computes the file" '^attn run in\.npz -o out\.npz --causal --dropout=0\.5 --seed=3$' \
    make fwd:f32:hq2:sq5:d8:causal:dropout=0.5 -o in.npz --seed=3
ok "  and nothing else" same "$(wc -l <out.txt)" 1
mkdir "it's here"
printed "a name that a shell must not read" "^attn run 'it'\\\\''s here/a b\.npz' -o out\.npz\$" make fwd:sq5:d8 -o "it's here/a b.npz"
ok "  which runs" sh -c "'$ATTN' $(sed 's/^attn //' out.txt)"
"$ATTN" make fwd:sq5:d8 -o in.npz --quiet >out.txt 2>err.txt
ok "--quiet prints nothing" same "$(cat out.txt err.txt)" ""
printed "--json" '"run":.*"attn run in\.npz -o out\.npz --window=2,0"' make fwd:sq5:d8:window=2,0 -o in.npz --json
ok "  with the problem" grep -q '"problem":.*"fwd:f32:sq5:d8:window=2,0"' out.txt
ok "  and every tensor" same "$(grep -c '"name":' out.txt)" 3

"$ATTN" make fwd:hq2:sq5:d8 -o in.npz -q
"$ATTN" make fwd:hq2:sq5:d8 -o again.npz -q
"$ATTN" make fwd:hq2:sq5:d8 -o other.npz -q --seed=1
ok "the same file each time" cmp in.npz again.npz
ok "another with another seed" sh -c '! cmp -s in.npz other.npz'
for name in q k v; do "$ATTN" make fwd:hq2:sq5:d8 -o $name.npy --only=$name -q; done
"$ATTN" run in.npz -o o.npy
"$ATTN" run --query=q.npy --key=k.npy --value=v.npy -o again.npy
ok "--only writes the tensors of the whole" cmp o.npy again.npy
printf 'The\ncat\nsat\n' >words.txt
"$ATTN" make fwd:sq3:d8 -o in.safetensors --tokens=words.txt -q
"$ATTN" top in.safetensors --token=cat --json >out.txt
ok "--tokens names them" grep -q '"query_token":.*"cat"' out.txt

rejected 2 "attn make: no problem string; for example: attn make fwd:f32:hq2:sq5:d8:causal -o in.npz" make -o x.npz
rejected 2 "attn make: no output file (-o - prints the numbers); for example: attn make fwd:f32:hq2:sq5:d8:causal -o in.npz" make fwd:sq4:d8
rejected 2 "attn make: x.txt: expected a name that ends in .safetensors, .npz or .npy" make fwd:sq4:d8 -o x.txt
rejected 2 "attn make: x.npy: .npy holds one tensor, not 3: write .safetensors or .npz" make fwd:sq4:d8 -o x.npy
rejected 2 "attn make: --only=mask: the problem has no such tensor (nearest: k, q, v)" make fwd:sq4:d8 -o x.npy --only=mask
rejected 2 "attn make: fwd:sq4:d8:seed=1: seed=1 and --seed=2 differ; give one of them" make fwd:sq4:d8:seed=1 -o x.npz --seed=2
rejected 2 "attn make: words.txt: 3 tokens for 4 queries and 5 keys" make fwd:sq4:skv5:d8 -o x.npz --tokens=words.txt
rejected 2 "attn make: missing.txt: No such file or directory" make fwd:sq4:d8 -o x.npz --tokens=missing.txt
rejected 2 "attn make: fwd:sq4:d8:memory=padded: memory is a word of attn check alone: a file has neither a layout in memory nor outputs" \
    make fwd:sq4:d8:memory=padded -o x.npz
rejected 2 "attn make: linear:sq4:d8:fill=huge: linear attention takes no words of checks, such as fill, poison, plant and memory" make linear:sq4:d8:fill=huge -o x.npz
rejected 3 "attn make: b2:sq4:d8:page=2: page: attn run has no option for pages, so that a file of them would compute another problem" \
    make b2:sq4:d8:page=2 -o x.npz
rejected 3 "attn make: sq4:d8:tree=2: tree: attn run has no option for trees of drafts, so that a file of them would compute another problem" \
    make sq4:d8:tree=2 -o x.npz
rejected 3 "attn make: b2:sq4:d8:ragged: ragged: attn run has no option for packed queries alone, so that a file of them would compute another problem" \
    make b2:sq4:d8:ragged -o x.npz
echo a >words.npz
rejected 2 "attn make: words.npz: this output is an input, which would be replaced" make sq4:d8 -o words.npz --tokens=words.npz
rejected 3 "attn make: sq4:d32:vtype=q4_0: vtype: files have no elements of q4_0" make sq4:d32:vtype=q4_0 -o x.npz
rejected 3 "attn make: x.npz: tensor 'k': NumPy has no type for bf16: write .safetensors, or convert to f32" make bf16:sq4:d32 -o x.npz
tap_done
