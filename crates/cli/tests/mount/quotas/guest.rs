//! A kernel that counts quotas, in a guest, and works as `agent.pl` does.

use std::path::Path;

use extant_testing::{Guest, Setup};

const SETUP: Setup<'_> = Setup {
    programs: &["perl"],
    modules: &["fs/quota/quota_tree", "fs/quota/quota_v2"],
    files: &[("agent.pl", include_str!("agent.pl"))],
    commands: r#"
mount -t ext4 -o usrquota,grpquota,prjquota /dev/vda /mnt || echo "R mount failed"
perl /agent.pl /mnt /dev/vdb /dev/vda
umount /mnt
"#,
};

/// A guest, if there is a kernel for it; says so if not.
pub fn find() -> Option<Guest> {
    Guest::find(&SETUP)
}

/// Has the kernel do `steps` on a disk whose limits it enforces: what came of each.
pub fn work(guest: &Guest, image: &Path, steps: &[String]) -> Vec<String> {
    let said = guest.run(&[image], &(steps.join("\n") + "\nend\n"));
    assert!(said.contains("R end"), "{said}");
    super::results(&said)
}
