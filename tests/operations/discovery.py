"""Finds every operation of platform and installed services, and the public coroutines beside them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

from holdfast import operations
from holdfast.operation import Operation
from holdfast.runtime import Runtime

Function = Callable[..., Any]


def public_functions(runtime: Runtime) -> Iterator[tuple[str, Function]]:
    """Public functions by qualified name: of the platform's modules, and bound ones of each service."""
    for found in pkgutil.iter_modules(operations.__path__, f"{operations.__name__}."):
        module = importlib.import_module(found.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__}.{name}", function
    for owner in (one for parts in runtime.parts.values() for one in _owners(parts.operations)):
        methods = inspect.getmembers(owner, inspect.ismethod)
        for name, method in methods if any(declared(method) for _, method in methods) else ():
            if not name.startswith("_"):
                yield f"{method.__func__.__module__}.{method.__func__.__qualname__}", method


def _owners(operations: Any) -> Iterator[Any]:
    """A service's operations: one object, or an object for each thing they are about."""
    yield operations
    for name, one in getattr(operations, "__dict__", {}).items():
        if not name.startswith("_") and one.__class__.__module__.startswith("holdfast.services."):
            yield one


def declared(function: Function) -> Operation | None:
    return getattr(function, "operation", None)


def operations_of(runtime: Runtime) -> dict[str, Function]:
    return {name: function for name, function in public_functions(runtime) if declared(function)}


def reads_of(runtime: Runtime) -> dict[str, Function]:
    """Public coroutines and async generators that declare no operation."""
    return {
        name: function
        for name, function in public_functions(runtime)
        if not declared(function)
        and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function))
    }
