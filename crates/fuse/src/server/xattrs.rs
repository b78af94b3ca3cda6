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
        let served = self.nodes.get(node)?;
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
        let served = self.nodes.get(node)?;
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
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        let mode = XattrMode {
            create: flags & XATTR_CREATE != 0,
            replace: flags & XATTR_REPLACE != 0,
            clear_setgid: self.is_outsider(caller, file),
        };
        file.set_xattr(name, value, mode).map_err(|error| errno(&error))
    }
}
