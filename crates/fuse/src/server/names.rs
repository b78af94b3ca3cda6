//! Requests on names.

use super::*;
use extant::{New, NewKind, RenameFlags};
use extant_rt::is_interrupted;

impl Server {
    pub(super) fn look_up(&self, parent: NodeId, name: &[u8]) -> Reply<Result<EntryReply, Duration>> {
        if name == b"." {
            return self.look_up_node(parent).map(Ok);
        }
        if let Some(control) = &self.control
            && parent == control::DIRECTORY
        {
            return Ok(self.control_file(control, name).ok_or(Duration::ZERO));
        }
        let served = self.nodes.get(parent)?;
        match served.dir()?.lookup(name) {
            Ok(file) => self.give(file).map(Ok),
            Err(Error::NotFound) => {
                let control =
                    self.control.as_ref().filter(|_| parent == NodeId::ROOT && name == control::NAME);
                Ok(control.map(|control| self.control_directory(control)).ok_or(LIFETIME))
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// The inode of a number that the kernel has forgotten, out of a file handle, which may say any. Whether the generation is the
    /// handle's, the kernel looks itself.
    ///
    /// Source: `fuse_get_dentry`.
    fn look_up_node(&self, node: NodeId) -> Reply<EntryReply> {
        let number = if node == NodeId::ROOT {
            InodeNumber::ROOT
        } else {
            // Numbers of more than 32 bits belong to the control directory, whose files have no handles.
            InodeNumber(u32::try_from(node.0).map_err(|_| Errno::STALE)?)
        };
        if Self::node_id(number) != node {
            return Err(Errno::STALE);
        }
        self.give(self.fs.open_by_handle(number).map_err(|error| errno(&error))?)
    }

    pub(super) fn make_inode(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<EntryReply> {
        let served = self.nodes.get(parent)?;
        let dir = served.dir()?;
        let kind = match request.kind {
            InodeType::File => NewKind::File,
            InodeType::Directory => NewKind::Directory,
            InodeType::Symlink(target) => NewKind::Symlink(target),
            InodeType::Special(file_type, device) => {
                let (major, minor) = decode_device(device);
                match file_type {
                    FileType::Fifo => NewKind::Fifo,
                    FileType::Socket => NewKind::Socket,
                    FileType::CharDevice => NewKind::CharDevice { major, minor },
                    FileType::BlockDevice => NewKind::BlockDevice { major, minor },
                    _ => return Err(Errno::INVAL),
                }
            }
        };
        let new = self.new_inode(caller, dir, kind, request)?;
        let file = dir.create(name, &new).map_err(|error| errno(&error))?;
        self.give(file)
    }

    pub(super) fn create_file(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<(EntryReply, Opened)> {
        let served = self.nodes.get(parent)?;
        let dir = served.dir()?;
        let new = self.new_inode(caller, dir, NewKind::File, request)?;
        self.give_open(dir.create(name, &new).map_err(|error| errno(&error))?)
    }

    pub(super) fn open_tmpfile(
        &self,
        caller: Caller,
        parent: NodeId,
        request: &CreateRequest<'_>,
    ) -> Reply<(EntryReply, Opened)> {
        let served = self.nodes.get(parent)?;
        let dir = served.dir()?;
        let new = self.new_inode(caller, dir, NewKind::File, request)?;
        self.give_open(dir.create_tmpfile(&new).map_err(|error| errno(&error))?)
    }

    fn new_inode<'n>(
        &self,
        caller: Caller,
        dir: &extant::Dir,
        kind: NewKind<'n>,
        request: &CreateRequest<'_>,
    ) -> Reply<New<'n>> {
        let (uid, gid) = self.owners.stored(caller.uid, caller.gid);
        let mode = if self.has_default_acl(dir)? { request.mode } else { request.mode & !request.umask };
        Ok(New { kind, mode, uid, gid, times: None, xattrs: &[] })
    }

    /// Whether a directory's default access control list decides instead of the caller's mask.
    fn has_default_acl(&self, dir: &extant::Dir) -> Reply<bool> {
        if !dir.may_have_xattrs() {
            return Ok(false);
        }
        match dir.xattr(b"system.posix_acl_default") {
            Ok(_) => Ok(true),
            Err(Error::NoAttribute) => Ok(false),
            Err(error) => Err(errno(&error)),
        }
    }

    pub(super) fn rename_entry(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: Rename) -> Reply<()> {
        let source = self.nodes.get(from.0)?;
        let target = self.nodes.get(to.0)?;
        let flags =
            RenameFlags { no_replace: how.no_replace, exchange: how.exchange, whiteout: how.whiteout };
        source.dir()?.rename(from.1, target.dir()?, to.1, flags).map_err(|error| errno(&error))
    }

    pub(super) fn link_inode(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Reply<EntryReply> {
        let dir = self.nodes.get(parent)?;
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        Self::check_changeable(file, false)?;
        dir.dir()?.link(file, name).map_err(|error| errno(&error))?;
        self.give(file.clone())
    }

    pub(super) fn list_directory(
        &self,
        node: NodeId,
        cookie: u64,
        with_attributes: bool,
        listing: &mut dyn Listing,
    ) -> Reply<()> {
        if let Some(control) = &self.control
            && node == control::DIRECTORY
        {
            self.list_control(control, cookie, with_attributes, listing);
            return Ok(());
        }
        let served = self.nodes.get(node)?;
        let dir = served.dir()?;
        if cookie == 0 {
            dir.touch_atime(self.dir_access_times).map_err(|error| errno(&error))?;
        }
        let own = self.shown(&dir.metadata());
        let read = dir.read_from(cookie, &mut |item| {
            if is_interrupted() {
                return false;
            }
            let inode = u64::from(item.inode.0);
            let is_dot = matches!(item.name, b"." | b"..");
            if !with_attributes {
                let file_type = if is_dot { Some(FileType::Directory) } else { item.file_type };
                return listing.name(
                    item.name,
                    inode,
                    file_type.unwrap_or(FileType::Regular),
                    item.next_cookie,
                );
            }
            if is_dot {
                // The kernel takes neither attributes nor a use of these.
                let entry = entry_of(NodeId(inode), 0, Attributes { inode, ..own });
                return listing.entry(item.name, &entry, item.next_cookie);
            }
            match self.fs.inode(item.inode).map_err(|error| errno(&error)).and_then(|file| self.give(file)) {
                Ok(entry) => {
                    let has_room = listing.entry(item.name, &entry, item.next_cookie);
                    if !has_room {
                        self.nodes.forget(entry.node, 1);
                    }
                    has_room
                }
                // A damaged inode: the name is shown, and a look-up of it reports the damage.
                Err(_) => {
                    let entry = entry_of(NodeId(0), 0, Attributes { inode, ..own });
                    listing.entry(item.name, &entry, item.next_cookie)
                }
            }
        });
        read.map_err(|error| errno(&error))
    }

    fn list_control(&self, control: &Control, cookie: u64, with_attributes: bool, listing: &mut dyn Listing) {
        let names = Control::names();
        let skipped = usize::try_from(cookie).unwrap_or(usize::MAX);
        for (index, name) in names.iter().enumerate().skip(skipped) {
            let next = index as u64 + 1;
            let has_room = if with_attributes {
                let Some(entry) = self.control_file(control, name.as_bytes()) else { continue };
                let has_room = listing.entry(name.as_bytes(), &entry, next);
                if !has_room {
                    self.nodes.forget(entry.node, 1);
                }
                has_room
            } else {
                listing.name(name.as_bytes(), control::DIRECTORY.0 + next, FileType::Regular, next)
            };
            if !has_room {
                return;
            }
        }
    }
}
