# SPDX-License-Identifier: MIT
# errors.sh - every kind of error: the exact message, the exit status, and no output file.  It is long because each has a line here.
. tests/cli/tap.sh

make() { "$MAKE" "$@" || exit 1; }
make a.safetensors q:f32:2x3x4x8 k:f32:2x3x5x8 v:f32:2x3x5x6
make gqa.safetensors q:f32:6x4x8 k:f32:4x5x8 v:f32:4x5x6
make rank.safetensors q:f32:6x4x8 k:f32:5x8 v:f32:6x5x6
make width.safetensors q:f32:6x4x8 k:f32:6x5x7 v:f32:6x5x6
make vheads.safetensors q:f32:6x4x8 k:f32:6x5x8 v:f32:3x5x6
make vtokens.safetensors q:f32:6x4x8 k:f32:6x5x8 v:f32:6x4x6
make batch.safetensors q:f32:2x6x4x8 k:f32:3x6x5x8 v:f32:2x6x5x6
make rank1.safetensors q:f32:8 k:f32:2x4x8 v:f32:2x4x8
make int.safetensors q:i32:4x8:1 k:f32:4x8 v:f32:4x8
make mixed.safetensors q:f32:4x8 k:f64:4x8 v:f32:4x8
make nokey.safetensors q:f32:4x8 kk:f32:4x8 v:f32:4x8
make noquery.safetensors x:f32:4x8
make mask.safetensors q:f32:4x8 k:f32:4x8 v:f32:4x8 mask:bool:4x5:1
make mask1.safetensors q:f32:4x8 k:f32:4x8 v:f32:4x8 mask:bool:5:1
make maskf.safetensors q:f32:4x8 k:f32:4x8 v:f32:4x8 mask:f32:4x4
make biasi.safetensors q:f32:4x8 k:f32:4x8 v:f32:4x8 bias:i32:4x4:1
make lengths.safetensors q:f32:2x1x4x8 k:f32:2x1x4x8 v:f32:2x1x4x8 lengths_kv:i64:2:9
make lengthsq.safetensors q:f32:2x1x4x8 k:f32:2x1x4x8 v:f32:2x1x4x8 lengths_q:i64:2:-1
make lengths3.safetensors q:f32:2x1x4x8 k:f32:2x1x4x8 v:f32:2x1x4x8 lengths_kv:i64:3:2
make lengthsf.safetensors q:f32:2x1x4x8 k:f32:2x1x4x8 v:f32:2x1x4x8 lengths_kv:f32:2:2
make offset.safetensors q:f32:2x1x4x8 k:f32:2x1x4x8 v:f32:2x1x4x8 offset:i32:2:1
flat='q:f32:4x8 k:f32:4x8 v:f32:4x8'
make whole.safetensors q:f32:4x8 k:i8:4x8:1 v:f32:4x8
make wholes.safetensors q:f32:4x8 k:i8:4x8:1 v:f32:4x8 k_scale:f32:3
make wholei.safetensors q:f32:4x8 k:i8:4x8:1 v:f32:4x8 k_scale:i32:4:1
make wholed.safetensors q:f64:4x8 k:i8:4x8:1 v:f64:4x8 k_scale:f32:4
make wholef.safetensors $flat v_scale:f32:4
make wholeb.safetensors q:f32:4x8 k:i8:4x8:1 v:f32:4x8 k_scale:f32:4 do:f32:4x8
make dropout_keep.safetensors $flat dropout_keep:u8:3x4
make tan.safetensors $flat tan_k:f32:4x7
make tanq.safetensors $flat tan_q:f32:4x8
make tanb.safetensors $flat tan_bias:f32:4x4
make do.safetensors $flat do:f32:4x7
make dlse.safetensors $flat do:f32:4x8 dlse:f32:3
make blocks.safetensors $flat blocks:bool:2x3:1
make sink.safetensors $flat sink:f32:2
make sinks.safetensors $flat sink:f32:1
make scale.safetensors $flat scale:f32:2
make slopes.safetensors q:f32:2x4x4x8 k:f32:2x4x4x8 v:f32:2x4x4x8 slopes:f32:3
make rel.safetensors $flat relative_keys:f32:1x3x8
make table.safetensors $flat bias_table:f32:1x5
make slopesi.safetensors $flat slopes:i32:1:1
make packq.safetensors $flat cu_seqlens_q:i32:2:0
make pack9.safetensors q:f32:4x8 k:f32:3x8 v:f32:3x8 cu_seqlens_q:i32:2:9 cu_seqlens_kv:i32:2:0
make pack2.safetensors $flat cu_seqlens_q:i32:2:0 cu_seqlens_kv:i64:3:0
make packf.safetensors $flat cu_seqlens_q:f32:2:0 cu_seqlens_kv:i64:3:0
make packr.safetensors $flat cu_seqlens_q:i32:1x2:0 cu_seqlens_kv:i64:3:0
make pack4.safetensors q:f32:2x1x4x8 k:f32:2x1x4x8 v:f32:2x1x4x8 cu_seqlens_q:i32:2:0 cu_seqlens_kv:i64:2:0
make packl.safetensors $flat cu_seqlens_q:i32:2:0 cu_seqlens_kv:i64:2:0 lengths_q:i64:1:0
make two.safetensors q:f32:2x1x4x8 k:f32:2x1x4x8 'tokens=[["a","b"],["c","d"],["e"]]' 'layout=q: [batch, head, token, width]'
make long.safetensors q:f32:4x8 k:f32:4x8 'tokens=["a","b","c","d","e"]'
make words.safetensors q:f32:4x8 k:f32:4x8 'tokens=["the","cat","sat",7]'
make text.safetensors q:f32:4x8 k:f32:4x8 'tokens=the cat'
make empty.safetensors q:f32:2x0x8 k:f32:2x4x8
head -c 200 a.safetensors >broken.safetensors
printf 'not a tensor file' >junk.npz
printf 'a\nb\nc\nd\ne\nf\n' >six.txt

# The program
rejected 2 "attn: no command; \`attn --help\` lists them"
rejected 2 "attn: unknown command 'runn' (nearest: run)" runn
rejected 2 "attn: unknown command 'runn' (nearest: run)" help runn
rejected 2 "attn: unknown option '--quiet' before a command; \`attn --help\` lists the commands" --quiet

# Flags: parsed alike by all commands
rejected 2 "attn run: unknown option '--casual' (nearest: --causal)" run a.safetensors -o out.npz --casual
rejected 2 "attn top: unknown option '--tokn' (nearest: --token, --tokens)" top a.safetensors --tokn=it
rejected 2 "attn run: unknown option '--ktype'; ktype is a word of problem strings, which bench, check and explain take" \
    run a.safetensors -o out.npz --ktype=q8_0
rejected 2 "attn run: unknown option '-x'" run a.safetensors -o out.npz -x
rejected 2 "attn run: option --window needs a value: --window=L,R" run a.safetensors -o out.npz --window
rejected 2 "attn run: option --output needs a value: --output=FILE" run a.safetensors -o
rejected 2 "attn info: option --json takes no value" info --json=1
rejected 2 "attn run: --threads (-1) is not between 0 and 1024" run a.safetensors -o out.npz --threads=-1
rejected 2 "attn run: --threads: 'many' is not an integer" run a.safetensors -o out.npz --threads many
rejected 2 "attn run: --threads: '99999999999999999999' does not fit in 64 bits" run a.safetensors -o out.npz --threads=99999999999999999999
rejected 2 "attn run: --isa: unknown instruction set 'avx3' (nearest: avx2)" run a.safetensors -o out.npz --isa=avx3
rejected 2 "attn run: --seed: 'x' is not an integer between 0 and 2^64 - 1" run a.safetensors -o out.npz --seed=x
rejected 2 "attn info: unexpected argument 'now'" info now
rejected 2 "attn run: unexpected argument 'b'" run a b

# run: inputs, outputs and choices
rejected 2 "attn run: no input file; for example: attn run IN.safetensors -o OUT.safetensors" run -o out.npz
rejected 2 "attn run: no input file; for example: attn run IN.safetensors -o OUT.safetensors" run
rejected 2 "attn run: no output file (-o - prints the numbers); for example: attn run IN.safetensors -o OUT.safetensors" run a.safetensors
rejected 2 "attn run: no output file (-o - prints the numbers); for example: attn run IN.safetensors -o OUT.safetensors" run --query=q.npy
rejected 2 "attn run: out.txt: expected a name that ends in .safetensors, .npz or .npy" run a.safetensors -o out.txt
rejected 2 "attn run: out.txt: expected a name that ends in .safetensors, .npz or .npy" run a.safetensors -o out.npz -o out.txt
rejected 2 "attn run: the name of the output file is empty" run a.safetensors -o ''
ok "of two names of an output, the last one counts" "$ATTN" run a.safetensors -o out.txt -o twice.npz
rm -f twice.npz
rejected 2 "attn run: out.npy: an .npy file holds one tensor, and --lse adds another" run a.safetensors -o out.npy --lse
rejected 2 "attn run: out.npy: an .npy file holds one tensor, and --weights adds another" run a.safetensors -o out.npy --weights
rejected 2 "attn run: out.npy: an .npy file holds one tensor, and --topk adds another" run a.safetensors -o out.npy --topk=2
rejected 2 "attn run: --topk (0) is not between 1 and 2147483647" run a.safetensors -o out.npz --topk=0
rejected 2 "attn run: --scores: 'cooked' is not one of raw, capped, biased, weights" run a.safetensors -o out.npz --scores=cooked
rejected 2 "attn run: --column-sum: 'none' is not one of each, group, all" run a.safetensors -o out.npz --column-sum=none
rejected 2 "attn run: --column-queries needs --column-sum" run a.safetensors -o out.npz --column-queries=2
rejected 3 "attn run: out.npz: NumPy files cannot hold bf16; write .safetensors, or use --dtype" run a.safetensors -o out.npz --dtype bf16
rejected 2 "attn run: nowhere/out.npz: cannot create a file beside it: No such file or directory" run a.safetensors -o nowhere/out.npz
rejected 2 "attn run: --window: '3' is not L,R (two integers of at least -1; -1 for no bound)" run a.safetensors -o out.npz --window=3
rejected 2 "attn run: --causal: unknown value 'top' (nearest: top-left)" run a.safetensors -o out.npz --causal=top
rejected 2 "attn run: --dtype: unknown value 'bf17' (nearest: bf16, f16)" run a.safetensors -o out.npz --dtype=bf17
rejected 2 "attn run: --scale: 'inf' is not a number" run a.safetensors -o out.npz --scale=inf
rejected 2 "attn run: a.safetensors: causal=offset needs an offset" run a.safetensors -o out.npz --causal=offset
rejected 2 "attn run: a.safetensors: causal and align both set the positions of queries; use only causal=KIND" \
    run a.safetensors -o out.npz --causal --align=bottom-right
rejected 2 "attn run: offset.safetensors: offset and causal=bottom-right both set the positions of queries" \
    run offset.safetensors -o out.npz --causal=bottom-right

# run: numeric options
rejected 2 "attn run: --temperature is 0; it must be above 0" run a.safetensors -o out.npz --temperature=0
rejected 2 "attn run: --temperature is -1; it must be above 0" run a.safetensors -o out.npz --temperature=-1
rejected 2 "attn run: --temperature: 'nan' is not a number" run a.safetensors -o out.npz --temperature=nan
rejected 2 "attn run: --softcap is -2; it must be at least 0" run a.safetensors -o out.npz --softcap=-2
rejected 2 "attn run: --dropout (1.5) is not between 0 and 1" run a.safetensors -o out.npz --dropout=1.5
rejected 2 "attn run: --dropout (-0.1) is not between 0 and 1" run a.safetensors -o out.npz --dropout=-0.1
rejected 2 "attn run: --dropout: 'nan' is not a number" run a.safetensors -o out.npz --dropout=nan
rejected 2 "attn run: --chunk: '-1' is not a number of tokens (an integer above 0; 0 is off)" run a.safetensors -o out.npz --chunk=-1
rejected 2 "attn run: --block: '0,2' is not Q,K (two integers above 0)" run a.safetensors -o out.npz --block=0,2
rejected 2 "attn run: --block: '2,2/0.5' is not Q,K (two integers above 0)" run a.safetensors -o out.npz --block=2,2/0.5
rejected 2 "attn run: --empty: unknown value 'mean' (nearest: zero)" run a.safetensors -o out.npz --empty=mean

# run: a flag may use the name of the slot or that of the tensor in the file, not both
rejected 2 "attn run: option --dropout-keep needs a value: --dropout-keep=NAME, a mask to drop by, as --dropout-given; --dropout-mask writes what is drawn" \
    run a.safetensors -o out.npz --dropout-keep
rejected 2 "attn run: --dropout-given: --dropout-keep already names the tensor; use --dropout-given alone" \
    run a.safetensors -o out.npz --dropout-keep=a --dropout-given=b
rejected 2 "attn run: --blocks: --block-mask already names the tensor; use --block-mask alone" \
    run a.safetensors -o out.npz --block-mask=a --blocks=b

# Flags without an effect
for command in "top --token=#1" "view -o out.html"; do
    for flag in dropout=0.5 dropout-given=k dropout-keep=k; do
        # shellcheck disable=SC2086
        rejected 2 "attn ${command%% *}: --${flag%%=*} has no effect: weights are taken before dropout" $command "$STREET" --$flag
    done
    # shellcheck disable=SC2086
    rejected 2 "attn ${command%% *}: $STREET: no tensor 'missing' (nearest: k, o, q)" $command "$STREET" --value=missing
    for flag in v-scale relative-values; do
        # shellcheck disable=SC2086
        rejected 2 "attn ${command%% *}: --$flag has no effect: weights do not depend on values" $command "$STREET" --$flag=missing
    done
done
rejected 2 "attn analyze: --dropout has no effect: weights are taken before dropout" analyze "$STREET" --dropout=0.5
rejected 2 "attn analyze: $STREET: no tensor 'missing' (nearest: k, o, q)" analyze "$STREET" --states --value=missing
for flag in v-scale relative-values dropout-given; do
    rejected 2 "attn analyze: --$flag has no effect without --steps or --gradients: weights do not depend on it" \
        analyze "$STREET" --states --$flag=missing
done
rejected 2 "attn analyze: $STREET: no tensor 'missing' (nearest: k, o, q)" analyze "$STREET" --steps=steps.npz --value=missing
rejected 2 "attn analyze: $STREET: no tensor 'missing' (nearest: k, o, q)" analyze "$STREET" --gradients --value=missing
rejected 3 "attn analyze: --gradients takes [batch, head, token, channel], and no --layout=bshd" analyze "$STREET" --gradients --layout=bshd
for flag in epsilon=1e-6 denominator=none denominator=clamp form=chunked state; do
    rejected 2 "attn run: --${flag%%=*} needs --linear (or --phi, --rule)" run a.safetensors -o out.npz --$flag
done
nothing="has no effect without --causal, --window, --sparse, --chunk, --alibi, --t5, --clipped, --rel or --rope: nothing else depends on the positions of queries"
for flag in align=top-left align=bottom-right; do
    rejected 2 "attn run: --align $nothing" run a.safetensors -o out.npz --$flag
    rejected 2 "attn top: --align $nothing" top "$STREET" --token=it --$flag
    rejected 2 "attn view: --align $nothing" view "$STREET" -o out.html --$flag --softcap=2
    rejected 2 "attn analyze: --align $nothing" analyze "$STREET" --$flag
done
make starts.safetensors q:f32:1x2x4x8 k:f32:1x2x4x8 v:f32:1x2x4x8 starts:i64:1:3 positions_q:i64:4:1
rejected 2 "attn run: --offset $nothing" run a.safetensors -o out.npz --offset=3 --dropout=0.5
rejected 2 "attn run: --offset $nothing" run starts.safetensors -o out.npz --offset=starts --ignore=positions_q
rejected 2 "attn run: --offset $nothing" run starts.safetensors -o out.npz --offset=3 --rope

# run: optional tensors, and gradients
for name in ranges block_starts block_index page_table page_starts page_index lengths_last_page tree k_tail; do
    make unread.safetensors $flat $name:i64:1x1x1x2:0
    rejected 3 "attn run: unread.safetensors: tensor '$name': the command has no option for it; --ignore=$name leaves it out" \
        run unread.safetensors -o out.npz
    ok "$name can be left out" "$ATTN" run unread.safetensors -o out.npz --ignore=$name
    rm out.npz
done
for name in cu_seqlens initial_slots final_slots; do
    make unread.safetensors $flat $name:i64:2:0
    rejected 3 "attn run: unread.safetensors: tensor '$name': the command has no option for it; --ignore=$name leaves it out" \
        run unread.safetensors -o out.npz --linear
    ok "$name can be left out" "$ATTN" run unread.safetensors -o out.npz --linear --ignore=$name
    rm out.npz
done
rejected 2 "attn run: a.safetensors: --block needs a tensor 'blocks' (1 = keep); --block-mask=NAME chooses another" \
    run a.safetensors -o out.npz --block=2,2
rejected 2 "attn run: blocks.safetensors: tensor 'blocks': --block=Q,K gives the queries and keys of each entry; --ignore=blocks leaves it out" \
    run blocks.safetensors -o out.npz
rejected 2 "attn run: blocks.safetensors: tensor 'blocks' [2, 3] does not broadcast to [1, 1, 2, 2] (batch, head, query block, key block)" \
    run blocks.safetensors -o out.npz --block=2,2
rejected 2 "attn run: sink.safetensors: tensor 'sink' [2]: expected a number for each head [1]" run sink.safetensors -o out.npz
rejected 2 "attn run: scale.safetensors: tensor 'scale' [2]: expected a number for each head [1]" run scale.safetensors -o out.npz
rejected 2 "attn run: slopes.safetensors: tensor 'slopes' [3]: expected a number for each head [4], or for each batch entry and head [2, 4]" \
    run slopes.safetensors -o out.npz
rejected 2 "attn run: slopesi.safetensors: tensor 'slopes' is i32; expected f32, f64, f16 or bf16" run slopesi.safetensors -o out.npz
rejected 2 "attn run: sinks.safetensors: --empty is uniform and sink is set; with a sink a fully masked row has all its weight on the sink" \
    run sinks.safetensors -o out.npz --empty=uniform
rejected 2 "attn run: a.safetensors: no tensor 'do'; --do=NAME chooses another (available: k, q, v)" run a.safetensors -o out.npz --backward
rejected 2 "attn run: do.safetensors: tensor 'do' [4, 7]: expected [4, 8]" run do.safetensors -o out.npz --backward
rejected 2 "attn run: dlse.safetensors: tensor 'dlse' [3]: expected [4]" run dlse.safetensors -o out.npz --backward
rejected 2 "attn run: --do is a gradient, which is for attn run --backward and --double-backward" run do.safetensors -o out.npz --do=do
rejected 2 "attn run: out.npy: an .npy file holds one tensor, and --backward adds another" run dlse.safetensors -o out.npy --backward --ignore=dlse

rejected 2 "attn run: --ignore: no tensor 'slpoes' can be left out (nearest: slopes); known: mask, bias, lengths_q, lengths_kv, offset, slopes, bias_table, relative_keys, relative_values, relative_u, relative_v, ..." \
    run a.safetensors -o out.npz --ignore=slpoes
cp a.safetensors same.safetensors && ln same.safetensors other.safetensors
rejected 2 "attn run: same.safetensors: this output is an input, which would be replaced" run same.safetensors -o same.safetensors
rejected 2 "attn run: other.safetensors: this output is an input, which would be replaced" run same.safetensors -o other.safetensors
rejected 2 "attn analyze: other.safetensors: this output is an input, which would be replaced" analyze same.safetensors --steps=other.safetensors
cp a.safetensors tokens.safetensors
rejected 2 "attn run: tokens.safetensors: this output is an input, which would be replaced" run same.safetensors -o tokens.safetensors --tokens=tokens.safetensors
rejected 2 "attn analyze: tokens.safetensors: this output is an input, which would be replaced" analyze same.safetensors --rollout=tokens.safetensors --tokens=tokens.safetensors
ok "  nor are the tokens" cmp a.safetensors tokens.safetensors
ok "what would have been replaced is as it was" cmp a.safetensors other.safetensors
rm same.safetensors other.safetensors

# run: packed sequences
rejected 2 "attn run: packq.safetensors: packed sequences need cu_seqlens_q and cu_seqlens_kv; --cu-seqlens-q=cu_seqlens_q --cu-seqlens-kv=cu_seqlens_q uses one for both" \
    run packq.safetensors -o out.npz
rejected 2 "attn run: pack9.safetensors: tensor 'cu_seqlens_q': number 0 (9) is not between 0 and 0" run pack9.safetensors -o out.npz
rejected 2 "attn run: pack2.safetensors: tensor 'cu_seqlens_kv' [3] does not fit 'cu_seqlens_q' [2]: 2 and 1 sequences" run pack2.safetensors -o out.npz
rejected 2 "attn run: packf.safetensors: tensor 'cu_seqlens_q' is f32; expected integers, such as i32" run packf.safetensors -o out.npz
rejected 2 "attn run: packr.safetensors: tensor 'cu_seqlens_q' [1, 2]: expected [sequences + 1] numbers" run packr.safetensors -o out.npz
rejected 2 "attn run: pack4.safetensors: tensor 'q' has 4 axes; packed sequences are [head, token, channel], or with --layout=bshd [token, head, channel]" \
    run pack4.safetensors -o out.npz
rejected 2 "attn run: packl.safetensors: cu_seqlens_q and lengths_q are both set; set only one of them" \
    run packl.safetensors -o out.npz

# run: keys and values of i8
rejected 2 "attn run: whole.safetensors: tensor 'k' is i8 and has no scale: no tensor 'k_scale'; --k-scale=NAME chooses another" run whole.safetensors -o out.npz
rejected 2 "attn run: wholes.safetensors: tensor 'k_scale' [3]: expected a number for each row of 'k', [4]" run wholes.safetensors -o out.npz
rejected 2 "attn run: wholei.safetensors: tensor 'k_scale' is i32; expected f32, f64, f16 or bf16" run wholei.safetensors -o out.npz
rejected 2 "attn run: wholed.safetensors: tensor 'k' is i8 and 'q' is f64; --dtype=f64 or f32 makes them one" run wholed.safetensors -o out.npz
rejected 2 "attn run: wholef.safetensors: tensor 'v_scale' is the scale of 'v', which is f32 and not i8" run wholef.safetensors -o out.npz

make packi8.safetensors q:f32:4x8 k:i8:4x8:1 k_scale:f32:4 cu_seqlens_q:i32:2:0 cu_seqlens_kv:i64:2:0
rejected 3 "attn top: packi8.safetensors: tensor 'k': packed keys of i8 are for attn run only" top packi8.safetensors --token '#0'

# run: biases by distance, relative terms, scores with weights
rejected 2 "attn run: a.safetensors: no tensor 'bias_table' with a bias by distance; --bias-table=NAME chooses another" run a.safetensors -o out.npz --t5
rejected 2 "attn run: table.safetensors: tensor 'bias_table' is a bias by distance; --t5 or --clipped=N gives its kind" run table.safetensors -o out.npz
rejected 2 "attn run: table.safetensors: tensor 'bias_table' [1, 5]: expected [1, 7], a number for each head and distance, or [7] for all heads" \
    run table.safetensors -o out.npz --clipped=3
rejected 2 "attn run: table.safetensors: tensor 'bias_table' [1, 5]: expected [1, 32], a number for each head and bucket (--t5=both/N takes N), or [32] for all heads" \
    run table.safetensors -o out.npz --t5
rejected 2 "attn run: table.safetensors: distance bias: buckets is 5; it must be even and at least 4" run table.safetensors -o out.npz --t5=both/5
rejected 2 "attn run: a.safetensors: --rel=shaw/64 needs relative_keys; --relative-keys=NAME chooses another" run a.safetensors -o out.npz --rel=shaw/64
rejected 2 "attn run: rel.safetensors: tensor 'relative_keys' holds relative terms; --rel=KIND gives their kind" run rel.safetensors -o out.npz
rejected 2 "attn run: rel.safetensors: tensor 'relative_keys' [1, 3, 8]: expected [1, 5, 8], or for all heads [5, 8]" run rel.safetensors -o out.npz --rel=shaw/2
make relv.safetensors q:f32:2x4x8 k:f32:2x4x8 v:f32:2x4x6 relative_keys:f32:3x8 relative_values:f32:2x3x6
rejected 2 "attn run: relv.safetensors: tensor 'relative_values' [2, 3, 6] does not fit 'relative_keys' [3, 8]: one table for all heads and one for each of 2" \
    run relv.safetensors -o out.npz --rel=shaw-values/1
make general.safetensors q:f32:2x4x8 k:f32:2x4x6 v:f32:2x4x6 w:f32:6x8
rejected 2 "attn run: general.safetensors: tensor 'w' [6, 8]: expected [8, 6] of widths of q and k, or for each head [2, 8, 6]" run general.safetensors -o out.npz --score=general
rejected 2 "attn run: general.safetensors: tensor 'k' [2, 4, 6] does not fit 'q' [2, 4, 8]: score=general/5 sets the width of a key, which is 6" \
    run general.safetensors -o out.npz --score=general/5
rejected 2 "attn run: general.safetensors: tensor 'k' [2, 4, 6] does not fit 'q' [2, 4, 8]: widths of 6 and 8; --score=general takes both" run general.safetensors -o out.npz --score=metric
make metric.safetensors q:f32:2x4x8 k:f32:2x4x8 v:f32:2x4x6 w:f32:3x3x8
rejected 2 "attn run: metric.safetensors: tensor 'w' [3, 3, 8]: expected [rows, 8], or for each head [2, rows, 8]" run metric.safetensors -o out.npz --score=metric
rejected 2 "attn run: metric.safetensors: tensor 'w' [3, 3, 8]: expected [4, 8], or for each head [2, 4, 8]" run metric.safetensors -o out.npz --score=metric/4
rejected 2 "attn run: metric.safetensors: tensor 'w' [3, 3, 8]: expected weights [8], with biases [2, 8], or for each head [2, 1 or 2, 8]" run metric.safetensors -o out.npz --score=additive
rejected 2 "attn run: a.safetensors: no tensor 'w'; --w=NAME chooses another (available: k, q, v)" run a.safetensors -o out.npz --score=general
rejected 2 "attn run: --w is for --score=general, metric and additive: it names their weights" run metric.safetensors -o out.npz --w=w
rejected 3 "attn run: rel.safetensors: relative_keys is set and --score is cosine; relative terms are for dot products only" run rel.safetensors -o out.npz --rel=shaw/1 --score=cosine
rejected 3 "attn run: wholeb.safetensors: k.dtype is i8 and the operation is not forward; quantised keys and values have no gradients" run wholeb.safetensors -o out.npz --backward

# run: linear attention
made='the operation is neither forward nor --backward; the other operations are for'
rejected 3 "attn run: tanq.safetensors: --normaliser is sigmoid and $made softmax only" run tanq.safetensors -o out.npz --jvp --normaliser=sigmoid
rejected 3 "attn run: tanq.safetensors: --score is cosine and $made dot products only" run tanq.safetensors -o out.npz --jvp --score=cosine
rejected 3 "attn explain: jvp:sq5:d4:normaliser=relu: normaliser is relu and op is neither fwd nor bwd; the other operations are for softmax only" \
    explain jvp:sq5:d4:normaliser=relu
rejected 2 "attn run: a.safetensors: --shift is 3 and --normaliser is softmax; only sigmoid has it" run a.safetensors -o out.npz --shift=3
rejected 2 "attn analyze: --empty is uniform and --normaliser is softmax-one; with a sink a fully masked row has all its weight on the sink" \
    analyze a.safetensors --empty=uniform --normaliser=softmax-one
rejected 2 "attn explain: fwd:sq8:d8:shift=3: shift is 3 and normaliser is softmax; only sigmoid has it" explain fwd:sq8:d8:shift=3
rejected 2 "attn mask: longformer: width is 0; it must be between 1 and 2^60" mask longformer/0/0 -n 8
rejected 2 "attn mask: sliding: keys is 0; it must be between 1 and 2^60" mask sliding/0 -n 8
rejected 2 "attn mask: diagonal: size is 0; it must be between 1 and 2^60" mask diagonal/0 -n 8
rejected 2 "attn run: --phi: unknown value 'elu3' (nearest: elu1, relu)" run a.safetensors -o out.npz --phi=elu3
rejected 3 "attn run: linear attention writes o and weights, not --lse" run a.safetensors -o out.npz --phi=elu1 --lse
rejected 3 "attn run: linear attention has forward and --backward only" run a.safetensors -o out.npz --linear --jvp
rejected 3 "attn run: a.safetensors: linear attention takes sizes, causal, scale, phi, decay, rule, denominator, epsilon, form and seed, and no other words" run a.safetensors -o out.npz --phi=elu1 --window=2,0
rejected 2 "attn top: unknown option '--phi' (nearest: --key, --w, --do)" top a.safetensors --token=it --phi=elu1

# run: beyond forward
rejected 2 "attn run: dropout_keep.safetensors: tensor 'dropout_keep' [3, 4] does not broadcast to [1, 1, 4, 4] (batch, head, query, key)" \
    run dropout_keep.safetensors -o out.npz
rejected 2 "attn run: a.safetensors: no tangent: tan_q, tan_k, tan_v or tan_bias; --tan-q=NAME chooses another" run a.safetensors -o out.npz --jvp
rejected 2 "attn run: tan.safetensors: tensor 'tan_k' [4, 7]: expected [4, 8]" run tan.safetensors -o out.npz --jvp
rejected 2 "attn run: tan.safetensors: no tensor 'do'; --do=NAME chooses another (available: k, q, tan_k, v)" run tan.safetensors -o out.npz --double-backward
rejected 2 "attn run: --tan-k is a tangent, which is for attn run --jvp and --double-backward" run tan.safetensors -o out.npz --tan-k=tan_k
rejected 2 "attn run: --jvp: only one of --backward, --jvp and --double-backward at a time" run a.safetensors -o out.npz --backward --jvp
rejected 2 "attn run: out.npy: an .npy file holds one tensor, and --jvp adds another" run tanq.safetensors -o out.npy --jvp
rejected 2 "attn run: tanb.safetensors: tensor 'tan_bias' is the tangent of a bias, and there is no bias" run tanb.safetensors -o out.npz --jvp
rejected 2 "attn run: --after-dropout needs --weights or --scores=weights" run a.safetensors -o out.npz --after-dropout

# run: files and tensors
rejected 2 "attn run: missing.npz: cannot open: No such file or directory" run missing.npz -o out.npz
"$ATTN" run broken.safetensors -o out.npz >out.txt 2>err.txt
ok "a truncated file: status 2" same $? 2
ok "  one line that names it" grep -q '^attn run: broken.safetensors: ' err.txt
ok "  and no more" same "$(wc -l <err.txt) $(wc -c <out.txt) $(ls | grep -c '^out\.npz')" "1 0 0"
"$ATTN" run junk.npz -o out.npz >out.txt 2>err.txt
ok "a file of another kind: status 2" same $? 2
ok "  one line that names it" grep -q '^attn run: junk.npz: ' err.txt
rejected 2 "attn run: missing.npy: cannot open: No such file or directory" run --query=missing.npy -o out.npz
rejected 2 "attn run: no input file has 'q'; give the file, --query=FILE.npy, or numbers: --query='1 0; 0 1'" run --query=q -o out.npz
rejected 2 "attn run: a.safetensors: no tensor 'qq' (nearest: q, k, v)" run a.safetensors --query=qq -o out.npz
rejected 2 "attn run: nokey.safetensors: no tensor 'k'; --key=NAME chooses another (available: kk, q, v)" run nokey.safetensors -o out.npz
rejected 2 "attn run: noquery.safetensors: no tensor 'q'; --query=NAME chooses another (available: x)" run noquery.safetensors -o out.npz
rejected 2 "attn run: a.safetensors: --ignore=v leaves tensor 'v' out; --value=NAME chooses another" run a.safetensors --ignore=v -o out.npz
rejected 2 "attn run: a.safetensors: tensor 'q' is used as tan_q; --query=q uses it as q too" run a.safetensors -o out.npz --jvp --tan-q=q
rejected 2 "attn run: a.safetensors: tensor 'k' is used as v; --key=k uses it as k too" run a.safetensors -o out.npz --value=k
rejected 2 "attn run: a.safetensors: tensor 'v' is used as do; --value=v uses it as v too" run a.safetensors -o out.npz --backward --do=v
rejected 2 "attn run: do.safetensors: tensor 'do' is used as bias; --do=do uses it as do too" run do.safetensors -o out.npz --backward --bias=do
ok "a tensor in two roles" "$ATTN" run a.safetensors -o twice.npz --jvp --tan-q=q --query=q
rm -f twice.npz

# run: linear attention
rejected 2 "attn run: a.safetensors: rule=delta needs a tensor 'beta'" run a.safetensors -o out.npz --linear --causal --rule=delta
make decay.safetensors $flat decay:i32:4:0
rejected 2 "attn run: decay.safetensors: tensor 'decay' is i32; expected f32, f64, f16 or bf16" run decay.safetensors -o out.npz --linear --causal
make decay.safetensors $flat decay:f32:5
rejected 2 "attn run: decay.safetensors: tensor 'decay' [5]: expected the 4 numbers of [1, 1, 4, 1]" run decay.safetensors -o out.npz --linear --causal
make state.safetensors $flat initial_state:f32:1x1x8x8
rejected 2 "attn run: state.safetensors: initial_state is present, but initial_sum, its sum of features, is missing" \
    run state.safetensors -o out.npz --linear --causal
make dstate.safetensors $flat do:f32:4x8 dfinal_state:f32:1x1x8x8
rejected 2 "attn run: dstate.safetensors: dfinal_state is present, but dfinal_sum, of the sum of features, is missing" \
    run dstate.safetensors -o out.npz --linear --causal --backward
rejected 2 "attn run: a.safetensors: no tensor 'near' (nearest: k, q, v)" run a.safetensors --offset=near -o out.npz

# run: shapes
rejected 2 "attn run: rank1.safetensors: tensor 'k' [2, 4, 8] does not fit 'q' [1, 8]: ranks 3 and 2" run rank1.safetensors -o out.npz
rejected 2 "attn run: rank.safetensors: tensor 'k' [5, 8] does not fit 'q' [6, 4, 8]: ranks 2 and 3" run rank.safetensors -o out.npz
rejected 2 "attn run: batch.safetensors: tensor 'k' [3, 6, 5, 8] does not fit 'q' [2, 6, 4, 8]: batches of 3 and 2" run batch.safetensors -o out.npz
rejected 2 "attn run: width.safetensors: tensor 'k' [6, 5, 7] does not fit 'q' [6, 4, 8]: widths of 7 and 8; --score=general takes both" run width.safetensors -o out.npz
rejected 2 "attn run: gqa.safetensors: tensor 'k' [4, 5, 8] does not fit 'q' [6, 4, 8]: heads_q (6) is not a multiple of heads_kv (4)" run gqa.safetensors -o out.npz
rejected 2 "attn run: vheads.safetensors: tensor 'v' [3, 5, 6] does not fit 'k' [6, 5, 8]: 3 and 6 heads" run vheads.safetensors -o out.npz
rejected 2 "attn run: vtokens.safetensors: tensor 'v' [6, 4, 6] does not fit 'k' [6, 5, 8]: 4 and 5 tokens" run vtokens.safetensors -o out.npz
rejected 2 "attn run: mask.safetensors: tensor 'mask' [4, 5] does not broadcast to [1, 1, 4, 4] (batch, head, query, key)" run mask.safetensors -o out.npz
rejected 2 "attn run: mask1.safetensors: tensor 'mask' [5] does not broadcast to [1, 1, 4, 4] (batch, head, query, key)" run mask1.safetensors -o out.npz
rejected 2 "attn run: lengths3.safetensors: tensor 'lengths_kv' [3]: expected one number for each batch entry [2]" run lengths3.safetensors -o out.npz

# run: types and values
rejected 2 "attn run: int.safetensors: tensor 'q' is i32; expected f32, f64, f16 or bf16" run int.safetensors -o out.npz
rejected 2 "attn run: mixed.safetensors: tensor 'k' is f64 and 'q' is f32; --dtype=f64 or f32 makes them one" run mixed.safetensors -o out.npz
rejected 2 "attn run: maskf.safetensors: tensor 'mask' is a mask and has -0.958924 at [0, 0]; expected 0 and 1" run maskf.safetensors -o out.npz
rejected 2 "attn run: biasi.safetensors: tensor 'bias' is i32; expected f32, f64, f16 or bf16" run biasi.safetensors -o out.npz
rejected 2 "attn run: lengthsf.safetensors: tensor 'lengths_kv' is f32; expected integers, such as i64" run lengthsf.safetensors -o out.npz
rejected 2 "attn run: lengths.safetensors: lengths_kv[0] (9) is not between 0 and 4" run lengths.safetensors -o out.npz
rejected 2 "attn run: lengthsq.safetensors: lengths_q[0] (-1) is not between 0 and 4" run lengthsq.safetensors -o out.npz

# A failed run keeps an existing output file.
printf 'precious' >out.npz
"$ATTN" run gqa.safetensors -o out.npz 2>/dev/null
ok "a failed run leaves the old output" same "$(cat out.npz)" precious
rm out.npz

# A file name with a newline still gives a message of one line.
"$ATTN" run "two
lines" -o out.npz 2>err.txt
ok "messages stay one line" same "$(cat err.txt)" "attn run: two?lines: cannot open: No such file or directory"

# top
rejected 2 "attn top: no input file; for example: attn top IN.safetensors --token it" top --token it
rejected 2 "attn top: no token; for example: attn top IN.safetensors --token it" top "$STREET"
rejected 2 "attn top: $STREET: no query is the token 'ti' (nearest: it, tired, the)" top "$STREET" --token ti
rejected 2 "attn top: a.safetensors: queries have no tokens; --tokens=FILE names them, --token='#N' chooses one by position" top a.safetensors --token it
rejected 2 "attn top: a.safetensors: no query #4; there are 4" top a.safetensors --token '#4'
rejected 2 "attn top: a.safetensors: no query #9999999999999999999; there are 4" top a.safetensors --token '#9999999999999999999'
rejected 2 "attn top: --layer: there is no 6, only 0 to 5" top "$STREET" --token it --layer 6
rejected 2 "attn top: --head: '1-' is not a list of numbers, such as 0,3-5" top "$STREET" --token it --head 1-
rejected 2 "attn top: --head: 5-3 ends before it begins; did you mean 3-5?" top "$STREET" --token it --head 0,5-3
rejected 2 "attn top: --head: there is no 12, only 0 to 11" top "$STREET" --token it --head 3,10-12
rejected 2 "attn top: --count is -1; it must be at least 0" top "$STREET" --token it --count=-1
rejected 2 "attn top: missing.txt: No such file or directory" top a.safetensors --token it --tokens missing.txt
rejected 2 "attn top: six.txt: 6 tokens for 4 queries and 5 keys" top a.safetensors --token a --tokens six.txt
rejected 2 "attn top: two.safetensors: 3 lists of tokens for 2 batch entries" top two.safetensors --token a
rejected 2 "attn top: long.safetensors: 5 tokens for 4 queries and 4 keys" top long.safetensors --token a
for name in words text; do
    rejected 2 "attn top: $name.safetensors: metadata 'tokens' is not a JSON list of words, or of lists of words" top $name.safetensors --token cat
done
rejected 2 "attn top: --rope-pairs needs --rope" top "$STREET" --token it --rope-pairs=halves
rejected 2 "attn run: --rope-base: '-1' is not a number above 0" run a.safetensors -o out.npz --rope --rope-base=-1
rejected 2 "attn run: --rope-scaling: 'yarn/4' is not linear/F, ntk/F, ntk-dynamic/F/L, yarn/F/L or llama3/F/L, with a factor F of at least 1 and the trained length L, an integer above 0" \
    run a.safetensors -o out.npz --rope --rope-scaling=yarn/4
rejected 2 "attn run: --rope-scaling: 'linear/0x4' is not linear/F, ntk/F, ntk-dynamic/F/L, yarn/F/L or llama3/F/L, with a factor F of at least 1 and the trained length L, an integer above 0" \
    run a.safetensors -o out.npz --rope --rope-scaling=linear/0x4
rejected 2 "attn run: a.safetensors: rope rotates 3 channels; pairs need an even number" run a.safetensors -o out.npz --rope --rope-channels=3
rejected 3 "attn run: --rope goes with forward and --backward; it does not rotate tangents" run tanq.safetensors -o out.npz --rope --jvp
rejected 3 "attn run: --rope does not rotate keys of i8; rotate them before they are quantised" run wholeb.safetensors -o out.npz --rope
make positions.safetensors $flat positions_q:i64:3:1
rejected 2 "attn run: positions.safetensors: tensor 'positions_q' holds rotary positions, which need --rope" run positions.safetensors -o out.npz
rejected 2 "attn run: positions.safetensors: tensor 'positions_q' [3]: expected a position for each token [4], or of each batch entry [.., 4]" \
    run positions.safetensors -o out.npz --rope

# view
rejected 2 "attn view: no input file; for example: attn view IN.safetensors -o attention.html" view -o out.html
rejected 2 "attn view: no output file; for example: attn view IN.safetensors -o attention.html" view "$STREET"
make repeated.safetensors q:f32:2x3x4x8 k:f32:2x3x4x8
rejected 2 "attn view: head.png: expected a name that ends in .svg" view "$STREET" --export=head.png
rejected 2 "attn view: --export draws one head, and here are 1 entries x 6 layers x 12 heads; --layer, --head and --entry choose one" \
    view "$STREET" --export=head.svg
rejected 2 "attn view: --with has no effect without -o: it is for the page" view "$STREET" --export=head.svg --layer=0 --head=0 --with="$STREET"
rejected 2 "attn view: --live has no effect without -o: it is for the page" view "$STREET" --export=head.svg --layer=0 --head=0 --live
rejected 3 "attn view: $STREET: --live is for dot products under a softmax without mask and bias tensors; this page holds weights" \
    view "$STREET" -o out.html --live --score=cosine
make alone.safetensors weights:f32:1x3x5:0.2
rejected 2 "attn view: alone.safetensors has weights and no q: --live computes weights from q and k" view alone.safetensors -o out.html --live
rejected 2 "attn view: --with=repeated.safetensors has 2 layers x 3 heads, $STREET has 6 x 12; both need the same numbers of them: --layer and --head choose" \
    view "$STREET" -o out.html --with=repeated.safetensors
rejected 2 "attn view: gone.safetensors: cannot open: No such file or directory" view "$STREET" -o out.html --with=gone.safetensors
rejected 2 "attn view: out.svg: expected a name that ends in .html" view gone.safetensors -o out.svg
rejected 2 "attn view: --queries: '1,3' is not one number or range, such as 100-199" view "$STREET" -o out.html --queries 1,3
rejected 2 "attn view: --queries: 'x' is not one number or range, such as 100-199" view "$STREET" -o out.html --queries x
rejected 2 "attn view: --queries: 3-1 ends before it begins; did you mean 1-3?" view "$STREET" -o out.html --queries=3-1
rejected 2 "attn view: --queries: there is no 14, only 0 to 13" view "$STREET" -o out.html --queries=12-14
rejected 2 "attn view: --entry: there is no 1, only 0" view "$STREET" -o out.html --entry=1
rejected 2 "attn view: empty.safetensors: nothing to show: a size is 0" view empty.safetensors -o out.html
rejected 2 "attn view: nowhere/out.html: cannot create a file beside it: No such file or directory" view "$STREET" -o nowhere/out.html
make huge.safetensors q:f32:8000x1:0 k:f32:8000x1:0
rejected 3 "attn view: huge.safetensors: 1 entries x 1 layers x 1 heads x 8000 x 8000 weights are too many for a page (at most 50331648); --layer, --head, --entry, --queries choose fewer" \
    view huge.safetensors -o out.html --score=cosine
rejected 3 "attn view: huge.safetensors: 8000 x 8000 weights are too many for a picture (at most 50331648); --queries chooses fewer" \
    view huge.safetensors --export=head.svg

# check
rejected 2 "attn check: --quick and --thorough set different numbers of cases; give only one" check --quick --thorough
for part in 2 0/2 3/2 1/1001 /2 1/ 1/2x 1.5/2 12345678/12345678; do
    rejected 2 "attn check: --part: '$part' is not K/N, the K-th of N parts, with N up to 1000" check --part=$part
done
rejected 2 "attn check: --conformance has neither --invariant nor --reproducible" check --conformance=. --reproducible
rejected 2 "attn check: bwd:sq9:d8: --invariant is for fwd and decode; bwd does not guarantee it" check bwd:sq9:d8 --invariant
rejected 2 "attn check: linear:sq9:d8: --invariant is for fwd and decode; linear does not guarantee it" check linear:sq9:d8 --invariant
rejected 2 "attn check: --part divides the cases of a whole check; it takes no problem and no --conformance" check --part=1/2 fwd:f32:s64:d64

# explain
rejected 3 "attn explain: linear:sq50:d16: --reproducible is set; the bits of linear attention depend on the instruction set" \
    explain linear:sq50:d16 --reproducible
rejected 3 "attn explain: bwd:sq9:d8:schedule: the plan cannot be scheduled: its operation is not fwd" explain bwd:sq9:d8:schedule
rejected 3 "attn explain: sq9:d8:schedule: --ranks predicts sequences of one length: without packed, ragged, page, schedule, lens, offset" \
    explain sq9:d8:schedule --ranks=2
for op in bwd jvp bwd2 linear linear-bwd; do
    rejected 2 "attn explain: $op:sq50:d16: --invariant is for fwd and decode; $op does not guarantee it" explain $op:sq50:d16 --invariant
done
rejected 2 "attn run: --invariant is for fwd and decode; bwd does not guarantee it" run a.safetensors -o out.npz --backward --invariant
rejected 2 "attn run: --invariant is for fwd and decode; linear does not guarantee it" run a.safetensors -o out.npz --linear --invariant
rejected 2 "attn run: --invariant is for fwd and decode; linear-bwd does not guarantee it" \
    run a.safetensors -o out.npz --linear --backward --invariant
rejected 3 "attn run: a.safetensors: --reproducible is set; the bits of linear attention depend on the instruction set" \
    run a.safetensors -o out.npz --linear --reproducible
rejected 3 "attn run: a.safetensors: --reproducible is set and the instruction set is scalar; it needs avx2, avx512 or neon" \
    run a.safetensors -o out.npz --reproducible --isa=scalar
echo 'sq8:d8' >problems.txt
rejected 2 "attn bench: problems.txt: this output is an input, which would be replaced" bench --problems=problems.txt --csv=problems.txt --seconds=0.01
rejected 2 "attn bench: --samples needs --json, into which it puts the times" bench sq8:d8 --samples
# What the library lacks is no failed check, and none that passed.
rejected 3 "attn check: jvp:sq4:d64:score=additive: score is additive and op is neither fwd nor bwd; the other operations are for dot products only" \
    check jvp:sq4:d64:score=additive
rejected 3 "attn check: bwd:sq4:d64:ktype=i8: k.dtype is i8 and op is not fwd; quantised keys and values have no gradients" check bwd:sq4:d64:ktype=i8
rejected 3 "attn check: fwd:f64:sq4:d64:ktype=q8_0: k.dtype is q8_0; it must be f64, as q is f64" check fwd:f64:sq4:d64:ktype=q8_0
rejected 3 "attn check: bwd:sq4:d64:page=16: page_table is set and op is not fwd; paged keys have no gradients" check bwd:sq4:d64:page=16
rejected 3 "attn check: bwd:sq9:d8:schedule: the plan cannot be scheduled: its operation is not fwd" check bwd:sq9:d8:schedule
rejected 3 "attn check: sq5:skv60:d64:lens:schedule: the plan cannot be scheduled: it has lengths_q; pack ragged queries, with cu_seqlens_q" \
    check sq4:d8 sq5:skv60:d64:lens:schedule
rejected 2 "attn check: linear:sq9:d8:fill=huge: linear attention takes no words of checks, such as fill, poison, plant and memory" check linear:sq9:d8:fill=huge
rejected 2 "attn check: fill=huge:linear:sq9:d8: linear attention takes no words of checks, such as fill, poison, plant and memory" check fill=huge:linear:sq9:d8
rejected 2 "attn mask: lengths: 9 queries; the mask has 8" mask lengths/9/9 -n 8
rejected 2 "attn mask: lengths: 9 keys; the mask has 8" mask causal lengths/8/9 -n 8
ok "as many as there are" "$ATTN" mask lengths/8/9 -n 8 -m 9
rejected 2 "attn mask: m.svg: expected a name that ends in .png" mask causal -n 4 --png m.svg
rejected 2 "attn mask: missing/m.npy: cannot be written: No such file or directory" mask causal -n 4 -o missing/m.npy --png beside.png
ok "no picture beside it" test ! -e beside.png
rejected 2 "attn bench: bwd:sq9:d8: --invariant is for fwd and decode; bwd does not guarantee it" bench sq9:d8 bwd:sq9:d8 --invariant
rejected 3 "attn bench: linear:sq9:d8: --reproducible is set; the bits of linear attention depend on the instruction set" \
    bench linear:sq9:d8 --reproducible
rejected 3 "attn explain: sq50:d16: --reproducible is set and the instruction set is scalar; it needs avx2, avx512 or neon" \
    explain sq50:d16 --reproducible --isa=scalar
rejected 2 "attn explain: --network has no effect without --ranks" explain sq9:d8 --network=10Gbit/s
rejected 2 "attn explain: --layout has no effect without --ranks" explain sq9:d8 --layout=striped
rejected 2 "attn explain: --network: '3furlongs' is not a rate above 0, such as 200Gbit/s (or Mbit/s, Tbit/s, GB/s, MB/s)" \
    explain sq9:d8 --ranks=2 --network=3furlongs
rejected 3 "attn explain: linear:sq50:d16: --ranks predicts softmax attention; there is no model of linear attention over ranks yet" \
    explain linear:sq50:d16 --ranks=2
rejected 2 "attn explain: --threads has no effect with --ranks" explain sq9:d8 --ranks=2 --threads=2
rejected 2 "attn explain: --invariant has no effect with --ranks" explain sq9:d8 --ranks=2 --invariant
rejected 2 "attn explain: --ranks-heads has no effect without --way=heads-ring" explain sq9:d8 --ranks=2 --way=ring --ranks-heads=2
ok "gather, whole" "$ATTN" explain fwd:sq4096:d64:weights --ranks=4
rejected 3 "attn explain: b2:sq9:d8:lens: --ranks predicts sequences of one length: without packed, ragged, page, schedule, lens, offset" explain b2:sq9:d8:lens --ranks=2
rejected 2 "attn explain: no problem; for example: attn explain fwd:f32:hq8:sq1024:d64:causal" explain
rejected 2 "attn explain: sq9:d8:casual: unknown word 'casual' (nearest: causal)" explain sq9:d8:casual
rejected 2 "attn explain: hq3:hkv2:sq9:d8: heads_q (3) is not a multiple of heads_kv (2)" explain hq3:hkv2:sq9:d8
rejected 3 "attn explain: sq9:d8:rope: rope rotates queries and keys before there is a problem: attn run, top, view and analyze have --rope" explain sq9:d8:rope

rejected 3 "attn explain: linear:sq64:d64:causal:rule=delta:denominator=clamp: the delta rule has no denominator; set denominator to none" \
    explain linear:sq64:d64:causal:rule=delta:denominator=clamp
ok "  which does it" "$ATTN" explain linear:sq64:d64:causal:rule=delta:denominator=none

# Failing to write standard output is an error too.
if [ -c /dev/full ]; then
    "$ATTN" info >/dev/full 2>err.txt
    ok "a full disk: status 2" same $? 2
    ok "  says so" same "$(cat err.txt)" "attn: standard output cannot be written"
    # The output file is complete by then, as the manual page says.
    make patterns.safetensors patterns:f32:3x4
    for words in "run a.safetensors -o" "mask causal -n 4 -o" "hopfield patterns.safetensors -o"; do
        # shellcheck disable=SC2086
        "$ATTN" $words whole.npz --json >out.txt
        # shellcheck disable=SC2086
        "$ATTN" $words full.npz --json >/dev/full 2>err.txt
        ok "  attn ${words%% *}: status 2" same $? 2
        ok "  and says so" same "$(cat err.txt)" "attn: standard output cannot be written"
        ok "  after the file" cmp whole.npz full.npz
        rm -f whole.npz full.npz
    done
fi

tap_done
