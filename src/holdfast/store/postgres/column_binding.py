"""How the columns of many rows are bound to a statement: as arrays, but what rows share only once.

The driver checks and encodes each item of an array by itself, which takes longer than the rest of its row: an
array of texts or integers is bound as one literal. Documents that are created together have a few times, and
often one value of all other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from holdfast.store.sql.shared_columns import SHARED_MIN, is_shared, shared_columns

# array: a value for each row; shared: one for all; indexed: a few, and for each row the number of its own.
Binding = Literal["array", "shared", "indexed"]
TEXTS: Final = "text[]"
TIMES: Final = "timestamptz[]"
INTEGERS: Final = "bigint[]"
DOCUMENTS: Final = "json[]"
INDEXED_MAX: Final = 8
_NUMBERS: Final = tuple(str(n + 1) for n in range(INDEXED_MAX))


def bind_columns(
    kinds: Sequence[str], columns: Sequence[Sequence[Any]], *, differing: set[int] | None
) -> tuple[tuple[Binding, ...], list[Any]]:
    """Return how each column is bound, and what the marks of a `RowSource` stand for.

    `differing` has the columns, but times, that have differed in rows of this kind, and learns others: they
    stay arrays, because each combination is a statement to prepare. None where no column is to be shared.
    """
    is_long = len(columns[0]) >= SHARED_MIN
    # Never keys, documents or times.
    plain = [n for n, kind in enumerate(kinds) if n and kind not in (TIMES, DOCUMENTS)]
    shared = shared_columns(columns, plain, differing) if is_long and differing is not None else ()
    bindings: list[Binding] = []
    values: list[Any] = []
    numbers: list[str] = []
    for n, (kind, column) in enumerate(zip(kinds, columns, strict=True)):
        few = _few_values(column) if is_long and kind == TIMES else None
        if n in shared or (few is not None and len(few) == 1):
            bindings.append("shared")
            values.append(column[0])
        elif few is not None:
            bindings.append("indexed")
            values.append(few)
            numbers.append("{" + ",".join([_NUMBERS[few.index(value)] for value in column]) + "}")
        else:
            bindings.append("array")
            literal = _LITERALS.get(kind)
            values.append(column if literal is None else literal(column))
    return tuple(bindings), values + numbers


def _few_values(column: Sequence[Any]) -> list[Any] | None:
    """Return the different values, None where there are many; hashing a time takes longer than comparing."""
    if is_shared(column):
        return [column[0]]
    found: list[Any] = []
    for value in column:
        if value not in found:
            if len(found) == INDEXED_MAX:
                return None
            found.append(value)
    return found


class RowSource:
    """The rows of a change as its statement reads them: arrays by column, or the values of a single row.

    An array of one costs the driver and the server more than the value, and most commits that come alone
    have one row of each table.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        first: int,
        *,
        single: bool,
        literals: bool = True,
        bindings: Sequence[Binding] = (),
    ) -> None:
        """Number the marks from `first` on; `kinds` are the arrays' types.

        Without `literals`, all arrays are the driver's.
        """
        self._single = single
        usual: Binding = "shared" if single else "array"
        self._bindings = tuple(bindings) or (usual,) * len(kinds)
        self._marks = [
            f"${first + n}::{_mark_type(kind, binding, literals=literals)}"
            for n, (kind, binding) in enumerate(zip(kinds, self._bindings, strict=True))
        ]
        indexed = [n for n, binding in enumerate(self._bindings) if binding == "indexed"]
        self._numbers = {n: f"${first + len(kinds) + i}::text::int[]" for i, n in enumerate(indexed)}
        self.width = len(self._marks) + len(indexed)
        self.count = "1" if single else f"cardinality({self._marks[0]})"
        self.any_key = self._marks[0] if single else f"ANY({self._marks[0]})"

    def table(self, aliases: Sequence[str] = (), *, name: str = "u") -> str:
        """Return the rows as a table; with aliases, of its first columns."""
        marks = self._marks[: len(aliases) or None]
        rows = f"(VALUES ({', '.join(marks)}))" if self._single else self._unnest(marks)
        return f"{rows} AS {name}({', '.join(aliases)})" if aliases else f"{rows} AS {name}"

    def _unnest(self, marks: Sequence[str]) -> str:
        arrays: dict[str, str] = {}
        columns: list[str] = []
        for n, mark in enumerate(marks):
            if self._bindings[n] == "shared":
                columns.append(mark)
            else:
                arrays[f"a{n}"] = self._numbers.get(n, mark)
                columns.append(f"({mark})[a{n}]" if n in self._numbers else f"a{n}")
        if list(arrays.values()) == list(marks):
            return f"unnest({', '.join(marks)})"
        given = f"unnest({', '.join(arrays.values())}) AS a({', '.join(arrays)})"
        return f"(SELECT {', '.join(columns)} FROM {given})"


def _mark_type(kind: str, binding: Binding, *, literals: bool) -> str:
    if binding == "shared":
        return kind.removesuffix("[]")
    return f"text::{kind}" if literals and kind in _LITERALS else kind


def text_array(values: Sequence[str | None]) -> str:
    """Return the literal of an array. The driver checks each item of a list, which takes ten times longer."""
    try:
        joined = '","'.join(values)  # type: ignore[arg-type]  # a null is refused
    except TypeError:
        joined = "\\"
    if "\\" in joined or joined.count('"') != 2 * len(values) - 2:
        return "{" + ",".join(map(_quoted, values)) + "}"
    return f'{{"{joined}"}}'


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def integer_array(values: Sequence[int | None]) -> str:
    """Return the literal of an array of integers."""
    if set(map(type, values)) == {int}:
        return "{" + ",".join(map(repr, values)) + "}"
    return "{" + ",".join(["NULL" if value is None else f"{value:d}" for value in values]) + "}"


_LITERALS: Final[Mapping[str, Callable[[Sequence[Any]], str]]] = {TEXTS: text_array, INTEGERS: integer_array}
