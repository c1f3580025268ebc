"""What the operator's routes are given beyond what all routes are (`holdfast.routing`)."""

from __future__ import annotations

from typing import TypeAlias

from litestar.di import NamedDependency

from holdfast.runtime import Runtime

RuntimeDependency: TypeAlias = NamedDependency[Runtime]
