"""Trees in and out."""

import io
import os
import tarfile

import extant


def make_tar(path):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in (("etc/hostname", b"guest\n"), ("bin/tool", b"x" * 70_000)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o640
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("bin/link")
        link.type, link.linkname = tarfile.SYMTYPE, "tool"
        tar.addfile(link)


def test_tar_goes_in_and_out(fs, tmp_path):
    make_tar(str(tmp_path / "in.tar.gz"))
    assert fs.import_tree(str(tmp_path / "in.tar.gz")) >= 3
    assert (fs / "etc/hostname").read_text() == "guest\n"
    assert (fs / "etc/hostname").stat().st_mode & 0o777 == 0o640
    fs.export_tar(str(tmp_path / "out.tar"), "/bin")
    with tarfile.open(str(tmp_path / "out.tar")) as tar:
        members = {os.path.normpath(member.name): member for member in tar}
        assert members["link"].linkname == "tool" and members["tool"].size == 70_000


def test_tree_is_extracted(fs, tmp_path):
    (fs / "a/b").mkdir(parents=True)
    (fs / "a/b/file").write_bytes(b"content")
    (fs / "a/link").symlink_to("b/file")
    fs.extract(tmp_path / "out", "/a")
    assert (tmp_path / "out/b/file").read_bytes() == b"content"
    assert os.readlink(tmp_path / "out/link") == "b/file"


def test_mkfs_takes_a_directory(tmp_path):
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/file").write_text("content")
    image = tmp_path / "disk.img"
    extant.mkfs(image, 16 << 20, source=tmp_path / "tree")
    with extant.open(image) as fs:
        assert (fs / "sub/file").read_text() == "content"
        assert fs.check() == []
