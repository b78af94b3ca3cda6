//! Images added to OCI image layouts: read by umoci and skopeo, whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_archive::oci::digest::Hasher;
use extant_archive::oci::{Added, Base, Changes, NewImage, Packing};
use extant_archive::{Difference, DiskWalk, Error, Extent, Source, Walk};
use extant_block::MemoryDevice;
use serde_json::{Value, json};

use crate::changes::{Random, change};
use crate::collect::Collect;
use crate::overlay::{Tree, assert_equal};

fn has_tools(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
    missing.inspect(|tool| println!("skipped: {tool} is missing")).is_none()
}

/// A disk with random files, and a copy of it that was changed.
fn disks(seed: u64) -> [Filesystem; 2] {
    let base = Arc::new(MemoryDevice::new(64 << 20));
    Mkfs::new().format(&*base).unwrap();
    let mut random = Random::new(seed);
    let mut changed = |device: &Arc<MemoryDevice>| {
        let fs = Mount::new().open_device(device.clone()).unwrap();
        change(&fs, &mut random, 60);
        fs.unmount().unwrap();
    };
    changed(&base);
    let disk = Arc::new(base.snapshot());
    changed(&disk);
    [base, disk].map(|device| Mount::new().read_only(true).open_device(device).unwrap())
}

fn image(layout: &Path, name: &str, base: Base) -> NewImage {
    NewImage {
        layout: layout.to_owned(),
        name: name.to_owned(),
        base,
        packing: Packing::Gzip,
        created: None,
        architecture: "amd64".to_owned(),
    }
}

fn add(image: &NewImage, difference: Difference) -> extant_archive::Result<Added> {
    image.add(|sink| Changes::new(difference).pour(sink, Extent::Everything))
}

/// A layout with the images `base` and, over it, `guest`.
fn layout_of(root: &Path, [base, disk]: &[Filesystem; 2]) -> PathBuf {
    let layout = root.join("layout");
    add(&image(&layout, "base", Base::None), Difference::from_nothing(base)).unwrap();
    add(&image(&layout, "guest", Base::Only), Difference::new(base, disk)).unwrap();
    layout
}

/// All files below a directory and their contents.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    layout.join("blobs").join(descriptor["digest"].as_str().unwrap().replace(':', "/"))
}

/// Writes a document as a blob; its digest.
fn put(layout: &Path, document: &Value) -> Value {
    let bytes = document.to_string();
    let mut hasher = Hasher::sha256();
    hasher.update(bytes.as_bytes());
    let descriptor = json!({ "digest": hasher.finish() });
    fs::write(blob(layout, &descriptor), bytes).unwrap();
    descriptor["digest"].clone()
}

#[test]
fn umoci_unpacks_the_tree_of_the_disk() {
    if !rustix::process::geteuid().is_root() || !has_tools(&["umoci"]) {
        println!("skipped: umoci gives files their owners as root");
        return;
    }
    for seed in 0..4 {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let disks = disks(seed);
        let layout = layout_of(dir.path(), &disks);
        for (name, disk) in ["base", "guest"].into_iter().zip(&disks) {
            let bundle = dir.path().join(name);
            let mut umoci = Command::new("umoci");
            umoci.args(["unpack", "--image", &format!("{}:{name}", layout.display())]).arg(&bundle);
            let output = umoci.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let unpacked = Tree::of(&Collect::all(Walk::new(bundle.join("rootfs"))).unwrap());
            let tree = Tree::of(&Collect::all(DiskWalk::new(disk, "/")).unwrap());
            assert_equal(&unpacked, &tree, &format!("seed {seed}, {name}"));
        }
    }
}

#[test]
fn skopeo_takes_the_images() {
    if !has_tools(&["skopeo"]) {
        return;
    }
    for packing in [Packing::None, Packing::Gzip, Packing::Zstd] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let [base, disk] = disks(7);
        let layout = dir.path().join("layout");
        for (name, below, difference) in [
            ("base", Base::None, Difference::from_nothing(&base)),
            ("guest", Base::Only, Difference::new(&base, &disk)),
        ] {
            add(&NewImage { packing, ..image(&layout, name, below) }, difference).unwrap();
            let from = format!("oci:{}:{name}", layout.display());
            let to = format!("dir:{}", dir.path().join(name).display());
            for arguments in [vec!["inspect", &from], vec!["copy", "--insecure-policy", &from, &to]] {
                let output = Command::new("skopeo").args(&arguments).output().unwrap();
                assert!(output.status.success(), "{packing:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
    }
}

#[test]
fn two_runs_give_the_same_bytes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disks = disks(11);
    let all = ["one", "two"].map(|name| {
        let root = dir.path().join(name);
        fs::create_dir(&root).unwrap();
        let layout = layout_of(&root, &disks);
        files(&layout)
            .into_iter()
            .map(|(path, bytes)| (path.strip_prefix(&root).unwrap().to_owned(), bytes))
            .collect::<Vec<_>>()
    });
    assert!(all[0] == all[1]);
    // Two images: a manifest, a configuration and a layer each.
    assert_eq!(all[0].len(), 2 + 2 * 3);
}

#[test]
fn fields_of_others_and_other_images_are_kept() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disks = disks(12);
    let layout = layout_of(dir.path(), &disks);
    let index_file = layout.join("index.json");
    let mut index = document(&index_file);
    index["annotations"] = json!({ "of": "another" });
    // The base gets a configuration of its own: its digests change with it.
    let mut manifest = document(&blob(&layout, &index["manifests"][0]));
    let mut config = document(&blob(&layout, &manifest["config"]));
    config["config"]["Healthcheck"] = json!({ "Test": ["NONE"] });
    config["variant"] = "v8".into();
    let new = image(&layout, "guest", Base::Named("base".to_owned()));
    manifest["config"]["digest"] = put(&layout, &config);
    manifest["subject"] = json!({ "of": "another" });
    index["manifests"][0]["digest"] = put(&layout, &manifest);
    fs::write(&index_file, index.to_string()).unwrap();
    let added = add(&new, Difference::new(&disks[0], &disks[1])).unwrap();
    let after = document(&index_file);
    assert_eq!(after["annotations"], index["annotations"]);
    assert_eq!(after["manifests"].as_array().unwrap().len(), 2, "the name moved");
    assert_eq!(after["manifests"][0], index["manifests"][0]);
    assert_eq!(after["manifests"][1]["digest"], added.manifest.as_str());
    let manifest = document(&blob(&layout, &after["manifests"][1]));
    assert_eq!(manifest["subject"], json!({ "of": "another" }));
    let config = document(&blob(&layout, &manifest["config"]));
    assert_eq!(
        (&config["variant"], &config["config"]["Healthcheck"]["Test"][0]),
        (&"v8".into(), &"NONE".into())
    );
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    assert_eq!(config["rootfs"]["diff_ids"][1], added.layer.diff_id.as_str());
    assert_eq!(config["history"].as_array().unwrap().len(), 2);
}

#[test]
fn layout_is_as_it_was_after_an_error() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disks = disks(13);
    let layout = layout_of(dir.path(), &disks);
    let before = files(&layout);
    let failed = image(&layout, "guest", Base::Named("base".to_owned())).add(|sink| {
        Changes::new(Difference::from_nothing(&disks[1])).pour(sink, Extent::Everything)?;
        Err(Error::Cancelled)
    });
    assert!(matches!(failed, Err(Error::Cancelled)), "{failed:?}");
    assert!(files(&layout) == before);
}

#[test]
fn layouts_that_are_none_are_refused_by_name() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disks = disks(14);
    let layout = layout_of(dir.path(), &disks);
    let index_file = layout.join("index.json");
    let index = document(&index_file);
    let manifest_file = blob(&layout, &index["manifests"][0]);
    let manifest = fs::read(&manifest_file).unwrap();
    let refusal = |base: &Base, layout: &Path| {
        let difference = Difference::new(&disks[0], &disks[1]);
        add(&image(layout, "new", base.clone()), difference).unwrap_err().to_string()
    };
    let named = Base::Named("base".to_owned());
    let said = refusal(&Base::Only, &layout);
    assert!(said.contains("several images") && said.contains("base, guest"), "{said}");
    assert!(refusal(&Base::Named("none".to_owned()), &layout).contains("'none'"));
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "").unwrap();
    for base in [Base::None, Base::Only] {
        assert!(refusal(&base, &other).contains("not an OCI image layout"));
    }
    assert_eq!(files(&other).len(), 1);
    // Documents of any form: an error, never a panic.
    let reset = || {
        fs::write(&index_file, index.to_string()).unwrap();
        fs::write(&manifest_file, &manifest).unwrap();
    };
    let forms = [json!(null), json!(1), json!("text"), json!([1]), json!({ "a": 1 })];
    for form in &forms {
        for pointer in [
            "",
            "/manifests",
            "/manifests/0",
            "/manifests/0/digest",
            "/manifests/0/mediaType",
            "/manifests/0/annotations",
        ] {
            let mut changed = index.clone();
            *changed.pointer_mut(pointer).unwrap() = form.clone();
            fs::write(&index_file, changed.to_string()).unwrap();
            refusal(&named, &layout);
            reset();
        }
    }
    for digest in ["sha256:../../index.json", "sha256:", "md5:0123", "../x:y", "sha256:00"] {
        let mut changed = index.clone();
        changed["manifests"][0]["digest"] = digest.into();
        fs::write(&index_file, changed.to_string()).unwrap();
        refusal(&named, &layout);
    }
    reset();
    fs::write(&manifest_file, "{}").unwrap();
    assert!(refusal(&named, &layout).contains("digest"));
    // With a right digest, but of another form.
    for pointer in ["/rootfs", "/rootfs/diff_ids", "/history", "/config"] {
        for form in &forms {
            reset();
            let mut manifest: Value = serde_json::from_slice(&manifest).unwrap();
            let mut config = document(&blob(&layout, &manifest["config"]));
            *config.pointer_mut(pointer).unwrap() = form.clone();
            manifest["config"]["digest"] = put(&layout, &config);
            let mut changed = index.clone();
            changed["manifests"][0]["digest"] = put(&layout, &manifest);
            fs::write(&index_file, changed.to_string()).unwrap();
            let added = add(&image(&layout, "new", named.clone()), Difference::new(&disks[0], &disks[1]));
            let may_be = form.is_null() && pointer == "/history" || pointer == "/config" || form.is_array();
            assert!(added.is_err() || may_be, "{pointer}: {form}");
        }
    }
}
