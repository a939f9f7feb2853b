"""A disk that loses power: a SQLite VFS that remembers what was synced and what was not.

Between two syncs of a file its writes are pending. A power cut keeps what was synced and, of each
pending write, every 512-byte sector with probability one half, in any order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512


class Disk:
    """The durable content of each file and the writes that are still pending.

    ``before_sync`` is called in the middle of each commit, when most is pending.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.before_sync: Callable[[], None] | None = None
        self.durable: dict[str, bytearray] = {}
        self.pending: dict[str, list[tuple[int, bytes | None]]] = {}

    def write(self, file: str, offset: int, data: bytes | None) -> None:
        """Remember a write, or with None a truncation to ``offset``."""
        with self.lock:
            self.pending.setdefault(file, []).append((offset, data))

    def sync(self, file: str) -> None:
        if self.before_sync is not None:
            self.before_sync()
        with self.lock:
            content = self.durable.setdefault(file, bytearray())
            for offset, data in self.pending.pop(file, []):
                _apply(content, offset, data)

    def after_power_cut(self, chance: random.Random) -> dict[str, bytes]:
        """What would be found on the disk if the power were cut now."""
        with self.lock:
            return {file: bytes(self._after(file, chance)) for file in {*self.durable, *self.pending}}

    def _after(self, file: str, chance: random.Random) -> bytearray:
        content = bytearray(self.durable.get(file, b""))
        for offset, data in self.pending.get(file, []):
            if data is None:
                if chance.random() < 0.5:
                    _apply(content, offset, None)
                continue
            for start in range(0, len(data), SECTOR):
                if chance.random() < 0.5:
                    _apply(content, offset + start, data[start : start + SECTOR])
        return content


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class LossyFile(apsw.VFSFile):
    """One open file; everything goes to the real one too, so that the process notices nothing."""

    def __init__(self, disk: Disk, base: str, name: Any, flags: list[int]) -> None:
        self.disk = disk
        self.file = Path(name if isinstance(name, str) else name.filename()).name
        super().__init__(base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self.disk.write(self.file, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self.disk.write(self.file, size, None)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.disk.sync(self.file)


class LossyVfs(apsw.VFS):
    """The default VFS while it is registered: every store that is opened then is on this disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.base = apsw.vfs_names()[0]
        super().__init__("lossy", self.base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:
            return apsw.VFSFile(self.base, name, flags)
        return LossyFile(self.disk, self.base, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        super().xDelete(name, sync)
        with self.disk.lock:
            self.disk.durable.pop(Path(name).name, None)
            self.disk.pending.pop(Path(name).name, None)
