"""Checkpoints, which copy the write-ahead log into the database, in a thread beside the writer's.

A checkpoint inside a commit makes every caller wait until thousands of pages are copied and synced. SQLite
starts the log anew only where a write transaction begins while all of it is copied, and a checkpoint beside
steady commits never gets that far. So the thread copies a long log, then what was appended meanwhile, and the
writer copies the small rest between two batches.
"""

from __future__ import annotations

import contextlib
import threading
from queue import SimpleQueue
from typing import Final

import apsw
import structlog

from holdfast.store.sqlite.connections import BusyHandler, Options, one, open_connection

# Counted are the pages that this process has appended since it last finished a checkpoint.
PAGES: Final = 4_000
RETRY_PAGES: Final = 1_000
TAKEOVER_PAGES: Final = 12_000  # appended while the thread has not copied: the writer does it itself
# SQLite syncs the database after a pass during which nobody commits: a short one is likely to be that.
PASSES: Final = 3
FINISH_S_MAX: Final = 0.01  # how long the writer waits for others to leave the log
LONE_PER_COUNT: Final = 16  # of lone commits, for which asking the pager takes as long as encoding a document

log = structlog.get_logger("holdfast.sqlite")


class Checkpointer:
    """Decides in the writer's thread, copies in its own, which starts with the first long log."""

    def __init__(self, options: Options) -> None:
        self._options = options
        # Used by the thread while it copies and by the writer's else.
        self._connection: apsw.Connection | None = None
        self._thread: threading.Thread | None = None
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._copying = self._failed = False
        self._frames = 0  # the most that the passes since the request have seen in the log
        self._uncounted = 0  # lone commits
        self._start_over()

    def advance(self, writer: apsw.Connection) -> None:
        """Take the next step of a checkpoint where one is due; called between two write transactions."""
        self.count(writer)
        if not self.is_due:
            return
        if self._copying or self._failed:
            if self._pages >= self._takeover_pages:
                self._copy_in_writer(writer)
        elif self._copied:
            self._finish()
        else:
            self._request()

    def count(self, writer: apsw.Connection) -> None:
        """Count the pages that the last transactions have appended to the log."""
        self._uncounted = 0
        # A hook on the log would tell the same, but have each commit wait for the GIL once more.
        with contextlib.suppress(apsw.Error):  # a broken connection, which is replaced
            self._pages += writer.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)[0]

    def count_lone(self, writer: apsw.Connection) -> None:
        """Count the pages of small commits, once for several of them."""
        self._uncounted += 1
        if self._uncounted == LONE_PER_COUNT:
            self.count(writer)

    @property
    def is_due(self) -> bool:
        """Whether `advance` may have something to do; nothing while the thread copies, but to take over."""
        return self._pages >= (self._takeover_pages if self._copying else self._next_pages)

    def close(self) -> None:
        """End the thread, after the pass it may be at."""
        if self._thread is not None:
            self._requests.put(False)
            self._thread.join()
        self._drop_connection()

    def _start_over(self, pages: int = 0) -> None:
        self._pages, self._copied = pages, False
        self._next_pages, self._takeover_pages = PAGES, PAGES + TAKEOVER_PAGES

    def _try_later(self) -> None:
        self._copied, self._next_pages = False, self._pages + RETRY_PAGES

    def _request(self) -> None:
        self._takeover_pages = self._pages + TAKEOVER_PAGES
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="holdfast-sqlite-checkpointer", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError as fault:
            self._fail(fault)
            return
        self._copying, self._frames = True, 0
        self._requests.put(True)

    def _run(self) -> None:
        while self._requests.get():
            try:
                self._copied = self._copy()
                if not self._copied:
                    self._try_later()  # a reader needs the database as it was
            except apsw.BusyError:
                self._try_later()  # another process copies
            except BaseException as fault:  # nothing may end the thread: nobody would copy
                self._fail(fault)
            self._copying = False

    def _copy(self) -> bool:
        """Copy what was committed before now, beside further commits; tell whether that was possible."""
        if self._connection is None:
            self._connection = open_connection(self._options, writing=True)
            self._connection.set_busy_handler(BusyHandler(FINISH_S_MAX))
        for _ in range(PASSES):
            frames, copied = self._connection.wal_checkpoint()
            if copied < frames:
                return False
            if frames < self._frames:
                break  # a commit has started the log anew
            self._frames = frames
        return True

    def _finish(self) -> None:
        """Copy the rest while nobody can commit, so that the next commit starts the log anew.

        Where a pass met no commit, the commit after it has done so already.
        """
        assert self._connection is not None
        try:
            # A pragma: the first releases that know this mode refuse it in `wal_checkpoint`.
            _, frames, _ = one(self._connection, "PRAGMA wal_checkpoint(NOOP)")
            if frames >= self._frames:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                frames = 0
        except apsw.BusyError:
            self._try_later()
        except apsw.Error as fault:
            self._fail(fault)
        else:
            self._start_over(frames)

    def _copy_in_writer(self, writer: apsw.Connection) -> None:
        """Bound the log where the thread hangs or fails."""
        self._failed = False
        try:
            frames, copied = writer.wal_checkpoint()
        except apsw.Error as fault:
            log.warning("checkpoint failed; it is tried again", error=str(fault))
            frames, copied = 1, 0
        if copied < frames:
            self._try_later()
            self._takeover_pages = self._next_pages
        else:
            self._start_over()

    def _fail(self, fault: BaseException) -> None:
        self._failed = True
        self._drop_connection()
        log.warning("checkpoint failed; the writer will make it", error=str(fault))

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None
