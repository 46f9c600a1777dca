# SPDX-License-Identifier: MIT
# manual.sh - the manual page is well formed and documents every command, flag and word of problem strings.
. tests/cli/tap.sh
PAGE=$(dirname "$ATTN")/attn.1 # cli/attn.1.in with the version

command -v man >/dev/null || {
    echo "skipped: man is not installed"
    exit 77
}
LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$PAGE" >page.txt 2>warnings.txt
ok "no warnings" same "$(cat warnings.txt)" ""
if command -v mandoc >/dev/null; then
    ok "mandoc finds nothing" mandoc -T lint -W warning "$PAGE"
fi
commands=$("$ATTN" --help | sed -n 's/^  attn \([a-z]*\) .*/\1/p')
ok "there are commands" test "$(echo "$commands" | wc -l)" -ge 12
for command in $commands; do
    "$ATTN" $command --help >help.txt
    ok "attn $command" grep -q "attn $command" page.txt
    for option in $(grep -oE '^ +(-[a-z], )?--[a-z-]+' help.txt | grep -oE -e '--[a-z-]+'); do
        # groff may print a hyphen where the source has a minus
        ok "$command $option" grep -qE -e "$(echo "$option" | sed 's/-/[-‐−]/g')" page.txt
    done
done
ok "the same bits are promised for AVX2 and AVX-512 alone" same "$(tr -s ' \n' ' ' <page.txt | grep -c 'every instruction set')" 0
"$ATTN" explain --help | sed -n '/^Words/,$p' | sed -n 's/^  \([a-z0-9]*\).*/\1/p' >words.txt
ok "problem strings have words" test "$(wc -l <words.txt)" -gt 30
while read -r word; do
    ok "word $word" grep -qwE "$word[NLCTXP=]?" page.txt
done <words.txt
ok "the version is that of the library" grep -q "libattn $("$ATTN" --version | cut -d' ' -f2)" page.txt

tap_done
