#!/bin/bash -eu
# SPDX-License-Identifier: MIT
# Builds all fuzz targets of fuzz/CMakeLists.txt into $OUT, with the compiler, the flags and the engine that ClusterFuzzLite sets.
# Its runner has none of the packages of its builder, so the shared libraries come along.
cmake -S . -B build/clusterfuzz -G Ninja -DCMAKE_BUILD_TYPE=None -DATTN_TESTS=ON -DATTN_HARDEN=OFF \
    -DATTN_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath,\\\$ORIGIN/lib"
cmake --build build/clusterfuzz --target fuzzers
mkdir -p "$OUT/lib"
for program in build/clusterfuzz/tests/fuzz_*; do
    target=$(basename "$program") corpus=fuzz/corpus/${program##*/fuzz_}
    cp "$program" "$OUT/"
    ldd "$program" | awk '/lib(cjson|zip|png|z|bz2|lzma|zstd|crypto)[^ ]*\.so/ { print $3 }' | xargs -r cp -t "$OUT/lib"
    if [ -d "$corpus" ]; then zip -q -j -r "$OUT/${target}_seed_corpus.zip" "$corpus"; fi
done
cp fuzz/problem.dict "$OUT/fuzz_problem.dict"
for format in safetensors npy npz gguf; do cp fuzz/tensors.dict "$OUT/fuzz_$format.dict"; done
