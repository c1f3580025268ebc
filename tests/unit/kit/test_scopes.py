"""What a scope is good for."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidError
from holdfast.kit.access.scopes import check_scopes, covers


@pytest.mark.parametrize(
    ("scope", "area", "action", "good"),
    [
        ("runs:read", "runs", "read", True),
        ("runs:read", "runs", "update", False),
        ("runs:read", "repos", "read", False),
        ("runs:*", "runs", "delete", True),
        ("runs:*", "run", "delete", False),
        ("*:read", "repos", "read", True),
        ("*:read", "repos", "create", False),
        ("runs:write", "runs", "create", True),
        ("runs:write", "runs", "delete", True),
        ("runs:write", "runs", "read", False),
        ("*:write", "repos", "update", True),
        ("channels:renew", "channels", "renew", True),
        ("channels:write", "channels", "renew", False),
        ("*", "anything", "at-all", True),
    ],
)
def test_a_scope_covers_its_area_and_action_and_nothing_else(
    scope: str, area: str, action: str, good: bool
) -> None:
    assert covers([scope], area, action) is good


def test_one_good_scope_among_several_is_enough() -> None:
    assert covers(["repos:read", "runs:read"], "runs", "read")
    assert not covers([], "runs", "read")


@pytest.mark.parametrize("wrong", [[], ["runs"], ["runs:"], [":read"], ["a:read:all"], ["**"], ["a b:read"]])
def test_scopes_that_say_nothing_are_refused(wrong: list[str]) -> None:
    with pytest.raises(InvalidError):
        check_scopes(wrong)


def test_scopes_are_kept_once_each() -> None:
    assert check_scopes(["a:read", "b:*", "a:read"]) == ["a:read", "b:*"]
