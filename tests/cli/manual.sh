# SPDX-License-Identifier: MIT
# manual.sh - the manual page is well formed; it documents every command, every flag in a section of its command, every mask and word
# of problem strings, and no flag that there is not.
. tests/cli/tap.sh
PAGE=$(dirname "$ATTN")/attn.1 # cli/attn.1.in with the version

command -v man >/dev/null || {
    echo "skipped: man is not installed"
    exit 77
}
LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$PAGE" >page.txt 2>warnings.txt
ok "no warnings" same "$(cat warnings.txt)" ""
MPI_PAGE=$(dirname "$ATTN")/attn-mpi.1 # where there is an MPI; tests/distributed/command.py finds its flags
if [ -e "$MPI_PAGE" ]; then
    ok "no warnings in the page of attn-mpi" same "$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$MPI_PAGE" 2>&1 >/dev/null)" ""
fi
if command -v mandoc >/dev/null; then
    ok "mandoc finds nothing" mandoc -T lint -W warning "$PAGE"
fi
# Lines "SECTION<tab>--flag" or "-f": the flags after .Fl, which puts the first dash; SECTION is the title of the subsection of
# OPTIONS, else "-".  A reference to another command, ".Nm attn Cm NAME", is not of the section.
awk '
    /^\.Sh / { title = "-"; options = $0 == ".Sh OPTIONS" }
    /^\.Ss / && options { title = substr($0, 5); gsub(/,/, "", title) }
    /^\./ && / ?Fl / {
        line = $0
        section = $0 ~ /Nm attn/ ? "-" : title
        gsub(/\\/, "", line)
        sub(/^\.Fl/, " Fl", line)
        n = split(line, part, /[ ,]+/)
        fl = 0
        for (k = 1; k <= n; k++) {
            if (part[k] == "Fl") fl = 1
            else if (part[k] ~ /^[A-Z][a-z]$/) fl = 0
            else if (fl && part[k] ~ /^-?[a-zA-Z0-9][a-z0-9-]*$/) print section "\t-" part[k]
        }
    }' "$PAGE" | sort -u >flags.txt
ok "there are flags" test "$(wc -l <flags.txt)" -ge 150
# in_sections COMMAND FLAG: a section that is of the command, or of all, has the flag.
in_sections() {
    awk -F '\t' -v command="$1" -v flag="$2" '
        (" " $1 " ") ~ (" " command " ") || $1 == "All commands" { if ($2 == flag) found = 1 }
        END { exit !found }' flags.txt
}
commands=$("$ATTN" --help | sed -n 's/^  attn \([a-z]*\) .*/\1/p')
ok "there are commands" test "$(echo "$commands" | wc -l)" -ge 12
for command in $commands; do
    "$ATTN" $command --help >help.txt
    ok "cli/attn.1.in has attn $command" grep -q "attn $command" page.txt
    for option in $(sed -nE 's/^ +(-[a-zA-Z]), (--[a-z0-9-]+).*/\1 \2/p; s/^ +(--[a-z0-9-]+).*/\1/p' help.txt); do
        printf '%s\n' "$option" >>known.txt
        ok "cli/attn.1.in describes $option in a section of $command" in_sections $command $option
    done
done
# Accepted by another name, and those of attn itself.
printf '%s\n' --blocks --dropout-keep --version -V >>known.txt
ok "each flag of the page is one of a command" same "$(cut -f2 flags.txt | sort -u | grep -vxF -f known.txt)" ""
sed -n '/^\.Ss Masks of mask/,/^\.Ss /p' "$PAGE" | sed -n 's/^\.It Cm \([a-z\\-]*\).*/\1/p' | tr -d '\\' | sort >masks.txt
"$ATTN" mask --help | sed -n '/^Masks/,$p' | sed -n 's/^  \([a-z-]*\).*/\1/p' | sort >names.txt
ok "there are masks" test "$(wc -l <names.txt)" -ge 17
ok "the page has every mask, and no other" cmp names.txt masks.txt
ok "the same bits are promised for AVX2 and AVX-512 alone" same "$(tr -s ' \n' ' ' <page.txt | grep -c 'every instruction set')" 0
"$ATTN" explain --help | sed -n '/^Words/,$p' | sed -n 's/^  \([a-z0-9]*\).*/\1/p' >words.txt
ok "problem strings have words" test "$(wc -l <words.txt)" -gt 30
while read -r word; do
    ok "cli/attn.1.in describes the word $word" grep -qwE "$word[NLCTXP=]?" page.txt
done <words.txt
ok "the version is that of the library" grep -q "libattn $("$ATTN" --version | cut -d' ' -f2)" page.txt

tap_done
