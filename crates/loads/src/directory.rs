//! What loads need of a directory, of whatever file system.

use extant::{Dir, Error, Fallocate, File, New, NewKind, RenameFlags};

/// A directory that loads work in.
pub trait Directory {
    /// An open file.
    type File;
    /// Why something failed.
    type Error;

    /// Makes an empty file.
    ///
    /// # Errors
    /// The file system's, as those of all methods.
    fn create(&self, name: &str) -> Result<Self::File, Self::Error>;
    /// Opens a file.
    fn open(&self, name: &str) -> Result<Self::File, Self::Error>;
    /// Finds a file by its name and reads its attributes.
    fn stat(&self, name: &str) -> Result<(), Self::Error>;
    /// Takes a name away.
    fn unlink(&self, name: &str) -> Result<(), Self::Error>;
    /// Allocates blocks for a range and makes the file reach to its end.
    fn allocate(file: &Self::File, at: u64, bytes: u64) -> Result<(), Self::Error>;
    /// Writes into a file.
    fn write(file: &Self::File, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Finds a file by a path of directories below this one, with slashes, and reads its attributes.
    fn stat_path(&self, path: &str) -> Result<(), Self::Error>;
    /// A directory inside, made if there is none.
    fn subdirectory(&self, name: &str) -> Result<Self, Self::Error>
    where
        Self: Sized;
    /// Takes an empty directory inside away.
    fn remove_dir(&self, name: &str) -> Result<(), Self::Error>;
    /// Gives a file another name, in this directory or in another one.
    fn rename(&self, name: &str, to: &Self, new: &str) -> Result<(), Self::Error>;
    /// Gives a file a further name, in this directory or in another one.
    fn link(&self, name: &str, to: &Self, new: &str) -> Result<(), Self::Error>;
    /// Visits all names.
    fn list(&self, visit: &mut dyn FnMut(&str)) -> Result<(), Self::Error>;
    /// Where a file ends.
    fn bytes(file: &Self::File) -> Result<u64, Self::Error>;
    /// Fills `buf` from a file.
    fn read(file: &Self::File, at: u64, buf: &mut [u8]) -> Result<(), Self::Error>;
    /// Cuts a file to so many bytes.
    fn truncate(file: &Self::File, bytes: u64) -> Result<(), Self::Error>;
    /// Makes a file durable.
    fn fsync(file: &Self::File) -> Result<(), Self::Error>;
    /// Makes a file's data durable.
    fn fdatasync(file: &Self::File) -> Result<(), Self::Error>;
}

const NEW: New<'static> = New { kind: NewKind::File, mode: 0o644, uid: 0, gid: 0, times: None, xattrs: &[] };

impl Directory for Dir {
    type File = File;
    type Error = Error;

    fn create(&self, name: &str) -> Result<File, Error> {
        Self::create(self, name.as_bytes(), &NEW)
    }

    fn open(&self, name: &str) -> Result<File, Error> {
        self.lookup(name.as_bytes())
    }

    fn stat(&self, name: &str) -> Result<(), Error> {
        std::hint::black_box(self.symlink_metadata(name.as_bytes())?);
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<(), Error> {
        Self::unlink(self, name.as_bytes())
    }

    fn allocate(file: &File, at: u64, bytes: u64) -> Result<(), Error> {
        file.allocate(Fallocate::Allocate { keep_size: false }, at, bytes)
    }

    fn write(file: &File, at: u64, bytes: &[u8]) -> Result<(), Error> {
        file.write_all_at(bytes, at)
    }

    fn read(file: &File, at: u64, buf: &mut [u8]) -> Result<(), Error> {
        file.read_at(buf, at).map(drop)
    }

    fn stat_path(&self, path: &str) -> Result<(), Error> {
        let Some((above, name)) = path.rsplit_once('/') else { return Directory::stat(self, path) };
        let dir = above.split('/').try_fold(self.clone(), |dir, name| dir.dir(name.as_bytes()))?;
        Directory::stat(&dir, name)
    }

    fn subdirectory(&self, name: &str) -> Result<Self, Error> {
        let new = New { kind: NewKind::Directory, mode: 0o755, ..NEW };
        match self.create_dir(name.as_bytes(), &new) {
            Err(Error::Exists) => self.dir(name.as_bytes()),
            made => made,
        }
    }

    fn remove_dir(&self, name: &str) -> Result<(), Error> {
        self.rmdir(name.as_bytes())
    }

    fn rename(&self, name: &str, to: &Self, new: &str) -> Result<(), Error> {
        Self::rename(self, name.as_bytes(), to, new.as_bytes(), RenameFlags::default())
    }

    fn link(&self, name: &str, to: &Self, new: &str) -> Result<(), Error> {
        Self::link(to, &self.lookup(name.as_bytes())?, new.as_bytes())
    }

    fn list(&self, visit: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.read_from(0, &mut |item| {
            visit(std::str::from_utf8(item.name).unwrap_or_default());
            true
        })
    }

    fn bytes(file: &File) -> Result<u64, Error> {
        Ok(file.metadata().size)
    }

    fn truncate(file: &File, bytes: u64) -> Result<(), Error> {
        file.set_len(bytes)
    }

    fn fsync(file: &File) -> Result<(), Error> {
        file.sync_all()
    }

    fn fdatasync(file: &File) -> Result<(), Error> {
        file.sync_data()
    }
}
