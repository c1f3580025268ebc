"""Errors of the library say which class and field they mean, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Document, UlidId, create, document, open_store, patch
from holdfast.errors import ConfigError, InvalidError, WrongTypeError


@document("memos/{id}", id=UlidId())
class Memo(Document):
    id: str = ""
    text: str


async def test_a_value_of_the_wrong_type_names_class_and_field(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/a.db", [Memo])
    await store.migrate()
    wrong: Any = 5
    with pytest.raises(WrongTypeError, match=r"^Memo\.text: expected str, got int$"):
        await store.commit(create(Memo(text=wrong)))
    memo = Memo(text="right")
    await store.commit(create(memo))
    with pytest.raises(WrongTypeError, match=r"^Memo\.text: expected str, got int$"):
        await store.commit(patch(Memo, memo.id, changes={"text": 5}))
    await store.close()


async def test_a_commit_says_what_it_takes(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/a.db", [Memo])
    given: Any = Memo(text="x")
    with pytest.raises(InvalidError, match=r"a Memo is none: commit\(create"):
        await store.commit(given)
    listed: Any = [create(given)]
    with pytest.raises(InvalidError, match=r"commit\(\*writes\)"):
        await store.commit(listed)
    with pytest.raises(InvalidError, match=r"settle\(\[\[create"):
        await store.settle(listed)
    await store.close()


async def test_a_store_that_is_not_migrated_says_how_to(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/a.db", [Memo])
    with pytest.raises(ConfigError, match=r"await store\.migrate\(\)"):
        await store.commit(create(Memo(text="x")))
    with pytest.raises(ConfigError, match=r"await store\.migrate\(\)"):
        await store.get(Memo, "x")
    await store.close()
