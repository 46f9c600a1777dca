# SPDX-License-Identifier: MIT
# one_writer.sh - cli/base/file.c alone writes files: nothing else of the command opens one for writing, renames or removes one, or calls
# the writers of libattn_io, and nothing composes by stdio in memory, which loses bytes in silence.
found=$(grep -nE '\b(attn_(archive|file)_write|fopen[^;]*"[wa]|freopen|open_memstream|fmemopen|O_WRONLY|O_RDWR|O_CREAT|rename|mkstemp|tmpfile|png_init_io)\b' -r cli --include='*.c' |
    grep -vE '^cli/base/file\.c:|fopen\("/proc/self/clear_refs", "w"\)')
echo "1..1"
[ -z "$found" ] && echo "ok 1 - one writer" && exit 0
echo "$found"
echo "not ok 1 - one writer"
exit 1
