//! A disk with values in inodes of their own. Only Linux makes those of which several attributes have one.

use crate::disk::VALUES;
use crate::explore::Base;

#[cfg(target_os = "linux")]
impl Base {
    /// A disk on which Linux gave files attributes whose values are in inodes of their own; nothing, and says so, where it mounts
    /// none.
    pub fn with_values() -> Option<Self> {
        use std::collections::BTreeSet;

        use extant_rt::Arc;
        use rustix::fs::{XattrFlags, lsetxattr};

        use crate::disk::Checker;
        use crate::explore::step;
        use crate::generate::{large_values, preparation};
        use crate::model::Model;
        use crate::op::{Op, xattr_name};
        use crate::session::{Pages, Session};

        let kind = VALUES;
        let image = Arc::new(kind.make());
        let mut model = Model::new(kind.block_size, kind.has_extents());
        let mut session = Session::mount(image.clone(), Pages::default()).expect("mount a new disk");
        for op in preparation(kind.block_size).into_iter().chain([Op::Create("d/b")]) {
            step(&mut session, &mut model, op, false).unwrap_or_else(|what| panic!("{what}"));
        }
        let before = session.fs().statistics().free_inodes;
        session.unmount().expect("unmount");
        let mut inodes = BTreeSet::new();
        let changed = Checker::new().change_by_linux(&image, |root| {
            for (path, key, value) in large_values() {
                let name = xattr_name(key);
                lsetxattr(root.join(path), &*name, &value, XattrFlags::empty()).expect("a value");
                model.set_xattr(path, key, value.clone());
                if value.len() as u64 > kind.block_size {
                    inodes.insert(value);
                }
            }
        });
        let image = match changed {
            Ok(changed) => Arc::new(changed),
            Err(what) => {
                println!("skipped: Linux does not mount {}: {what}", kind.name);
                return None;
            }
        };
        let session = Session::mount(image.clone(), Pages::default()).expect("mount the disk again");
        let taken = before - session.fs().statistics().free_inodes;
        assert_eq!(taken as usize, inodes.len(), "large values stand in inodes, equal ones in one");
        Some(Self::finish(kind, session, image, model, true))
    }
}

#[cfg(not(target_os = "linux"))]
impl Base {
    /// Nothing, and says so: only Linux makes such values.
    pub fn with_values() -> Option<Self> {
        println!("skipped: Linux does not mount {} here", VALUES.name);
        None
    }
}
