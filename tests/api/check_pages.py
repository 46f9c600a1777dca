#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every page of docs/mechanisms has a section "A call" whose code compiles against the public headers.

usage: check_pages.py CC

The section's indented lines and C blocks are compiled as the body of one function.  The tensors and small structs that these examples
take for granted are declared in GIVEN.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
GIVEN = """
extern float q[], k[], v[], o[], lse[], w[], scale_of_head[], slopes[], entropy[], column_sum[], topk_weight[], table[];
extern float grad_o[], grad_q[], grad_k[], grad_v[], tan_q[], tan_o[], other_o[], other_lse[], merged[], k_cache[], v_cache[];
extern uint16_t k_pages[], v_pages[], k_tail[], cos_sin_cache[];
extern int32_t slots[], positions[];
extern float x[], y[], wq[], wk[], wv[], wo[], wd[], wu[], state[], found[], patterns[], final_state[], final_sum[], projection[], projected[];
extern float u[], rotated[], k_scale[], v_scale[];
extern double learned[], r[];
extern int64_t topk_index[], lengths[], iterations[], len_q, len_kv, heads, total;
extern attn_problem p, problem;
extern attn_tensors a, tensors, args;
extern attn_error error;
extern attn_modify_tile recency_scores, recency_slopes;
"""


def call_of(text):
    """The code of the section "A call", or None."""
    section = re.search(r"^## A call\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    if not section:
        return None
    fenced = re.findall(r"^```c\n(.*?)^```$", section[1], re.S | re.M)
    outside = re.sub(r"^```.*?^```$", "", section[1], flags=re.S | re.M)
    indented = [line for line in outside.splitlines() if line.startswith("    ")]
    return "\n".join([*indented, *fenced])


def main():
    headers = sorted(path.name for path in (ROOT / "include/attn").glob("*.h") if path.name != "mpi.h")  # which needs an MPI
    head = '#include <stdio.h>\n' + "".join(f'#include "attn/{name}"\n' for name in headers) + GIVEN
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for page in sorted((ROOT / "docs/mechanisms").glob("*.md")):
            code = call_of(page.read_text(encoding="utf-8"))
            if not code:
                print(f"{page.name}: no code in a section `A call`")
                faults += 1
                continue
            file = pathlib.Path(folder) / (page.stem + ".c")
            file.write_text(f"{head}\nvoid call(void);\nvoid call(void)\n{{\n#line 1 \"{page.name}\"\n{code}\n}}\n", encoding="utf-8")
            done = subprocess.run([sys.argv[1], "-std=c11", "-Wall", "-Wextra", "-Wno-unused", "-Werror", "-fsyntax-only",
                                   f"-I{ROOT / 'include'}", str(file)], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{page.name}:\n{done.stderr}")
                faults += 1
    print(f"{faults} pages with faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
