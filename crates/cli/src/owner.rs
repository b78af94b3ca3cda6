//! Owners as `chown` takes them: `USER`, `USER:GROUP`, `USER:`, `:GROUP`, by name or number.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use extant::Filesystem;
use extant_archive::UserDatabase;

use crate::failure::Failure;
use crate::output::escape;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// What is read of them at most.
const BYTES_MAX: usize = 16 << 20;

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
    pub fn parse(text: &str, names: &UserDatabase) -> Result<Self, Failure> {
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
pub fn names_on(fs: &Filesystem) -> UserDatabase {
    UserDatabase::parse(&read(fs, PASSWD), &read(fs, GROUP))
}

/// The users and groups that a mounted disk knows.
pub fn names_below(point: &Path) -> UserDatabase {
    UserDatabase::parse(&read_below(point, PASSWD), &read_below(point, GROUP))
}

/// The content of a file of a mounted disk; nothing if it cannot be read.
fn read_below(point: &Path, path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    if let Ok(file) = std::fs::File::open(point.join(&path[1..])) {
        // What was read until an error counts.
        let _ = file.take(BYTES_MAX as u64).read_to_end(&mut content);
    }
    content
}

/// A file's content; nothing if it cannot be read. A disk may say anything of its size.
fn read(fs: &Filesystem, path: &str) -> Vec<u8> {
    let Ok(file) = fs.open(path) else { return Vec::new() };
    let mut content = Vec::new();
    let mut piece = [0; 64 << 10];
    while content.len() < BYTES_MAX {
        match file.read_at(&mut piece, content.len() as u64) {
            Ok(read) if read > 0 => content.extend_from_slice(&piece[..read]),
            _ => break,
        }
    }
    content
}

/// Names of users and groups that the disk itself knows, to be shown.
#[derive(Debug, Default)]
pub struct NamesByNumber {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl NamesByNumber {
    /// The names and ids of a disk.
    pub fn on(fs: &Filesystem) -> Self {
        Self { users: by_number(&read(fs, PASSWD)), groups: by_number(&read(fs, GROUP)) }
    }

    /// The names and ids of a mounted disk.
    pub fn below(point: &Path) -> Self {
        Self { users: by_number(&read_below(point, PASSWD)), groups: by_number(&read_below(point, GROUP)) }
    }

    /// The user's name, else the number.
    pub fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// The group's name, else the number.
    pub fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

/// The first name of each number in lines of `name:password:number`.
fn by_number(file: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in file.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b':');
        if let (Some(name), Some(number)) = (fields.next(), fields.nth(1))
            && let Some(number) = std::str::from_utf8(number).ok().and_then(|digits| digits.parse().ok())
            && !name.is_empty()
        {
            names.entry(number).or_insert_with(|| escape(name));
        }
    }
    names
}

/// The users and groups of the host. tar puts names into access control lists, which are those of the host that packed.
pub fn names_on_host() -> UserDatabase {
    let read = |path| std::fs::read(path).unwrap_or_default();
    UserDatabase::parse(&read("/etc/passwd"), &read("/etc/group"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_first_name_and_no_control_characters() {
        let names = by_number(b"web:x:33:34::\nagain:x:33:::\nbad\n:x:5:\n\x1b:x:7:\n");
        assert_eq!(
            (names.get(&33).map(String::as_str), names.get(&7).map(String::as_str)),
            (Some("web"), Some("\\033"))
        );
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn owners_are_taken_as_chown_takes_them() {
        let names = UserDatabase::parse(b"web:x:33:34::\n", b"www:x:35:\n");
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
