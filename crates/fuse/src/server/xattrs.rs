//! Requests on extended attributes.

use super::*;
use extant::XattrMode;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

impl Server {
    pub(super) fn get_xattr(&self, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        if Control::owns(node) {
            return Err(Errno::NODATA);
        }
        let served = self.get(Request::Xattr, node)?;
        let file = served.file()?;
        // Asked for each new inode and nearly never there.
        if !file.may_have_xattrs() {
            return Err(Errno::NODATA);
        }
        file.xattr(name).map_err(|error| errno(&error))
    }

    pub(super) fn xattr_names(&self, caller: Caller, node: NodeId) -> Reply<Vec<u8>> {
        if Control::owns(node) {
            return Ok(Vec::new());
        }
        let served = self.get(Request::Xattr, node)?;
        let mut names = Vec::new();
        for name in served.file()?.list_xattrs().map_err(|error| errno(&error))? {
            if caller.is_root() || !name.starts_with(b"trusted.") {
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
        let served = self.get(Request::SetXattr, node)?;
        let file = served.file()?;
        // Which further groups the caller is in does not come along: in doubt the bit goes.
        let (_, gid) = self.owners.stored(caller.uid, caller.gid);
        let mode = XattrMode {
            create: flags & XATTR_CREATE != 0,
            replace: flags & XATTR_REPLACE != 0,
            clear_setgid: !caller.is_root() && gid != file.metadata().gid,
        };
        file.set_xattr(name, value, mode).map_err(|error| errno(&error))
    }
}
