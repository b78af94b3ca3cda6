//! Requests on attributes.

use extant::mode::S_ISGID;

use super::*;
use crate::nodes::Served;

impl Server {
    pub(super) fn stat(&self, node: NodeId) -> Reply<(Attributes, Duration)> {
        if let Some(control) = &self.control
            && Control::owns(node)
        {
            if node == control::DIRECTORY {
                return Ok((control.directory(Self::now()), Duration::ZERO));
            }
            let served = self.nodes.get(node)?;
            let snapshot = served.control().ok_or(Errno::STALE)?;
            return Ok((control.file(node, snapshot), LIFETIME));
        }
        let served = self.nodes.get(node)?;
        Ok((self.shown(&served.file()?.metadata()), LIFETIME))
    }

    pub(super) fn change(
        &self,
        caller: Caller,
        node: NodeId,
        set: &SetAttributes,
        size: Option<SetSize>,
    ) -> Reply<(Attributes, Duration)> {
        let served = self.nodes.get(node)?;
        if let (Some(control), Some(snapshot)) = (&self.control, served.control()) {
            // An open that cuts it, before a value is written.
            snapshot.check_writable()?;
            return Ok((control.file(node, snapshot), LIFETIME));
        }
        let file = served.file()?;
        if let Some(size) = size {
            Self::check_changeable(file, false)?;
            self.drop_privileges(file, size.remove_set_id)?;
            file.set_len(size.bytes).map_err(|error| errno(&error))?;
        }
        let is_nothing = *set == SetAttributes::default();
        if is_nothing && size.is_none() {
            served.announce();
        }
        if !is_nothing || (size.is_none() && self.owns(caller, file)) {
            self.set(file, set)?;
        }
        Ok((self.shown(&file.metadata()), LIFETIME))
    }

    fn set(&self, file: &File, set: &SetAttributes) -> Reply<()> {
        let (uid, gid) = self.owners.stored(set.uid.unwrap_or(0), set.gid.unwrap_or(0));
        // The kernel leaves it to the server to clear set-id bits when the owner changes; a `chown` that changes no id clears
        // them too.
        let is_chown = set.uid.is_some() || set.gid.is_some() || *set == SetAttributes::default();
        if is_chown {
            Self::check_changeable(file, *set == SetAttributes::default())?;
            self.drop_privileges(file, false)?;
        }
        let stored = SetAttributes {
            uid: set.uid.map(|_| uid),
            gid: set.gid.map(|_| gid),
            clear_set_id: is_chown && set.mode.is_none(),
            ..*set
        };
        file.set_attributes(&stored).map_err(|error| errno(&error))
    }

    /// Whether the caller may change the owner of a file to the same, which takes set-id bits and capabilities away. The kernel
    /// asks for it on behalf of any caller: for `chown(-1, -1)`, and ahead of a change of the content, which takes them away
    /// itself.
    ///
    /// Source: `chown_common`, `fuse_setattr`.
    fn owns(&self, caller: Caller, file: &File) -> bool {
        let metadata = file.metadata();
        caller.is_root() || caller.uid == self.owners.shown(metadata.uid, metadata.gid).0
    }

    /// Whether the caller is no member of a file's group, as far as can be seen. Which further groups it is in does not come
    /// along: in doubt it is none.
    pub(super) fn is_outsider(&self, caller: Caller, file: &File) -> bool {
        let (_, gid) = self.owners.stored(caller.uid, caller.gid);
        !caller.is_root() && gid != file.metadata().gid
    }

    /// Takes away what an allocation by the caller takes away.
    ///
    /// Source: `file_modified`, `setattr_should_drop_sgid`.
    pub(super) fn drop_privileges_by(&self, caller: Caller, node: NodeId, served: &Served) -> Reply<()> {
        let file = served.file()?;
        self.drop_privileges(file, !caller.is_root())?;
        if caller.is_root() || !served.take_announcement() {
            return Ok(());
        }
        let mode = file.metadata().mode;
        if mode & S_ISGID != 0 && self.is_outsider(caller, file) {
            // Where the group may not execute it too.
            let set = SetAttributes { mode: Some(mode & !S_ISGID), ..SetAttributes::default() };
            file.set_attributes(&set).map_err(|error| errno(&error))?;
        }
        self.tell_of_change(node);
        Ok(())
    }

    /// Takes away what a change of content takes away: always file capabilities, set-id bits if `set_id`.
    pub(super) fn drop_privileges(&self, file: &File, set_id: bool) -> Reply<()> {
        if set_id || file.may_have_xattrs() {
            file.remove_privileges(!set_id).map_err(|error| errno(&error))?;
        }
        Ok(())
    }
}
