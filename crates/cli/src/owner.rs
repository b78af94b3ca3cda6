//! Owners as `chown` takes them: `USER`, `USER:GROUP`, `USER:`, `:GROUP`, by name or number.

use extant::Filesystem;
use extant_archive::Names;

use crate::failure::Failure;

/// An owner to be set; what is none stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

impl Owner {
    /// The owner that `text` names among `names`.
    pub fn parse(text: &str, names: &Names) -> Result<Self, Failure> {
        let unknown = |what: &str, name: &str| {
            Failure::new(
                "unknown_owner",
                "",
                format!("invalid {what} '{name}': neither a number nor a name on the disk"),
            )
        };
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        if user.is_empty() && group.unwrap_or_default().is_empty() {
            return Err(Failure::usage(format!("invalid owner '{text}'")));
        }
        let uid = match user {
            "" => None,
            _ => Some(names.user(user.as_bytes()).ok_or_else(|| unknown("user", user))?),
        };
        let gid = match group {
            None => None,
            // `USER:` takes the group that the user logs in with.
            Some("") => Some(names.login_group(user.as_bytes()).ok_or_else(|| unknown("user", user))?),
            Some(group) => Some(names.group(group.as_bytes()).ok_or_else(|| unknown("group", group))?),
        };
        Ok(Self { uid, gid })
    }
}

/// The users and groups that the disk itself knows.
pub fn names_on(fs: &Filesystem) -> Names {
    let read = |path| fs.read(path).unwrap_or_default();
    Names::parse(&read("/etc/passwd"), &read("/etc/group"))
}

/// The users and groups of the host. tar puts names into access control lists, which are those of the host that packed.
pub fn names_on_host() -> Names {
    let read = |path| std::fs::read(path).unwrap_or_default();
    Names::parse(&read("/etc/passwd"), &read("/etc/group"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_taken_as_chown_takes_them() {
        let names = Names::parse(b"web:x:33:34::\n", b"www:x:35:\n");
        let parse = |text| Owner::parse(text, &names).ok().map(|owner| (owner.uid, owner.gid));
        assert_eq!(parse("web"), Some((Some(33), None)));
        assert_eq!(parse("web:"), Some((Some(33), Some(34))));
        assert_eq!(parse("1:www"), Some((Some(1), Some(35))));
        assert_eq!(parse(":0"), Some((None, Some(0))));
        for text in ["", ":", "nobody", "1:", "1:nobody"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
