"""The lifecycle of a document: its states and the legal moves between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.errors import IllegalMoveError


@dataclass(frozen=True, init=False)
class Lifecycle:
    """The state field, the states a new document may have, and the legal moves.

    Writing a document without changing its state is not a move and always legal.

    Example: `Lifecycle("status", initial=["active"], moves={"active": ["expired"], "expired": ["active"]})`
    """

    field: str
    moves: Mapping[str, frozenset[str]]
    initial: frozenset[str]

    def __init__(self, field: str, *, initial: Iterable[str], moves: Mapping[str, Iterable[str]]) -> None:
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "initial", frozenset(initial))
        object.__setattr__(self, "moves", {state: frozenset(to) for state, to in moves.items()})

    @property
    def states(self) -> frozenset[str]:
        return self.initial | frozenset(self.moves) | frozenset(s for to in self.moves.values() for s in to)

    def check_start(self, state: str, path: str) -> None:
        if state not in self.initial:
            raise IllegalMoveError(f"a new document can't be {state!r}, only {_list(self.initial)}", path)

    def check_move(self, old: str, new: str, *, path: str) -> None:
        if new != old and new not in self.moves.get(old, frozenset()):
            legal = _list(self.moves.get(old, frozenset())) or "none, it is final"
            raise IllegalMoveError(f"{old!r} can't become {new!r}; legal moves: {legal}", path)


def _list(states: frozenset[str]) -> str:
    return ", ".join(sorted(states))
