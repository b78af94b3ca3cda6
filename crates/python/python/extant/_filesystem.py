"""File systems as a whole: made, opened, closed, copied in and out."""

from __future__ import annotations

import atexit
import os
import weakref
from types import TracebackType
from typing import Any, List, NamedTuple, Optional, Type, Union

from . import _native
from ._path import Path

_open_filesystems: "weakref.WeakSet[Filesystem]" = weakref.WeakSet()


class Usage(NamedTuple):
    """Space and inodes of a file system, in the fields of os.statvfs."""

    f_bsize: int
    f_blocks: int
    f_bfree: int
    f_bavail: int
    f_files: int
    f_ffree: int


class Filesystem:
    """A mounted file system, made by extant.open. A context manager: it is unmounted at the end."""

    def __init__(self, native: _native.Filesystem) -> None:
        self._mounted: Optional[_native.Filesystem] = native
        _open_filesystems.add(self)

    @property
    def _native(self) -> _native.Filesystem:
        if self._mounted is None:
            raise ValueError("the file system is closed")
        return self._mounted

    def __enter__(self) -> "Filesystem":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __truediv__(self, path: Union[str, "os.PathLike[str]"]) -> Path:
        return self.path(path)

    def path(self, *parts: Union[str, "os.PathLike[str]"]) -> Path:
        """The path of these parts, below the root."""
        return Path(self, *parts)

    @property
    def root(self) -> Path:
        """The root directory."""
        return Path(self)

    @property
    def closed(self) -> bool:
        """Whether it is unmounted."""
        return self._mounted is None

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written, because it was opened so or became damaged."""
        return self._native.is_read_only()

    @property
    def label(self) -> str:
        """The volume name."""
        return self._native.label()

    def statvfs(self) -> Usage:
        """Space and inodes."""
        return Usage(*self._native.statvfs())

    def sync(self) -> None:
        """Makes all that was done durable."""
        self._native.sync()

    def check(self) -> List[str]:
        """What is wrong with the disk, a line for each finding; empty if it is whole."""
        return self._native.check()

    def close(self) -> None:
        """Makes all durable and unmounts. Files that are still open cannot be used any more."""
        mounted, self._mounted = self._mounted, None
        if mounted is not None:
            _open_filesystems.discard(self)
            mounted.unmount()

    unmount = close

    def import_tree(
        self, source: Union[str, "os.PathLike[str]"], target: Union[str, "os.PathLike[str]"] = "/"
    ) -> int:
        """Unpacks a directory of the host, or a tar, compressed or not, into a directory; gives the number of entries."""
        return self._native.import_tree(os.fspath(source), os.fspath(target))

    def export_tar(
        self, archive: Union[str, "os.PathLike[str]"], source: Union[str, "os.PathLike[str]"] = "/"
    ) -> None:
        """Writes a tree as a tar into a file of the host."""
        self._native.export_tar(os.fspath(source), os.fspath(archive))

    def extract(
        self,
        target: Union[str, "os.PathLike[str]"],
        source: Union[str, "os.PathLike[str]"] = "/",
        *,
        preserve: bool = True,
    ) -> None:
        """Copies a tree into a directory of the host, which is made if it is missing; with `preserve` as `cp -a`."""
        os.makedirs(target, exist_ok=True)
        self._native.extract(os.fspath(source), os.fspath(target), preserve)


def mkfs(
    device: Any,
    size: Optional[int] = None,
    *,
    label: Optional[str] = None,
    uuid: Optional[str] = None,
    block_size: Optional[int] = None,
    features: Optional[str] = None,
    offset: int = 0,
    source: Optional[Union[str, "os.PathLike[str]"]] = None,
) -> None:
    """Makes a file system of `size` bytes, with the content of the directory or tar `source` if there is one.

    The device is an image file, which is made if it is missing, a block device, or an object as of extant.open.
    """
    named = os.fspath(device) if isinstance(device, os.PathLike) else device
    if size is None and isinstance(named, str) and not os.path.exists(named):
        raise ValueError("a new image needs a size")
    wanted = {"size": size, "label": label, "uuid": uuid, "block_size": block_size, "features": features}
    _native.mkfs(named, offset, wanted)
    if source is not None:
        with open(device, "r+", offset=offset, size=size) as fs:
            fs.import_tree(source)


def open(
    device: Any,
    mode: str = "r",
    *,
    offset: int = 0,
    size: Optional[int] = None,
    partition: Optional[int] = None,
) -> Filesystem:
    """Opens the file system on a device, for reading ("r") or for reading and writing ("r+").

    The device is an image file, a block device, or an object with `size`, `read_at(offset, buffer)` and, if it can be written,
    `write_at(offset, bytes)` and `flush()`, which several threads call at once. The file system begins at `offset`, or is
    the partition of a number.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"invalid mode: {mode!r}; it is 'r' or 'r+'")
    if partition is not None and (offset or size is not None):
        raise ValueError("a partition has its own offset and size")
    return Filesystem(_native.Filesystem(device, mode == "r", offset, size, partition))


@atexit.register
def _close_all() -> None:
    # Threads of the engine may call devices in Python, which ends before they do.
    for fs in list(_open_filesystems):
        fs.close()
