//! Names by which a layer removes files of the layers below it.
//!
//! Source: OCI image specification 1.1, `layer.md`, "Whiteouts".

/// A file whose name begins so removes the file of the rest of the name.
pub const PREFIX: &[u8] = b".wh.";
/// A file of this name removes everything that lower layers have in its directory.
pub const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that begin so are the storage's own (aufs) and no part of the tree.
const METADATA_PREFIX: &[u8] = b".wh..wh.";

/// The meaning of a name in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whiteout<'a> {
    /// The file of this name in the same directory of lower layers is removed.
    Name(&'a [u8]),
    /// Everything in the same directory of lower layers is removed.
    Opaque,
    /// Not part of the tree.
    Metadata,
}

impl<'a> Whiteout<'a> {
    /// What `name` removes; none for the name of a file.
    ///
    /// # Errors
    /// A reason, if it would remove the directory itself, the one above, or a whiteout.
    pub fn parse(name: &'a [u8]) -> Result<Option<Self>, &'static str> {
        match name.strip_prefix(PREFIX) {
            None => Ok(None),
            Some(_) if name == OPAQUE => Ok(Some(Self::Opaque)),
            Some(_) if name.starts_with(METADATA_PREFIX) => Ok(Some(Self::Metadata)),
            Some(b"" | b"." | b"..") => Err("a whiteout of no file in its directory"),
            Some(hidden) => Ok(Some(Self::Name(hidden))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_files_or_whiteouts_of_files() {
        assert_eq!(Whiteout::parse(b"wh.a"), Ok(None));
        assert_eq!(Whiteout::parse(b".whale"), Ok(None));
        assert_eq!(Whiteout::parse(b".wh.a"), Ok(Some(Whiteout::Name(b"a"))));
        assert_eq!(Whiteout::parse(b".wh..hidden"), Ok(Some(Whiteout::Name(b".hidden"))));
        assert_eq!(Whiteout::parse(b".wh..wh..opq"), Ok(Some(Whiteout::Opaque)));
        assert_eq!(Whiteout::parse(b".wh..wh.plnk"), Ok(Some(Whiteout::Metadata)));
        for name in [&b".wh."[..], b".wh..", b".wh..."] {
            assert!(Whiteout::parse(name).is_err(), "{}", name.escape_ascii());
        }
    }
}
