"""The complexity of a change, 1 to 10: a base of 1 and a part for each thing that makes it harder. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from holdfast.plural import plural
from holdfast.services.gwi.domain.diffs import FileDiff
from holdfast.services.gwi.domain.risk import is_config, touches_security

COMPLEXITY_MAX: Final = 10.0
_INFRASTRUCTURE: Final = re.compile(
    r"(^|/)(dockerfile[^/]*|docker-compose[^/]*|jenkinsfile|[^/]*\.tf|helm/.*|k8s/.*|kubernetes/.*|terraform/.*"
    r"|ansible/.*|deploy/.*)$|^\.github/workflows/|^\.gitlab-ci",
    re.IGNORECASE,
)
_TEST: Final = re.compile(r"(^|/)(tests?/.*|test_[^/]*|[^/]*[._-](test|spec)\.[^/]+)$", re.IGNORECASE)


class ComplexityPart(msgspec.Struct, frozen=True):
    """One part of a complexity."""

    name: str
    value: float
    reason: str


class Complexity(msgspec.Struct, frozen=True, rename="camel"):
    """A complexity with its parts; `level` is the same on the scale of 1 to 5 that plans use."""

    score: float
    parts: list[ComplexityPart]

    @property
    def level(self) -> int:
        return max(1, min(5, round(self.score / 2)))


def complexity_of(files: Sequence[FileDiff]) -> Complexity:
    """The complexity of a change.

    Example: `complexity_of(parse_diff(diff)).score`
    """
    parts = [ComplexityPart("base", 1.0, "every change"), *_by_size(files), *_by_paths(files)]
    return Complexity(min(COMPLEXITY_MAX, max(1.0, sum(part.value for part in parts))), parts)


def is_test(path: str) -> bool:
    return _TEST.search(path) is not None


def _by_size(files: Sequence[FileDiff]) -> Iterator[ComplexityPart]:
    lines, hunks = sum(one.lines for one in files), sum(one.hunks for one in files)
    if lines > 200:
        yield ComplexityPart("lines", 2.0 if lines > 500 else 1.0, f"{lines} lines change")
    if len(files) > 8:
        yield ComplexityPart("files", 1.5, plural(len(files), "file changes", "files change"))
    if hunks > 5:
        yield ComplexityPart("hunks", 1.5, f"{hunks} places change")


def _by_paths(files: Sequence[FileDiff]) -> Iterator[ComplexityPart]:
    paths = [one.path for one in files]
    if any(map(is_config, paths)):
        yield ComplexityPart("config", 1.0, "configuration changes")
    if any(map(touches_security, paths)):
        yield ComplexityPart("security", 3.0, "authentication or secrets are touched")
    if any(_INFRASTRUCTURE.search(path) for path in paths):
        yield ComplexityPart("infrastructure", 2.0, "infrastructure changes")
    if len(paths) == 1 and is_test(paths[0]):
        yield ComplexityPart("test", -1.0, "only a test changes")
