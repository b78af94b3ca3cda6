//! Disks from container images: the trees are those that `umoci unpack` makes, from every form of the image, for root and
//! others, and what is wrong leaves the disk as it was.

use super::bench::{Bench, is_root, tool};
use super::content::LIST;

/// An image of four layers: everything that a layer may hold, then deletions, replaced types, links into lower layers.
const LAYOUT: &str = r#"
umoci init --layout layout; umoci new --image layout:web
change() { umoci unpack --image layout:web bundle; (cd bundle/rootfs; sh -euc "$1"); umoci repack --image layout:web bundle; rm -r bundle; }
change '
    mkdir -p etc usr/lib many deep/er gone keep opaque/sub; ln -s usr/lib lib
    printf old > etc/file; ln etc/file etc/hard; printf lib > usr/lib/a; printf x > gone/x; printf y > keep/y
    printf 1 > becomes-dir; mkdir becomes-file; printf 2 > becomes-file/z; ln -s etc becomes-other
    printf o > opaque/o; printf s > opaque/sub/s
    for i in $(seq 300); do echo $i > many/file-$i; done
    truncate -s 3000000 sparse; printf middle | dd of=sparse bs=1 seek=1000000 conv=notrunc 2>/dev/null
    n=$(head -c 180 /dev/zero | tr "\0" n); mkdir $n; printf long > $n/$n; mkfifo pipe
    touch -d "2026-01-02 03:04:05 UTC" etc/file; chmod 4755 usr/lib/a; touch -d "2010-01-01 UTC" deep/er deep'
change '
    rm etc/file; ln etc/hard etc/third; rm -r gone becomes-file becomes-dir becomes-other; printf f > becomes-file
    mkdir becomes-dir; printf in > becomes-dir/in; printf now > becomes-other; rm many/file-7; echo new > many/file-8
    chmod 700 keep; touch -d "2011-01-01 UTC" keep; printf b > usr/lib/b'
change 'printf again > etc/file; rm -r deep; rm usr/lib/b'
mkdir -p l/opaque l/lib; : > l/opaque/.wh..wh..opq; printf n > l/opaque/n; : > l/usr-lib
tar -C l -cf opaque.tar opaque usr-lib; umoci raw add-layer --image layout:web opaque.tar; rm -r l opaque.tar
"#;

/// What only root makes.
const ROOT_CHANGE: &str = r#"
umoci unpack --image layout:web bundle; cd bundle/rootfs
mknod null c 1 3; mknod disk b 259 1000; chown 1234:5678 many/file-9; setfattr -n user.note -v 'a=b' many/file-9
cp /bin/true ping; setcap cap_net_raw+ep ping; chown 7:8 keep
cd ../..; umoci repack --image layout:web bundle; rm -r bundle
"#;

/// A bench with the image; none if programs are missing.
fn layout() -> Option<Bench> {
    tool("umoci").and(tool("e2fsck")).and(tool("setcap")).and(tool("setfattr"))?;
    if !is_root() {
        println!("skipped: not root");
        return None;
    }
    let bench = Bench::empty();
    bench.shell(LAYOUT);
    bench.shell(ROOT_CHANGE);
    Some(bench)
}

fn make(bench: &Bench, arguments: &str) {
    let mut command = bench.extant();
    command.args(arguments.split(' ')).env("SOURCE_DATE_EPOCH", "1790000000");
    let run = bench.finish(&mut command, b"");
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{arguments}");
}

#[test]
fn the_tree_of_an_image_is_the_one_that_umoci_unpacks() {
    let Some(bench) = layout() else { return };
    bench.words("mkfs -q -d layout disk.img");
    bench.assert_clean("disk.img");
    bench.shell("umoci unpack --image layout:web bundle; mkdir mnt");
    let mount = bench.finish(bench.command("mount").args(["-o", "ro,loop", "disk.img", "mnt"]), b"");
    if mount.status != 0 {
        println!("skipped: {}", mount.err);
        return;
    }
    let compare = format!(
        "(cd bundle/rootfs; {LIST}) > before; (cd mnt; {LIST}) > after; diff before after && \
         diff -r --no-dereference -x pipe -x null -x disk -x lost+found bundle/rootfs mnt"
    );
    let compared = bench.finish(bench.command("sh").args(["-c", &compare]), b"");
    bench.shell("umount mnt");
    assert_eq!(compared.status, 0, "{}{}", compared.out, compared.err);
    assert!(bench.shell("cat before").contains("security.capability"));
}

#[test]
fn every_form_of_an_image_gives_the_same_tree() {
    let Some(bench) = layout() else { return };
    make(&bench, "mkfs -q -d layout a.img");
    make(&bench, "mkfs -q -d layout b.img");
    assert!(bench.bytes("a.img") == bench.bytes("b.img"), "the same bytes twice");
    bench.shell("tar -C layout -cf oci.tar .; gzip -k oci.tar; tar -C layout -cf names.tar $(ls layout)");
    let mut forms = vec!["oci.tar", "oci.tar.gz", "names.tar"];
    if tool("skopeo").is_some() {
        bench.shell("skopeo --insecure-policy copy -q oci:layout:web docker-archive:saved.tar:web:1 >&2");
        bench.shell("skopeo --insecure-policy copy -q --dest-compress-format zstd --dest-compress oci:layout:web oci:zstd:web >&2");
        forms.extend(["saved.tar", "zstd"]);
    }
    for form in forms {
        make(&bench, &format!("mkfs -q -F -d {form} b.img"));
        assert!(bench.bytes("a.img") == bench.bytes("b.img"), "{form}");
    }
    bench.words("mkfs -q -F -d layout b.img");
    bench.words("mkfs -q into.img 32M");
    bench.words("import into.img oci.tar.gz");
    bench.assert_clean("into.img");
    let list = |image: &str| {
        bench.words(&format!("export {image} -o out.tar"));
        // Not the root, which no layer describes.
        bench.shell("tar --full-time --xattrs -tvvf out.tar | grep -v ' \\./$' | sort")
    };
    assert_eq!(list("into.img"), list("b.img"), "imported");
    let run = bench.finish(
        bench.extant().args(["mkfs", "-q", "-d", "-", "p.img"]).env("SOURCE_DATE_EPOCH", "1790000000"),
        &bench.bytes("oci.tar.gz"),
    );
    assert_eq!((run.status, run.err.as_str()), (0, ""));
    assert!(bench.bytes("p.img") == bench.bytes("a.img"), "from a pipe");
}

#[test]
fn an_ordinary_user_makes_what_root_makes() {
    let (Some(bench), Some(setpriv)) = (layout(), tool("setpriv")) else { return };
    make(&bench, "mkfs -q -d layout root.img");
    bench.shell("chmod 755 .; chmod -R a+rX layout; mkdir -m 777 w");
    bench.install();
    let script = "cd w; SOURCE_DATE_EPOCH=1790000000 ../extant mkfs -q -d ../layout user.img";
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-ec", script];
    let run = bench.finish(bench.command(setpriv).args(user), b"");
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(bench.bytes("w/user.img") == bench.bytes("root.img"));
    assert_eq!(bench.shell("ls w"), "user.img\n", "nothing is left beside it");
}

/// A layout of one layer, the directory `tree`, made without any tool but tar.
pub const PACK: &str = r#"
mkdir -p layout/blobs/sha256; tar --owner=0 --group=0 -S -C tree -cf layer.tar dir
blob() { sum=$(sha256sum "$1" | cut -d' ' -f1); cp "$1" layout/blobs/sha256/$sum; size=$(stat -c %s "$1"); }
blob layer.tar; layer=$sum layer_size=$size
printf '{"architecture":"amd64","os":"linux","config":{"Cmd":["/init"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' $layer > config
blob config; config=$sum config_size=$size; M=application/vnd.oci.image
printf '{"schemaVersion":2,"config":{"mediaType":"%s.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"%s.layer.v1.tar","digest":"sha256:%s","size":%s}]}' \
    $M $config $config_size $M $layer $layer_size > manifest
blob manifest
printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s.manifest.v1+json","digest":"sha256:%s","size":%s}]}' $M $sum $size > layout/index.json
echo '{"imageLayoutVersion":"1.0.0"}' > layout/oci-layout
"#;

fn small() -> Bench {
    let bench = Bench::empty();
    bench.shell("mkdir -p tree/dir; echo content > tree/dir/file");
    bench.shell(PACK);
    bench
}

#[test]
fn the_configuration_and_the_directory_itself_are_to_be_had() {
    let bench = small();
    bench.words("mkfs -q -d layout --config-to init.json disk.img");
    assert!(bench.bytes("init.json") == bench.bytes("config"));
    assert_eq!(bench.words("find disk.img -type f"), "/dir/file\n");
    bench.words("mkfs -q -F -d layout/. disk.img");
    assert!(bench.words("find disk.img -type f").contains("/oci-layout\n"));
    for option in [&["--image", "web"][..], &["--platform", "linux/arm64"], &["--config-to", "x"]] {
        let said = bench.fails(2, &[&["mkfs", "-q", "-F", "-d", "tree", "disk.img"][..], option].concat());
        assert!(said.contains(option[0]) && said.contains("tree is none"), "{said}");
    }
    let said = bench.fails(2, &["mkfs", "-q", "-F", "-d", "layout", "--image", "web", "disk.img"]);
    assert!(said.contains("none has a name; leave --image out"), "{said}");
    let said = bench.fails(2, &["mkfs", "-q", "-F", "-d", "layout", "--platform", "linux/arm64", "disk.img"]);
    assert!(said.contains("the image is for linux/amd64, not for linux/arm64"), "{said}");
    assert!(bench.fails(2, &["import", "disk.img", "tree"]).contains("no container image"));
}

#[test]
fn what_is_wrong_with_an_image_leaves_the_disk_as_it_was() {
    let bench = small();
    bench.words("mkfs -q -d tree disk.img 16M");
    let before = bench.bytes("disk.img");
    bench.shell("f=$(ls -S layout/blobs/sha256/* | head -1); printf x | dd of=$f bs=1 seek=600 conv=notrunc 2>/dev/null");
    for arguments in
        [&["mkfs", "-q", "-F", "-d", "layout", "disk.img"][..], &["import", "disk.img", "layout"]]
    {
        let said = bench.fails(1, arguments);
        assert!(said.contains("layout: sha256:") && said.contains("copy or save the image again"), "{said}");
        assert!(bench.bytes("disk.img") == before);
    }
    let run = bench.finish(bench.extant().args(["mkfs", "-q", "-d", "layout", "new.img"]), b"");
    assert!(run.status == 1 && !bench.path("new.img").exists(), "{}", run.err);
    bench.shell("echo '{}' > layout/oci-layout");
    let said = bench.fails(1, &["mkfs", "-q", "-d", "layout", "new.img"]);
    assert!(said.contains("layout/. means the directory itself"), "{said}");
}

#[test]
fn a_layer_is_applied_to_what_the_disk_has() {
    let bench = Bench::empty();
    bench.shell(
        "mkdir -p lower/a/b lower/o/s lower/f upper/o/s upper/a; echo 1 > lower/a/b/x; echo 1 > lower/a/y; echo 1 > lower/o/x
         echo 1 > lower/o/s/x; echo 1 > lower/f/x; ln lower/a/y lower/z; echo 2 > upper/o/n; echo 2 > upper/o/s/n; echo 2 > upper/f
         : > upper/o/.wh..wh..opq; : > upper/a/.wh.b; : > upper/.wh.z; : > upper/.wh.missing; echo 2 > upper/z",
    );
    let expected = "/f\n/z\n/a/y\n/o/n\n/o/s/n\n";
    // The whiteouts last, and first.
    for order in [
        "z o/n o/s f a/.wh.b o/.wh..wh..opq .wh.z .wh.missing",
        ".wh.missing .wh.z o/.wh..wh..opq a/.wh.b f o/s o/n z",
    ] {
        bench.shell(&format!("tar --no-recursion -C upper -cf layer.tar {order} o/s/n"));
        bench.words("mkfs -q -F -d lower disk.img 16M");
        bench.words("import disk.img layer.tar");
        bench.assert_clean("disk.img");
        assert_eq!(bench.words("find disk.img -type f"), expected, "{order}");
        assert_eq!(bench.words("cat disk.img:/z disk.img:/f disk.img:/a/y"), "2\n2\n1\n");
    }
    bench.shell("mkdir -p bad; : > bad/.wh...; tar -C bad -cf bad.tar .wh...");
    assert!(bench.fails(1, &["import", "disk.img", "bad.tar"]).contains("a whiteout of no file"));
    // A directory of the host is taken as it is.
    bench.words("mkfs -q -F -d upper disk.img");
    assert!(bench.words("find disk.img -type f").contains("/a/.wh.b\n"));
}

#[test]
fn an_image_of_65000_files_and_2_gib_takes_128_mib_of_memory() {
    let Some(time) = tool("time") else { return };
    let bench = Bench::empty();
    bench.shell("mkdir -p tree/dir; cd tree/dir; seq 65000 | xargs touch; truncate -s 2G sparse; printf end >> sparse");
    bench.shell(PACK);
    let extant = bench.extant();
    let mut command = bench.command(time);
    command.args(["-f", "%M"]).arg(extant.get_program()).args(["mkfs", "-q", "-d", "layout", "disk.img"]);
    let run = bench.finish(&mut command, b"");
    assert_eq!(run.status, 0, "{}", run.err);
    let peak_kib: u64 = run.err.trim().parse().expect("KiB");
    assert!(peak_kib <= 128 << 10, "{peak_kib} KiB");
    bench.assert_clean("disk.img");
    assert_eq!(
        bench.document("stat --json disk.img:/dir/sparse")["files"][0]["size_bytes"],
        (2_u64 << 30) + 3
    );
}

#[test]
fn xz_and_bzip2_are_unpacked() {
    let bench = small();
    for (program, suffix) in [("xz", "xz"), ("bzip2", "bz2")] {
        if tool(program).is_none() {
            continue;
        }
        bench.shell(&format!("{program} -k layer.tar"));
        bench.words(&format!("mkfs -q -F -d layer.tar.{suffix} disk.img"));
        assert_eq!(bench.words("cat disk.img:/dir/file"), "content\n");
    }
}
