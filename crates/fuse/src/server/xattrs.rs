//! Requests on extended attributes.

use super::*;
use crate::capabilities::{Capability, is_capable};
use extant::XattrMode;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Whether it is the name of an access control list.
fn is_acl(name: &[u8]) -> bool {
    matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// Checks that the kernel's ext4 has a name space of attributes. For `system.` the kernel checks no permission: a name that it
/// does not check itself, as it does access control lists, any user could set on any file.
///
/// Source: `xattr_permission`, `ext4_xattr_handlers`.
fn check_name_space(name: &[u8]) -> Reply<()> {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    if is_acl(name) || prefixes.iter().any(|prefix| name.starts_with(prefix)) {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

impl Server {
    pub(super) fn get_xattr(&self, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        if Control::owns(node) {
            return Err(Errno::NODATA);
        }
        check_name_space(name)?;
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        // The kernel asks for it for each new inode, and it is nearly never there.
        if !file.may_have_xattrs() {
            return Err(Errno::NODATA);
        }
        file.xattr(name).map_err(|error| errno(&error))
    }

    pub(super) fn xattr_names(&self, caller: Caller, node: NodeId) -> Reply<Vec<u8>> {
        if Control::owns(node) {
            return Ok(Vec::new());
        }
        let served = self.nodes.get(node)?;
        let all = served.file()?.list_xattrs().map_err(|error| errno(&error))?;
        // The kernel shows all names in the reply; the caller's capability is looked up only if it matters.
        let has_trusted = all.iter().any(|name| name.starts_with(b"trusted."));
        let sees_trusted = has_trusted && is_capable(caller.thread, Capability::SystemAdministration);
        let mut names = Vec::new();
        for name in all {
            if check_name_space(&name).is_ok() && (sees_trusted || !name.starts_with(b"trusted.")) {
                names.extend_from_slice(&name);
                names.push(0);
            }
        }
        Ok(names)
    }

    pub(super) fn put_xattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Reply<()> {
        check_name_space(name)?;
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        let mode = XattrMode {
            create: flags & XATTR_CREATE != 0,
            replace: flags & XATTR_REPLACE != 0,
            clear_setgid: self.is_outsider(caller, file),
        };
        file.set_xattr(name, value, mode).map_err(|error| errno(&error))
    }

    pub(super) fn take_xattr(&self, node: NodeId, name: &[u8]) -> Reply<()> {
        check_name_space(name)?;
        let served = self.nodes.get(node)?;
        match served.file()?.remove_xattr(name) {
            // An access control list that says no more than the mode is removed by the kernel, whether or not there was one.
            Err(Error::NoAttribute) if is_acl(name) => Ok(()),
            removed => removed.map_err(|error| errno(&error)),
        }
    }
}
