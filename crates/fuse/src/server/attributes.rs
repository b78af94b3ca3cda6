//! Requests on attributes.

use super::*;
use extant::SetAttributes;

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

    pub(super) fn change(&self, node: NodeId, changes: &Changes) -> Reply<(Attributes, Duration)> {
        let served = self.get(Request::SetAttributes, node)?;
        let file = served.file()?;
        if let Some(size) = changes.size {
            Self::check_changeable(file, false)?;
            self.drop_privileges(file, changes.remove_set_id)?;
            file.set_len(size).map_err(|error| errno(&error))?;
        }
        let rest = Changes { size: None, remove_set_id: false, ..*changes };
        if changes.size.is_none() || rest != Changes::default() {
            self.set(file, &rest)?;
        }
        Ok((self.shown(&file.metadata()), LIFETIME))
    }

    fn set(&self, file: &File, changes: &Changes) -> Reply<()> {
        let (uid, gid) = self.owners.stored(changes.uid.unwrap_or(0), changes.gid.unwrap_or(0));
        let time = |time| match time {
            SetTime::Now => Self::now(),
            SetTime::At(time) => time,
        };
        // The kernel leaves it to us to take set-id bits away where the owner changes, and so does `chown` to nobody.
        let is_chown = changes.uid.is_some() || changes.gid.is_some() || *changes == Changes::default();
        if is_chown {
            self.drop_privileges(file, false)?;
        }
        let set = SetAttributes {
            mode: changes.mode,
            uid: changes.uid.map(|_| uid),
            gid: changes.gid.map(|_| gid),
            atime: changes.atime.map(time),
            mtime: changes.mtime.map(time),
            ctime: changes.ctime,
            clear_set_id: is_chown && changes.mode.is_none(),
            ..SetAttributes::default()
        };
        file.set_attributes(&set).map_err(|error| errno(&error))
    }

    /// Takes away what a change of content takes away: always file capabilities, set-id bits if `set_id`.
    pub(super) fn drop_privileges(&self, file: &File, set_id: bool) -> Reply<()> {
        if set_id || file.may_have_xattrs() {
            file.remove_privileges(!set_id).map_err(|error| errno(&error))?;
        }
        Ok(())
    }
}
