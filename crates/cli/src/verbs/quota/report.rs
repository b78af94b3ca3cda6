//! What users, groups or projects use and may use, as repquota lays it out.

use std::path::Path;
use std::time::SystemTime;

use extant::{Filesystem, QuotaGrace, QuotaType};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::owner::NamesByNumber;

/// Bytes of a unit of the table.
const UNIT_BYTES: u64 = 1024;

/// All of a type.
pub struct Table {
    quota_type: QuotaType,
    grace: QuotaGrace,
    rows: Vec<Row>,
}

/// A user, group or project.
struct Row {
    name: String,
    id: u32,
    space_bytes: Use,
    inodes: Use,
}

/// What of space or of inodes is used.
#[derive(Clone, Copy)]
struct Use {
    used: u64,
    soft: u64,
    hard: u64,
    /// When the grace time ends, if it runs.
    grace_end_s: Option<u64>,
}

fn name_of(id: u32, quota_type: QuotaType, names: &NamesByNumber) -> String {
    match quota_type {
        QuotaType::User => names.user(id),
        QuotaType::Group => names.group(id),
        QuotaType::Project => id.to_string(),
    }
}

impl Table {
    /// That of an opened disk.
    pub fn of_disk(fs: &Filesystem, quota_type: QuotaType, names: &NamesByNumber) -> extant::Result<Self> {
        let row = |quota: extant::Quota| Row {
            name: name_of(quota.id, quota_type, names),
            id: quota.id,
            space_bytes: Use {
                used: quota.space_bytes,
                soft: quota.limits.space_soft_bytes,
                hard: quota.limits.space_hard_bytes,
                grace_end_s: quota.space_grace_end_s,
            },
            inodes: Use {
                used: quota.inodes,
                soft: quota.limits.inodes_soft,
                hard: quota.limits.inodes_hard,
                grace_end_s: quota.inode_grace_end_s,
            },
        };
        let rows = fs.quotas(quota_type)?.into_iter().map(row).collect();
        Ok(Self { quota_type, grace: fs.quota_grace(quota_type)?, rows })
    }

    /// That of a mounted disk, out of the text of its control file; none if it does not count the type.
    pub fn of_control_file(text: &str, quota_type: QuotaType, names: &NamesByNumber) -> Option<Self> {
        let mut grace = None;
        let mut rows = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
            let time = |time: u64| Some(time).filter(|time| *time != 0);
            match (&words[..], &numbers[..]) {
                (["grace", name, ..], [space, inodes]) if *name == quota_type.name() => {
                    let seconds = |seconds: u64| u32::try_from(seconds).ok();
                    grace = Some(QuotaGrace {
                        space_seconds: seconds(*space)?,
                        inode_seconds: seconds(*inodes)?,
                    });
                }
                ([name, ..], [id, used, inodes, soft, hard, isoft, ihard, end, iend])
                    if *name == quota_type.name() =>
                {
                    let id = u32::try_from(*id).ok()?;
                    rows.push(Row {
                        name: name_of(id, quota_type, names),
                        id,
                        space_bytes: Use { used: *used, soft: *soft, hard: *hard, grace_end_s: time(*end) },
                        inodes: Use { used: *inodes, soft: *isoft, hard: *ihard, grace_end_s: time(*iend) },
                    });
                }
                _ => {}
            }
        }
        Some(Self { quota_type, grace: grace?, rows })
    }

    /// It as a document.
    pub fn document(&self) -> Value {
        let use_of = |key: &str, used: Use| {
            [
                (format!("{key}used"), json!(used.used)),
                (format!("{key}soft"), json!(used.soft)),
                (format!("{key}hard"), json!(used.hard)),
            ]
        };
        let quotas = self.rows.iter().map(|row| {
            let mut quota = serde_json::Map::new();
            quota.insert("id".to_owned(), json!(row.id));
            quota.insert("name".to_owned(), json!(row.name));
            for (key, value) in use_of("space_", row.space_bytes) {
                quota.insert(key + "_bytes", value);
            }
            quota.extend(use_of("inodes_", row.inodes));
            quota.insert("space_grace_end_s".to_owned(), json!(row.space_bytes.grace_end_s));
            quota.insert("inodes_grace_end_s".to_owned(), json!(row.inodes.grace_end_s));
            Value::Object(quota)
        });
        json!({
            "type": self.quota_type.name(),
            "space_grace_duration_s": self.grace.space_seconds,
            "inodes_grace_duration_s": self.grace.inode_seconds,
            "quotas": quotas.collect::<Vec<_>>(),
        })
    }

    /// Shows it as repquota does.
    pub fn show(&self, image: &Path, output: &mut Output) -> Result<(), Failure> {
        let name = self.quota_type.name();
        let (space, inodes) = (span(self.grace.space_seconds.into()), span(self.grace.inode_seconds.into()));
        output.line(format!("*** Report for {name} quotas on {}", image.display()))?;
        output.line(format!("Block grace time: {space}; Inode grace time: {inodes}"))?;
        let heading = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        let [used, soft, hard, grace] = ["used", "soft", "hard", "grace"];
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(15);
        output.line(format!("{:width$} {:^42}{:^31}", "", "Block limits", "File limits"))?;
        output.line(format!(
            "{heading:width$} -- {used:>11} {soft:>11} {hard:>11} {grace:>6} {used:>8} {soft:>8} {hard:>8} {grace:>6}"
        ))?;
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        for row in &self.rows {
            let (space, inodes) = (row.space_bytes, row.inodes);
            let units = |bytes: u64| bytes.div_ceil(UNIT_BYTES);
            output.line(format!(
                "{:width$} {}{} {:>11} {:>11} {:>11} {:>6} {:>8} {:>8} {:>8} {:>6}",
                row.name,
                space.mark(),
                inodes.mark(),
                units(space.used),
                units(space.soft),
                units(space.hard),
                space.left(now),
                inodes.used,
                inodes.soft,
                inodes.hard,
                inodes.left(now)
            ))?;
        }
        Ok(())
    }
}

impl Use {
    fn mark(self) -> char {
        if self.soft > 0 && self.used > self.soft { '+' } else { '-' }
    }

    fn left(self, now: u64) -> String {
        match self.grace_end_s {
            Some(end) if end <= now => "none".to_owned(),
            Some(end) => span(end - now),
            None => String::new(),
        }
    }
}

/// A time as repquota has it: days from two days on, else hours and minutes.
fn span(seconds: u64) -> String {
    let minutes = (seconds + 30) / 60;
    match (minutes / 60 + 12) / 24 {
        0 | 1 => format!("{:02}:{:02}", minutes / 60, minutes % 60),
        days => format!("{days}days"),
    }
}
