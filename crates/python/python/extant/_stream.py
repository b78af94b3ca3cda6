"""Open files as streams of the module io."""

from __future__ import annotations

import io
import os
from typing import IO, Any, Optional

from . import _native


class RawFile(io.RawIOBase):
    """An open file with a position."""

    def __init__(self, file: _native.File, name: str, flags: int) -> None:
        self._file: Optional[_native.File] = file
        self.name = name
        self._flags = flags
        self._position = file.size() if flags & os.O_APPEND else 0

    def _open(self) -> _native.File:
        if self._file is None:
            raise ValueError("I/O operation on closed file")
        return self._file

    def readable(self) -> bool:
        self._open()
        return self._flags & os.O_ACCMODE != os.O_WRONLY

    def writable(self) -> bool:
        self._open()
        return self._flags & os.O_ACCMODE != os.O_RDONLY

    def seekable(self) -> bool:
        self._open()
        return True

    def readinto(self, buffer: Any) -> int:
        file = self._open()
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        view = memoryview(buffer).cast("B")
        content = file.read_at(self._position, len(view))
        view[: len(content)] = content
        self._position += len(content)
        return len(content)

    def write(self, content: Any) -> int:
        file = self._open()
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        written = file.write_at(self._position, bytes(memoryview(content).cast("B")))
        self._position = file.size() if self._flags & os.O_APPEND else self._position + written
        return written

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        file = self._open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"invalid whence: {whence}")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        position = (file.size() if base is None else base) + offset
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        self._open()
        return self._position

    def truncate(self, size: Optional[int] = None) -> int:
        size = self._position if size is None else size
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        self._open().set_size(size)
        return size

    def sync(self) -> None:
        """Makes what was written durable."""
        self._open().sync()

    def close(self) -> None:
        super().close()
        self._file = None


_FLAGS = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}


def flags_of(mode: str) -> int:
    """The flags of open(2) for a mode of the built-in open."""
    letters = set(mode)
    kinds = letters & set(_FLAGS)
    if len(letters) != len(mode) or letters - set("rwxabt+") or len(kinds) != 1 or {"b", "t"} <= letters:
        raise ValueError(f"invalid mode: {mode!r}")
    (kind,) = kinds
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if kind == "r" else os.O_WRONLY
    return access | _FLAGS[kind]


def stream_of(
    raw: RawFile,
    mode: str,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
) -> IO[Any]:
    """Buffers, and text, as the built-in open puts them above a raw file."""
    if "b" in mode and buffering == 0:
        return raw  # type: ignore[return-value]
    if buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    size = buffering if buffering > 1 else 128 << 10
    buffered: Any
    if "+" in mode:
        buffered = io.BufferedRandom(raw, size)
    elif raw.readable():
        buffered = io.BufferedReader(raw, size)
    else:
        buffered = io.BufferedWriter(raw, size)
    if "b" in mode:
        return buffered
    return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)
