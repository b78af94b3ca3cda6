"""Devices in Python, parts of devices, threads."""

import errno
import threading
import time

import pytest

import extant
from conftest import assert_whole


class Memory:
    def __init__(self, size):
        self.bytes = bytearray(size)
        self.size = size
        self.flushes = 0

    def read_at(self, offset, buffer):
        buffer[:] = self.bytes[offset : offset + len(buffer)]

    def write_at(self, offset, content):
        self.bytes[offset : offset + len(content)] = content

    def flush(self):
        self.flushes += 1


class ReadOnly:
    def __init__(self, memory):
        self.size, self.read_at = memory.size, memory.read_at


def test_object_is_a_device(tmp_path):
    memory = Memory(16 << 20)
    extant.mkfs(memory)
    with extant.open(memory, "r+") as fs:
        (fs / "file").write_bytes(b"x" * 100_000)
    assert memory.flushes > 0
    with extant.open(ReadOnly(memory)) as fs:
        assert (fs / "file").read_bytes() == b"x" * 100_000
    with pytest.raises(OSError) as error:
        extant.open(ReadOnly(memory), "r+")
    assert error.value.errno == errno.EROFS
    image = tmp_path / "memory.img"
    image.write_bytes(memory.bytes)
    assert_whole(str(image))


def test_file_system_that_is_dropped_ends_without_waiting_for_itself():
    memory = Memory(16 << 20)
    extant.mkfs(memory)
    fs = extant.open(memory, "r+")
    (fs / "file").write_bytes(b"x" * 100_000)
    del fs
    with extant.open(memory) as fs:
        assert fs.check() == []


def test_errno_of_a_device_reaches_the_caller():
    memory = Memory(16 << 20)
    extant.mkfs(memory)

    def fails(_offset, _buffer):
        raise OSError(errno.ENOMEDIUM, "gone")

    memory.read_at = fails
    with pytest.raises(OSError) as error:
        extant.open(memory)
    assert error.value.errno in (errno.ENOMEDIUM, errno.EIO)


def test_file_system_at_an_offset(tmp_path):
    path = str(tmp_path / "disk.img")
    extant.mkfs(path, 16 << 20, offset=1 << 20)
    with extant.open(path, "r+", offset=1 << 20) as fs:
        (fs / "file").write_text("at 1 MiB")
    with extant.open(path, offset=1 << 20) as fs:
        assert (fs / "file").read_text() == "at 1 MiB"
    with pytest.raises(OSError):
        extant.open(path)
    with pytest.raises(OSError) as error:
        extant.open(path, partition=1)
    assert error.value.errno == errno.EINVAL


def test_image_in_use_is_busy(image):
    with extant.open(image, "r+"):
        with pytest.raises(OSError) as error:
            extant.open(image, "r+")
        assert error.value.errno == errno.EBUSY


def test_threads_write_files_of_their_own(fs):
    def work(number):
        directory = fs / f"dir{number}"
        directory.mkdir()
        for file in range(50):
            (directory / f"{file}").write_bytes(bytes([number]) * (file * 997))
        for file in range(50):
            assert (directory / f"{file}").read_bytes() == bytes([number]) * (file * 997)
        done.append(number)

    done = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(8))


def test_other_threads_run_while_a_device_waits():
    memory = Memory(16 << 20)
    extant.mkfs(memory)
    entered, go_on = threading.Event(), threading.Event()
    read_at = memory.read_at

    def waits(offset, buffer):
        entered.set()
        assert go_on.wait(30), "no other thread ran"
        read_at(offset, buffer)

    memory.read_at = waits
    opened = []
    thread = threading.Thread(target=lambda: opened.append(extant.open(memory)))
    thread.start()
    assert entered.wait(30)
    time.sleep(0.05)
    go_on.set()
    thread.join(30)
    opened[0].close()
