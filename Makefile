# Everything a newcomer needs: `make demo`, `make test`, `make install`.

CARGO ?= cargo
PREFIX ?= /usr/local
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# A static binary for a target, the host's by default: then its own C library is linked, and no other toolchain is needed.
STATIC := RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --locked -p extant-cli --target-dir target/static --target
STATIC_TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl
# Rust's own linker serves every target.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER := rust-lld
# The cryptography of TLS has C and assembly that need no C library.
export CC_x86_64_unknown_linux_musl := gcc
export CC_aarch64_unknown_linux_musl := aarch64-linux-gnu-gcc
export AR_aarch64_unknown_linux_musl := aarch64-linux-gnu-ar

# What the programs below call, as COMMAND:PACKAGE.
BUILD_TOOLS := cc:gcc
TEST_TOOLS := $(BUILD_TOOLS) c++:g++ pkg-config:pkgconf mke2fs:e2fsprogs setfattr:attr setfacl:acl setcap:libcap2-bin losetup:mount setpriv:util-linux nsenter:util-linux genext2fs:genext2fs setfiles:policycoreutils fsverity:fsverity fakeroot:fakeroot tar:tar xz:xz-utils bzip2:bzip2 time:time mkfs.xfs:xfsprogs umoci:umoci skopeo:skopeo git:git jq:jq sfdisk:fdisk sgdisk:gdisk lvm:lvm2 mkfs.fat:dosfstools mkfs.exfat:exfatprogs mkfs.f2fs:f2fs-tools mksquashfs:squashfs-tools veritysetup:cryptsetup-bin qemu-img:qemu-utils zsh:zsh man:man-db openssl:openssl nbdkit:nbdkit nbd-server:nbd-server nbdcopy:libnbd-bin
PATH := $(PATH):/usr/sbin:/sbin
export PATH

.PHONY: all build test test-host test-runtimes test-package check-api install-capi test-capi test-python test-virtual test-lab test-linux-model test-ladder test-checked test-schedules test-threads test-errors test-crashes test-tune-crashes test-chains test-quota test-online-growth test-contexts fuzz mutations fuzz-structures test-exchange test-disk-images test-nbd test-ceph test-layers test-labels test-images test-boot soak test-guide-lab lint demo install install-names static test-static check-portable setup-portable test-windows test-wasi test-same-bytes deb dist test-newcomer test-drop-in bench bench-layout bench-disk-images bench-nbd ladder conflicts instructions bench-machine scan-policies bench-scale bench-pages test-mount test-fsx test-fsstress xfstests test-scale bench-mount lab results deny setup-build setup-test clean test-s3 bench-latency
all: build

setup-build:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.88 or later (rustup.rs, or the package rustc)" >&2; exit 1; }
	@scripts/setup $(BUILD_TOOLS)

setup-test: setup-build
	@scripts/setup $(TEST_TOOLS)

build: setup-build
	$(CARGO) build --release --locked -p extant-cli

# Formatting, lints and every test; some half an hour on two cores.
test: setup-test lint
	$(MAKE) -j 2 test-host test-runtimes

test-host:
	$(CARGO) test --workspace --locked

# Built while the tests of the host wait for timers and disks.
test-runtimes:
	$(MAKE) -j 1 test-linux-model
	$(MAKE) -j 1 test-virtual
	$(MAKE) -j 1 test-checked

# The forms of older kernels beside the allocator's own, in a target directory of their own: a --cfg changes every crate.
LINUX_MODEL := RUSTFLAGS='--cfg extant_linux_model' $(CARGO)
LINUX_MODEL_BENCH := $(LINUX_MODEL) run --release --locked --target-dir target/linux-model -p extant-bench --
test-linux-model:
	$(LINUX_MODEL) test --locked --target-dir target/linux-model -p extant-alloc

# The same forms under the engine and on the ladder: 5 minutes, most of it to build.
test-ladder: setup-test
	$(LINUX_MODEL) clippy --locked --target-dir target/linux-model -p extant-alloc -p extant-loads --all-targets -- -D warnings
	$(LINUX_MODEL) test --locked --target-dir target/linux-model -p extant-loads
	$(LINUX_MODEL) test --locked --target-dir target/linux-model -p extant --lib -- tests::prealloc tests::creators

# The runtime of virtual CPUs with these forms, likewise.
VIRTUAL := RUSTFLAGS='--cfg extant_rt="virtual" --cfg extant_linux_model' $(CARGO)
test-virtual:
	$(VIRTUAL) test --locked --target-dir target/virtual -p extant-rt
	$(VIRTUAL) test --locked --target-dir target/virtual -p extant-block --test modelled
	$(VIRTUAL) test --locked --target-dir target/virtual -p extant-writeback --test timing
	$(VIRTUAL) test --locked --target-dir target/virtual -p extant-lab --bins --test conflicts --test runs

# All tests of the lab, the published rows and policies of one's own among them; 10 minutes, half of it to build.
test-lab: setup-build
	$(VIRTUAL) test --release --locked --target-dir target/virtual -p extant-lab

# The engine on virtual CPUs: target/virtual/release/extant-lab.
lab: setup-build
	$(VIRTUAL) build --release --locked -p extant-lab --target-dir target/virtual

# The runtime whose schedules shuttle chooses, likewise, and a few schedules of each test.
CHECKED := RUSTFLAGS='--cfg extant_rt="shuttle" --cfg extant_linux_model' $(CARGO) test --locked --target-dir target/shuttle -p extant -p extant-alloc -p extant-journal -p extant-writeback --test schedules
test-checked:
	$(CHECKED) -p extant-rt --test checked

# 100,000 random schedules and 100,000 by priorities for each test; EXTANT_REPLAY=FILE TEST=NAME runs the one that failed.
test-schedules: setup-build
	EXTANT_SCHEDULES=$${EXTANT_SCHEDULES:-100000} $(CHECKED) -- $(TEST)

# Sixteen threads on filling disks for ten minutes, then 100 disks filled to the last block and inode; images on /dev/shm.
test-threads: setup-test
	EXTANT_THREADS_SECONDS=$${EXTANT_THREADS_SECONDS:-600} EXTANT_FILL_SEEDS=$${EXTANT_FILL_SEEDS:-100} \
	$(CARGO) test --locked -p extant --test threads -- --nocapture --test-threads 1

# The device fails at every read, write and flush of 372 short sequences, in turn, and at requests of 4,000 runs of threads with the
# background threads on; 5 minutes.
test-errors: setup-test
	EXTANT_CRASH_SCALE=2 $(CARGO) test --locked -p extant --test crash errors:: -- --nocapture

# Crashes of every sequence of one and two operations, of a sample of three, of all pairs of operations on open files
# without names, of long ones and of threads; more than 200,000 images.
test-crashes: setup-test
	EXTANT_CRASH_SCALE=9 $(CARGO) test --locked -p extant --test crash -- --nocapture
	EXTANT_CRASH_SCALE=3 $(CARGO) test --locked -p extant --test resize --test defrag --test fast_commit -- --nocapture

# Crashes after every request of each change that `tune` makes, with up to 80 choices of what survives, and failures of its requests;
# 11,599 different images, 7 minutes on two cores that others use too.
test-tune-crashes: setup-test
	EXTANT_TUNE_CRASHES=all $(CARGO) test --locked -p extant --test tune -- --nocapture crash staged

# 100 random disks through chains of 8 of what changes whole disks, by Extant, e2fsprogs and the kernel; 6 minutes. EXTANT_CHAINS=N
# EXTANT_CHAINS_FROM=SEED: others.
test-chains: setup-test
	EXTANT_CHAINS=$${EXTANT_CHAINS:-100} EXTANT_CHAINS_FROM=$${EXTANT_CHAINS_FROM:-1} $(CARGO) test --locked -p extant --test resize chains:: -- --nocapture

# Writeback contexts change every 100 ms under writers for a minute, on an idle machine.
test-contexts: setup-build
	EXTANT_CONTEXTS_SECONDS=$${EXTANT_CONTEXTS_SECONDS:-60} $(CARGO) test --release --locked -p extant --test contexts -- --nocapture

# Damaged disks for as long as wished: make fuzz SECONDS=3600 FROM=1000000
SECONDS := 60
fuzz: setup-test
	EXTANT_FUZZ_SECONDS=$(SECONDS) EXTANT_FUZZ_FROM=$${FROM:-0} $(CARGO) test --locked -p extant --test check fuzz:: -- --nocapture

# Mutated metadata of LVM, and mutated disks through every verb and through mounts: make mutations COUNT=2400 FROM=1000; 10 minutes on two idle cores.
# Mounts need root and /dev/fuse.
COUNT := 2400
mutations: setup-test
	EXTANT_LVM_MUTATIONS=$$((20 * $(COUNT))) $(CARGO) test --locked -p extant-block --test lvm any_damage -- --nocapture
	EXTANT_MUTATIONS=$(COUNT) EXTANT_MUTATIONS_FROM=$${FROM:-1000} $(CARGO) test --locked -p extant-cli --test mutations -- --nocapture

# Structures and logs with changed fields and right checksums: damaged disks of 28 layouts for 500 s through the library, STRUCTURES more
# disks and as many archives through all that walks trees, and mutated disks through commands and mounts; 20 minutes for 10,000 disks.
STRUCTURES := 2000
fuzz-structures: setup-test
	EXTANT_FUZZ_TREES=$(STRUCTURES) EXTANT_FUZZ_FROM=$${FROM:-1000} $(CARGO) test --locked -p extant-archive --test fuzz -- --nocapture
	$(MAKE) fuzz SECONDS=500 FROM=$${FROM:-100000}
	$(MAKE) mutations COUNT=300

# Disk image formats beside qemu-img, ten times as long: crashes, random writes, 2,000 images with changed fields of qcow2 and 10,000 of
# the others; then the tests of mounts on qcow2 images, but those that look at the bytes of a raw one. Mounts need root and /dev/fuse; 6 minutes.
test-disk-images: setup-test
	EXTANT_DISKIMAGE_SCALE=$${EXTANT_DISKIMAGE_SCALE:-10} $(CARGO) test --locked -p extant-diskimage
	EXTANT_TEST_FORMAT=qcow2 $(CARGO) test --locked -p extant-cli --test mount -- $(patsubst %,--skip %,$(RAW_ONLY))
RAW_ONLY := claimed:: network:: damaged:: growing:: swap:: damage_stops label_is_read partitions_are statfs_tells time_of_birth

# The running kernel and Extant change one disk in turn, on disks of 60 random sets of features; needs root and loop devices.
test-exchange: setup-test
	EXTANT_EXCHANGE_SETS=60 $(CARGO) test --locked -p extant --test exchange -- --nocapture

# 500 pairs of random disks, each beside its copy that was changed: base and layer give the disk; 5 minutes.
test-layers: setup-test
	EXTANT_LAYERS=$${EXTANT_LAYERS:-500} EXTANT_LAYERS_FROM=$${FROM:-1000} $(CARGO) test --locked -p extant-archive --test layers base_and_layer -- --nocapture

# 50,000 paths by the rules of Debian's policy, beside setfiles; needs root and the package selinux-policy-default; 2 minutes.
test-labels: setup-test
	$(CARGO) test --locked -p extant-cli --test command labels -- --ignored --nocapture

# Disks from 16 container images of many kinds, each compared in every attribute with the tree that umoci unpacks, or bsdtar; needs root,
# loop devices, a mirror of Debian and 10 GiB in DIR; 10 minutes.
DIR := target
test-images: setup-test build
	@scripts/setup mmdebstrap:mmdebstrap bsdtar:libarchive-tools busybox:busybox-static buildah:buildah openssl:openssl
	scripts/container-images $(DIR) target/release/extant

# A guest boots from a disk made of a container image, is killed while it writes, and its changes become a layer; another one boots from a disk
# in qcow2 of qemu-img after each edit of it in place, and its changes are read; downloads a kernel of Debian into DIR, needs root and loop
# devices; 2 minutes.
test-boot: setup-test build
	@scripts/setup qemu-system-x86_64:qemu-system-x86 busybox:busybox-static
	scripts/test-boot $(DIR) target/release/extant

# 100,000 random steps on a disk that counts users, groups and projects, of the library, a mount and the kernel in turn, and limits that
# refuse the same steps in all three. The kernel is one of Debian in a guest, downloaded into DIR; needs root, /dev/fuse and 20 minutes.
test-quota: setup-test build
	@scripts/setup qemu-system-x86_64:qemu-system-x86 busybox:busybox-static
	EXTANT_GUEST_KERNEL=$$(scripts/guest-kernel $(DIR)) EXTANT_QUOTA_STEPS=$${EXTANT_QUOTA_STEPS:-100000} \
	$(CARGO) test --locked -p extant-cli --test mount quotas:: -- --nocapture --test-threads 1

# 13 disks that Extant grew and shrank grow further while a kernel has them mounted, and the other way round, up to 6 TiB. The kernel is one
# of Debian in a guest, downloaded into DIR; 3 minutes.
test-online-growth: setup-test
	@scripts/setup qemu-system-x86_64:qemu-system-x86 busybox:busybox-static
	EXTANT_GUEST_KERNEL=$$(scripts/guest-kernel $(DIR)) $(CARGO) test --locked -p extant --test resize online:: -- --nocapture

# Writers on a mount whose server is killed 20 times; needs root, /dev/fuse and half an hour.
soak: setup-test build
	scripts/soak target/release/extant

# The commands of docs/guides/compare-a-policy.md in a copy of the source: two builds of the lab and a policy beside others; 10 minutes.
test-guide-lab: setup-test build
	RUN_BY="make test-guide-lab" TIMEOUT=3600 scripts/run-guides target/release/extant docs/guides/compare-a-policy.md

# The programs of the C library under valgrind and with sanitizers, a program in Go where it is installed, and the commands of
# docs/guides/use-from-c.md in a copy of the source; 10 minutes, most of it to build.
test-capi: setup-test build
	@scripts/setup valgrind:valgrind
	$(CARGO) test --locked -p extant-capi -- --include-ignored
	RUN_BY="make test-capi" TIMEOUT=3600 scripts/run-guides target/release/extant docs/guides/use-from-c.md

# Programs of Debian that call mke2fs, e2fsck and tune2fs, with e2fsprogs' and with Extant's: equal disks and statuses; needs root and loop
# devices.
test-drop-in: setup-test build
	@scripts/setup genimage:genimage systemd-repart:systemd
	scripts/test-drop-in target/release/extant

# The wheel, in every Python from 3.9 on that is found; 2 minutes. scripts/bench-python compares its speed with the command's afterwards.
test-python: setup-test
	scripts/test-python

# The crates as packages, and the examples of the library's front page and guide against them alone, in a project of its own; 2 minutes.
# Its dependencies must be fetched, as after any build.
test-package: setup-build
	scripts/test-package

# The library's interface is that of its list, and callers of the last release compile; needs cargo-public-api, cargo-semver-checks once there
# is a release, and a nightly toolchain; half a minute. EXTANT_BLESS=1 writes the list.
check-api:
	scripts/check-api

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p extant --no-default-features --locked -- -D warnings
	$(CARGO) clippy -p extant-nbd --no-default-features --locked -- -D warnings
	scripts/check-words
	scripts/check-links

# Licences and advisories of the dependencies; needs cargo-deny.
deny:
	$(CARGO) deny check

# The engine beside the kernel's ext4 and XFS, mkfs beside mke2fs, diff, and changes of whole disks; needs root, loop devices, 14 GiB on
# /dev/shm and an idle machine.
bench: setup-test build
	@scripts/setup mkfs.xfs:xfsprogs
	$(CARGO) run --release --locked -p extant-bench -- run create-unlink fallocate2
	$(CARGO) run --release --locked -p extant-bench -- mdtest --rounds 3
	$(LINUX_MODEL_BENCH) preallocations --rounds 3
	scripts/bench-mkfs target/release/extant
	scripts/bench-diff target/release/extant
	scripts/bench-copies target/release/extant
	scripts/bench-resize target/release/extant
	scripts/bench-tune target/release/extant

# Extents and free space after many writers, fresh and aged, beside the kernel's ext4; needs root, loop devices and 6 GiB on
# /dev/shm; 2 minutes.
bench-layout: setup-test
	$(CARGO) run --release --locked -p extant-bench -- layout

# A qcow2 image beside a raw one; 2.2 GB on /dev/shm, 2 minutes.
bench-disk-images: setup-build
	$(CARGO) run --release --locked -p extant-bench -- disk-images

# Random requests to network block devices beside fio's engine, with nbdkit, qemu-nbd and extant as servers; 1 GiB on /dev/shm, 8 minutes.
bench-nbd: setup-test build
	@scripts/setup fio:fio jq:jq
	$(CARGO) build --release --locked -p extant-bench
	scripts/bench-nbd target/release/extant target/release/extant-bench

# Verbs on a disk whose reads take 1, 10 and 50 ms; needs root and /dev/fuse; a minute.
bench-latency: setup-test build
	scripts/bench-latency target/release/extant

# Servers of network block devices that are killed 200 times under writers, 1,000 seeds of servers and 4,000 of clients that send anything,
# and git and sqlite3 on a mount over the network; needs root and /dev/fuse; 3 minutes.
test-nbd: setup-test build
	@scripts/setup sqlite3:sqlite3
	EXTANT_NBD_KILLS=200 EXTANT_NBD_SEEDS=1000 $(CARGO) test --locked -p extant-nbd -- --nocapture
	EXTANT_NBD_KILLS=100 $(CARGO) test --locked -p extant-cli --test mount network:: -- --nocapture --include-ignored
	$(CARGO) test --locked -p extant-cli --test command network:: -- --nocapture

# A Ceph cluster of this host: git, sqlite3 and PostgreSQL on an RBD image while an OSD is killed, CUTS hosts that are cut off while they sync
# files, and the guide; needs root, /dev/fuse and 6 GiB on /dev/shm; 10 minutes.
CUTS := 10
test-ceph: setup-test build
	@scripts/setup "ceph-mon:ceph-mon qemu-block-extra" ceph-mgr:ceph-mgr ceph-osd:ceph-osd rbd:ceph-common qemu-nbd:qemu-utils \
	pg_lsclusters:postgresql sqlite3:sqlite3
	scripts/test-ceph target/release/extant $(CUTS)
	RUN_BY="make test-ceph" scripts/run-guides target/release/extant docs/guides/disks-on-ceph.md

# Disks in object storage, with versitygw as the server (go install github.com/versity/versitygw/cmd/versitygw@latest); 20 seconds.
test-s3: setup-build build
	@command -v versitygw >/dev/null || { echo "versitygw is missing: go install github.com/versity/versitygw/cmd/versitygw@latest" >&2; exit 1; }
	scripts/test-s3 target/release/extant

# Which cache lines two threads share that work in two directories, by traces of their memory; fails if one passes
# to and fro in more than one of 64 operations.
conflicts: setup-test
	@scripts/setup valgrind:valgrind addr2line:binutils
	for load in append fallocate2 overwrite create-unlink; do \
		$(CARGO) run --release --locked -p extant-bench -- conflicts $$load || exit 1; done

# Instructions of each operation through the library, by callgrind: comparable on a busy machine. Half a minute.
instructions: setup-test
	@scripts/setup valgrind:valgrind
	$(CARGO) run --release --locked -p extant-bench -- instructions

# Loads on this machine's CPUs, from one to all, beside what the lab predicts of them; writes machine.json.
# Needs an idle machine, 4 GiB on /dev/shm and some minutes.
bench-machine: setup-test lab
	$(CARGO) run --release --locked -p extant-bench -- machine

# The allocator's mechanisms from their oldest forms to the default; needs an idle machine, a minute.
ladder: setup-test
	$(LINUX_MODEL_BENCH) ladder

# Orders of visiting groups on a disk of 600 TB, beside an oracle; 3 GiB of memory, 3 minutes. Rewrites the plot in docs/results.
scan-policies: setup-build
	$(LINUX_MODEL_BENCH) scan-policies --csv target/scan-policies.csv --plot docs/results/linear-or-ordered.svg

# Small files and small writes with and without a page cache, and the memory that 10 GiB take through one of 256 MiB; needs
# 11 GiB on /dev/shm; a minute.
bench-pages: setup-test
	$(CARGO) run --release --locked -p extant-bench -- pages
	$(CARGO) run --release --locked -p extant-bench -- page-memory --dir /dev/shm

# A disk of 600 TiB, mounted, crashed and mounted again, and allocations by the number of groups; 3 GiB of memory, 3 minutes.
# Rewrites the plot in docs/results.
bench-scale: setup-test
	$(CARGO) run --release --locked -p extant-bench -- scale --plot docs/results/allocation-by-groups.svg

# Public suites and programs of every day on a mounted disk; needs root, /dev/fuse and, the first time, the registry.
# PJDFSTEST names a checkout of github.com/pjd/pjdfstest, the C original; without one it is left out.
test-mount: setup-test build
	@scripts/setup git:git sqlite3:sqlite3 make:make rsync:rsync
	scripts/test-mount target/release/extant
	@if [ -n "$(PJDFSTEST)" ]; then scripts/setup autoreconf:autoconf automake:automake prove:perl openssl:openssl && \
	scripts/pjdfstest "$(PJDFSTEST)" target/release/extant; else echo "skipped: pjdfstest's C original: make test-mount PJDFSTEST=DIR"; fi

# fsx on a mount, 8 seeds of 100,000 operations in each of its forms, and ranges buffered and direct as often; needs root, /dev/fuse and,
# the first time, the registry. XFSTESTS names a checkout of xfstests for the C original; without one it is left out. Other disks and mounts:
# make test-fsx MKFS_OPTIONS="-O bigalloc -C 64K" MOUNT_OPTIONS=page_cache=16M SEEDS=2 OPERATIONS=30000
test-fsx: setup-test build
	scripts/fsx target/release/extant $(XFSTESTS)
	EXTANT_RANGES_FILES=8 EXTANT_RANGES_OPERATIONS=100000 $(CARGO) test --locked -p extant-cli --test mount ranges:: -- --nocapture

# fsstress on a mount, 8 processes of 20,000 operations for each of 4 seeds, in three forms; XFSTESTS names a checkout of xfstests that was
# built. Needs root, /dev/fuse and 5 GiB on /dev/shm; half an hour.
test-fsstress: setup-test build
	scripts/fsstress target/release/extant "$(XFSTESTS)"

# xfstests generic/quick beside the reasons in docs/results/tests.md; XFSTESTS names a checkout that was built. Needs root, /dev/fuse, loop
# devices and the users that the suite wants; half an hour.
xfstests: setup-test build
	@scripts/setup xfs_io:xfsprogs gawk:gawk
	scripts/xfstests "$(XFSTESTS)" target/release/extant

# 10,000 mounts, a million files in one directory, a file of 12 TiB, CPUs that others want; needs root, /dev/fuse and 4 GiB on /dev/shm.
test-scale: setup-test
	$(CARGO) test --release --locked -p extant-cli --test mount -- --ignored --nocapture --test-threads 1

# Rewrites docs/results: what threads do here, what virtual CPUs do, what was published; needs root, loop devices, 4 GiB on
# /dev/shm and an idle machine; 10 minutes.
results: setup-test build lab
	@scripts/setup mkfs.xfs:xfsprogs
	$(CARGO) build --release --locked -p extant-bench
	$(LINUX_MODEL) build --release --locked --target-dir target/linux-model -p extant-bench
	scripts/results

# A mount beside an empty server, fuse2fs and the kernel's ext4; needs root, /dev/fuse and an idle machine.
bench-mount: setup-test build
	@scripts/setup fuse2fs:fuse2fs git:git
	$(CARGO) run --release --locked -p extant-bench -- mount --runs 5
	$(CARGO) run --release --locked -p extant-bench -- mount-clients --rounds 5

demo: setup-test build lab
	scripts/demo target/release/extant

install: setup-build
	$(STATIC) $(TARGET)
	install -D -m 755 target/static/$(TARGET)/release/extant $(DESTDIR)$(PREFIX)/bin/extant
	scripts/install-beside $(DESTDIR)$(PREFIX)/bin/extant $(DESTDIR)$(PREFIX)/share

# Static binaries for x86-64 and arm64, with musl, which rustup adds: target/static/TARGET/release/extant.
static: setup-build
	@scripts/setup aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu /usr/aarch64-linux-gnu/include:libc6-dev-arm64-cross
	rustup target add $(STATIC_TARGETS)
	for target in $(STATIC_TARGETS); do $(STATIC) $$target || exit 1; done

# The library and the command compile for other hosts than Linux; five minutes, and a quarter of one once they were built.
PORTABLE_TARGETS := x86_64-pc-windows-gnu wasm32-wasip1 x86_64-apple-darwin aarch64-apple-darwin x86_64-unknown-freebsd
PORTABLE_LIBRARY := extant-rt extant-ondisk extant-block extant-alloc extant-journal extant-writeback extant extant-diskimage extant-archive
check-portable: setup-build
	rustup target add $(PORTABLE_TARGETS)
	for target in $(PORTABLE_TARGETS); do \
		$(CARGO) clippy --locked --target-dir target/portable --target $$target $(PORTABLE_LIBRARY:%=-p %) -p extant-cli -- -D warnings || exit 1; done

setup-portable: setup-build
	@scripts/setup x86_64-w64-mingw32-gcc:gcc-mingw-w64-x86-64 /usr/lib/wine/wine64:wine64 python3:python3-venv
	rustup target add x86_64-pc-windows-gnu wasm32-wasip1
	scripts/setup-wine
	scripts/setup-wasi

# The library's tests on other hosts, each in a process of its own: Windows' under wine, WASI's on wasmtime; 20 minutes each, most of
# it to build.
test-windows: setup-portable
	CARGO_TARGET_DIR=target/portable scripts/test-portable x86_64-pc-windows-gnu scripts/run-wine $(PORTABLE_LIBRARY)

test-wasi: setup-portable
	CARGO_TARGET_DIR=target/portable scripts/test-portable wasm32-wasip1 scripts/run-wasi $(PORTABLE_LIBRARY)

# The command makes, fills, reads and checks images on Linux, Windows and WASI, with the same bytes.
test-same-bytes: setup-portable setup-test
	scripts/test-same-bytes

# Both static binaries make a disk, fill it and check it, that of arm64 by emulation.
test-static: setup-test static
	@scripts/setup qemu-aarch64-static:qemu-user-static file:file
	scripts/test-static target/static/x86_64-unknown-linux-musl/release/extant
	scripts/test-static qemu-aarch64-static target/static/aarch64-unknown-linux-musl/release/extant

# Debian packages of the static binaries, in target/deb.
deb: static
	@scripts/setup dpkg-deb:dpkg aarch64-linux-gnu-strip:binutils-aarch64-linux-gnu
	scripts/make-deb target/static/x86_64-unknown-linux-musl/release/extant amd64 target/deb
	scripts/make-deb target/static/aarch64-unknown-linux-musl/release/extant arm64 target/deb target/static/x86_64-unknown-linux-musl/release/extant

# What a release has, in target/dist: both binaries, both packages, their checksums.
dist: deb
	scripts/make-dist target/dist

# The package in a new Debian: installed by apt, manual, completions, a first disk; needs root and a mirror of Debian; 2 minutes.
test-newcomer: deb
	@scripts/setup mmdebstrap:mmdebstrap
	scripts/test-newcomer target/deb/extant_*_amd64.deb

# Links under the names of e2fsprogs, in a directory that a builder has first in its PATH.
install-names: install
	scripts/install-names ../../../bin/extant $(DESTDIR)$(PREFIX)/lib/extant/bin

# The C library: header, shared and static library, pkg-config. VERSION is the workspace's.
LIBDIR ?= $(PREFIX)/lib
install-capi: setup-build
	$(CARGO) build --release --locked -p extant-capi
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" VERSION=$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml) \
	crates/capi/install target/release/libextant_capi.a

clean:
	$(CARGO) clean
