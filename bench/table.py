"""`python -m bench.table [PAGE]`: the rows with goals as a Markdown table, from bench/out/latest.json.

Prints the table, or puts it between the marks that the page has for it. The floor is its ratio to the same
other: where it misses the goal, the goal can't be reached on our tables with our promises.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.measure import Row

LATEST = Path(__file__).parent / "out" / "latest.json"
BEGIN, END = "<!-- rows -->", "<!-- end of rows -->"
HEADINGS = ("workload", "engine", "ours", "other", "ratio", "goal", "floor")
# How the names of the chosen workloads begin, in the table's order.
CHOSEN = (
    "outbox end to end", "outbox p95 to arrival at 200/s, two processes", "take webhooks in, 64 connections",
    "one caller", "events enqueued in batches", "metering", "claim beside", "page beside", "get beside",
    "receive beside", "append beside", "overview beside", "claim 100 of",
)  # fmt: skip
ENGINES = {"sqlite full": "SQLite", "postgres": "PostgreSQL"}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _cells(row: Row) -> tuple[str, ...]:
    unit = row.unit.removeprefix("1")
    return (
        row.workload, ENGINES.get(row.engine, row.engine), f"{_number(row.ours)} {unit}",
        f"{_number(row.other)}, {row.other_name}", f"{row.ratio:.2f}",
        f"{row.goal}, {'reached' if row.reached else 'missed'}",
        "" if row.floor is None else f"{row.floor:.2f}",
    )  # fmt: skip


def markdown(rows: Iterable[Row]) -> str:
    """The table of the chosen rows that have a goal; floors are a column, not rows."""
    found = [row for row in rows if row.goal and not row.compares_floor]
    lines = [_line(_cells(row)) for name in CHOSEN for row in found if row.workload.startswith(name)]
    return "\n".join([_line(HEADINGS), _line(["---"] * len(HEADINGS)), *lines]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def put_into(page: Path, table: str) -> None:
    """Replace what the page has between its marks."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page} has no place for the table: {BEGIN} … {END}")
    page.write_text(f"{before}{begin}\n\n{table}\n{end}{after}")


def main() -> None:
    table = markdown(msgspec.json.decode(LATEST.read_bytes(), type=list[Row]))
    if len(sys.argv) > 1:
        put_into(Path(sys.argv[1]), table)
    else:
        print(table, end="")


if __name__ == "__main__":
    main()
