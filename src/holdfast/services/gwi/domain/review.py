"""Rules of a review: findings in the lines that a change adds, and in what it leaves out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from holdfast.services.gwi.domain.complexity import is_test
from holdfast.services.gwi.domain.diffs import FileDiff

Severity = Literal["error", "warning", "note"]
FINDINGS_MAX: Final = 100
LINES_MAX: Final = 500
LINE_CHARACTERS_MAX: Final = 200
_SOURCE: Final = re.compile(r"\.(py|js|jsx|ts|tsx|go|rs|java|kt|rb|php|c|cc|cpp|h|cs|swift|scala)$")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to look at; `line` is 0 where it concerns the whole file or change."""

    rule: str
    severity: Severity
    message: str
    file: str = ""
    line: int = 0


class _LineRule(msgspec.Struct, frozen=True):
    rule: str
    severity: Severity
    pattern: re.Pattern[str]
    message: str


def _line_rule(rule: str, severity: Severity, pattern: str, message: str) -> _LineRule:
    return _LineRule(rule, severity, re.compile(pattern), message)


_LINE_RULES: Final = (
    _line_rule("conflict_marker", "error", r"^(<{7} |={7}$|>{7} )", "a conflict marker is left"),
    _line_rule("private_key", "error", r"-----BEGIN [A-Z ]*PRIVATE KEY-----", "a private key is committed"),
    _line_rule(
        "secret", "error",
        r"(ghp_[A-Za-z0-9]{36}|AKIA[0-9A-Z]{16}|xox[bp]-[A-Za-z0-9-]{20,}|sk-[A-Za-z0-9_-]{32,})",
        "a credential is committed; revoke it",
    ),
    _line_rule(
        "hard_coded_password", "warning",
        r"(?i)\b(password|passwd|secret|api_?key|token)\b\s*[:=]\s*[\"'][^\"'\s]{6,}[\"']",
        "a secret seems to be hard-coded; read it from the environment",
    ),
    _line_rule("shell", "warning", r"shell\s*=\s*True|os\.system\(", "a shell interprets the arguments"),
    _line_rule("evaluation", "warning", r"(?<![.\w])(eval|exec)\(", "text is evaluated as code"),
    _line_rule(
        "unverified_tls", "warning", r"verify\s*=\s*False|rejectUnauthorized\s*:\s*false",
        "certificates are not verified",
    ),
    _line_rule(
        "debugging", "note", r"\bbreakpoint\(\)|\bpdb\.set_trace\(\)|\bconsole\.log\(|\bdebugger;",
        "debugging code is left",
    ),
    _line_rule("swallowed_error", "note", r"except\s*:\s*(pass)?\s*$|catch\s*\([^)]*\)\s*\{\s*\}",
               "every error is ignored"),
)  # fmt: skip


def review(files: Sequence[FileDiff]) -> list[Finding]:
    """The findings of all rules, the most severe first, 100 at most; the same change has the same findings.

    Example: `[one.message for one in review(parse_diff(diff)) if one.severity == "error"]`
    """
    found = [finding for file in files for finding in _in_file(file)]
    found += _missing_tests(files)
    rank: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda one: (rank[one.severity], one.file, one.line))[:FINDINGS_MAX]


def _in_file(file: FileDiff) -> Iterator[Finding]:
    if file.lines > LINES_MAX:
        yield Finding(
            rule="large_file", severity="note", file=file.path,
            message=f"{file.lines} lines change in one file; smaller steps are easier to review",
        )  # fmt: skip
    if file.deleted and is_test(file.path):
        yield Finding(rule="deleted_test", severity="warning", file=file.path, message="a test is deleted")
    for line in file.added:
        for rule in _LINE_RULES:
            if rule.pattern.search(line.text[:LINE_CHARACTERS_MAX]):
                yield Finding(
                    rule=rule.rule, severity=rule.severity, message=rule.message, file=file.path,
                    line=line.number,
                )  # fmt: skip


def _missing_tests(files: Sequence[FileDiff]) -> list[Finding]:
    sources = [one for one in files if _SOURCE.search(one.path) and not is_test(one.path)]
    if not any(one.added for one in sources) or any(is_test(one.path) for one in files):
        return []
    return [Finding(rule="no_test", severity="note", message="code changes without a test")]


def verdict(findings: Sequence[Finding]) -> Literal["approve", "comment", "request_changes"]:
    """What a reviewer says of these findings."""
    if any(one.severity == "error" for one in findings):
        return "request_changes"
    return "comment" if findings else "approve"
