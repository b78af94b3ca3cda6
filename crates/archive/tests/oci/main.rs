//! Container images: which tree layers make, which image is chosen, and what is refused.
//!
//! `tests/command/images.rs` of the command compares whole trees with those of `umoci unpack`.

#[path = "../common/build.rs"]
mod build;
#[path = "../common/collect.rs"]
mod collect;
mod layout;
mod mutations;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use build::{archive, header, member, seal};
use collect::Collect;
use extant_archive::oci::{Image, ImageChoice, ReadLayers};
use extant_archive::{EntryKind, Error, Result};
use extant_testing::Command;
use layout::{CONFIG, INDEX, LAYER, Layout, MANIFEST, digest, gzip, link, named, with, zstd};
use serde_json::json;

fn file(name: &str, content: &str) -> Vec<u8> {
    member(name.as_bytes(), b'0', content.as_bytes())
}

fn dir(name: &str) -> Vec<u8> {
    member(name.as_bytes(), b'5', b"")
}

fn options() -> ReadLayers<'static> {
    ReadLayers { directory: "/tmp".as_ref(), layer_bytes_max: 1 << 20, progress: &|_| {} }
}

fn choose(name: Option<&str>, platform: Option<&str>) -> ImageChoice {
    let platform = platform.map(|platform| platform.parse().unwrap());
    ImageChoice { name: name.map(str::to_owned), platform }
}

fn open(layout: &Layout, choice: &ImageChoice) -> Result<Image> {
    Image::in_directory(layout.path(), choice, &options()).map(|image| image.expect("an image"))
}

/// The tree of an image: each path with its kind and content.
fn tree(image: Image) -> Result<BTreeMap<String, String>> {
    let collect = Collect::all(Arc::new(image))?;
    let show = |path: &str| {
        let entry = &collect.by_path()[path];
        match &entry.kind {
            EntryKind::File(_) => {
                String::from_utf8(collect.contents[&entry.path.to_bytes()].clone()).unwrap()
            }
            EntryKind::Directory => format!("dir {:o}", entry.attributes.mode),
            EntryKind::HardLink(original) => format!("= {original}"),
            EntryKind::Symlink(says) => format!("-> {}", says.escape_ascii()),
            other => format!("{other:?}"),
        }
    };
    Ok(collect.by_path().keys().map(|path| (path.clone(), show(path))).collect())
}

fn merged(layers: &[Vec<Vec<u8>>]) -> Result<BTreeMap<String, String>> {
    let layers: Vec<_> = layers.iter().map(|members| archive(members)).collect();
    tree(open(&Layout::of(&layers), &ImageChoice::default())?)
}

fn assert_tree(layers: &[Vec<Vec<u8>>], expected: &[(&str, &str)]) {
    let tree = merged(layers).unwrap();
    let tree: Vec<_> = tree.iter().map(|(path, shown)| (path.as_str(), shown.as_str())).collect();
    assert_eq!(tree, expected);
}

#[test]
fn whiteouts_remove_from_lower_layers_only_wherever_they_are() {
    let lower = vec![dir("d/"), file("d/a", "1"), file("d/b", "1"), file("e", "1")];
    for whiteout_first in [true, false] {
        let mut upper = vec![file("d/.wh.a", ""), file("d/a", "2"), file(".wh.e", "")];
        if !whiteout_first {
            upper.reverse();
        }
        assert_tree(&[lower.clone(), upper], &[("/d", "dir 644"), ("/d/a", "2"), ("/d/b", "1")]);
    }
    // There is nothing below the lowest layer, and nothing to be removed is no error.
    assert_tree(&[vec![file(".wh.x", ""), file("x", "1")], vec![file("no/.wh.x", "")]], &[("/x", "1")]);
}

#[test]
fn opaque_whiteouts_empty_lower_directories_only() {
    let lower = vec![dir("d/"), dir("d/s/"), file("d/s/a", "1"), file("d/b", "1"), file("e", "1")];
    let mut upper = vec![dir("d/"), dir("d/s/"), file("d/s/c", "2"), file("d/.wh..wh..opq", "")];
    let expected = [("/d", "dir 644"), ("/d/s", "dir 644"), ("/d/s/c", "2"), ("/e", "1")];
    assert_tree(&[lower.clone(), upper.clone()], &expected);
    upper.reverse();
    assert_tree(&[lower.clone(), upper], &[expected[0], ("/d/s", "dir 644"), expected[2], expected[3]]);
    assert_tree(&[lower, vec![file(".wh..wh..opq", ""), file("n", "2")]], &[("/n", "2")]);
}

#[test]
fn hard_links_reach_into_lower_layers_and_outlive_their_originals() {
    let lower = vec![file("a", "old"), file("z", "z")];
    let linked = vec![link(b"b", b'1', b"a")];
    assert_tree(&[lower.clone(), linked.clone()], &[("/a", "old"), ("/b", "= /a"), ("/z", "z")]);
    assert_tree(
        &[lower.clone(), linked.clone(), vec![file("a", "new")]],
        &[("/a", "new"), ("/b", "old"), ("/z", "z")],
    );
    assert_tree(
        &[lower.clone(), linked, vec![file(".wh.a", "")], vec![link(b"z", b'1', b"b")]],
        &[("/b", "= /z"), ("/z", "old")],
    );
    let error = merged(&[lower, vec![file(".wh.a", ""), link(b"b", b'1', b"a")]]).unwrap_err();
    assert!(error.to_string().contains("a hard link to what is in no layer"), "{error}");
}

#[test]
fn other_kinds_take_the_place_of_what_is_there() {
    let lower =
        vec![dir("d/"), file("d/a", "1"), file("f", "1"), link(b"l", b'2', b"d"), link(b"s", b'2', b"f")];
    let upper =
        vec![file("d", "2"), dir("f/"), file("f/x", "2"), dir("l/"), file("l/y", "2"), file("s", "2")];
    let expected =
        [("/d", "2"), ("/f", "dir 644"), ("/f/x", "2"), ("/l", "dir 644"), ("/l/y", "2"), ("/s", "2")];
    assert_tree(&[lower, upper], &expected);
}

#[test]
fn links_above_a_name_lead_inside_the_tree() {
    let lower = vec![
        dir("usr/"),
        dir("usr/lib/"),
        file("usr/lib/a", "1"),
        link(b"lib", b'2', b"usr/lib"),
        link(b"up", b'2', b"../../usr"),
        link(b"root", b'2', b"/usr"),
    ];
    let upper = vec![file("lib/.wh.a", ""), file("lib/b", "2"), file("up/c", "2"), file("root/lib/d", "2")];
    let tree = merged(&[lower, upper]).unwrap();
    let files: Vec<_> = tree.keys().filter(|path| path.starts_with("/usr")).collect();
    assert_eq!(files, ["/usr", "/usr/c", "/usr/lib", "/usr/lib/b", "/usr/lib/d"]);
    let looping = vec![link(b"x", b'2', b"y"), link(b"y", b'2', b"x"), file("x/a", "1")];
    assert!(merged(&[looping]).unwrap_err().to_string().contains("too many symbolic links"));
    let through = vec![file("f", "1"), file("f/a", "1")];
    assert!(merged(&[through]).unwrap_err().to_string().contains("not a directory"));
}

#[test]
fn directories_have_the_attributes_of_their_last_entry() {
    let mut private = header(b"d/", b'5', 0);
    private[100..108].copy_from_slice(b"0000700\0");
    seal(&mut private);
    let expected =
        [("/d", "dir 700"), ("/d/a", "1"), ("/i", "dir 755"), ("/i/j", "dir 755"), ("/i/j/b", "1")];
    let lower = vec![dir("d/"), file("d/a", "1"), file("i/j/b", "1")];
    assert_tree(&[lower.clone(), vec![private.clone()]], &expected);
    // What a directory had implied and lost stays a directory.
    let emptied = [("/d", "dir 700"), ("/d/a", "1"), ("/i", "dir 755"), ("/i/j", "dir 755")];
    let tree = merged(&[lower, vec![private, file("i/j/.wh.b", "")]]).unwrap();
    let kept: Vec<_> = tree.iter().map(|(path, shown)| (path.as_str(), shown.as_str())).collect();
    assert_eq!(kept[..2], emptied[..2]);
}

#[test]
fn packed_layers_and_those_of_docker_are_read() {
    let layers = [archive(&[file("a", "1")]), archive(&[file("b", "2")]), archive(&[file("c", "3")])];
    let layout = Layout::new();
    let mut chunked = zstd(&layers[1]);
    // A frame to be skipped, as zstd:chunked has its index in one.
    chunked.extend([&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"skip"].concat());
    let blobs = vec![
        layout.blob("application/vnd.docker.image.rootfs.diff.tar.gzip", &gzip(&layers[0])),
        layout.blob(&format!("{LAYER}+zstd"), &chunked),
        layout.blob(LAYER, &layers[2]),
    ];
    let image = layout.image_of(blobs, layers.iter().map(|layer| digest(layer)).collect(), "amd64");
    layout.index(&[image]);
    let image = open(&layout, &ImageChoice::default()).unwrap();
    assert!(image.config().starts_with(b"{"));
    assert_eq!(tree(image).unwrap().into_keys().collect::<Vec<_>>(), ["/a", "/b", "/c"]);
}

#[test]
fn images_are_chosen_by_name_and_by_platform() {
    let layout = Layout::new();
    let layer = |name: &str| vec![archive(&[file(name, "")])];
    let platform = |architecture: &str| json!({ "os": "linux", "architecture": architecture });
    let built = |name: &str, architecture: &str| {
        with(layout.image(&layer(name), architecture), "platform", platform(architecture))
    };
    let attestation =
        with(built("att", "unknown"), "platform", json!({ "os": "unknown", "architecture": "unknown" }));
    let inner = json!({ "schemaVersion": 2, "manifests": [built("amd", "amd64"), built("arm", "arm64"), attestation] });
    let inner = layout.document(INDEX, &inner);
    layout.index(&[
        named(inner, "docker.io/library/web:1.2"),
        named(layout.image(&layer("db"), "amd64"), "db"),
    ]);
    let first =
        |choice: &ImageChoice| tree(open(&layout, choice)?).map(|tree| tree.into_keys().next().unwrap());
    assert_eq!(first(&choose(Some("web:1.2"), Some("linux/arm64"))).unwrap(), "/arm");
    assert_eq!(first(&choose(Some("web:1.2"), Some("linux/amd64"))).unwrap(), "/amd");
    assert_eq!(first(&choose(Some("db"), None)).unwrap(), "/db");
    for (choice, words) in [
        (choose(None, None), "several images: db, docker.io/library/web:1.2; choose one with --image"),
        (choose(Some("web"), None), "no image is called web, but: db, docker.io/library/web:1.2"),
        (
            choose(Some("web:1.2"), Some("linux/s390x")),
            "no image for linux/s390x, but for: linux/amd64, linux/arm64",
        ),
        (choose(Some("db"), Some("linux/arm64")), "the image is for linux/amd64, not for linux/arm64"),
    ] {
        let error = first(&choice).unwrap_err();
        assert!(matches!(error, Error::Choice(_)) && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn what_an_older_docker_saves_is_read() {
    let layers = [archive(&[file("a", "1")]), archive(&[file("b", "2")])];
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [digest(&layers[0]), digest(&layers[1]), digest(&layers[0])] },
    });
    let config = config.to_string();
    let (id, other) = ("1".repeat(64), "2".repeat(64));
    let name = format!("{}.json", digest(config.as_bytes()).trim_start_matches("sha256:"));
    let paths = [format!("{id}/layer.tar"), format!("{other}.tar"), format!("{other}/layer.tar")];
    let manifest = json!([{ "Config": name, "RepoTags": ["web:latest"], "Layers": paths }]);
    let saved = |config: &str| {
        archive(&[
            member(paths[0].as_bytes(), b'0', &layers[0]),
            member(paths[1].as_bytes(), b'0', &layers[1]),
            link(paths[2].as_bytes(), b'2', format!("../{}", paths[0]).as_bytes()),
            member(name.as_bytes(), b'0', config.as_bytes()),
            member(b"manifest.json", b'0', manifest.to_string().as_bytes()),
        ])
    };
    let read = |bytes: &[u8]| {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(file.path(), bytes).unwrap();
        Image::in_archive(file.reopen().unwrap(), &choose(Some("web"), None), &options())
    };
    let image = read(&saved(&config)).unwrap().expect("an image");
    assert_eq!(tree(image).unwrap().into_keys().collect::<Vec<_>>(), ["/a", "/b"]);
    let error = read(&saved(&config.replace("amd64", "arm64"))).unwrap_err();
    assert!(error.to_string().contains("its digest is sha256:"), "{error}");
    // An archive of files, and one of which an image has the first name only.
    assert!(read(&archive(&[file("bin/sh", "")])).unwrap().is_none());
    assert!(read(&archive(&[file("index.json", ""), file("etc/passwd", "")])).unwrap().is_none());
}

#[test]
fn directories_that_are_no_layouts_are_none() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let read = || Image::in_directory(dir.path(), &ImageChoice::default(), &options());
    assert!(read().unwrap().is_none());
    fs::write(dir.path().join("manifest.json"), r#"{"name":"an extension of a browser"}"#).unwrap();
    assert!(read().unwrap().is_none());
    fs::write(dir.path().join("oci-layout"), "{}").unwrap();
    fs::write(dir.path().join("index.json"), "{}").unwrap();
    assert!(read().unwrap_err().to_string().contains("imageLayoutVersion"));
}

/// Makes a layout of one layer wrong, and says with which words it is refused.
type Wrong = (&'static str, fn(&Layout));

fn one_layer() -> Vec<u8> {
    archive(&[file("a", "1")])
}

fn index_of_layer(layout: &Layout, layer: serde_json::Value, diff_id: &str) {
    layout.index(&[layout.image_of(vec![layer], vec![diff_id.to_owned()], "amd64")]);
}

const WRONG: [Wrong; 20] = [
    ("missing; copy or save the image again", |layout| {
        fs::remove_file(layout.blob_path(&digest(&one_layer()))).unwrap();
    }),
    ("not a regular file", |layout| {
        let blob = layout.blob_path(&digest(&one_layer()));
        fs::remove_file(&blob).unwrap();
        // A program for Windows sees no pipe of Linux for what it is.
        let make = if cfg!(windows) { "mkdir" } else { "mkfifo" };
        assert!(Command::new(make).arg(&blob).status().unwrap().success());
    }),
    ("its digest is sha256:", |layout| {
        let mut layer = one_layer();
        layer[600] ^= 1;
        fs::write(layout.blob_path(&digest(&one_layer())), layer).unwrap();
    }),
    ("bytes, where 2048 are declared", |layout| {
        fs::write(layout.blob_path(&digest(&one_layer())), [one_layer(), vec![0; 512]].concat()).unwrap();
    }),
    ("its digest is sha256:", |layout| {
        index_of_layer(layout, layout.blob(LAYER, &one_layer()), &digest(b"another"));
    }),
    ("its digest is sha256:", |layout| {
        index_of_layer(layout, layout.blob(LAYER, &gzip(&one_layer())), &digest(b"another"));
    }),
    ("1 layers, of which the configuration names 0", |layout| {
        layout.index(&[layout.image_of(vec![layout.blob(LAYER, &one_layer())], vec![], "amd64")]);
    }),
    ("the malformed diff_id ../..", |layout| {
        index_of_layer(layout, layout.blob(LAYER, &one_layer()), "../..");
    }),
    ("version 2.0.0, where 1 is known", |layout| {
        fs::write(layout.path().join("oci-layout"), r#"{"imageLayoutVersion":"2.0.0"}"#).unwrap();
    }),
    ("lists no image", |layout| layout.index(&[])),
    ("of the type application/wasm, not an image", |layout| {
        layout.index(&[layout.blob("application/wasm", b"x")]);
    }),
    ("of the type application/wasm, not a container image", |layout| {
        let config = layout.blob("application/wasm", b"x");
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [] });
        layout.index(&[layout.document(MANIFEST, &manifest)]);
    }),
    ("of the type application/x-unknown, not a layer", |layout| {
        index_of_layer(layout, layout.blob("application/x-unknown", &one_layer()), &digest(&one_layer()));
    }),
    ("`skopeo copy --decryption-key KEY` decrypts it", |layout| {
        let encrypted = layout.blob(&format!("{LAYER}+encrypted"), &one_layer());
        index_of_layer(layout, encrypted, &digest(&one_layer()));
    }),
    ("fetch it from https://example.org/layer into blobs/sha256/", |layout| {
        let foreign = json!({
            "mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar", "digest": digest(b"elsewhere"),
            "size": 9, "urls": ["https://example.org/layer"],
        });
        index_of_layer(layout, foreign, &digest(b"elsewhere"));
    }),
    ("neither SHA-256 nor SHA-512", |layout| {
        let mut layer = layout.blob(LAYER, &one_layer());
        layer["digest"] = json!("md5:00");
        index_of_layer(layout, layer, &digest(&one_layer()));
    }),
    ("Invalid encoded value ../../../../etc/passwd", |layout| {
        let mut layer = layout.blob(LAYER, &one_layer());
        layer["digest"] = json!("sha256:../../../../etc/passwd");
        index_of_layer(layout, layer, &digest(&one_layer()));
    }),
    ("indexes more than 8 deep in one another", |layout| {
        let mut index = layout.document(INDEX, &json!({ "schemaVersion": 2, "manifests": [] }));
        for _ in 0..9 {
            index = layout.document(INDEX, &json!({ "schemaVersion": 2, "manifests": [index] }));
        }
        layout.index(&[index]);
    }),
    ("it unpacks to more than 1048576 bytes", |layout| {
        let bomb = archive(&[member(b"zeros", b'0', &vec![0; 2 << 20])]);
        index_of_layer(layout, layout.blob(LAYER, &gzip(&bomb)), &digest(&bomb));
    }),
    ("a document of more than 4 MiB", |layout| {
        let large = layout.blob(CONFIG, &vec![b' '; 5 << 20]);
        let manifest = json!({ "schemaVersion": 2, "config": large, "layers": [] });
        layout.index(&[layout.document(MANIFEST, &manifest)]);
    }),
];

#[test]
fn missing_wrong_and_unknown_parts_are_refused_by_name() {
    for (words, make_wrong) in WRONG {
        let layout = Layout::of(&[one_layer()]);
        make_wrong(&layout);
        let error = open(&layout, &ImageChoice::default()).unwrap_err();
        assert!(
            matches!(error, Error::Image { .. }) && error.to_string().contains(words),
            "{words}: {error}"
        );
        // WASI opens what it does not know to remove a directory, and would wait for a writer to the pipe.
        assert!(Command::new("rm").arg("-rf").arg(layout.path()).status().unwrap().success());
    }
}

#[test]
fn layers_that_lead_out_or_remove_what_is_not_below_are_refused() {
    for (member, words) in [
        (file("../a", ""), "unsafe name"),
        (file(".wh...", ""), "a whiteout of no file in its directory"),
        (file("d/.wh..", ""), "a whiteout of no file in its directory"),
        (file("d/.wh.", ""), "a whiteout of no file in its directory"),
        (file(".wh.d/a", ""), "a file inside of a whiteout"),
        (link(b"a", b'1', b"../b"), "unsafe name"),
        (link(b"a", b'1', b"nothing"), "a hard link to what is in no layer"),
        (file("./", ""), ""),
    ] {
        let result = merged(&[vec![dir("d/")], vec![member]]);
        match words {
            "" => assert!(result.is_ok()),
            _ => assert!(result.as_ref().is_err_and(|error| error.to_string().contains(words)), "{result:?}"),
        }
    }
}
