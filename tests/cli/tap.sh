# SPDX-License-Identifier: MIT
# tap.sh - helpers of the shell tests of the command.  Sourced with the path of attn in $1 and of make_tensors in $2.
# Every check prints a line of TAP; a script ends with `tap_done`.
ATTN=$1
MAKE=$2
ROOT=$PWD
STREET=$ROOT/examples/data/animal_street.safetensors
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK" || exit 1
tap_count=0
tap_failed=0

# ok NAME COMMAND...: the command must succeed.
ok() {
    tap_name=$1
    shift
    tap_count=$((tap_count + 1))
    if "$@" >ok.log 2>&1; then
        echo "ok $tap_count - $tap_name"
    else
        tap_failed=$((tap_failed + 1))
        echo "not ok $tap_count - $tap_name"
        sed 's/^/# /' ok.log
    fi
}

same() {
    [ "$1" = "$2" ] || {
        printf 'expected: %s\n     got: %s\n' "$2" "$1"
        return 1
    }
}

# Every file of the folder except for those of the helpers: name, size, and which file it is and when it last changed, which
# writing the same bytes again would change too.  (One process; checksums would be most of the time of errors.sh.)
tap_files() {
    find . ! -path ./out.txt ! -path ./err.txt ! -path ./ok.log \( -type d -printf '%p\n' -o -printf '%p %s %i %C@\n' \)
}

# empty FILE, or shows what it has.
empty() {
    [ ! -s "$1" ] || {
        cat "$1"
        return 1
    }
}

# one_line FILE: it has one line, with its end.  (Nothing here starts a process.)
one_line() {
    { IFS= read -r tap_line && ! IFS= read -r tap_more && [ -z "$tap_more" ]; } <"$1" || {
        cat "$1"
        return 1
    }
}

# rejected STATUS MESSAGE ARGUMENT...: attn fails with exactly this line, prints nothing else and creates or changes no file.
rejected() {
    tap_status=$1
    tap_message=$2
    shift 2
    tap_before=$(tap_files)
    "$ATTN" "$@" >out.txt 2>err.txt </dev/null
    ok "status $tap_status: attn $*" same "$?" "$tap_status"
    IFS= read -r tap_said <err.txt
    ok "  says: $tap_message" same "$tap_said" "$tap_message"
    ok "  on one line" one_line err.txt
    ok "  and nothing else" empty out.txt
    ok "  nothing written" same "$(tap_files)" "$tap_before"
}

# printed NAME PATTERN ARGUMENT...: attn succeeds and its standard output has a line that matches.
printed() {
    tap_what=$1
    tap_pattern=$2
    shift 2
    "$ATTN" "$@" >out.txt 2>err.txt </dev/null
    ok "$tap_what: status 0 of attn $*" same "$?" 0
    ok "$tap_what: /$tap_pattern/" grep -qE -e "$tap_pattern" out.txt
    ok "$tap_what: nothing on standard error" empty err.txt
}

tap_done() {
    echo "1..$tap_count"
    [ "$tap_failed" -eq 0 ] || echo "# $tap_failed of $tap_count failed"
    [ "$tap_failed" -eq 0 ]
}
