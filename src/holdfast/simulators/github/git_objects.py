"""Git objects as git names them: blobs, trees and commits under their real SHA-1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from holdfast.simulators.github.refusals import ApiRefusal

FILE: Final = "100644"
_FOLDER: Final = "40000"
T = TypeVar("T")


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The author or committer of a commit."""

    name: str
    email: str
    date: datetime

    def line(self) -> str:
        return f"{self.name} <{self.email}> {int(self.date.timestamp())} +0000"


class SimulatedCommit(msgspec.Struct, frozen=True, kw_only=True):
    sha: str = ""
    tree: str
    parents: tuple[str, ...]
    message: str
    author: Signature
    committer: Signature

    def encode(self) -> bytes:
        lines = [f"tree {self.tree}", *(f"parent {one}" for one in self.parents)]
        lines += [f"author {self.author.line()}", f"committer {self.committer.line()}", "", self.message]
        return "\n".join(lines).encode()


class TreeFile(msgspec.Struct, frozen=True):
    """A file in a tree."""

    mode: str
    sha: str


class GitObjects:
    """The objects of one repository; trees are kept flat, by the paths of their files."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.commits: dict[str, SimulatedCommit] = {}
        self._trees: dict[str, dict[str, TreeFile]] = {}

    def add_blob(self, data: bytes) -> str:
        sha = _sha("blob", data)
        self.blobs[sha] = data
        return sha

    def add_tree(self, files: Mapping[str, TreeFile]) -> str:
        """Store a tree and those below it; return its SHA."""
        folders: dict[str, dict[str, TreeFile]] = {}
        entries: list[tuple[str, str, str]] = []
        for path, file in files.items():
            first, slash, rest = path.partition("/")
            if slash:
                folders.setdefault(first, {})[rest] = file
            else:
                entries.append((path, file.mode, file.sha))
        entries += [(name, _FOLDER, self.add_tree(below)) for name, below in folders.items()]
        # Git sorts a folder as if its name ended with a slash.
        entries.sort(key=lambda entry: entry[0] + ("/" if entry[1] == _FOLDER else ""))
        data = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(sha) for name, mode, sha in entries)
        sha = _sha("tree", data)
        self._trees[sha] = dict(files)
        return sha

    def add_commit(self, commit: SimulatedCommit) -> SimulatedCommit:
        """Store a commit; return it with its SHA."""
        stored = msgspec.structs.replace(commit, sha=_sha("commit", commit.encode()))
        self.commits[stored.sha] = stored
        return stored

    def blob(self, sha: str) -> bytes:
        return _known(self.blobs, sha)

    def commit(self, sha: str) -> SimulatedCommit:
        return _known(self.commits, sha)

    def files(self, sha: str) -> dict[str, TreeFile]:
        """The files of a tree, or of a commit's tree, by path."""
        commit = self.commits.get(sha)
        return _known(self._trees, sha if commit is None else commit.tree)

    def text(self, file: TreeFile | None) -> str | None:
        """A file's text; None for one that is missing."""
        return None if file is None else self.blobs[file.sha].decode(errors="replace")

    def history(self, sha: str) -> Iterator[str]:
        """A commit and its ancestors, nearest first."""
        seen, waiting = {sha}, [sha]
        while waiting:
            current = waiting.pop(0)
            yield current
            for parent in self.commit(current).parents:
                if parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)

    def merge_base(self, one: str, other: str) -> str:
        """The nearest common ancestor."""
        theirs = set(self.history(other))
        found = next((sha for sha in self.history(one) if sha in theirs), None)
        if found is None:
            raise ApiRefusal(404, "No common ancestor")
        return found


def _known(objects: Mapping[str, T], sha: str) -> T:
    if sha not in objects:
        raise ApiRefusal(404, "Not Found")
    return objects[sha]


def _sha(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
