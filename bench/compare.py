#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two results of `attn bench --json` or `attn bench --csv FILE` and prints a table.

    attn bench --problems bench/problems.txt --json > before.json
    attn bench --problems bench/problems.txt --json > after.json
    bench/compare.py before.json after.json

The speed of a machine varies from run to run: compare the shares, each of which is measured against the ceilings of its own run.
The ratio of the times is printed too, next to the ratio of the ceilings, without which it cannot be interpreted.
"""
import argparse
import csv
import json
import math
import sys

NUMBERS = (
    "seconds_median seconds_p10 gflops ceiling_gflops share_of_ceiling share_of_ceiling_best gbs stream_gbs "
    "share_of_stream share_of_stream_best workspace_bytes extra_bytes"
).split()


class BadInput(Exception):
    """The file is not a result; the text says why."""


def number(value):
    """A float; NaN if it is missing."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def stream_bound(row):
    """Whether reading takes longer than computing, at the rates of the ceilings."""
    if row.get("bound"):
        return row["bound"] == "stream"
    return row["gbs"] / row["stream_gbs"] > row["gflops"] / row["ceiling_gflops"]


def from_json(text, name):
    """Rows by problem, and a description of the machine."""
    try:
        whole = json.loads(text)
        machine = whole["machine"]
        words = f"{machine['cpu']}, {machine.get('isa', '?')}, {machine['threads']} threads, {machine.get('clock')} clock, libattn {whole['version']}"
        rows = {}
        for result in whole["results"]:
            row = dict(result)
            for key, value in result["seconds"].items():
                row[f"seconds_{key}"] = value
            rows[result["problem"]] = row
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{name}: not a result of attn bench --json ({error!r})") from error
    return rows, words


def from_csv(text, name):
    """The same from a CSV file."""
    rows = {row.get("problem"): row for row in csv.DictReader(text.splitlines())}
    if not rows or None in rows:
        raise BadInput(f"{name}: not a result of attn bench (neither JSON nor CSV with a column `problem`)")
    first = next(iter(rows.values()))
    words = ", ".join(str(first.get(key)) for key in ("cpu", "isa")) + f", {first.get('threads')} threads, "
    words += f"{first.get('clock')} clock, libattn {first.get('version')}"
    return rows, words


def load(name):
    """Rows by problem, with numbers, and a description of the machine."""
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name}: {error}") from error
    rows, words = (from_json if text.lstrip().startswith("{") else from_csv)(text, name)
    for row in rows.values():
        for key in NUMBERS:
            row[key] = number(row.get(key))
    return rows, words


def percent(part):
    return "-" if math.isnan(part) else f"{100 * part:.1f} %"


def ratio(after, before):
    return "-" if not before or math.isnan(after / before) else f"{after / before:.3f}"


def compare(before, after):
    """One row for each problem in both results: its shares before and after, and the ratios."""
    table = []
    for problem, old in before.items():
        new = after.get(problem)
        if new is None:
            continue
        kind, ceiling = ("stream", "stream_gbs") if stream_bound(old) else ("ceiling", "ceiling_gflops")
        share, best = f"share_of_{kind}", f"share_of_{kind}_best"
        table.append(
            [
                problem,
                kind if kind == "stream" else "FMA",
                percent(old[share]),
                percent(new[share]),
                ratio(new[share], old[share]),
                percent(old[best]),
                percent(new[best]),
                ratio(new[best], old[best]),
                ratio(new["seconds_median"], old["seconds_median"]),
                ratio(new[ceiling], old[ceiling]),
            ]
        )
    return table


HEAD = ["problem", "of", "before", "after", "ratio", "best before", "best after", "ratio", "time ratio", "ceiling ratio"]


def print_plain(table):
    width = [max(len(row[k]) for row in [HEAD] + table) for k in range(len(HEAD))]
    for row in [HEAD] + table:
        print("  ".join(cell.ljust(width[k]) if k < 2 else cell.rjust(width[k]) for k, cell in enumerate(row)).rstrip())


def print_markdown(table):
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * 2 + "--:|" * (len(HEAD) - 2))
    for row in table:
        print("| " + " | ".join(row) + " |")


def main():
    parser = argparse.ArgumentParser(description="Compare two results of attn bench.", epilog="JSON and CSV may be mixed.")
    parser.add_argument("before", help="result of attn bench, JSON or CSV")
    parser.add_argument("after", help="another result")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    arguments = parser.parse_args()
    try:
        before, machine_before = load(arguments.before)
        after, machine_after = load(arguments.after)
    except BadInput as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    table = compare(before, after)
    if not table:
        print("compare.py: the two results have no problem in common", file=sys.stderr)
        return 2
    print(f"before: {machine_before}")
    print(f"after:  {machine_after}")
    if machine_before != machine_after:
        print("machine, threads or version differ: compare only the shares")
    print()
    (print_markdown if arguments.markdown else print_plain)(table)
    for problem in sorted(set(before) ^ set(after)):
        print(f"only {'before' if problem in before else 'after'}: {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
