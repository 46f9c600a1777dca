# SPDX-License-Identifier: MIT
# mask.sh - attn mask: text, counts, JSON, pictures, rejected arguments.
. tests/cli/tap.sh

rows() {
    "$ATTN" mask "$@" 2>err.txt | grep -E '^[#.]+$'
}
ok "causal" same "$(rows causal -n 4)" "$(printf '#...\n##..\n###.\n####')"
ok "cross, the last query at the last key" same "$(rows bottom-right -n 2 -m 4)" "$(printf '###.\n####')"
ok "longformer and causal" same "$(rows longformer/3/1 causal -n 5)" "$(printf '#....\n##...\n###..\n#.##.\n#..##')"
ok "window with no bound to the left" same "$(rows window/-1/1 -n 4)" "$(printf '##..\n###.\n####\n####')"
ok "documents" same "$(rows documents/2/1 -n 4)" "$(printf '##..\n##..\n..#.\n....')"
ok "nothing but rows and figures" same "$("$ATTN" mask causal -n 3 | grep -cvE '^[#.]+$|^(count|sparsity|tiles|fused) ')" 0
ok "the same seed draws the same blocks" same "$(rows bigbird/2/1/0/2 -n 20 --seed 7)" "$(rows bigbird/2/1/0/2 -n 20 --seed 7)"
ok "another seed draws others" test "$(rows bigbird/2/1/0/2 -n 20 --seed 7)" != "$(rows bigbird/2/1/0/2 -n 20 --seed 8)"

# Every kind of mask.h has a word here and a row on its page, which has every word, too.
for kind in $(sed -nE 's/^ +(ATTN_PATTERN_[A-Z_]+) = [0-9]+,?$/\1/p' "$ROOT/include/attn/mask.h"); do
    name=$(echo "${kind#ATTN_PATTERN_}" | tr '[:upper:]' '[:lower:]')
    ok "testing/problem/pattern.c has a row for $kind" grep -q "$kind," "$ROOT/testing/problem/pattern.c"
    ok "docs/mechanisms/masks.md has a row for $name" grep -qE "^\|[^|]*\`$name[(\`]" "$ROOT/docs/mechanisms/masks.md"
done
"$ATTN" mask --help | sed -n '/^Masks/,$p' | sed -n 's/^  \([a-z-]*\).*/\1/p' >words.txt
ok "masks are listed" test "$(wc -l <words.txt)" -ge 17
while read -r word; do
    ok "docs/mechanisms/masks.md has the word $word" grep -qE "^\|[^|]*\|[^|]*\`$word[/\`]" "$ROOT/docs/mechanisms/masks.md"
done <words.txt

printed "count" '^count     10 of 16 pairs$' mask causal -n 4
printed "sparsity" '^sparsity  37\.50 %$' mask causal -n 4
printed "queries that see nothing" '^empty     2 queries see no key$' mask lengths/2/3 -n 4
printed "tiles" '^tiles     12 of 16 skipped \(75\.00 %\), of 2 queries x 2 keys$' mask diagonal/2 -n 8 --tile-q 2 --tile-kv 2
printed "a mask of blocks and columns" '^fused     yes: attention walks the tiles that are left$' mask fixed/4/1 -n 8
printed "a mask that needs a matrix" '^fused     no: attention needs it as a matrix of 7 x 8; -o writes one$' mask bottom-right fixed/4/1 -n 7 -m 8
"$ATTN" mask causal -n 300 >out.txt
ok "a large one is not printed" same "$(grep -c '#' out.txt)" 0
ok "but on request" same "$(rows causal -n 300 --text | wc -l | tr -d ' ')" 300

printed "json" '"count":' mask causal local/3 -n 6 --json
for field in mask queries keys count sparsity empty_queries tile tiles_total tiles_skipped fused; do
    ok "  has $field" grep -q "\"$field\":" out.txt
done
ok "  nothing but one object" same "$(head -c1 out.txt)" "{"

"$ATTN" mask causal -n 4 -m 8 --png mask.png >/dev/null
ok "a picture is a PNG" same "$(head -c 8 mask.png | od -An -tx1 | tr -d ' \n')" 89504e470d0a1a0a
ok "  of 256 x 128 grey pixels" same "$(dd if=mask.png bs=1 skip=16 count=10 2>/dev/null | od -An -tx1 | tr -d ' \n')" 00000100000000800800
ok "  and nothing is left beside it" test ! -e mask.png.part

"$ATTN" mask causal local/3 -n 4 -o mask.safetensors >/dev/null
ok "a tensor: its name, its type, its shape" grep -aq '"mask":{"dtype":"BOOL","shape":\[4, 4\]' mask.safetensors
ok "  the words of it" grep -aq '"attn_mask":"causal local/3"' mask.safetensors
ok "  its rows" same "$(tail -c 16 mask.safetensors | od -An -v -tu1 -w4 | tr -d ' ')" "$(printf '1000\n1100\n0110\n0011')"

# A block map is any tensor of the right shape: here a mask written before, as blocks of 2 x 3.
"$ATTN" mask bottom-right -n 2 -m 3 -o blocks.npy >/dev/null
printed "a map of blocks" '^count     26 of 28 pairs$' mask map/2/3 -n 4 -m 7 --map blocks.npy
ok "  as text" same "$(head -4 out.txt)" "$(printf '######.\n######.\n#######\n#######')"
printed "  and others beside it" '^fused     yes: attention walks the tiles that are left$' mask map/2/3 causal -n 4 -m 7 --map blocks.npy
rejected 2 "attn mask: map needs --map; for example: attn mask map/64/64 -n 1024 --map=blocks.npy" mask map/2/3 -n 4
rejected 2 "attn mask: --map needs a mask map/Q/K" mask causal -n 4 --map blocks.npy
rejected 2 "attn mask: blocks.npy: tensor 'blocks' is not [2, 2], blocks of 2 queries and 3 keys" mask map/2/3 -n 4 --map blocks.npy
"$MAKE" none.safetensors && "$MAKE" two.safetensors a:u8:2x2:1 b:u8:2x2:1
rejected 2 "attn mask: none.safetensors: has no tensor" mask map/2/3 -n 4 --map none.safetensors
rejected 2 "attn mask: two.safetensors: has more than one tensor, and none named 'blocks'" mask map/2/3 -n 4 --map two.safetensors
rejected 2 "attn mask: no.npy: cannot open: No such file or directory" mask map/2/3 -n 4 --map no.npy
printed "one query without keys" '^empty     1 query sees no key$' mask lengths/2/3 -n 3

rejected 2 "attn mask: no mask; for example: attn mask causal -n 8" mask -n 3
rejected 2 "attn mask: unknown mask 'casual' (nearest: causal)" mask casual -n 3
rejected 2 "attn mask: local: too few numbers; expected local/WIDTH" mask local -n 3
rejected 2 "attn mask: local: too many numbers (at most 1); expected local/WIDTH" mask local/3/4 -n 3
rejected 2 "attn mask: local: 'x' is not an integer" mask local/x -n 3
rejected 2 "attn mask: local: width is 0; it must be between 1 and 2^60" mask local/0 -n 3
rejected 2 "attn mask: no/such/folder.png: cannot create a file beside it: No such file or directory" mask causal -n 3 --png no/such/folder.png
rejected 2 "attn mask: a picture has 1 to 16384 queries and keys, not 0 x 0" mask causal -n 0 --png o.png
rejected 2 "attn mask: out.txt: expected a name that ends in .safetensors, .npz or .npy" mask casual -n 3 -o out.txt
rejected 2 "attn mask: no/such/out.npz: cannot create a file beside it: No such file or directory" mask causal -n 3 -o no/such/out.npz

tap_done
