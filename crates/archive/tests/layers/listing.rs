//! The list of what differs, beside a comparison of both trees in memory.

use std::collections::BTreeMap;

use extant_archive::{Aspect, ChangeKind, Difference, EntryKind};

use crate::overlay::{Node, Tree};

/// What differs between two trees, by a comparison that knows nothing of disks.
fn differences(base: &Tree, disk: &Tree) -> BTreeMap<Vec<u8>, Vec<Aspect>> {
    let aspects = |before: &Node, now: &Node| {
        let (old, new) = (&before.attributes, &now.attributes);
        let kind = std::mem::discriminant(&before.kind) != std::mem::discriminant(&now.kind);
        let mut aspects = vec![
            (Aspect::Content, before.kind != now.kind || before.content != now.content),
            (Aspect::Mode, old.mode != new.mode),
            (Aspect::Owner, (old.uid, old.gid) != (new.uid, new.gid)),
            (Aspect::Mtime, old.mtime != new.mtime),
            (Aspect::Xattrs, old.xattrs != new.xattrs),
        ];
        aspects.retain(|(_, differs)| *differs);
        if kind { vec![Aspect::Type] } else { aspects.into_iter().map(|(aspect, _)| aspect).collect() }
    };
    let common = disk.nodes.iter().filter_map(|(path, now)| Some((path, base.nodes.get(path)?, now)));
    let found = common.map(|(path, before, now)| (path.clone(), aspects(before, now)));
    found.filter(|(_, aspects)| !aspects.is_empty()).collect()
}

/// Asserts that a difference lists what differs between its trees.
pub fn assert_difference(difference: &Difference, (base, disk): (&Tree, &Tree), what: &str) {
    let (mut added, mut removed, mut changed) = (Vec::new(), Vec::new(), BTreeMap::new());
    difference
        .visit(
            || {},
            |change| {
                let path = change.path.to_bytes();
                match change.kind {
                    ChangeKind::Added => added.push(path),
                    ChangeKind::Removed => removed.push(path),
                    ChangeKind::Changed(aspects) => drop(changed.insert(path, aspects)),
                }
                Ok(())
            },
        )
        .unwrap();
    let is_below =
        |path: &[u8], above: &[u8]| path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'));
    let is_new = |path: &&Vec<u8>| !base.nodes.contains_key(*path);
    let mut expected: Vec<_> = disk.nodes.keys().filter(is_new).cloned().collect();
    added.sort();
    expected.sort();
    assert_eq!(added, expected, "{what}: added");
    // Of what is gone, the topmost; what was in a directory that became a file went with it.
    let is_gone = |path: &&Vec<u8>| !disk.nodes.contains_key(*path);
    let is_top = |path: &&Vec<u8>| {
        let parent = &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
        disk.nodes.get(parent).is_some_and(|node| node.kind == EntryKind::Directory)
    };
    let mut expected: Vec<_> = base.nodes.keys().filter(is_gone).filter(is_top).cloned().collect();
    removed.sort();
    expected.sort();
    assert!(removed.iter().all(|path| !removed.iter().any(|above| is_below(path, above))));
    assert_eq!(removed, expected, "{what}: removed");
    // Files that differ in nothing but their links are listed too.
    changed.retain(|_, aspects| *aspects != [Aspect::Links]);
    assert_eq!(changed, differences(base, disk), "{what}: changed");
}
