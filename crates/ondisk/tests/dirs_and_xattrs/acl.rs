//! Access lists against the kernel: what it keeps, grants, inherits and changes.

use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use extant_ondisk::InodeNumber;
use extant_ondisk::acl::{Acl, AclEntry, AclTag, Owner, Subject};
use extant_ondisk::xattr::{index, parse_block, parse_ibody};

use crate::image::{Image, run};
use crate::rng::Rng;

fn entry(tag: AclTag, perm: u16) -> AclEntry {
    AclEntry { tag, perm }
}

/// A valid list about few ids, so that subjects meet them.
fn random(rng: &mut Rng) -> Acl {
    let mut entries = vec![entry(AclTag::UserObj, rng.below(8) as u16)];
    let (users, groups) = (rng.below(3) as u32, rng.below(3) as u32);
    entries.extend((0..users).map(|id| entry(AclTag::User(1001 + id), rng.below(8) as u16)));
    entries.push(entry(AclTag::GroupObj, rng.below(8) as u16));
    entries.extend((0..groups).map(|id| entry(AclTag::Group(2001 + id), rng.below(8) as u16)));
    if users + groups > 0 || rng.below(4) == 0 {
        entries.push(entry(AclTag::Mask, rng.below(8) as u16));
    }
    entries.push(entry(AclTag::Other, rng.below(8) as u16));
    Acl::new(entries).unwrap()
}

fn set(path: &Path, name: &str, acl: &Acl) {
    let hex: String = acl.to_xattr().iter().map(|b| format!("{b:02x}")).collect();
    run("setfattr", &["-n", name, "-v", &format!("0x{hex}"), path.to_str().unwrap()]);
}

/// The list the disk has under `name_index`, and the mode.
fn on_disk(image: &Image, ino: InodeNumber, name_index: u8) -> (Option<Acl>, u16) {
    let inode = image.inode(ino);
    let mut list = parse_ibody(inode.xattr_region().unwrap_or_default()).unwrap();
    if inode.file_acl().0 != 0 {
        list.extend(parse_block(&image.read_block(inode.file_acl())).unwrap());
    }
    let acl = list.iter().find(|x| x.name_index == name_index).map(|x| {
        let value = x.inline_value().unwrap();
        let acl = Acl::from_disk(value).unwrap().unwrap();
        assert_eq!(acl.to_disk(), value, "written as it was");
        acl
    });
    (acl, inode.mode())
}

fn number(path: &Path) -> InodeNumber {
    InodeNumber(path.metadata().unwrap().ino() as u32)
}

#[test]
fn lists_are_kept_inherited_and_changed_as_the_kernel_does() {
    let mut rng = Rng::new(71);
    let Some(image) = Image::mkfs(32, &["-b", "1024"]) else {
        return;
    };
    struct Case {
        acl: Acl,
        modes: [u16; 3],
        inodes: [InodeNumber; 4],
    }
    let cases: Vec<Case> = image.mounted(|root| {
        (0..60)
            .map(|at| {
                let acl = random(&mut rng);
                let modes = [0; 3].map(|_| rng.below(0o1000) as u16);
                let dir = root.join(format!("d{at}"));
                std::fs::create_dir(&dir).unwrap();
                set(&dir, "system.posix_acl_default", &acl);
                set(&dir, "system.posix_acl_access", &acl);
                let [made, changed, sub] = ["made", "changed", "sub"].map(|name| dir.join(name));
                for (path, mode) in [(&made, modes[0]), (&changed, modes[1])] {
                    let mode = u32::from(mode);
                    std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).unwrap();
                }
                std::fs::set_permissions(&changed, std::fs::Permissions::from_mode(u32::from(modes[2])))
                    .unwrap();
                std::fs::create_dir(&sub).unwrap();
                Case { acl, modes, inodes: [&dir, &made, &changed, &sub].map(|p| number(p)) }
            })
            .collect()
    });
    image.assert_clean();
    for Case { acl, modes, inodes: [dir, made, changed, sub] } in cases {
        let (mode, equivalent) = acl.equiv_mode();
        let kept = (!equivalent).then(|| acl.clone());
        assert_eq!(on_disk(&image, dir, index::POSIX_ACL_DEFAULT).0.as_ref(), Some(&acl));
        assert_eq!(on_disk(&image, dir, index::POSIX_ACL_ACCESS), (kept, 0o040_000 | mode));
        let of_file = |mode| Acl::create(&acl, 0o100_000 | mode);
        assert_eq!(on_disk(&image, made, index::POSIX_ACL_ACCESS), of_file(modes[0]));
        let (before, _) = of_file(modes[1]);
        let after = (before.map(|acl| acl.chmod(modes[2])), 0o100_000 | modes[2]);
        assert_eq!(on_disk(&image, changed, index::POSIX_ACL_ACCESS), after);
        assert_eq!(on_disk(&image, sub, index::POSIX_ACL_ACCESS), Acl::create(&acl, 0o040_777));
        assert_eq!(on_disk(&image, sub, index::POSIX_ACL_DEFAULT).0.as_ref(), Some(&acl));
    }
}

#[test]
fn lists_grant_what_the_kernel_grants() {
    let mut rng = Rng::new(72);
    let Some(image) = Image::mkfs(32, &["-b", "1024"]) else {
        return;
    };
    if std::process::Command::new("setpriv").arg("--version").output().is_err() {
        println!("skipped: no setpriv");
        return;
    }
    let subjects: [(u32, &[u32]); 7] = [
        (1000, &[2000]),
        (1001, &[2000]),
        (1001, &[2009]),
        (1002, &[2001]),
        (1005, &[2000, 2001]),
        (1005, &[2001, 2002]),
        (1005, &[2009]),
    ];
    let owner = Owner { uid: 1000, gid: 2000 };
    let acls: Vec<Acl> = (0..80).map(|_| random(&mut rng)).collect();
    image.mounted(|root| {
        for (at, acl) in acls.iter().enumerate() {
            let file = root.join(format!("f{at:02}"));
            std::fs::write(&file, "").unwrap();
            std::os::unix::fs::chown(&file, Some(owner.uid), Some(owner.gid)).unwrap();
            set(&file, "system.posix_acl_access", acl);
        }
        for (uid, groups) in subjects {
            let list = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let loops = "for f in f*; do for w in r w x; do test -$w $f && echo 1 || echo 0; done; done";
            let output = std::process::Command::new("setpriv")
                .current_dir(root)
                .args([
                    format!("--reuid={uid}"),
                    format!("--regid={}", groups[0]),
                    format!("--groups={list}"),
                ])
                .args(["sh", "-c", loops])
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let mut answers = text.lines().map(|line| line == "1");
            for acl in &acls {
                for want in [4, 2, 1] {
                    let ours = acl.permits(Subject { uid, groups }, owner, want);
                    assert_eq!(
                        answers.next(),
                        Some(ours),
                        "{acl:?} of {owner:?} for {uid} {groups:?}, {want}"
                    );
                }
            }
        }
    });
}

#[test]
fn grants_of_two_groups_do_not_add_up() {
    let acl = Acl::new(vec![
        entry(AclTag::UserObj, 7),
        entry(AclTag::GroupObj, 0),
        entry(AclTag::Group(5), 4),
        entry(AclTag::Group(6), 2),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, 7),
    ])
    .unwrap();
    let subject = Subject { uid: 9, groups: &[5, 6] };
    let owner = Owner { uid: 1, gid: 1 };
    assert!(acl.permits(subject, owner, 4) && acl.permits(subject, owner, 2));
    assert!(!acl.permits(subject, owner, 6));
    assert!(acl.permits(Subject { uid: 9, groups: &[] }, owner, 7));
}

#[test]
fn both_forms_survive_and_a_mode_is_a_list() {
    let mut rng = Rng::new(73);
    for _ in 0..1000 {
        let acl = random(&mut rng);
        assert_eq!(Acl::from_disk(&acl.to_disk()).unwrap().as_ref(), Some(&acl));
        assert_eq!(Acl::from_xattr(&acl.to_xattr()).unwrap().as_ref(), Some(&acl));
        let mode = rng.below(0o1000) as u16;
        assert_eq!(Acl::from_mode(mode).equiv_mode(), (mode, true));
    }
    assert_eq!(Acl::from_disk(&1_u32.to_le_bytes()), Ok(None));
    assert_eq!(Acl::from_xattr(&2_u32.to_le_bytes()), Ok(None));
}

#[test]
fn invalid_lists_are_refused() {
    use AclTag::{Group, GroupObj, Mask, Other, User, UserObj};
    let valid = |tags: &[AclTag]| Acl::new(tags.iter().map(|t| entry(*t, 7)).collect()).is_ok();
    assert!(valid(&[UserObj, GroupObj, Other]));
    assert!(valid(&[UserObj, User(3), User(1), GroupObj, Group(1), Mask, Other]));
    for bad in [
        &[][..],
        &[UserObj, GroupObj],
        &[UserObj, Other],
        &[GroupObj, Other],
        &[UserObj, UserObj, GroupObj, Other],
        &[UserObj, GroupObj, Other, Other],
        &[UserObj, GroupObj, Mask, Mask, Other],
        &[UserObj, User(1), GroupObj, Other],
        &[UserObj, GroupObj, Group(1), Other],
        &[UserObj, GroupObj, User(1), Mask, Other],
        &[UserObj, User(u32::MAX), GroupObj, Mask, Other],
    ] {
        assert!(!valid(bad), "{bad:?}");
    }
    assert!(Acl::new(vec![entry(UserObj, 8), entry(GroupObj, 0), entry(Other, 0)]).is_err());
    let good = Acl::from_mode(0o754);
    let (disk, xattr) = (good.to_disk(), good.to_xattr());
    for end in 0..disk.len() {
        assert!(end == 4 || Acl::from_disk(&disk[..end]).is_err(), "{end}");
    }
    for end in 0..xattr.len() {
        assert!(end == 4 || Acl::from_xattr(&xattr[..end]).is_err(), "{end}");
    }
    assert!(Acl::from_disk(&xattr).is_err() && Acl::from_xattr(&disk).is_err());
}

#[test]
fn hostile_lists_do_not_panic() {
    let mut rng = Rng::new(74);
    for round in 0..20_000 {
        let acl = random(&mut rng);
        let mut value = match round % 3 {
            0 => acl.to_disk(),
            1 => acl.to_xattr(),
            _ => {
                let len = rng.below(40);
                rng.bytes(len)
            }
        };
        if !value.is_empty() {
            rng.mutate(&mut value, 4);
        }
        for acl in [Acl::from_disk(&value), Acl::from_xattr(&value)].into_iter().flatten().flatten() {
            assert_eq!(Acl::from_disk(&acl.to_disk()).unwrap(), Some(acl.clone()));
            let _ = acl.permits(Subject { uid: 1, groups: &[2] }, Owner { uid: 3, gid: 4 }, 7);
            let _ = (acl.chmod(rng.next() as u16), Acl::create(&acl, rng.next() as u16));
        }
    }
}
