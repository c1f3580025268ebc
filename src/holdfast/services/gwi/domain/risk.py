"""The risk of a change: factors with severities 1 to 4, a score that never falls when one is added. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

import msgspec

from holdfast.services.gwi.domain.scoring import Percent

RiskLevel = Literal["low", "medium", "high", "critical"]
PATHS_SHOWN: Final = 3
_POINTS: Final = 25
_SECURITY: Final = re.compile(r"auth|security|credential", re.IGNORECASE)
_CONFIG: Final = re.compile(
    r"(^|/)(\.env[^/]*|dockerfile|makefile|[^/]*\.(ya?ml|toml|ini|cfg|conf|json|properties)"
    r"|[^/]*config[^/]*)$",
    re.IGNORECASE,
)


class RiskFactor(msgspec.Struct, frozen=True, rename="camel"):
    """One reason for a risk."""

    name: str
    severity: int
    description: str


class RiskAssessment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The risk of a candidate with its reasons."""

    level: RiskLevel
    score: Percent
    factors: list[RiskFactor] = []
    mitigations: list[str] | None = None

    @property
    def required_approvals(self) -> int:
        return 2 if self.level in ("high", "critical") else 1

    @property
    def confidence(self) -> int:
        return 100 - self.score


def assess(files: Collection[str], *, complexity: int) -> RiskAssessment:
    """Assess a change of these files with a complexity of 1 to 5.

    Example: `assess(["src/auth/login.py"], complexity=2).level` is `"critical"`
    """
    factors = [*_by_size(len(set(files))), *_by_complexity(complexity), *_by_paths(sorted(set(files)))]
    score = risk_score([one.severity for one in factors])
    return RiskAssessment(
        level=level_of(score),
        score=score,
        factors=factors,
        mitigations=[_MITIGATIONS[f.name] for f in factors],
    )


def risk_score(severities: Sequence[int]) -> int:
    """25 for each point of the worst severity, and the sum of the others, which never reaches the next 25."""
    if not severities:
        return 0
    worst = max(severities)
    others = min(_POINTS - 1, sum(severities) - worst)
    return min(100, _POINTS * worst + others)


def level_of(score: int) -> RiskLevel:
    if score >= 75:
        return "critical"
    if score >= 50:
        return "high"
    return "medium" if score >= 25 else "low"


def is_config(path: str) -> bool:
    return _CONFIG.search(path) is not None


def touches_security(path: str) -> bool:
    return _SECURITY.search(path) is not None


_MITIGATIONS: Final = {
    "file_count": "Split the change, or review it file by file.",
    "complexity": "Ask somebody who knows this code to review it.",
    "security_path": "Have the change reviewed for security.",
    "config_file": "Compare the configuration of every environment before merging.",
}


def _by_size(count: int) -> Iterator[RiskFactor]:
    if count > 5:
        yield RiskFactor("file_count", 3 if count > 10 else 2, f"{count} files change")


def _by_complexity(complexity: int) -> Iterator[RiskFactor]:
    if complexity >= 3:
        severity = 4 if complexity >= 4 else 2
        yield RiskFactor("complexity", severity, f"the plan has complexity {complexity} of 5")


def _by_paths(files: Sequence[str]) -> Iterator[RiskFactor]:
    secure = [path for path in files if touches_security(path)]
    if secure:
        yield RiskFactor("security_path", 4, f"touches authentication or secrets: {_shown(secure)}")
    config = [path for path in files if is_config(path)]
    if config:
        yield RiskFactor("config_file", 2, f"changes configuration: {_shown(config)}")


def _shown(paths: Sequence[str]) -> str:
    more = len(paths) - PATHS_SHOWN
    return ", ".join(paths[:PATHS_SHOWN]) + (f" and {more} more" if more > 0 else "")
