"""The pages on authentication and observability list every setting, route option and metric."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from holdfast.config import Issuer, IssuerGrant, RequestLimits
from holdfast.http import guard
from holdfast.http.metrics import Metrics

_DOCS = Path(__file__).parents[2] / "docs"
AUTHENTICATION = (_DOCS / "explanation" / "authentication.md").read_text()
UPGRADE = (_DOCS / "operate" / "upgrade.md").read_text()
OBSERVABILITY = (_DOCS / "operate" / "observability.md").read_text()


def test_the_example_of_a_roll_out_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (source,) = re.findall(r"^```python\n(.*?)^```$", UPGRADE, re.MULTILINE | re.DOTALL)
    exec(compile(source, "upgrade.md", "exec", dont_inherit=True), {"__name__": "upgrade"})


@pytest.mark.parametrize("table", [RequestLimits, Issuer, IssuerGrant])
def test_every_setting_about_callers_is_on_the_page(table: type[msgspec.Struct]) -> None:
    missing = [name for name in table.__struct_fields__ if not re.search(rf"\b{name}\b", AUTHENTICATION)]
    assert not missing


def test_every_word_a_route_may_say_is_on_the_page() -> None:
    said = set(re.findall(r'handler\.opt(?:\.get\(|\[)"(\w+)"', inspect.getsource(guard)))
    assert len(said) >= 7
    assert {word for word in said if f"`{word}`" not in AUTHENTICATION} == set()


def test_every_metric_is_on_the_page() -> None:
    names = {family.name for family in Metrics().registry.collect()}
    assert {name for name in names if f"`{name}" not in OBSERVABILITY} == set()
