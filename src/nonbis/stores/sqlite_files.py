"""The files of a SQLite store: where they may be, who has them open, and the locks of our own.

SQLite's locks are POSIX record locks. They belong to the process and vanish when *any* descriptor of
the file is closed in it, be it by a second SQLite library or by a plain ``open()``: two processes then
acknowledge the same name. So nothing here opens a database that is there, its log or its index; it is
only asked of the kernel which descriptors there are.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nonbis.errors import StoreUnavailable, StoreUnsafe

Inode = tuple[int, int]

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
"""A store holds every request and the key of the names: what is made new is its owner's alone."""
_OPEN_FILES: Final = Path("/proc/self/fd")
_LOCKS: Final = Path("/proc/locks")
_SUFFIXES: Final = ("", "-wal", "-shm")
_SHARED_FILE_SYSTEMS: Final = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB2",
    0xFF534D42: "CIFS",
    0x65735546: "FUSE",
    0x01021997: "9p",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x73757245: "Coda",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x19830326: "BeeGFS",
    0x564C: "NCP",
}


def refuse_network(folder: Path) -> int:
    """The file system's magic number; raises StoreUnsafe where locks or shared memory may not hold."""
    buffer = (ctypes.c_long * 64)()
    library = ctypes.CDLL(None, use_errno=True)
    if library.statfs(os.fsencode(folder), ctypes.byref(buffer)) != 0:
        error = ctypes.get_errno()
        raise StoreUnavailable(f"{folder} can't be looked at: {os.strerror(error)}")
    magic = buffer[0] & 0xFFFFFFFF
    if magic in _SHARED_FILE_SYSTEMS:
        raise StoreUnsafe(
            f"{folder} is on {_SHARED_FILE_SYSTEMS[magic]}: a SQLite store needs a local file system, whose"
            " locks and shared memory hold between processes"
        )
    return magic


def make_private(path: Path) -> None:
    """Make an empty database that only its owner may read; nothing happens if the file is there.

    SQLite gives log and index the mode of the database. Only a file that did not exist is opened here:
    no lock can be held on it, so closing it removes none. Raises OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


class Descriptors:
    """All descriptors of this process on the files of SQLite stores, and which of them are ours.

    One per process. A connection of ours is opened and closed under its lock, so that what is new
    afterwards is that connection's.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._own: dict[int, Inode] = {}

    def disown(self) -> None:
        """In a forked child: nothing that was inherited is ours, and no lock holder is left."""
        self.lock = threading.RLock()
        self._own = {}

    def refuse_strangers(self, path: Path) -> None:
        """Raise StoreUnsafe if something that is not ours has the files open."""
        with self.lock:
            self._forget_closed()
            strangers = sorted(suffix for number, suffix in _opened(path).items() if number not in self._own)
        if strangers:
            raise StoreUnsafe(
                f"two SQLite libraries on one file: this process has {path}{strangers[0]} open outside this"
                " store (a second SQLite library, a plain open(), or a fork of a process that had the store"
                " open); closing it would silently remove the store's locks"
            )

    @contextlib.contextmanager
    def adopting(self, path: Path) -> Iterator[None]:
        """Whatever the block opens on the files is ours; refused if it is more than one connection's."""
        with self.lock:
            self.refuse_strangers(path)
            before = _opened(path)
            yield
            new = {number: suffix for number, suffix in _opened(path).items() if number not in before}
            if any(list(new.values()).count(suffix) > 1 for suffix in _SUFFIXES):
                raise StoreUnsafe(
                    f"two SQLite libraries on one file: something else opened {path} in the same moment"
                )
            self._own.update({number: inode_of(number) for number in new})

    def _forget_closed(self) -> None:
        for number, inode in list(self._own.items()):
            if inode_of(number) != inode:
                del self._own[number]


def inode_of(file: int | str | Path) -> Inode:
    """Device and inode, or zeros where there is no such file. Looks, but does not open."""
    try:
        status = os.stat(file)  # noqa: PTH116 - also takes a descriptor
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _opened(path: Path) -> dict[int, str]:
    """The descriptors of this process on the database, its log and its index, with the file's suffix."""
    inodes = {inode_of(f"{path}{suffix}"): suffix for suffix in _SUFFIXES}
    inodes.pop((0, 0), None)
    numbers = {int(file.name): inode_of(file) for file in _OPEN_FILES.iterdir()}
    return {number: inodes[inode] for number, inode in numbers.items() if inode in inodes}


DESCRIPTORS: Final = Descriptors()


def locked_files(path: Path) -> frozenset[str]:
    """The suffixes of the files on which the kernel shows record locks of this process.

    A connection in WAL mode holds one on the database and one on the index for as long as it is open,
    so one that has gone was removed by somebody's close, even if nothing is open any more.
    """
    inodes = {_shown(inode_of(f"{path}{suffix}")): suffix for suffix in _SUFFIXES}
    me = str(os.getpid())
    with contextlib.suppress(OSError):
        lines = (line.split() for line in _LOCKS.read_text().splitlines())
        return frozenset(
            inodes[line[5]]
            for line in lines
            if len(line) > 5 and line[1] == "POSIX" and line[4] == me and line[5] in inodes
        )
    return frozenset()


def _shown(inode: Inode) -> str:
    """A file as the kernel's list of locks names it."""
    device, number = inode
    return f"{os.major(device):02x}:{os.minor(device):02x}:{number}"


class LockFile:
    """A file that exists only to be locked with flock, which an unrelated close does not release."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        _LOCK_FILES.add(self)

    def take(self) -> bool:
        """Lock it now if it is free."""
        if self._number is None:
            raise StoreUnavailable(f"the lock file {self.path} is closed")
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def let_go(self) -> None:
        """Unlock it."""
        if self._number is not None:
            fcntl.flock(self._number, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Locked inside the block; raises StoreUnavailable if it isn't free within ``seconds``."""
        pause, limit = 0.0002, time.monotonic() + seconds
        while not self.take():
            if time.monotonic() > limit:
                raise StoreUnavailable(f"another process has been writing for {seconds:g} s ({self.path})")
            time.sleep(pause)
            pause = min(pause * 2, 0.005)
        try:
            yield
        finally:
            self.let_go()

    def close(self) -> None:
        """Close it; the lock goes unless a copy of the descriptor lives."""
        number, self._number = self._number, None
        if number is not None:
            os.close(number)


_LOCK_FILES: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """Closing (not unlocking) the copy of a lock file leaves the parent's lock alone."""
    DESCRIPTORS.disown()
    for lock_file in list(_LOCK_FILES):
        lock_file.close()


os.register_at_fork(after_in_child=_let_go_in_child)


def is_free(path: Path) -> bool:
    """Whether a lock file exists and nobody holds it."""
    try:
        number = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(number)
    return True


class MachineLocks:
    """The lock files of one store's machines: held as long as the process of the machine lives.

    ``own`` are those of the machines that were registered through this store.
    """

    def __init__(self, path: Path) -> None:
        self.folder = Path(f"{path}.machines")
        self.own: dict[int, LockFile] = {}

    def take(self, token: str) -> LockFile:
        """A new lock file, locked. Raises StoreUnavailable if it can't be made."""
        try:
            self.folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            lock_file = LockFile(self.folder / token)
        except OSError as error:
            raise StoreUnavailable(f"a machine's lock file can't be made: {error}") from error
        lock_file.take()
        return lock_file

    def let_go(self, machine: int) -> None:
        """Unlock the file of a machine of mine."""
        lock_file = self.own.pop(machine, None)
        if lock_file is not None:
            lock_file.close()

    def let_all_go(self) -> None:
        """Unlock the files of all machines of mine."""
        for machine in list(self.own):
            self.let_go(machine)

    def remove(self, token: str) -> None:
        """Remove the file of a machine that is lost or has ended; one that stays behind does no harm."""
        with contextlib.suppress(OSError):
            (self.folder / token).unlink()

    def gone(self, tokens: dict[int, str]) -> set[int]:
        """Of these living machines, by number and token, those whose lock file nobody holds."""
        return {
            machine
            for machine, token in tokens.items()
            if machine not in self.own and is_free(self.folder / token)
        }
