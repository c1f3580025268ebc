"""The example of the page on the inbox runs as it is written."""

from __future__ import annotations

import ast
import re
import sys
import types
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "inbox.md"


async def test_a_large_message_is_received_for_its_tenant_and_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    module = types.ModuleType("inbox_page")
    monkeypatch.setitem(sys.modules, "inbox_page", module)
    monkeypatch.chdir(tmp_path)
    code = compile(source, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    await eval(code, vars(module))
    shown = vars(module)
    assert (shown["receipt"].duplicate, shown["again"].duplicate) == (False, True)
    assert shown["signal"].doc.size == len(shown["body"])
