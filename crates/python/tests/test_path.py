"""Paths, streams, attributes."""

import errno
import io
import os
import stat

import pytest

import extant


def test_path_has_the_parts_of_pathlib(fs):
    path = fs / "etc" / "init.d" / "net.tar.gz"
    assert (str(path), path.name, path.suffix, path.stem) == ("/etc/init.d/net.tar.gz", "net.tar.gz", ".gz", "net.tar")
    assert path.parent == fs.path("/etc/init.d") and len(path.parents) == 3


def test_content_survives_closing(image):
    with extant.open(image, "r+") as fs:
        (fs / "a" / "b").mkdir(parents=True)
        (fs / "a/b/text").write_text("grüße\n")
        (fs / "a/bytes").write_bytes(bytes(range(256)) * 4096)
    with extant.open(image) as fs:
        assert fs.label == "data" and fs.read_only
        assert (fs / "a/b/text").read_text() == "grüße\n"
        assert (fs / "a/bytes").read_bytes() == bytes(range(256)) * 4096
        with pytest.raises(OSError) as refused:
            (fs / "new").write_text("")
        assert refused.value.errno == errno.EROFS
    with pytest.raises(ValueError):
        fs.sync()


def test_stream_reads_writes_and_seeks_as_the_built_in_one(fs, tmp_path):
    def use(open_it):
        seen = []
        with open_it("w+b") as file:
            seen += [file.write(b"0123456789" * 1000), file.seek(-5, io.SEEK_END), file.read(), file.seek(5000)]
            seen += [file.write(b"x"), file.truncate(5003), file.tell()]
        with open_it("ab") as file:
            seen += [file.write(b"end"), file.tell()]
        with open_it("rb", 0) as file:
            seen += [file.readall(), file.readable(), file.writable()]
            with pytest.raises(io.UnsupportedOperation):
                file.write(b"")
        with open_it("r") as file:
            seen.append(file.readlines())
        with pytest.raises(FileExistsError):
            open_it("x")
        for mode in ("", "rw", "rbt", "q", "rr"):
            with pytest.raises(ValueError):
                open_it(mode)
        return seen

    host = str(tmp_path / "file")
    assert use((fs / "file").open) == use(lambda *arguments: open(host, *arguments))


def test_errors_are_those_of_the_errno_and_name_the_file(fs):
    (fs / "dir").mkdir()
    (fs / "dir" / "file").touch()
    for act, kind in [
        (lambda: (fs / "none").read_bytes(), FileNotFoundError),
        (lambda: (fs / "dir").mkdir(), FileExistsError),
        (lambda: (fs / "dir").read_bytes(), IsADirectoryError),
        (lambda: list((fs / "dir/file").iterdir()), NotADirectoryError),
    ]:
        with pytest.raises(kind) as error:
            act()
        assert str(error.value.filename).startswith("/")
    with pytest.raises(OSError) as error:
        (fs / "dir").rmdir()
    assert (error.value.errno, error.value.filename) == (errno.ENOTEMPTY, "/dir")
    with pytest.raises(FileNotFoundError) as error:
        (fs / "none").rename("other")
    assert (error.value.filename, error.value.filename2) == ("/none", "/other")


def test_attributes_are_kept(fs):
    path = fs / "file"
    path.write_bytes(b"x" * 5000)
    path.chmod(0o4640)
    path.chown(7, 8)
    path.chmod(0o4640)
    path.utime(1_500_000_000_123_456_789, -1_000_000_001)
    found = path.stat()
    assert (stat.S_ISREG(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o4640)
    assert (found.st_uid, found.st_gid, found.st_size, found.st_nlink) == (7, 8, 5000, 1)
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_500_000_000_123_456_789, -1_000_000_001)
    assert found.st_blocks == 16
    path.chown(gid=9)
    assert (path.stat().st_uid, path.stat().st_gid) == (7, 9)


def test_links(fs):
    (fs / "file").write_text("content")
    (fs / "soft").symlink_to("file")
    (fs / "hard").hardlink_to("file")
    (fs / "dangling").symlink_to("/none")
    assert (fs / "soft").is_symlink() and (fs / "soft").read_text() == "content"
    assert str((fs / "soft").readlink()) == "file"
    assert (fs / "hard").stat().st_nlink == 2
    assert not (fs / "dangling").exists() and (fs / "dangling").is_symlink()
    (fs / "hard").unlink()
    (fs / "hard").unlink(missing_ok=True)
    assert (fs / "file").replace("moved") == fs / "moved" and not (fs / "file").exists()


def test_tree_is_walked_and_globbed_as_on_the_host(fs, tmp_path):
    host = tmp_path / "tree"
    for root in (fs.root, host):
        for name in ("a/b/c", "a/d", "e"):
            (root / name).mkdir(parents=True)
        for name in ("a/one.py", "a/b/two.py", "a/b/c/three.txt", "e/four.py"):
            (root / name).write_text(name)
    (fs / "lost+found").rmdir()
    for pattern in ("*", "*/*.py", "**/*.py", "a/[bd]", "**/c/*"):
        ours = sorted(str(path)[1:] for path in fs.root.glob(pattern) if path.is_file())
        theirs = sorted(str(path.relative_to(host)) for path in host.glob(pattern) if path.is_file())
        assert ours == theirs, pattern
    assert len(list(fs.root.rglob("*.py"))) == 3
    for top_down in (True, False):
        ours = [(str(at), sorted(dirs), sorted(files)) for at, dirs, files in fs.root.walk(top_down)]
        theirs = [
            ("/" + os.path.relpath(at, host).lstrip("."), sorted(dirs), sorted(files))
            for at, dirs, files in os.walk(str(host), topdown=top_down)
        ]
        assert sorted(ours) == sorted(theirs)
        assert ours[0 if top_down else -1][0] == "/"


def test_xattrs(fs):
    path = fs / "file"
    path.touch()
    path.set_xattr("user.key", b"\0value")
    path.set_xattr("user.empty", b"")
    assert sorted(path.list_xattrs()) == ["user.empty", "user.key"]
    assert path.get_xattr("user.key") == b"\0value"
    path.remove_xattr("user.key")
    with pytest.raises(OSError) as error:
        path.get_xattr("user.key")
    assert error.value.errno == errno.ENODATA


def test_name_that_is_not_utf8_is_kept(fs):
    name = os.fsdecode(b"caf\xe9")
    (fs / name).write_text("x")
    assert name in [path.name for path in fs.root.iterdir()]
    assert (fs / name).read_text() == "x"
