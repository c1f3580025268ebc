"""Where log lines go: JSON for programs, colour for people in front of a terminal."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def log_to_stdout() -> None:
    """For processes that stay: everything from info on."""
    _configure(sys.stdout, logging.INFO)


def log_to_stderr() -> None:
    """For commands, whose output must stay clean: warnings only."""
    _configure(sys.stderr, logging.WARNING)


def _configure(file: TextIO, level: int) -> None:
    told: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if file.isatty():
        # Plain: a traceback with local values would show tokens and bodies.
        told.append(structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback))
    else:
        told += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=told,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file),
        cache_logger_on_first_use=False,
    )
