//! `extant quota`.

mod report;

use std::path::PathBuf;

use clap::Args;
use extant::{QuotaGrace, QuotaType, SetQuota};
use extant_archive::UserDatabase;
use serde_json::{Value, json};

use super::Outcome;
use crate::disks::{ImageLocation, Reading, open_for_reading, open_for_writing, unmount};
use crate::failure::Failure;
use crate::mounts;
use crate::output::Output;
use crate::owner::{NamesByNumber, Owner, names_below, names_on};
use crate::size;
use report::Table;

/// Seconds of a day.
const DAY_S: u32 = 86_400;

/// Show and set limits of users, groups and projects
///
/// Shows what each uses and may use, as repquota does: space in KiB, + where a soft limit is exceeded, and how long its grace
/// time lasts. Limits are in force where the disk is mounted with -o usrquota, grpquota or prjquota. Names are those of the disk's own
/// /etc/passwd and /etc/group. DIR is where Extant has a disk mounted.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant quota disk.img\n  extant quota --json -u -g dir\n  extant quota --set web 900M 1G 0 0 disk.img\n  extant quota -P --set 42 0 10G 0 100k dir\n  extant quota -g --grace 7d 7d disk.img"
)]
pub struct Quota {
    /// Of users, as without -g and -P
    #[arg(short, long)]
    user: bool,
    /// Of groups
    #[arg(short, long)]
    group: bool,
    /// Of projects
    #[arg(short = 'P', long)]
    project: bool,
    /// Set limits, as setquota: soft and hard ones of space, in KiB or as in 900M, and of inodes; 0 is none
    #[arg(long, num_args = 5, value_names = ["NAME", "SOFT", "HARD", "INODES_SOFT", "INODES_HARD"])]
    set: Vec<String>,
    /// Set for how long soft limits of space and of inodes may be exceeded: seconds, or as in 36h or 7d
    #[arg(long, num_args = 2, value_names = ["SPACE", "INODES"])]
    grace: Vec<String>,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: ImageLocation,
    /// The image, or where a disk is mounted
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,
}

/// What is to be set of a type.
struct Change {
    quota_type: QuotaType,
    limits: Vec<(u32, SetQuota)>,
    grace: Option<QuotaGrace>,
}

impl Quota {
    /// Sets what is to be set, or shows.
    pub fn run(self) -> Outcome {
        let is_change = !self.set.is_empty() || !self.grace.is_empty();
        if is_change && self.types().len() != 1 {
            return Err(Failure::usage("limits are set of one of users (-u), groups (-g) and projects (-P)"));
        }
        match (is_change, self.image.is_dir()) {
            (true, true) => self.set_mounted()?,
            (true, false) => self.set_image()?,
            (false, is_mounted) => {
                let tables = if is_mounted { self.read_mount()? } else { self.read_image()? };
                self.show(&tables)?;
            }
        }
        Ok(0)
    }

    fn types(&self) -> Vec<QuotaType> {
        let chosen = [self.user, self.group, self.project];
        match QuotaType::ALL.into_iter().filter(|quota_type| chosen[*quota_type as usize]).collect::<Vec<_>>()
        {
            none if none.is_empty() => vec![QuotaType::User],
            chosen => chosen,
        }
    }

    fn failed(&self) -> impl Fn(extant::Error) -> Failure {
        let place = self.image.display().to_string();
        move |error| Failure::disk(&place, &error)
    }

    /// What the options set; `names` are those of the disk.
    fn change(&self, names: &UserDatabase) -> Result<Change, Failure> {
        let quota_type = self.types()[0];
        let space = |text: &str| size::parse(text, 1024).map(Some).map_err(Failure::usage);
        let mut limits = Vec::new();
        for words in self.set.chunks(5) {
            let [name, soft, hard, inodes_soft, inodes_hard] = words else { continue };
            let set = SetQuota {
                space_soft_bytes: space(soft)?,
                space_hard_bytes: space(hard)?,
                inodes_soft: Some(parse_count(inodes_soft)?),
                inodes_hard: Some(parse_count(inodes_hard)?),
                ..SetQuota::default()
            };
            limits.push((id_of(name, quota_type, names)?, set));
        }
        let grace = match &self.grace[..] {
            [space, inodes] => {
                Some(QuotaGrace { space_seconds: parse_time(space)?, inode_seconds: parse_time(inodes)? })
            }
            _ => None,
        };
        Ok(Change { quota_type, limits, grace })
    }

    fn set_image(&self) -> Result<(), Failure> {
        let fs = open_for_writing(&self.image, self.location)?;
        let change = self.change(&names_on(&fs))?;
        let apply = || {
            change.limits.iter().try_for_each(|(id, set)| fs.set_quota(change.quota_type, *id, set))?;
            change.grace.map_or(Ok(()), |grace| fs.set_quota_grace(change.quota_type, grace))
        };
        apply().map_err(self.failed())?;
        unmount(&self.image, fs)
    }

    /// The control file of the mount.
    fn control_file(&self) -> Result<(PathBuf, PathBuf), Failure> {
        let mounted = mounts::ours_around(&self.image)?.ok_or_else(|| mounts::not_ours(&self.image))?;
        let file = mounted.point.join(".extant/quota");
        Ok((mounted.point, file))
    }

    fn set_mounted(&self) -> Result<(), Failure> {
        let (point, file) = self.control_file()?;
        let change = self.change(&names_below(&point))?;
        let name = change.quota_type.name();
        let mut lines = String::new();
        for (id, set) in &change.limits {
            let limits = [set.space_soft_bytes, set.space_hard_bytes, set.inodes_soft, set.inodes_hard];
            let [soft, hard, inodes_soft, inodes_hard] = limits.map(Option::unwrap_or_default);
            lines += &format!("{name} {id} {soft} {hard} {inodes_soft} {inodes_hard}\n");
        }
        if let Some(QuotaGrace { space_seconds, inode_seconds }) = change.grace {
            lines += &format!("grace {name} {space_seconds} {inode_seconds}\n");
        }
        std::fs::write(&file, lines).map_err(|error| Failure::host(&file, &error))
    }

    fn read_image(&self) -> Result<Vec<Table>, Failure> {
        let reading = Reading { location: self.location, ..Reading::default() };
        let fs = open_for_reading(&self.image, reading)?;
        let names = NamesByNumber::on(&fs);
        let tables = self.types().into_iter().map(|quota_type| Table::of_disk(&fs, quota_type, &names));
        tables.collect::<extant::Result<_>>().map_err(self.failed())
    }

    fn read_mount(&self) -> Result<Vec<Table>, Failure> {
        let (point, file) = self.control_file()?;
        let text = std::fs::read_to_string(&file).map_err(|error| Failure::host(&file, &error))?;
        let names = NamesByNumber::below(&point);
        let table = |quota_type| {
            Table::of_control_file(&text, quota_type, &names).ok_or_else(|| {
                let message = format!("the disk does not count {}s", QuotaType::name(quota_type));
                Failure::new("unsupported", self.image.display().to_string(), message)
            })
        };
        self.types().into_iter().map(table).collect()
    }

    fn show(&self, tables: &[Table]) -> Result<(), Failure> {
        let mut output = Output::new();
        if self.json {
            let types: Vec<Value> = tables.iter().map(Table::document).collect();
            output.json(&json!({ "image": self.image.display().to_string(), "types": types }))?;
        } else {
            for (index, table) in tables.iter().enumerate() {
                if index > 0 {
                    output.line("")?;
                }
                table.show(&self.image, &mut output)?;
            }
        }
        output.finish()
    }
}

/// The number of a user, group or project. Projects have numbers only.
fn id_of(name: &str, quota_type: QuotaType, names: &UserDatabase) -> Result<u32, Failure> {
    let owner = match quota_type {
        QuotaType::User => Owner::parse(name, names)?.uid,
        QuotaType::Group => Owner::parse(&format!(":{name}"), names)?.gid,
        QuotaType::Project => name.parse().ok(),
    };
    owner.ok_or_else(|| Failure::usage(format!("invalid {} '{name}'", quota_type.name())))
}

/// A number of inodes: with k, m, g or t behind it, of thousands and so on, as setquota has it.
fn parse_count(text: &str) -> Result<u64, Failure> {
    let invalid =
        || Failure::usage(format!("invalid number of inodes '{text}'; it is a number, or as in 100k"));
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let thousands = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return Err(invalid()),
    };
    let count: u64 = digits.parse().map_err(|_| invalid())?;
    count.checked_mul(1000_u64.pow(thousands)).ok_or_else(invalid)
}

/// A grace time: seconds, or with m, h or d behind it.
fn parse_time(text: &str) -> Result<u32, Failure> {
    let invalid =
        || Failure::usage(format!("invalid time '{text}'; it is a number of seconds, or as in 36h or 7d"));
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY_S,
        _ => return Err(invalid()),
    };
    let count: u32 = digits.parse().map_err(|_| invalid())?;
    count.checked_mul(unit_s).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_those_of_setquota() {
        assert_eq!(parse_count("12").ok(), Some(12));
        assert_eq!(parse_count("3k").ok(), Some(3000));
        assert_eq!(parse_time("90").ok(), Some(90));
        assert_eq!((parse_time("36h").ok(), parse_time("7d").ok()), (Some(36 * 3600), Some(7 * DAY_S)));
        for bad in ["", "k", "1x", "-1", "99999999999999t"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["", "d", "1w", "-1", "4294967295h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
