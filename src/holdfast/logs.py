"""Where log lines go: JSON for programs, colour for people in front of a terminal."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

from holdfast import tracing


def log_to_stdout() -> None:
    """For processes that stay: everything from info on."""
    log_to(sys.stdout, logging.INFO)


def log_to_stderr() -> None:
    """For commands, whose output must stay clean: warnings only."""
    log_to(sys.stderr, logging.WARNING)


def _add_trace(
    logger: structlog.typing.WrappedLogger, name: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {**line, **tracing.ids()} if tracing.on else line


def log_to(file: TextIO, level: int) -> None:
    """Every line from this level on, into this file."""
    told: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace,
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
