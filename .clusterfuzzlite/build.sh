#!/bin/bash -eu
# SPDX-License-Identifier: MIT
# Builds the fuzz targets of fuzz/CMakeLists.txt into $OUT, with the compiler, the flags and the engine that ClusterFuzzLite sets.
# Its runner has none of the packages of its builder, so the shared libraries come along.
targets="fuzz_api fuzz_linear fuzz_merge fuzz_cache fuzz_layers fuzz_problem fuzz_safetensors fuzz_npy fuzz_npz"
cmake -S . -B build/clusterfuzz -G Ninja -DCMAKE_BUILD_TYPE=None -DATTN_TESTS=ON -DATTN_HARDEN=OFF \
    -DATTN_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath,\\\$ORIGIN/lib"
# shellcheck disable=SC2086
cmake --build build/clusterfuzz --target $targets
mkdir -p "$OUT/lib"
for target in $targets; do
    program=build/clusterfuzz/tests/$target corpus=fuzz/corpus/${target#fuzz_}
    cp "$program" "$OUT/"
    ldd "$program" | awk '/lib(cjson|zip|png|z|bz2|lzma|zstd|crypto)[^ ]*\.so/ { print $3 }' | xargs -r cp -t "$OUT/lib"
    if [ -d "$corpus" ]; then zip -q -j -r "$OUT/${target}_seed_corpus.zip" "$corpus"; fi
done
cp fuzz/problem.dict "$OUT/fuzz_problem.dict"
for format in safetensors npy npz; do cp fuzz/tensors.dict "$OUT/fuzz_$format.dict"; done
