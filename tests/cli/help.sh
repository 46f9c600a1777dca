# SPDX-License-Identifier: MIT
# help.sh - every command has --help, and the JSON output has the fields that programs may rely on.
. tests/cli/tap.sh

printed version '^attn [0-9]+\.[0-9]+\.[0-9]+$' --version
printed help '^usage: attn COMMAND' help --help
printed help '^usage: attn COMMAND' help help
printed completions '^usage: attn completions SHELL' completions --help
printed completions '^usage: attn completions SHELL' help completions
printed help '^usage: attn COMMAND' --help
printed help '^usage: attn COMMAND' help
ok "it fits into 100 columns" same "$(awk 'length > 100' out.txt)" ""
commands="make run show plot view top analyze layer train explain cost bench check info mask position metric merge einsum hopfield"
ok "and no others: a new one belongs into the list of this test" same "$(sed -n 's/^  attn \([a-z]*\) .*/\1/p' out.txt | xargs)" "$commands"
ok "in groups, the first of which is what a newcomer needs" same "$(sed -n '/^Compute and look:/,/^$/s/^  attn \([a-z]*\) .*/\1/p' out.txt | xargs)" "make run show plot view"
ok "each group has a title and a command" same "$(grep -A1 ':$' out.txt | grep -c '^  attn ')" 4
for command in $commands; do
    ok "help names $command" grep -q "^  attn $command " out.txt
    "$ATTN" $command --help >$command.txt 2>err.txt </dev/null
    ok "attn $command --help: status 0" same "$?" 0
    ok "attn $command --help: nothing on standard error" same "$(cat err.txt)" ""
    ok "attn $command --help: usage first" grep -q "^usage: attn $command " $command.txt
    ok "attn help $command is the same" same "$("$ATTN" help $command)" "$(cat $command.txt)"
    # beside its name, or on the next line
    ok "attn $command --help tells what each option does" same "$(awk '
        function check() { if (name != "" && text !~ /[^ ]/) print name }
        /^ +(-[a-zA-Z], )?--[a-z0-9]/ { check(); name = text = $0; sub(/^ *(-[a-zA-Z], )?/, "", name); sub(/ .*/, "", name)
                                   sub(/^ *(-[a-zA-Z], )?[^ ]*/, "", text); next }
        /^                            / { text = text $0; next }
        { check(); name = "" }
        END { check() }' $command.txt)" ""
    ok "attn $command --help fits into 100 columns" same "$(awk 'length > 100' $command.txt)" ""
    for option in json quiet help; do
        ok "attn $command has --$option" grep -q -e "--$option" $command.txt
    done
done
# Every command takes the options of all commands; those without an effect are not in its --help.
for command in $commands; do
    case $command in
    plot | position | metric | cost) without="threads isa seed" ;;
    merge | einsum | info | explain | top | view | analyze) without=seed ;;
    make) without="threads isa" ;;
    show) without="threads isa seed" ;;
    *) without= ;;
    esac
    for option in threads isa seed; do
        case " $without " in
        *" $option "*) lines=0 ;;
        *) lines=1 ;;
        esac
        ok "attn $command --help has --$option $lines times" same "$(grep -c -e "^ *--$option=" $command.txt)" $lines
    done
done
ok "--isa and --seed where they have no effect" "$ATTN" einsum dot_product --isa=scalar --seed=1 --threads=2 --quiet
ok "info --seed" "$ATTN" info --seed=1
printed "info --isa" '^isa       scalar$' info --isa=scalar --threads=3
ok "  and --threads" grep -qx 'threads   3' out.txt
ATTN_ISA=scalar "$ATTN" info --json >out.txt
ok "info follows ATTN_ISA" grep -qE '"isa":[^"]*"scalar"' out.txt
ATTN_ISA=avx "$ATTN" info >out.txt 2>err.txt
ok "  and rejects what is none" same "$? $(cat err.txt)" \
    "2 attn info: the environment variable ATTN_ISA is 'avx'; known: scalar, avx2, avx512, neon, wasm128"
for isa in $(sed -n 's/^ *ATTN_ISA_\([A-Z0-9]*\) = [1-9].*/\1/p' "$ROOT/include/attn/attn.h" | tr '[:upper:]' '[:lower:]'); do
    ok "attn check names --isa=$isa" grep -q -e "--isa=NAME .*\b$isa\b" check.txt
    ok "attn info names ATTN_ISA=$isa" grep -q "ATTN_ISA (.*\b$isa\b" info.txt
    "$ATTN" explain --isa=$isa fwd:f32:sq4:d8 >out.txt 2>err.txt
    ok "attn explain knows --isa=$isa" same "$(grep -c "unknown instruction set" err.txt)" 0
done
for option in causal align window chunk block block-mask empty alibi scale softcap temperature layout dtype query key mask bias lengths-q lengths-kv offset \
    slopes sink cu-seqlens-q cu-seqlens-kv ignore tokens; do
    for command in run top view; do
        ok "attn $command has --$option" grep -q -e "--$option" $command.txt
    done
done
ok "attn analyze has no --dropout" same "$(grep -c -e '--dropout=' analyze.txt)" 0
for command in top view; do
    for option in dropout dropout-given v-scale relative-values; do
        ok "attn $command has no --$option" same "$(grep -c -e "--$option=" $command.txt)" 0
    done
done
for option in output backward lse weights dropout dropout-given value v-scale relative-values do dlse tan-q tan-k tan-v tan-bias; do
    ok "attn run has --$option" grep -q -e "--$option\\b" run.txt
done
for command in top view analyze; do
    ok "attn $command has no gradients" same "$(grep -cE -e '--(do|dlse|tan-[a-z]+)=' $command.txt)" 0
done
for command in run bench explain check; do
    for option in invariant reproducible; do
        ok "attn $command has --$option" grep -q -e "--$option" $command.txt
    done
done
for command in run bench explain check; do
    ok "attn $command says where --reproducible holds" grep -q -e "--reproducible  *the same bits with avx2, avx512 and neon; scalar is rejected" $command.txt
done
"$ATTN" explain --invariant fwd:f32:hq8:hkv2:sq1:skv4096:d64 >invariant.txt
ok "explain --invariant has the cost" grep -q "decode in the order of tiles; --invariant: .* 1.15 times their time (decode 1.3)" invariant.txt
ok "check --reproducible skips scalar kernels" same "$("$ATTN" check --reproducible --isa=scalar fwd:f32:sq4:d8 | tail -1)" "0 passed, 0 failed, 1 skipped"
ok "  and linear attention" same "$("$ATTN" check --reproducible --isa=scalar linear:f32:sq4:d8 | tail -1)" "0 passed, 0 failed, 1 skipped"
ok "check --invariant passes" same "$("$ATTN" check --invariant --isa=scalar fwd:f32:sq4:d8 | tail -1)" "1 passed, 0 failed, 0 skipped"
"$ATTN" explain --reproducible fwd:f32:hq8:sq64:d64 >reproducible.txt
ok "explain --reproducible says so" grep -q -e "; --reproducible: the blocks and chains of every instruction set" reproducible.txt
ok "the words of problem strings are in explain --help" grep -qE '^  window=L,R +a query sees' explain.txt
ok "  without the flag rope, which it rejects" same "$(grep -c '^  rope' explain.txt)" 0

# JSON: one object with these keys.
fields() {
    for field in "$@"; do
        ok "  has $field" grep -q "\"$field\":" out.txt
    done
}
printed "info --json" '^\{' info --json
fields version cpu features isa threads kernels name needs usable built_with
printed info '^kernels  attn_fwd_' info
printed "explain --json" '"kernel":' explain fwd:f32:hq2:sq1000:d64:causal --json
fields kernel why tile blocks threads workspace_bytes tiles_total tiles_visited tiles_modified options
printed "decode is attention over a cache" '"problem":.*"decode:bf16:' explain decode:bf16:hq32:hkv8:sq1:skv4096:d128 --json
sed 's/"decode:/"fwd:/' out.txt >decode.txt
ok "  with the same plan" same "$("$ATTN" explain fwd:bf16:hq32:hkv8:sq1:skv4096:d128 --json)" "$(cat decode.txt)"
printed "  in attn check" '^[1-9][0-9]* passed, 0 failed, ' check decode:int8:hq4:hkv2:sq1:skv300:d64:causal=bottom-right
ok "  which prints a kernel that ran" grep -q ' [1-9][0-9]* cases*, 0 failed' out.txt
ok "  and none that did not" same "$(grep -c ' 0 cases, ' out.txt)" 0
printed "  one case is one" '^attn_fwd_f32_scalar +1 case, 0 failed, ' check fwd:f32:sq9:d8 --isa=scalar
printed "  in attn bench" '"kernel":.*"attn_dec_f32_' bench decode:f32:hq4:hkv2:sq1:skv300:d64 --seconds=0.01 --threads=1 --json
printed "explain bwd --json" '"kernel":.*"attn_bwd_' explain bwd:sq100:d64:softcap=2 --json
fields name cost bytes fused
printed "explain says what an option costs" '^options    softcap     one pass' explain sq100:d64:softcap=2
printed "  and that it stays in the walk" '^fused      all options are done inside one walk' explain bwd:sq100:d64:softcap=2:sink:bias:dbias
printed "  or which does not" '^fused      all but the gradient of the bias' explain bwd:sq100:d64:hq2:bias=h1:dbias
printed "  a mask of 100 x 100 bytes is 9.8 KiB" 'mask .*\(9\.8 KiB\)' explain sq100:d64:mask=0.5
printed explain '^kernel     attn_fwd_f64_scalar \(computes in f64\)' explain f64:sq100:d64 --isa=scalar
printed "explain says what would move with a matrix of scores" 'traffic .* with a matrix of 1 MiB it would be 2\.5 MiB and [0-9.]* with the same cache' explain sq512:d64
# 2 heads: q and o take 512 bytes each, lse 8, and 64 rows of q8_0 and of i8 68 bytes each.
printed "  of formats" '"traffic_bytes":[^0-9]*18440,?$' explain hq2:sq1:skv64:d64:ktype=q8_0:vtype=i8 --json
printed "  and says what scales take" '^           vtype       .*\(512 bytes\)$' explain hq2:sq1:skv64:d64:ktype=q8_0:vtype=i8
printed "explain says what a schedule does" '^schedule   3 sequences of 12 queries and 150 keys in all, .*: 3 items' explain b3:sq4:skv50:d8:schedule
printed "  and what a prefix saves" '"keys_read":[^0-9]*6656' explain b4:sq1:skv3200:d8:page=64:prefix=2048:schedule --json
printed "explain says what a tree costs" '^options    tree        keys before the drafts .*\(64 bytes\)$' explain sq8:skv50:d8:tree=8
printed "  also with --json" '"keys_read":[^0-9]*150' explain b3:sq4:skv50:d8:schedule --json
printed "explain --json has the same" '"matrix_bytes":[^0-9]*1048576' explain sq512:d64 --json
printed "explain --threads" '^threads    1$' explain sq100:d64 --threads 1
printed "run --json" '"problem":.*"fwd:f32:b6:hq12:sq14:d32:causal:lse"' run "$STREET" -o o.safetensors --causal --lse --json
fields input output used unused written version kernel seconds
"$ATTN" run "$STREET" -o o.safetensors >out.txt 2>err.txt
ok "run is silent where there is no terminal" same "$(cat out.txt err.txt)" ""
ok "  as its help says" sh -c "\"$ATTN\" run --help | grep -q '^On a terminal, run prints which tensors'"

# A causal mask halves the tiles visited: explain reports on the problem given.
visited=$("$ATTN" explain sq4096:d64 --json | sed -n 's/.*"tiles_visited":[^0-9]*\([0-9]*\).*/\1/p')
causal=$("$ATTN" explain sq4096:d64:causal --json | sed -n 's/.*"tiles_visited":[^0-9]*\([0-9]*\).*/\1/p')
ok "causal visits fewer tiles ($causal of $visited)" test "$causal" -lt "$visited"

tap_done
