"""Files that belong to a reader: replaced in one step, and by one process at a time.

A crash at any moment leaves the old file or the new one. Nothing here may ever leave half a file, or
hold a lock longer than its process lives.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

LOCK_SECONDS = 5.0


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8, line ends as given). Raises OSError and then leaves `path` as it was."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        for left_over in path.parent.glob(f"{path.name}.*.tmp"):  # of a process that was killed while writing
            left_over.unlink()
        with fresh.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path` (a file beside it); the system lets go of it when a process dies.

    Raises TimeoutError (an OSError) after `LOCK_SECONDS`. Where the file system knows no locks
    a write is still atomic, and the last of two writers at the same instant wins.
    """
    with path.with_name(path.name + ".lock").open("a+b") as file:
        deadline = time.monotonic() + LOCK_SECONDS
        while (held := _try_lock(file.fileno())) is False:
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process holds {path.name} for more than {LOCK_SECONDS:.0f} s")
            time.sleep(0.01)
        try:
            yield
        finally:
            if held:
                _unlock(file.fileno())


if os.name == "nt":  # pragma: no cover
    import msvcrt

    def _try_lock(handle: int) -> bool | None:
        try:
            os.lseek(handle, 0, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]

else:
    import fcntl

    def _try_lock(handle: int) -> bool | None:
        """True: held; False: another process holds it; None: this file system has no locks."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return None
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
