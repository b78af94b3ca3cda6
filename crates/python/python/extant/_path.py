"""Paths in the manner of pathlib."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat as st
import time
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Iterator, List, Optional, Tuple, Union

from ._stream import RawFile, flags_of, stream_of

if TYPE_CHECKING:
    from ._filesystem import Filesystem

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
PathLike = Union[str, "os.PathLike[str]", "Path"]


class Path:
    """An absolute path on a file system. Its methods have the meaning of pathlib.Path."""

    __slots__ = ("_fs", "_pure")

    def __init__(self, fs: "Filesystem", *parts: PathLike) -> None:
        self._fs = fs
        self._pure = PurePosixPath("/", *(str(part) if isinstance(part, Path) else part for part in parts))

    def __fspath__(self) -> str:
        raise TypeError("a path on a disk image is no path of the host")

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"extant.Path({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self._fs is other._fs and self._pure == other._pure

    def __lt__(self, other: "Path") -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash((id(self._fs), self._pure))

    def __truediv__(self, part: PathLike) -> "Path":
        return Path(self._fs, self._pure, part)

    @property
    def filesystem(self) -> "Filesystem":
        """The file system of this path."""
        return self._fs

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def suffixes(self) -> List[str]:
        return self._pure.suffixes

    @property
    def parts(self) -> Tuple[str, ...]:
        return self._pure.parts

    @property
    def parent(self) -> "Path":
        return Path(self._fs, self._pure.parent)

    @property
    def parents(self) -> Tuple["Path", ...]:
        return tuple(Path(self._fs, parent) for parent in self._pure.parents)

    def joinpath(self, *parts: PathLike) -> "Path":
        return Path(self._fs, self._pure, *parts)

    def with_name(self, name: str) -> "Path":
        return Path(self._fs, self._pure.with_name(name))

    def with_suffix(self, suffix: str) -> "Path":
        return Path(self._fs, self._pure.with_suffix(suffix))

    def relative_to(self, other: PathLike) -> PurePosixPath:
        return self._pure.relative_to(str(other))

    def match(self, pattern: str) -> bool:
        return self._pure.match(pattern)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        mode, inode, links, uid, gid, size, blocks, atime, mtime, ctime, _ = self._fs._native.stat(
            str(self), follow_symlinks
        )
        times = (atime, mtime, ctime)
        # The order of os.stat_result: whole seconds, seconds, nanoseconds; then st_blksize, st_blocks, st_rdev.
        whole = [t // 10**9 for t in times]
        return os.stat_result(
            (mode, inode, 0, links, uid, gid, size, *whole, *(t / 1e9 for t in times), *times, 4096, blocks, 0)
        )

    def lstat(self) -> os.stat_result:
        return self.stat(follow_symlinks=False)

    def birthtime_ns(self) -> Optional[int]:
        """When the file was made, in nanoseconds; none if its inode has no room for it."""
        return self._fs._native.stat(str(self), True)[10]

    def _mode(self, follow: bool = True) -> int:
        try:
            return self.stat(follow_symlinks=follow).st_mode
        except OSError as error:
            if error.errno not in _MISSING:
                raise
            return 0

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self._mode(follow_symlinks) != 0

    def is_dir(self) -> bool:
        return st.S_ISDIR(self._mode())

    def is_file(self) -> bool:
        return st.S_ISREG(self._mode())

    def is_symlink(self) -> bool:
        return st.S_ISLNK(self._mode(follow=False))

    def iterdir(self) -> Iterator["Path"]:
        for name in self._fs._native.listdir(str(self)):
            yield Path(self._fs, self._pure, name)

    def walk(
        self, top_down: bool = True, follow_symlinks: bool = False
    ) -> Iterator[Tuple["Path", List[str], List[str]]]:
        """As pathlib.Path.walk: each directory with the names of the directories and of the other files in it."""
        waiting: List[Any] = [self]
        while waiting:
            at = waiting.pop()
            if isinstance(at, tuple):
                yield at
                continue
            directories, files = [], []
            for entry in at.iterdir():
                is_directory = st.S_ISDIR(entry._mode(follow_symlinks))
                (directories if is_directory else files).append(entry.name)
            if top_down:
                yield at, directories, files
            else:
                waiting.append((at, directories, files))
            waiting.extend(at / name for name in reversed(directories))

    def glob(self, pattern: str) -> Iterator["Path"]:
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        seen = set()
        for found in self._select(parts):
            if found not in seen:
                seen.add(found)
                yield found

    def rglob(self, pattern: str) -> Iterator["Path"]:
        return self.glob(f"**/{pattern}")

    def _select(self, parts: Tuple[str, ...]) -> Iterator["Path"]:
        if not parts:
            yield self
        elif parts[0] == "**":
            for at, _, _ in self.walk():
                yield from at._select(parts[1:])
        elif not any(letter in parts[0] for letter in "*?["):
            child = self / parts[0]
            if child.exists(follow_symlinks=False):
                yield from child._select(parts[1:])
        elif self.is_dir():
            for child in self.iterdir():
                if fnmatch.fnmatchcase(child.name, parts[0]):
                    yield from child._select(parts[1:])

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> IO[Any]:
        """As the built-in open; text is UTF-8 unless `encoding` says otherwise."""
        flags = flags_of(mode)
        file = self._fs._native.open_file(str(self), flags, 0o644)
        return stream_of(RawFile(file, str(self), flags), mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return file.read()

    def read_text(self, encoding: Optional[str] = None, errors: Optional[str] = None) -> str:
        with self.open("r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_bytes(self, content: Any) -> int:
        with self.open("wb") as file:
            return file.write(content)

    def write_text(self, text: str, encoding: Optional[str] = None, errors: Optional[str] = None) -> int:
        with self.open("w", encoding=encoding, errors=errors) as file:
            return file.write(text)

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        try:
            self._fs._native.mkdir(str(self), mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        self._fs._native.rmdir(str(self))

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._fs._native.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: PathLike) -> "Path":
        to = self.parent / target
        self._fs._native.rename(str(self), str(to))
        return to

    replace = rename

    def symlink_to(self, target: PathLike) -> None:
        self._fs._native.symlink(str(target), str(self))

    def hardlink_to(self, target: PathLike) -> None:
        self._fs._native.link(str(self.parent / target), str(self))

    def readlink(self) -> PurePosixPath:
        return PurePosixPath(self._fs._native.readlink(str(self)))

    def chmod(self, mode: int) -> None:
        self._fs._native.chmod(str(self), mode)

    def chown(self, uid: int = -1, gid: int = -1, *, follow_symlinks: bool = True) -> None:
        """As os.chown: -1 leaves the owner or the group."""
        self._fs._native.chown(
            str(self), None if uid == -1 else uid, None if gid == -1 else gid, follow_symlinks
        )

    def utime(self, atime_ns: int, mtime_ns: int, *, follow_symlinks: bool = True) -> None:
        """Sets the times of access and of change of the content, in nanoseconds."""
        self._fs._native.utime(str(self), atime_ns, mtime_ns, follow_symlinks)

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self._fs._native.open_file(str(self), flags, mode)
        except FileExistsError:
            if not exist_ok:
                raise
            now = time.time_ns()
            self.utime(now, now)

    def get_xattr(self, name: str, *, follow_symlinks: bool = True) -> bytes:
        return self._fs._native.getxattr(str(self), name, follow_symlinks)

    def set_xattr(self, name: str, value: bytes, *, follow_symlinks: bool = True) -> None:
        self._fs._native.setxattr(str(self), name, value, follow_symlinks)

    def remove_xattr(self, name: str, *, follow_symlinks: bool = True) -> None:
        self._fs._native.removexattr(str(self), name, follow_symlinks)

    def list_xattrs(self, *, follow_symlinks: bool = True) -> List[str]:
        return self._fs._native.listxattr(str(self), follow_symlinks)
