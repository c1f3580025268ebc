"""HTTP, command line and console offer the same operations.

HTTP is read from the routes' declarations; a command's operations are the calls in its source; the console's
are the routes that its templates and pages post to.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from jinja2 import Environment, nodes

from holdfast import cli, console
from holdfast.config import load_config
from holdfast.http.guard import declared_routes
from holdfast.runtime import Runtime
from holdfast.server import compose
from tests.operations.discovery import operations_of

OPERATIONS: Final = "holdfast.operations."
# Operations that a surface does not offer, and why.
NOT_BY_COMMAND: Final = {
    "connections.connect": "a person comes back from the provider in a browser",
    "sessions.change_password": "one's own password, in one's own session; `users password` sets anybody's",
    "sessions.make_first_link": "the server prints it when it starts",
    "sessions.sign_in": "a session is a browser's",
    "sessions.sign_in_with_identity": "a session is a browser's",
    "sessions.sign_out": "a session is a browser's; `users sign-out` ends anybody's",
    "sessions.use_link": "a session is a browser's",
    "inbox.replay": "`inbox replay` takes one or many, by inbox.replay_selection",
}
NOT_BY_HTTP: Final = {
    "connections.connect": "a person comes back from the provider to a page of the console",
    "sessions.make_first_link": "the server prints it when it starts",
    "sessions.sign_in": "programs send a token",
    "sessions.sign_in_with_identity": "programs send their identity token",
    "sessions.use_link": "programs send a token",
}
NOT_IN_CONSOLE: Final = {
    "connections.connect": "its page, the callback, calls it without a form",
    "sessions.make_first_link": "the server prints it when it starts",
    "sessions.sign_in_with_identity": "its page, the callback, calls it without a form",
}
# Forms of strangers: their pages call the operation themselves.
_FORMS: Final = {
    ("POST", "/sign-in"): f"{OPERATIONS}sessions.sign_in",
    ("POST", "{}"): f"{OPERATIONS}sessions.use_link",
}
_READS: Final = {("POST", "/api/v1/audit/verify")}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    opened = await Runtime.open(load_config({"home": tmp_path}, environ={}), services=())
    try:
        yield opened
    finally:
        await opened.close()


def _of_platform(names: Iterable[str]) -> set[str]:
    return {name.removeprefix(OPERATIONS) for name in names if name.startswith(OPERATIONS)}


def _expected(runtime: Runtime, exceptions: dict[str, str]) -> set[str]:
    names = _of_platform(operations_of(runtime))
    assert exceptions.keys() <= names, "an exception for an operation that is gone"
    return names - exceptions.keys()


def _routes(runtime: Runtime) -> dict[tuple[str, str], str]:
    """The operation of each method and path, with `{}` in place of each parameter."""
    return {
        (method, re.sub(r"\{[^}]*\}", "{}", path)): handler.opt["operation"].name
        for path, method, handler in declared_routes(compose(runtime).app)
        if "operation" in handler.opt
    }


async def test_every_operation_has_a_route(runtime: Runtime) -> None:
    assert _of_platform(_routes(runtime).values()) == _expected(runtime, NOT_BY_HTTP)


async def test_every_operation_has_a_command(runtime: Runtime) -> None:
    names = {name for module in _command_modules() for name in _called(module)}
    assert _of_platform(names) == _expected(runtime, NOT_BY_COMMAND)


def _command_modules() -> list[Any]:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}.")
    ]
    return [module for module in modules if hasattr(module, "commands")]


def _called(module: Any) -> set[str]:
    """The operations that a module of commands uses: `runs.cancel`, or all in a table of them."""
    tree = ast.parse(inspect.getsource(module))
    imported = {
        name.asname or name.name: name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == OPERATIONS.rstrip(".")
        for name in node.names
    }
    used = [
        getattr(importlib.import_module(f"{OPERATIONS}{imported[node.value.id]}"), node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported
    ]
    functions = [one for value in used for one in (value.values() if isinstance(value, Mapping) else [value])]
    return {one.operation.name for one in functions if hasattr(one, "operation")}


async def test_every_operation_has_a_button_or_form_in_the_console(runtime: Runtime) -> None:
    templates = (Path(console.__file__).parent / "templates").rglob("*.html")
    requests = {request for file in templates for request in _requests(file.read_text())}
    routes = _routes(runtime) | _FORMS
    assert requests - routes.keys() <= _READS
    assert _of_platform(routes[one] for one in requests & routes.keys()) == _expected(runtime, NOT_IN_CONSOLE)


def _requests(template: str) -> set[tuple[str, str]]:
    """The method and URL of each button and form of a template, with `{}` in place of each value."""
    tree = Environment().parse(template)
    values = {
        one.target.name: one.node for one in tree.find_all(nodes.Assign) if isinstance(one.target, nodes.Name)
    }
    html = "".join(_text(node, values) for one in tree.find_all(nodes.Output) for node in one.nodes)
    found = {
        (method or "POST", url)
        for url, method in re.findall(
            r"""<(?=[^>]*?data-(?:act|form)="(/[^"]*)")(?=(?:[^>]*?data-method="(\w+)")?)""", html
        )
    }
    found |= {("POST", url) for url in re.findall(r"""<form method="post" action="([^"]+)""", html)}
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr == "act":
            method = next((_text(one.value, values) for one in call.kwargs if one.key == "method"), "POST")
            found.add((method, _text(call.args[1], values)))
    return found


def _text(node: nodes.Node, values: dict[str, nodes.Node]) -> str:
    """An expression as far as a template itself says it; `{}` for what is only known when it is rendered."""
    match node:
        case nodes.TemplateData(data=text):
            return text
        case nodes.Const(value=str(text)):
            return text
        case nodes.Concat(nodes=parts):
            return "".join(_text(part, values) for part in parts)
        case nodes.Name(name=name) if name in values:
            return _text(values[name], values)
        case nodes.Call(node=nodes.Name(name="link"), args=[first, *_]):
            return _text(first, values)
    return "{}"
