//! Requests on attributes.

use super::*;

impl Server {
    pub(super) fn stat(&self, node: NodeId) -> Reply<(Attributes, Duration)> {
        self.metrics.count(Request::Attributes);
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
        node: NodeId,
        set: &SetAttributes,
        size: Option<SetSize>,
    ) -> Reply<(Attributes, Duration)> {
        let served = self.get(Request::SetAttributes, node)?;
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
        if size.is_none() || *set != SetAttributes::default() {
            self.set(file, set)?;
        }
        Ok((self.shown(&file.metadata()), LIFETIME))
    }

    fn set(&self, file: &File, set: &SetAttributes) -> Reply<()> {
        let (uid, gid) = self.owners.stored(set.uid.unwrap_or(0), set.gid.unwrap_or(0));
        // The kernel leaves it to us to take set-id bits away where the owner changes, and so does `chown` to nobody.
        let is_chown = set.uid.is_some() || set.gid.is_some() || *set == SetAttributes::default();
        if is_chown {
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

    /// Takes away what a change of content takes away: always file capabilities, set-id bits if `set_id`.
    pub(super) fn drop_privileges(&self, file: &File, set_id: bool) -> Reply<()> {
        if set_id || file.may_have_xattrs() {
            file.remove_privileges(!set_id).map_err(|error| errno(&error))?;
        }
        Ok(())
    }
}
