"""What the tests share."""

import shutil
import subprocess

import pytest

import extant


@pytest.fixture
def image(tmp_path):
    path = str(tmp_path / "disk.img")
    extant.mkfs(path, 32 << 20, label="data")
    return path


@pytest.fixture
def fs(image):
    with extant.open(image, "r+") as fs:
        yield fs
    assert_whole(image)


def assert_whole(image):
    """e2fsck finds nothing wrong, and nothing to replay."""
    e2fsck = shutil.which("e2fsck", path="/sbin:/usr/sbin:/usr/bin:/bin")
    assert e2fsck, "install e2fsprogs"
    result = subprocess.run([e2fsck, "-fn", image], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert "Fix?" not in result.stdout and "WARNING" not in result.stdout, result.stdout
