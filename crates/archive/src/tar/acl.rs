//! Access control lists as text, the form that archives carry: `user::rw-,user:7:r--,…`. Written by number; read
//! by name too, for GNU tar writes names in default lists whatever its options.

use extant_ondisk::acl::{Acl, AclEntry, AclTag};

use crate::user_database::UserDatabase;

/// The list that `text` spells, as the value of `getxattr`. The reason, if it cannot be read. None if the list of
/// access says no more than the mode does, which GNU tar writes for every file that has an attribute, and if the text
/// is empty, which it writes for a directory that has a list of access and no default one.
pub(super) fn parse(
    text: &[u8],
    is_default: bool,
    names: &UserDatabase,
) -> Result<Option<Vec<u8>>, &'static str> {
    const MALFORMED: &str = "malformed access control list";
    let text = std::str::from_utf8(text).map_err(|_| MALFORMED)?;
    let mut entries = Vec::new();
    for line in text.split([',', '\n']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut parts = line.split(':').map(str::trim);
        let (Some(tag), Some(who), Some(perm)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(MALFORMED);
        };
        // Star adds the number after the permissions.
        let number = parts.next().and_then(|id| id.parse().ok());
        let id = |by_name: Option<u32>| number.or(by_name).ok_or("access control list with an unknown name");
        let tag = match (tag, who) {
            ("user" | "u", "") => AclTag::UserObj,
            ("user" | "u", _) => AclTag::User(id(names.user(who.as_bytes()))?),
            ("group" | "g", "") => AclTag::GroupObj,
            ("group" | "g", _) => AclTag::Group(id(names.group(who.as_bytes()))?),
            ("mask" | "m", _) => AclTag::Mask,
            ("other" | "o", _) => AclTag::Other,
            _ => return Err(MALFORMED),
        };
        entries.push(AclEntry { tag, perm: permissions(perm).ok_or(MALFORMED)? });
    }
    if entries.is_empty() {
        return Ok(None);
    }
    // Texts name the entries in any order; a list has them in one.
    entries.sort_by_key(|entry| rank(entry.tag));
    let acl = Acl::new(entries).map_err(|_| MALFORMED)?;
    let (_, is_equivalent) = acl.equiv_mode();
    Ok((is_default || !is_equivalent).then(|| acl.to_xattr()))
}

/// The text of a list given as the value of `getxattr`; `None` if it is none.
pub(super) fn format(value: &[u8]) -> Option<String> {
    let acl = Acl::from_xattr(value).ok()??;
    let lines = acl.entries().iter().map(|AclEntry { tag, perm }| {
        let (tag, who) = match tag {
            AclTag::UserObj => ("user", String::new()),
            AclTag::User(id) => ("user", id.to_string()),
            AclTag::GroupObj => ("group", String::new()),
            AclTag::Group(id) => ("group", id.to_string()),
            AclTag::Mask => ("mask", String::new()),
            AclTag::Other => ("other", String::new()),
        };
        let bit = |bit, letter| if perm & bit != 0 { letter } else { '-' };
        format!("{tag}:{who}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))
    });
    Some(lines.collect::<Vec<_>>().join(","))
}

fn rank(tag: AclTag) -> u8 {
    match tag {
        AclTag::UserObj => 0,
        AclTag::User(_) => 1,
        AclTag::GroupObj => 2,
        AclTag::Group(_) => 3,
        AclTag::Mask => 4,
        AclTag::Other => 5,
    }
}

fn permissions(text: &str) -> Option<u16> {
    text.bytes().try_fold(0, |perm, letter| match letter {
        b'r' => Some(perm | 4),
        b'w' => Some(perm | 2),
        b'x' => Some(perm | 1),
        b'-' => Some(perm),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive() {
        let names = UserDatabase::parse(b"lisa:x:8:8::\n", b"");
        let read = |text: &str| parse(text.as_bytes(), false, &names);
        let text = "user::rw-,user:7:r--,group::r-x,group:9:-w-,mask::rwx,other::---";
        assert_eq!(format(&read(text).unwrap().unwrap()).unwrap(), text);
        let star = "user::rw-\nuser:anna:r--:502\nuser:lisa:r--\nmask::r--\ngroup::r-x\nother::---\n";
        let numbered = "user::rw-,user:502:r--,user:8:r--,group::r-x,mask::r--,other::---";
        assert_eq!(format(&read(star).unwrap().unwrap()).unwrap(), numbered);
        assert!(read("user::rw-,user:anna:r--,group::r--,mask::r--,other::r--").is_err());
        assert!(read("user::rw-").is_err());
        assert_eq!(read("user::rw-,group::r--,other::r--"), Ok(None));
        assert_eq!(parse(b"", true, &names), Ok(None));
    }
}
