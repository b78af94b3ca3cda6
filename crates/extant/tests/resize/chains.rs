//! Random disks through chains of everything that changes a whole disk, by Extant, by e2fsprogs and by the kernel. After each link
//! e2fsck finds nothing, and the tree is what it was.
//!
//! `EXTANT_CHAINS=N` tries so many disks, `EXTANT_CHAINS_FROM=SEED` begins with another, and a failing chain prints both.

mod disks;
#[cfg(target_os = "linux")]
mod kernel;
mod links;

use std::collections::BTreeMap;
use std::env;

use extant_testing::{Random, has_e2fsprogs};

use crate::disk::Image;
use crate::tree::{Census, census, difference};

/// Links of a chain.
const LINKS: u64 = 8;

/// A disk on its way.
pub struct Chain {
    pub image: Image,
    pub arguments: Vec<String>,
    pub random: Random,
    pub tree: Census,
    /// How many links there were.
    pub links: u64,
}

/// What a link did to the tree.
pub enum Done {
    /// Nothing.
    Same,
    /// Times of directories changed.
    Content,
    /// Directories have another size or index.
    Directories,
    /// What is below these directories changed.
    Below(&'static [&'static str]),
    /// It does not do that to this disk, and says why.
    Refused(String),
    /// Another program damaged the disk.
    Damaged(String),
}

/// Links that are refused on a disk whose space is allocated in clusters.
const NOT_IN_CLUSTERS: &[&str] = &["grow", "shrink", "min", "defrag"];

impl Chain {
    /// Whether space is allocated in clusters (`bigalloc`).
    pub fn has_clusters(&self) -> bool {
        self.arguments.iter().any(|it| it.starts_with("-O") && it.contains("bigalloc"))
    }

    /// Performs a link.
    fn link(&mut self, (name, perform): links::Link) -> Result<Done, String> {
        let done = if self.has_clusters() && NOT_IN_CLUSTERS.contains(&name) {
            self.refused_link(perform)?
        } else {
            perform(self)?
        };
        self.links += 1;
        if let Done::Damaged(_) = done {
            return Ok(done);
        }
        if let Some(faults) = self.image.faults() {
            let is_ours = !matches!(name, "resize2fs" | "growth by the kernel");
            return if is_ours { Err(faults) } else { Ok(Done::Damaged(faults)) };
        }
        let fs = extant::Mount::new().read_only(true).open(&self.image.path).map_err(|e| e.to_string())?;
        let tree = census(&fs).map_err(|e| e.to_string())?;
        let is_kept = |path: &str, dirs: &[&str]| !dirs.iter().any(|dir| path.starts_with(dir));
        let kept = |tree: &Census, dirs: &[&str]| -> Census {
            tree.iter().filter(|(path, ..)| is_kept(path, dirs)).cloned().collect()
        };
        let plain = |tree: &Census| -> Census {
            tree.iter().map(|(path, _, content)| (path.clone(), String::new(), content.clone())).collect()
        };
        let without_directories = |tree: &Census| -> Census {
            let text =
                |text: &str| if text.starts_with("Directory ") { String::new() } else { text.to_owned() };
            tree.iter().map(|(path, own, content)| (path.clone(), text(own), content.clone())).collect()
        };
        let other = match &done {
            Done::Same | Done::Refused(_) => difference(&self.tree, &tree),
            Done::Directories => difference(&without_directories(&self.tree), &without_directories(&tree)),
            Done::Content => difference(&plain(&self.tree), &plain(&tree)),
            Done::Below(dirs) => difference(&kept(&self.tree, dirs), &kept(&tree, dirs)),
            Done::Damaged(_) => None,
        };
        self.tree = tree;
        other.map_or(Ok(done), Err)
    }
}

impl Chain {
    /// Performs a link that is refused by the name of the feature. Neither the size nor what is free changes.
    fn refused_link(&mut self, perform: fn(&mut Self) -> Result<Done, String>) -> Result<Done, String> {
        let state = |chain: &Self| {
            let fs = extant::Mount::new().read_only(true).open(&chain.image.path).expect("mount");
            let (it, superblock) = (fs.statistics(), fs.superblock());
            let features = (superblock.compat(), superblock.incompat(), superblock.ro_compat());
            (superblock.blocks_count(), features, it.free_blocks, it.free_inodes)
        };
        let before = state(self);
        match perform(self)? {
            Done::Refused(why) if !why.contains("bigalloc") => Err(format!("refused without a name: {why}")),
            Done::Refused(why) if state(self) == before => Ok(Done::Refused(why)),
            Done::Refused(why) => Err(format!("changed, but {why}")),
            _ => Err("not refused".to_owned()),
        }
    }
}

/// Sends a disk through so many links; counts what was done.
fn go(seed: u64, count: u64, counts: &mut BTreeMap<String, u64>) -> bool {
    let Some(mut chain) = disks::random(seed) else { return false };
    let mut names = Vec::new();
    for _ in 0..count {
        let link = links::LINKS[chain.random.below(links::LINKS.len() as u64) as usize];
        names.push(link.0);
        let case = |what: &str| {
            format!("EXTANT_CHAINS_FROM={seed}: mke2fs {}: {names:?}: {what}", chain.arguments.join(" "))
        };
        let when = case("");
        let kind = match chain.link(link) {
            Ok(Done::Refused(why)) => {
                println!("{when}refused: {}", why.lines().last().unwrap_or_default());
                "refused"
            }
            Ok(Done::Damaged(why)) => {
                println!("{when}damaged by another program: {why}");
                *counts.entry("damaged by another program".to_owned()).or_default() += 1;
                return true;
            }
            Ok(_) => "done",
            Err(what) => panic!("{when}{what}"),
        };
        *counts.entry(format!("{} {kind}", link.0)).or_default() += 1;
    }
    true
}

#[test]
fn chains_of_changes_of_whole_disks_leave_the_tree_as_it_is() {
    if !has_e2fsprogs() {
        return;
    }
    let number = |name: &str| env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let (disks, from) = (number("EXTANT_CHAINS"), number("EXTANT_CHAINS_FROM").unwrap_or(95));
    let mut counts = BTreeMap::new();
    let went = (from..from + disks.unwrap_or(2)).filter(|seed| go(*seed, LINKS, &mut counts)).count();
    println!("{went} disks from EXTANT_CHAINS_FROM={from}: {counts:#?}");
}
