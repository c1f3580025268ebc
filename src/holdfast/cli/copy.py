"""`holdfast copy`: move a live store to another engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast import copying
from holdfast.app import open_store
from holdfast.cli.declared import document_classes
from holdfast.cli.logs import log_to_stderr
from holdfast.cli.opened import AsJson, show, tell
from holdfast.config import load_config
from holdfast.copying import Copied, Copy, Walked
from holdfast.errors import ConfigError
from holdfast.model import Document
from holdfast.store import Store
