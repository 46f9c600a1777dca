#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Test suites of other projects: every case that this version covers passes, on every instruction set.  usage: suites.sh ATTN
# ATTN_CONFORMANCE_DIR names the folder of suites; by default it is where continuous integration has one.
set -euo pipefail
folder=${ATTN_CONFORMANCE_DIR:-../shared/conformance}
if [ ! -d "$folder" ]; then
  echo "skipped: no folder of suites; ATTN_CONFORMANCE_DIR names one"
  exit 77
fi
for isa in scalar avx2 avx512 neon wasm128; do
  if ATTN_ISA='' "$1" info --json | python3 -c "import json, sys; sys.exit(not any(k['usable'] and '$isa' in k['name'] for k in json.load(sys.stdin)['kernels']))"; then
    echo "$isa:"
    "$1" check --conformance "$folder" --isa "$isa" | grep -v ' 0 passed, 0 failed\|^    '
  fi
done
# At least this many cases of each suite pass: an adapter that skips everything fails, as does a missing or renamed
# suite.
"$1" check --conformance "$folder" --json | python3 -c "
import collections, json, sys
cases = json.load(sys.stdin)['cases']
passed = collections.Counter(c['suite'] for c in cases if c['status'] == 'passed')
least = {'onnx_attention': 66, 'torch_sdpa': 51, 'torch_sdpa_grad': 4, 'ort_core': 29, 'flash_attention_ref': 21, 'flex_attention': 7,
         'sdpa_misc': 6, 'mechanism_grad': 66, 'allennlp_scoring': 9, 'axlearn_golden': 23, 'keras_attention': 28, 'masks': 7, 'positions': 9,
         'ort_longformer_attention': 3, 'ort_relative_attention_bias': 5, 'ort_rotary_embedding': 8, 'ort_gemma_rotary_emb': 1,
         'torch_multihead_attention': 9, 'ort_attention': 26, 'ort_multihead_attention': 29, 'ort_packed_attention': 12, 'ort_decoder_attention': 5,
         'ort_web': 38}
short = {s: passed[s] for s in least if passed[s] < least[s]}
sys.exit('too few passed: %s' % short if short else 0)"
