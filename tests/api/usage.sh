#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every script, and tool that people run, that is given a wrong argument says how it is used, on standard error, and does nothing else: status 2.
set -eu
count=0
for script in script/* tools/wrap.py tools/pictures.py tools/test_names.py; do
    [ "$script" != script/common.sh ] || continue
    status=0
    printed=$("$script" --no-such-option 2>&1) || status=$?
    if [ $status != 2 ] || [[ $printed != "usage: $script"* ]]; then
        echo "$script --no-such-option: status $status, and says: $printed"
        exit 1
    fi
    count=$((count + 1))
done
echo "$count scripts"
[ $count -ge 10 ]
