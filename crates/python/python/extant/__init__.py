"""ext4 in user space: file systems of Linux, made, read, written and checked without a mount and without root."""

from ._filesystem import Filesystem, mkfs, open
from ._native import __version__
from ._path import Path

__all__ = ["Filesystem", "Path", "__version__", "mkfs", "open"]
