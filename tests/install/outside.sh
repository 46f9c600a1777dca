#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs a build into a new folder, moves it, and builds the program of README.md against it as an outside user would, and programs
# for the other libraries.  Usage: tests/install/outside.sh BUILD CC PYTHON LIBRARY...     (LIBRARY: core, io, layers, as built)
. tests/install/library.sh
build=$1 cc=$2 python=$3
shift 3
libraries=$*
has() { [[ " $libraries " = *" $1 "* ]]; }

quietly cmake --install "$build" --prefix "$dir/first"
mv "$dir/first" "$dir/usr" # no installed file may depend on the old path
libdir=$(dirname "$(find "$dir/usr" -name libattn.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
if grep -rIl -e "$root" -e "$dir" -e "$build" "$dir/usr"; then fail "these files name a folder of the build"; fi

"$python" tests/docs/links.py "$dir/usr/share/doc" || fail "these links of the installed pages lead nowhere"

# Files of each component; together they are the whole installation.
for component in runtime development command python; do
    quietly cmake --install "$build" --prefix "$dir/part/$component" --component $component
    (cd "$dir/part/$component" 2>/dev/null && find . ! -type d | sort) >"$dir/$component.txt" || true
done
(cd "$dir/usr" && find . ! -type d | sort) | diff - <(sort "$dir"/{runtime,development,command,python}.txt) || fail "the components together are not the whole installation"
grep -vE '/libattn(_io|_layers)?\.so\.[0-9.]+$|/LICENSE$' "$dir/runtime.txt" && fail "these files do not belong to the component runtime"
grep -E '\.so\.|/bin/|/man/' "$dir/development.txt" && fail "these files do not belong to the component development"
grep -v '/libattn/' "$dir/python.txt" && fail "these files do not belong to the component python"
if [ -s "$dir/python.txt" ] && "$python" -c 'import numpy' 2>/dev/null; then # the package uses the libraries that are installed with it
    PYTHONPATH=$(dirname "$(find "$dir/usr" -name libattn -path '*python*')") "$python" - "$dir/usr" <<'END' || fail "the installed package does not work"
import sys, libattn
with open("/proc/self/maps", encoding="utf-8") as maps:
    loaded = {line.split()[-1] for line in maps if "libattn" in line}
assert libattn.cpu().threads >= 1 and loaded and all(path.startswith(sys.argv[1]) for path in loaded), loaded
END
    echo "python: works"
fi
if [ -e "$dir/usr/bin/attn" ]; then
    grep -vE '/bin/attn(-mpi)?$|/man1/attn(-mpi)?.1$|/share/(bash-completion/completions/attn|zsh/site-functions/_attn|fish/vendor_completions.d/attn.fish)$' "$dir/command.txt" && fail "these files do not belong to the component command"
    # shellcheck disable=SC1091
    (. "$dir/usr/share/bash-completion/completions/attn" && complete -p attn) >/dev/null || fail "bash does not read the installed completions"
    "$dir/usr/bin/attn" info >/dev/null || fail "the installed attn does not run"
    [ "$(pkg-config --modversion libattn)" = "$("$dir/usr/bin/attn" --version | grep -o '[0-9.]*$')" ] || fail "pkg-config and attn --version differ"
fi
if [ -e "$dir/usr/bin/attn-mpi" ]; then # one process starts without mpirun
    [ "$("$dir/usr/bin/attn-mpi" --version)" = "$("$dir/usr/bin/attn" --version | sed 's/^attn/attn-mpi/')" ] || fail "the installed attn-mpi does not run"
fi

# A program for each library: it requests COMPONENT from find_package and links TARGET.
mkdir "$dir/stranger"
version=$(sed -n 's/^project(libattn VERSION \([0-9]*\.[0-9]*\).*/\1/p' CMakeLists.txt)
[ "$version" ] || fail "CMakeLists.txt has no version"
cp tests/install/io.c tests/install/layers.c "$dir/stranger"
cat >"$dir/stranger/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(stranger LANGUAGES C)
find_package(libattn ${VERSION} REQUIRED COMPONENTS ${COMPONENT})
if(COMPONENT STREQUAL "core" AND (TARGET attn::io OR TARGET PkgConfig::libcjson))
  message(FATAL_ERROR "only the core was requested")
endif()
add_executable(shared ${SOURCE})
target_link_libraries(shared PRIVATE attn::${TARGET})
add_executable(static ${SOURCE})
target_link_libraries(static PRIVATE attn::${TARGET}_static)
END
try() { # NAME PROGRAM
    case $1 in
        *core*) check "$1" "$2" ;;
        *) "$2" "$dir/x.safetensors" && echo "$1: works" ;;
    esac
}
static() { pkg-config --static --libs "$1" | sed -E 's/-l(attn\w*)/-l:lib\1.a/g'; }
echo 'int main(void) { return 0; }' >"$dir/empty.c"
links_statically() { # MODULES: do these third-party modules link statically?  (Debian's openblas.pc names a libgfortran that may be missing)
    # shellcheck disable=SC2046,SC2086
    [ -z "$1" ] || "$cc" "$dir/empty.c" $(pkg-config --static --libs $1) -o "$dir/empty" 2>"$dir/log"
}
cp "$dir/readme/readme.c" "$dir/stranger/core.c"
for library in $libraries; do
    name=$library module=libattn_$library
    [ $library != core ] || name=attn module=libattn
    source=$dir/stranger/$library.c out=$dir/$library
    quietly cmake -S "$dir/stranger" -B "$out" -DCMAKE_PREFIX_PATH="$dir/usr" -DCMAKE_C_COMPILER="$cc" -DCOMPONENT=$library \
        -DVERSION="$version" -DTARGET=$name -DSOURCE=$library.c
    quietly cmake --build "$out"
    # shellcheck disable=SC2046
    quietly "$cc" -std=c11 "$source" $(pkg-config --cflags --libs $module) "-Wl,-rpath,$libdir" -o "$out/shared_pc"
    if links_statically "$(pkg-config --print-requires-private $module)"; then
        # shellcheck disable=SC2046
        quietly "$cc" -std=c11 "$source" $(pkg-config --cflags $module) $(static $module) -o "$out/static_pc"
    else
        echo "pkg-config, $library, static: not tried, its dependencies do not link statically here"
        cp "$out/static" "$out/static_pc"
    fi
    try "find_package, $library, shared" "$out/shared"
    try "find_package, $library, static" "$out/static"
    try "pkg-config, $library, shared" "$out/shared_pc"
    try "pkg-config, $library, static" "$out/static_pc"
    for program in shared shared_pc; do linked "$out/$program" || fail "$library, $program: not the shared library"; done
    for program in static static_pc; do if linked "$out/$program"; then fail "$library, $program: not the static library"; fi; done
done

# A missing component is reported by name.
if cmake -S "$dir/stranger" -B "$dir/none" -DCMAKE_PREFIX_PATH="$dir/usr" -DCOMPONENT=gpu -DVERSION="$version" -DTARGET=attn -DSOURCE=core.c >"$dir/log" 2>&1; then
    fail "find_package finds a component that does not exist"
fi
grep -q 'no component gpu' "$dir/log" || { cat "$dir/log"; fail "find_package does not name the missing component"; }

# Users copy the project in examples/minimal: it must build unchanged.
quietly cmake -S examples/minimal -B "$dir/minimal" -DCMAKE_PREFIX_PATH="$dir/usr" -DCMAKE_C_COMPILER="$cc"
quietly cmake --build "$dir/minimal"
check "examples/minimal" "$dir/minimal/minimal"
