"""Damaged disks: every use of one succeeds or raises OSError."""

import os
import random
import shutil

import extant

SEED = int(os.environ.get("EXTANT_SEED", "1"))
DISKS = int(os.environ.get("EXTANT_PYTHON_DISKS", "150"))


def use(image):
    with extant.open(image, "r+") as fs:
        fs.check()
        seen = 0
        for at, _, files in fs.root.walk():
            seen += 1
            if seen > 200:
                break
            for name in files:
                path = at / name
                try:
                    path.stat()
                    path.list_xattrs()
                    path.read_bytes()
                except OSError:
                    pass
        (fs / "new").mkdir()
        (fs / "new/file").write_bytes(b"x" * 10_000)
        fs.sync()


def test_damaged_disk_raises_only_oserror(tmp_path):
    print(f"EXTANT_SEED={SEED}")
    whole, damaged = str(tmp_path / "whole.img"), str(tmp_path / "damaged.img")
    extant.mkfs(whole, 8 << 20)
    with extant.open(whole, "r+") as fs:
        for number in range(40):
            (fs / f"d{number % 4}").mkdir(exist_ok=True)
            (fs / f"d{number % 4}/f{number}").write_bytes(b"y" * (number * 300))
    with open(whole, "rb") as file:
        content = file.read()
    used = [block for block in range(0, len(content), 1024) if any(content[block : block + 1024])]
    dice = random.Random(SEED)
    refused = 0
    for _ in range(DISKS):
        shutil.copyfile(whole, damaged)
        with open(damaged, "r+b") as file:
            for _ in range(dice.randint(1, 8)):
                file.seek(dice.choice(used) + dice.randrange(1024))
                file.write(dice.randbytes(dice.choice((1, 2, 4, 16))))
        try:
            use(damaged)
        except OSError as error:
            assert error.errno
            refused += 1
    assert 0 < refused < DISKS
