"""ext4 as a file system of fsspec: `ext4://etc/hostname` with the option `fo="disk.img"`, or `ext4://etc/hostname::file://disk.img`."""

from __future__ import annotations

import stat as st
import threading
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional

from fsspec import open as open_url
from fsspec.spec import AbstractFileSystem

from ._filesystem import Filesystem
from ._filesystem import open as open_filesystem
from ._path import Path


class _FileDevice:
    """A stream of fsspec as a device, for reading."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.size = stream.seek(0, 2)

    def read_at(self, offset: int, buffer: bytearray) -> None:
        with self._lock:
            self._stream.seek(offset)
            buffer[:] = self._stream.read(len(buffer))


class Ext4FileSystem(AbstractFileSystem):
    """The files of an ext4 disk.

    `fo` is an image, as a path, a URL that fsspec reads, an object of extant.open, or a Filesystem. `mode` is "r" or "r+".
    """

    protocol = "ext4"
    root_marker = "/"
    cachable = False

    def __init__(
        self,
        fo: Any = None,
        mode: str = "r",
        target_protocol: Optional[str] = None,
        target_options: Optional[Dict[str, Any]] = None,
        offset: int = 0,
        partition: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(fo, Filesystem):
            self.filesystem = fo
            return
        remote = isinstance(fo, str) and (target_protocol or "file") not in ("file", "local")
        if remote:
            opened = open_url(fo, "rb", protocol=target_protocol, **(target_options or {}))
            fo = _FileDevice(opened.open())
        self.filesystem = open_filesystem(fo, mode, offset=offset, partition=partition)

    def _path(self, path: str) -> Path:
        return self.filesystem.path(self._strip_protocol(path))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = super()._strip_protocol(path)
        return path if path.startswith("/") else f"/{path}"

    def _info(self, path: Path) -> Dict[str, Any]:
        found = path.lstat()
        is_link = st.S_ISLNK(found.st_mode)
        if is_link and path.exists():
            found = path.stat()
        kinds = {st.S_IFDIR: "directory", st.S_IFREG: "file"}
        info = {
            "name": str(path),
            "size": found.st_size,
            "type": kinds.get(st.S_IFMT(found.st_mode), "other"),
            "islink": is_link,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "mtime": found.st_mtime,
        }
        if is_link:
            info["destination"] = str(path.readlink())
        return info

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        return self._info(self._path(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        at = self._path(path)
        infos = [self._info(child) for child in at.iterdir()] if at.is_dir() else [self._info(at)]
        return infos if detail else sorted(info["name"] for info in infos)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self._path(path).mkdir(parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._path(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self._path(path).rmdir()

    def rm_file(self, path: str) -> None:
        self._path(path).unlink()

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        for one in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            at = self._path(one)
            if at.is_dir() and not at.is_symlink():
                if not recursive:
                    raise IsADirectoryError(one)
                at.rmdir()
            else:
                at.unlink()

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._path(path1), self._path(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as reader, target.open("wb") as writer:
            while piece := reader.read(1 << 20):
                writer.write(piece)

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._path(path1).rename(self._path(path2))

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        at = self._path(path)
        if mode[0] in "wxa":
            # Object stores have no directories: callers expect those above a new file to come with it.
            at.parent.mkdir(parents=True, exist_ok=True)
        return at.open(mode)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        at = self._path(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.touch()
        if truncate:
            at.write_bytes(b"")

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._path(path).stat().st_mtime, tz=timezone.utc)

    def created(self, path: str) -> datetime:
        at = self._path(path)
        return datetime.fromtimestamp((at.birthtime_ns() or at.stat().st_ctime_ns) / 1e9, tz=timezone.utc)
