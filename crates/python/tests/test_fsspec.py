"""fsspec's own suite."""

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import extant
from extant.fsspec import Ext4FileSystem


class Ext4Fixtures(AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, tmp_path_factory):
        image = str(tmp_path_factory.mktemp("fsspec") / "disk.img")
        extant.mkfs(image, 32 << 20)
        fs = Ext4FileSystem(image, "r+")
        yield fs
        fs.filesystem.close()

    @pytest.fixture
    def fs_path(self):
        return "/work"


class TestCopy(AbstractCopyTests, Ext4Fixtures):
    pass


class TestGet(AbstractGetTests, Ext4Fixtures):
    pass


class TestOpen(AbstractOpenTests, Ext4Fixtures):
    pass


class TestPipe(AbstractPipeTests, Ext4Fixtures):
    pass


class TestPut(AbstractPutTests, Ext4Fixtures):
    pass


def test_url_opens_a_file_of_an_image(image):
    with extant.open(image, "r+") as fs:
        (fs / "etc").mkdir()
        (fs / "etc/hostname").write_text("guest\n")
    with fsspec.open("ext4://etc/hostname", "r", fo=image) as file:
        assert file.read() == "guest\n"
    with fsspec.open(f"ext4://etc/hostname::file://{image}", "r") as file:
        assert file.read() == "guest\n"
    memory = fsspec.filesystem("memory")
    memory.put_file(image, "/disk.img")
    with fsspec.open("ext4://etc/hostname::memory://disk.img", "r") as file:
        assert file.read() == "guest\n"
