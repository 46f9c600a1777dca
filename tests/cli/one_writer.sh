# SPDX-License-Identifier: MIT
# one_writer.sh - only cli/base/file.c writes files: no other file of the command opens one for writing, renames or removes one or calls
# the writers of libattn_io, and none uses in-memory stdio streams, which lose bytes silently.
found=$(grep -nE -e '\bfopen[^;]*"([wa]|r[bt]?\+)' -e '\b(attn_(archive|file)_write|creat|freopen|open_memstream|fmemopen|O_WRONLY|O_RDWR|O_CREAT|renameat2?|rename|unlink|unlinkat|remove|truncate|ftruncate|mkstemp|tmpfile|png_init_io)\b' -r cli --include='*.c' |
    grep -vE '^cli/base/file\.c:|fopen\("/proc/self/clear_refs", "w"\)')
echo "1..1"
[ -z "$found" ] && echo "ok 1 - one writer" && exit 0
echo "$found"
echo "not ok 1 - one writer"
exit 1
