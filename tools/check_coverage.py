#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that docs/coverage.md has every required row, and that every test named there and in docs/rulings.md exists.

A row is `| ID | what | provided by | tested by |`.  The last cell names tests as `tests/FILE` or `tests/FILE: function`, in backticks;
comments of the file do not count.
It may be empty only if the third cell is `not yet: issue N` or begins with `none:` and a reason.
"""
import pathlib
import re
import sys

from sources import without_comments

ROOT = pathlib.Path(__file__).parent.parent
COUNTED = {"1": 16, "2": 23, "4": 18, "5": 21, "6": 11, "7": 12, "8": 14, "14": 17}  # 1.1 to 1.16 and so on
NAMED = {
    "3": "softmax_rows log_softmax gibbs_distribution partition_function free_energy entropy attention_entropy max_entropy "
    "normalized_entropy temperature_sweep effective_number_of_states softmax_jacobian softmax_jacobian_batched "
    "softmax_temperature log_partition_function heat_capacity mutual_information kl_divergence",
    "9": "euclidean_metric scaled_euclidean_metric learned_metric diagonal_metric lower_index raise_index metric_inverse "
    "bilinear_form bilinear_form_batch quadratic_form inner_product verify_metric_properties attention_scores "
    "attention_scores_with_metric attention_weights attention_output scaled_dot_product_attention bilinear_attention "
    "batched_attention decompose_attention backend",
    "10": "classical_hopfield_energy classical_hopfield_update modern_hopfield_energy modern_hopfield_update hopfield_retrieve "
    "attention_as_hopfield classical_capacity modern_capacity separation_quality energy_landscape_1d retrieval_basin",
    "11": "contractions parse_einsum explain_einsum EINSUM_EXAMPLES",
    "12": "plot_attention_weights plot_multihead_attention explorer plot_entropy_distribution plot_temperature_sweep plot_gradient_flow "
    "plot_mask plot_hopfield_energy compare_metrics notebooks",
    "13": "registry flags metrics estimate_memory grid",
}
ROW = re.compile(r"^\| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) ?\|$")
EXCUSED = re.compile(r"not yet: issue \d+|^none: \S")


def expected():
    ids = [f"{section}.{n}" for section, count in COUNTED.items() for n in range(1, count + 1)]
    ids += [f"{section} {name}" for section, names in NAMED.items() for name in names.split()]
    return ids + [f"P{n}" for n in range(1, 37)]


def missing_test(name):
    file, _, function = name.partition(": ")
    path = ROOT / file
    if not path.is_file():
        return "no such file"
    if function and not re.search(rf"\b{re.escape(function)}\b", without_comments(path)):
        return "the file has no such test"
    return None


def main():
    faults, found, open_rows = [], [], 0
    for number, line in enumerate((ROOT / "docs/coverage.md").read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|") or line.startswith(("| row |", "|---|")):
            continue
        match = ROW.match(line)
        if not match:
            faults.append(f"line {number}: not four cells")
            continue
        row, _, by, proof = (cell.strip() for cell in match.groups())
        found.append(row)
        names = re.findall(r"`(tests/[^`]*)`", proof)
        open_rows += not names
        if not names and not EXCUSED.search(by):
            faults.append(f"{row}: names no test")
        for name in names:
            if problem := missing_test(name):
                faults.append(f"{row}: `{name}`: {problem}")
    wanted = expected()
    faults += [f"{row}: the row is missing" for row in wanted if row not in found]
    faults += [f"{row}: not in the list of rows" for row in found if row not in wanted]
    faults += [f"{row}: has two rows" for row in sorted({row for row in found if found.count(row) > 1})]
    for name in re.findall(r"`(tests/[^`]*)`", (ROOT / "docs/rulings.md").read_text(encoding="utf-8")):
        if problem := missing_test(name):
            faults.append(f"docs/rulings.md: `{name}`: {problem}")
    for fault in faults:
        print(f"docs/coverage.md: {fault}")
    print(f"{len(found)} rows, {len(found) - open_rows} with tests, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
