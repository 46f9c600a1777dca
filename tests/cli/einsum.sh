# SPDX-License-Identifier: MIT
# einsum.sh - attn einsum: indices, shapes, cost, named contractions; rejected arguments.
. tests/cli/tap.sh

"$ATTN" einsum "bhid,bhjd->bhij" --sizes=b=2,h=8,i=1024,j=512,d=64 >out.txt
ok "free indices" grep -qE '^  free indices  b h i j$' out.txt
ok "summed indices" grep -qE '^  summed over   d$' out.txt
ok "shapes" grep -qF 'tensor 2      [b=2, h=8, j=512, d=64]' out.txt
ok "cost" grep -qE '^  cost .*: 5.36871e\+08$' out.txt
ok "size" grep -qE '^  numbers out   8.38861e\+06$' out.txt
ok "implicit output is what occurs once, sorted" same "$("$ATTN" einsum "kj,ik" | head -1)" "kj,ik->ij"
ok "a repeated index alone is summed" same "$("$ATTN" einsum "ii" | head -1)" "ii->"
"$ATTN" einsum trace >out.txt
ok "one number" grep -q 'one number' out.txt
ok "a name" same "$("$ATTN" einsum multihead_combine | head -1)" "hic,hcd->id"
ok "--json" python3 -c 'import json, subprocess, sys
found = json.loads(subprocess.run([sys.argv[1], "einsum", "hij,hjc->hic", "--json", "--sizes=h=2,i=3,j=4,c=5"], capture_output=True).stdout)
assert found == {"contraction": "hij,hjc->hic", "inputs": ["hij", "hjc"], "output": "hic", "free_indices": ["h", "i", "c"],
                 "summation_indices": ["j"], "multiplications": 120, "numbers_out": 30}, found' "$ATTN"
"$ATTN" einsum --help | grep -oE '^  [a-z_]+ +[a-z,]+->[a-z]* ' >names.txt
ok "26 names in --help" same "$(wc -l <names.txt)" 26
while read -r name contraction; do
    ok "$name" same "$("$ATTN" einsum "$name" | head -1)" "$contraction"
done <names.txt

rejected 2 "attn einsum: i1,j: '1' is not an index; indices are letters" einsum "i1,j"
rejected 2 "attn einsum: ij->ik: index k after the arrow is not on any tensor before it" einsum "ij->ik"
rejected 2 "attn einsum: ij->ii: index i appears twice after the arrow" einsum "ij->ii"
rejected 2 "attn einsum: ij,,k: tensor 2 has no index" einsum "ij,,k"
rejected 2 "attn einsum: ->: no index before the arrow" einsum -- "->"
rejected 2 "attn einsum: ij: sizes name k, which is not an index of ij->ij" einsum ij --sizes=k=2
rejected 2 "attn einsum: ij: sizes do not name j" einsum ij --sizes=i=2
rejected 2 "attn einsum: ij: sizes (i=x) are not a list such as b=2,h=8" einsum ij --sizes=i=x
rejected 2 "attn einsum: ij: sizes (i2) are not a list such as b=2,h=8" einsum ij --sizes=i2
rejected 2 "attn einsum: ij: the size of i (0) is not between 1 and 1073741824" einsum ij --sizes=i=0,j=3
rejected 2 "attn einsum: ij: the size of j (9223372036854775808) is not between 1 and 1073741824" einsum ij --sizes=i=1,j=9223372036854775808
rejected 2 "attn einsum: ij: sizes name i twice" einsum ij --sizes=i=2,i=3,j=1
help='`attn einsum --help` lists them; a contraction has a comma or an arrow, as in ij,jk->ik'
rejected 2 "attn einsum: dot_produkt: unknown name (nearest: dot_product); $help" einsum dot_produkt
rejected 2 "attn einsum: trade: unknown name (nearest: trace); $help" einsum trade
rejected 2 "attn einsum: bhij: unknown name (nearest: trace); $help" einsum bhij
ok "with an arrow, four indices of one tensor" same "$("$ATTN" einsum "bhij->bhji" | head -1)" "bhij->bhji"

tap_done
