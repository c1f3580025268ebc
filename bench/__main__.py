"""`python -m bench [--quick] [--only PREFIX]`: a table on the terminal, rows in bench/out/latest.json."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import time
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from bench.measure import Place, Row, Workload
from holdfast.worker import freeze_gc

HERE = Path(__file__).parent
REPEATS, QUICK_REPEATS = 3, 1
ROW_S_MAX = 900  # what hangs must not keep the other rows from being measured


def workloads(only: str) -> list[Workload]:
    """The workloads of every `AREA_*.py` in this folder whose name begins with `only`."""
    found: list[Workload] = []
    for path in sorted(HERE.glob("*_*.py")):
        if path.stem.startswith(only) and not path.stem.startswith("_"):
            found += getattr(importlib.import_module(f"bench.{path.stem}"), "WORKLOADS", [])
    return found


async def measure(
    chosen: list[Workload], place: Place, *, engine: str, repeats: int
) -> tuple[list[Row], list[str]]:
    """The rows, and what could not be measured with its reason."""
    rows: list[Row] = []
    missing: list[str] = []
    for workload, name in [(one, name) for one in chosen for name in one.engines if engine in name]:
        began = time.monotonic()
        try:
            async with asyncio.timeout(ROW_S_MAX):
                made = await workload.run(place, name, repeats=repeats)
        except Exception as fault:
            missing.append(f"{workload.name} · {name}: {fault!r}")
            print(f"NOT MEASURED {missing[-1]}", file=sys.stderr, flush=True)
        else:
            rows += made
            lines = "\n".join(map(_line, made))
            print(f"{lines}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return rows, missing


def _line(row: Row) -> str:
    goal = f" ({row.goal})" if row.goal else ""
    return f"{row.workload} · {row.engine}: {row.ratio} of {row.other_name}{goal}"


def show(rows: list[Row]) -> None:
    table = Table(title="Holdfast against hand-written loops")
    for heading in ("workload", "engine", "ours", "other", "unit", "ratio", "goal", ""):
        table.add_column(heading, justify="right" if heading in ("ours", "other", "ratio") else "left")
    for row in rows:
        mark = ("reached" if row.reached else "MISSED") if row.goal else ""
        other = f"{row.other:,.0f} {row.other_name}" if row.other >= 100 else f"{row.other} {row.other_name}"
        ours = f"{row.ours:,.0f}" if row.ours >= 100 else f"{row.ours}"
        table.add_row(row.workload, row.engine, ours, other, row.unit, f"{row.ratio:.2f}", row.goal, mark)
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--quick", action="store_true", help="small numbers")
    parser.add_argument("--only", default="", help="how the file's name begins: store, store_commit")
    parser.add_argument("--engine", default="", help="part of an engine's name: sqlite, full, postgres")
    parser.add_argument("--repeats", type=int, help=f"{REPEATS}, or {QUICK_REPEATS} when quick")
    words = parser.parse_args()
    place = Place(quick=words.quick)
    freeze_gc()  # as every process that serves or works
    repeats = words.repeats or (QUICK_REPEATS if words.quick else REPEATS)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows, missing = runner.run(
                measure(workloads(words.only), place, engine=words.engine, repeats=repeats)
            )
    finally:
        place.close()
    show(rows)
    target = HERE / "out" / "latest.json"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    if missing:
        sys.exit("not measured:\n" + "\n".join(missing))


if __name__ == "__main__":
    main()
