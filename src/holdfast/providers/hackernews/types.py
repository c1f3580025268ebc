"""The API's resources that are used here: items, lists of their ids, and recent changes."""

from __future__ import annotations

from typing import Literal

import msgspec

StoryList = Literal["newstories", "topstories", "beststories"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item; a deleted one has little besides its id. `time` is in Unix seconds, `title` may hold HTML."""

    id: int
    type: str = ""
    by: str = ""
    time: int = 0
    title: str = ""
    url: str = ""
    score: int = 0
    descendants: int = 0
    kids: list[int] = []
    deleted: bool = False
    dead: bool = False


class Updates(msgspec.Struct, frozen=True, kw_only=True):
    """Items and profiles that changed lately."""

    items: list[int] = []
    profiles: list[str] = []
