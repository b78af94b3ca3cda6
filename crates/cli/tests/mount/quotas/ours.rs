//! The steps of `agent.pl` done by the library.

use std::time::Duration;

use extant::{
    Credentials, Fallocate, File, Filesystem, InodeFlags, QuotaType, Result, SetAttributes, XattrMode,
};

/// The types, by the numbers that `quotactl` has for them.
pub fn quota_type(number: &str) -> QuotaType {
    QuotaType::ALL[number.parse::<usize>().expect("a type")]
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

/// A user of a file system, and the files that are held open.
pub struct Worker<'f> {
    fs: &'f Filesystem,
    view: Filesystem,
    held: Vec<File>,
}

impl<'f> Worker<'f> {
    pub fn new(fs: &'f Filesystem) -> Self {
        Self { fs, view: fs.clone(), held: Vec::new() }
    }

    /// Does the steps: what came of each.
    pub fn work(&mut self, steps: &[String]) -> Vec<String> {
        let outcome = |step: &String| match self.step(step) {
            Ok(value) => format!("ok {value}"),
            Err(error) => format!("errno {}", extant_fuse::errno(&error).raw_os_error()),
        };
        steps.iter().map(outcome).collect()
    }

    fn step(&mut self, step: &str) -> Result<String> {
        let words: Vec<&str> = step.split_whitespace().collect();
        let done = "done".to_owned();
        match words[..] {
            ["user", uid, gid, ref groups @ ..] => {
                let user = Credentials {
                    uid: number(uid),
                    gid: number(gid),
                    groups: groups.iter().map(|group| number(group)).collect(),
                };
                self.view = if user.uid == 0 { self.fs.clone() } else { self.fs.as_user(user) };
                Ok(done)
            }
            ["hold", path] => {
                self.held.push(self.view.lookup(path)?);
                Ok(done)
            }
            ["drop"] => {
                self.held.clear();
                Ok(done)
            }
            ["sync"] => self.fs.sync().map(|()| done),
            ["crash"] => self.fs.force_shutdown(false).map(|()| done),
            ["sleep", seconds] => {
                std::thread::sleep(Duration::from_secs(number(seconds)));
                Ok(done)
            }
            ["df", path] => {
                let full = self.view.lookup(path)?.statistics();
                let (blocks, inodes) = (full.available_blocks, full.free_inodes);
                Ok(format!("{},{},{blocks},{},{inodes}", full.blocks, full.free_blocks, full.inodes))
            }
            ["quotas", of] => {
                self.fs.sync()?;
                let shown = self.fs.quotas(quota_type(of))?.into_iter().map(|quota| {
                    let limits = quota.limits;
                    format!(
                        "{}:{}:{}:{}:{}:{}:{}",
                        quota.id,
                        quota.space_bytes,
                        quota.inodes,
                        limits.space_soft_bytes / 1024,
                        limits.space_hard_bytes / 1024,
                        limits.inodes_soft,
                        limits.inodes_hard
                    )
                });
                Ok(shown.collect::<Vec<_>>().join(","))
            }
            _ => self.change(&words).map(|written| written.map_or(done, |bytes| bytes.to_string())),
        }
    }

    /// A change of files: how many bytes were written, if it is a write.
    fn change(&self, words: &[&str]) -> Result<Option<usize>> {
        let view = &self.view;
        let writable = |path: &str| view.options().write(true).open(path);
        match *words {
            ["create", path] => {
                view.options().write(true).create_new(true).mode(0o644).open(path).map(drop)?
            }
            ["mkdir", path] => view.create_dir(path)?,
            ["symlink", path, bytes] => view.symlink("t".repeat(number(bytes)), path)?,
            ["write", path, offset, bytes] => {
                return writable(path)?.write_at(&vec![b'q'; number(bytes)], number(offset)).map(Some);
            }
            ["truncate", path, bytes] => writable(path)?.set_len(number(bytes))?,
            [how @ ("allocate" | "keep" | "punch" | "zero"), path, offset, bytes] => {
                let what = match how {
                    "allocate" => Fallocate::Allocate { keep_size: false },
                    "keep" => Fallocate::Allocate { keep_size: true },
                    "punch" => Fallocate::PunchHole,
                    _ => Fallocate::ZeroRange { keep_size: false },
                };
                writable(path)?.allocate(what, number(offset), number(bytes))?;
            }
            ["chown", path, uid, gid] => {
                let set = SetAttributes {
                    uid: Some(number(uid)),
                    gid: Some(number(gid)),
                    ..SetAttributes::default()
                };
                view.lookup(path)?.set_attributes(&set)?;
            }
            ["chmod", path, mode] => {
                let mode = u16::from_str_radix(mode, 8).expect("a mode");
                let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                view.lookup(path)?.set_attributes(&set)?;
            }
            ["project", path, project] => {
                let set = SetAttributes { project: Some(number(project)), ..SetAttributes::default() };
                view.lookup(path)?.set_attributes(&set)?;
            }
            ["inherit", path] => {
                let file = view.lookup(path)?;
                file.set_flags(file.flags() ^ InodeFlags::PROJINHERIT)?;
            }
            ["xattr", path, bytes] => {
                let value = vec![b'v'; number(bytes)];
                view.lookup(path)?.set_xattr(b"user.a", &value, XattrMode::default())?;
            }
            ["link", from, to] => view.hard_link(from, to)?,
            ["rename", from, to] => view.rename(from, to)?,
            ["unlink", path] => view.remove_file(path)?,
            ["rmdir", path] => view.remove_dir(path)?,
            _ => panic!("no step: {words:?}"),
        }
        Ok(None)
    }
}
