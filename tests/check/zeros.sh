#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# zeros.sh - attn check of problems with an axis of size 0, with every kind of score and table: every check passes, and the harness and
# ref/ access nothing out of bounds (without a sanitizer, heap corruption shows).  Also impossible sizes, which the library rejects
# before the reference divides by them.
attn=$1
fail() { echo "$*"; exit 1; }
scores=(score=dot score=cosine score=distance score=general score=general/5 score=general:w=heads score=metric score=metric/3
    score=additive score=additive:w=bias score=additive:w=heads-bias rel=shaw/2 rel=shaw-values/2:shared rel=xl rel=xl:shared rel=full
    t5 t5:shared clipped=3 clipped=3:shared=table sink:alibi:bias:scale=heads normaliser=sigmoid packed lens dropout=0.5 mask=0.5)
sizes=(b0:hq2:hkv1:sq3:skv5:d4:dv3 b2:hq0:hkv1:sq3:skv5:d4:dv3 b2:hq0:hkv0:sq3:skv5:d4:dv3 b2:hq2:hkv1:sq0:skv5:d4:dv3
    b2:hq2:hkv1:sq3:skv0:d4:dv3 b2:hq2:hkv1:sq3:skv5:d0:dv3 b2:hq2:hkv1:sq3:skv5:d4:dv0 b2:hq2:hkv1:sq3:skv5:d0:dv0
    b0:hq0:hkv0:sq0:skv0:d4:dv0)
problems=(bwd:bf16:hq0:hkv1:sq13:skv259:d8:dv1:causal:layout=bshd:dlse:score=general/21:seed=2408:fill=rising)
for size in "${sizes[@]}"; do
    for score in "${scores[@]}"; do
        case $score in
        rel=*) gradient=:drel ;;
        t5* | clipped*) gradient=:dtable ;;
        *:bias:*) gradient=:dbias ;;
        *) gradient= ;;
        esac
        problems+=("fwd:f32:$size:$score" "bwd:f32:$size:$score$gradient")
    done
    problems+=("jvp:f32:$size:softcap=2" "bwd2:f32:$size:softcap=2")
done
"$attn" check --quiet "${problems[@]}" || fail "status $? of ${#problems[@]} problems"
echo "${#problems[@]} problems"

rejected() { # MESSAGE PROBLEM
    printed=$("$attn" check "$2" 2>&1)
    [ $? = 2 ] && [ "$printed" = "attn check: $2: $1" ] || fail "$2: $printed"
}
rejected "heads_kv is 0 and heads_q is 2: query heads need a key head" fwd:f32:b2:hq2:hkv0:sq3:skv5:d4:dv3
rejected "heads_q (3) is not a multiple of heads_kv (2)" bwd:f32:b2:hq3:hkv2:sq3:skv5:d4:dv3
