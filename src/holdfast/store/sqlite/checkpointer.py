"""Checkpoints, which copy the write-ahead log into the database, in a thread beside the writer's.

A checkpoint inside a commit makes every caller wait until thousands of pages are copied and synced. SQLite
starts the log anew only where a write transaction begins while all of it is copied, and a checkpoint beside
steady commits never gets that far. So the thread copies a long log, then what was appended meanwhile, and the
writer copies the small rest between two batches.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Final

import apsw
import msgspec
import structlog

from holdfast.errors import StoreUnavailableError
from holdfast.store.sqlite.connections import Options, open_connection

# Counted are the pages that this process has appended since it last finished a checkpoint.
PAGES: Final = 4_000
REST_PAGES_MAX: Final = 256
PASSES_MAX: Final = 3  # a writer as fast as the copying must not put off the rest for ever
RETRY_PAGES: Final = 1_000
TAKEOVER_PAGES: Final = 12_000  # appended while the thread has not copied: the writer does it itself
FINISH_S_MAX: Final = 0.01  # how long the writer waits for others to leave the log

log = structlog.get_logger("holdfast.sqlite")


class Checkpointer:
    """Decides in the writer's thread, copies in its own, which starts with the first long log."""

    def __init__(self, options: Options) -> None:
        self._options = msgspec.structs.replace(options, busy_s=FINISH_S_MAX)
        # Used by the thread while it copies and by the writer's else.
        self._connection: apsw.Connection | None = None
        self._thread: threading.Thread | None = None
        self._requests: SimpleQueue[int | None] = SimpleQueue()
        self._copying = self._failed = False
        self._start_over()

    def advance(self, writer: apsw.Connection) -> None:
        """Take the next step of a checkpoint where one is due; called between two write transactions."""
        try:
            # A hook on the log would tell the same, but have each commit wait for the GIL once more.
            self._pages += writer.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)[0]
        except apsw.Error:
            return  # a broken connection, which is replaced
        if self._pages < self._next_pages:
            return
        if self._copying or self._failed:
            if self._pages >= self._takeover_pages:
                self._copy_in_writer(writer)
        elif self._passes and (
            self._pages - self._copied_pages <= REST_PAGES_MAX or self._passes >= PASSES_MAX
        ):
            self._finish()
        else:
            self._request()

    def close(self) -> None:
        """End the thread, after the pass it may be at."""
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
        self._drop_connection()

    def _start_over(self) -> None:
        self._pages = self._copied_pages = self._passes = 0
        self._next_pages, self._takeover_pages = PAGES, PAGES + TAKEOVER_PAGES

    def _try_later(self) -> None:
        self._passes, self._next_pages = 0, self._pages + RETRY_PAGES

    def _request(self) -> None:
        self._takeover_pages = self._pages + TAKEOVER_PAGES
        try:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-sqlite-checkpointer", daemon=True
                )
                self._thread.start()
        except RuntimeError as fault:
            self._thread = None
            self._fail(fault)
            return
        self._copying = True
        self._requests.put(self._pages)

    def _run(self) -> None:
        while (pages := self._requests.get()) is not None:
            try:
                self._copy(pages)
            except apsw.BusyError:
                self._try_later()  # another process copies
            except (apsw.Error, StoreUnavailableError) as fault:
                self._fail(fault)
                self._drop_connection()
            finally:
                self._copying = False

    def _copy(self, pages: int) -> None:
        """Copy what was committed before now, beside further commits."""
        if self._connection is None:
            self._connection = open_connection(self._options, writing=True)
        frames, copied = self._connection.wal_checkpoint()
        if copied < frames:
            self._try_later()  # a reader needs the database as it was
        else:
            self._copied_pages, self._passes = pages, self._passes + 1

    def _finish(self) -> None:
        """Copy the rest while nobody can commit, so that the next commit starts the log anew."""
        try:
            assert self._connection is not None
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            self._try_later()
        except apsw.Error as fault:
            self._fail(fault)
        else:
            self._start_over()

    def _copy_in_writer(self, writer: apsw.Connection) -> None:
        """Bound the log where the thread hangs or fails."""
        self._failed = False
        try:
            frames, copied = writer.wal_checkpoint()
        except apsw.Error as fault:
            log.warning("checkpoint failed", error=str(fault))
            frames, copied = 1, 0
        if copied < frames:
            self._try_later()
            self._takeover_pages = self._next_pages
        else:
            self._start_over()

    def _fail(self, fault: Exception) -> None:
        self._failed = True
        log.warning("checkpoint failed; the writer makes the next", error=str(fault))

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None
