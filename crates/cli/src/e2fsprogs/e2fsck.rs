//! `e2fsck` and `fsck.ext2`, `fsck.ext3`, `fsck.ext4`: what boots and scripts need of them without repair.
//!
//! A disk that its superblock calls clean is not looked at further, unless `-f` asks for it. The journal is replayed, with `-n`
//! in memory only. Damage is reported and left alone: status 4 under `-n`, `-p` and `-a`, as e2fsck has it for damage that is
//! left, and 20 where repair was asked for, which adds the status of a wrong usage.

use extant_ondisk::{IncompatFeatures, State, Superblock};

use super::letters::Letters;
use super::place::Place;
use super::{Call, dumpe2fs, only_device};
use crate::disks::{Reading, clock, open_for_reading, open_for_writing, unmount};
use crate::failure::{EXIT_FSCK_ERRORS, EXIT_FSCK_OPERATIONAL, EXIT_FSCK_USAGE, Failure};
use crate::output::{Output, escape};
use crate::verbs::Outcome;

const SERVED: &str = "pnayfvtFVdDC:E:";
const REFUSED: &str = "rcMbBIjPlLNSskz";

/// What may be done to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    /// Nothing. (`-n`)
    Nothing,
    /// What is safe. (`-p`, `-a`)
    Preen,
    /// Everything. (`-y`, or no letter)
    Repair,
}

/// The exit status of a failure.
pub(super) fn status_of(failure: &Failure) -> u8 {
    if failure.kind == "usage" { EXIT_FSCK_USAGE } else { EXIT_FSCK_OPERATIONAL }
}

/// Looks at a disk, and finishes what its journal has.
pub(super) fn run(call: &Call) -> Outcome {
    let letters = Letters::read(call, SERVED, REFUSED)?;
    let (is_nothing, is_preen) = (letters.has('n'), letters.has('p') || letters.has('a'));
    let may = match (is_nothing, is_preen, letters.has('y')) {
        (true, false, false) => May::Nothing,
        (false, true, false) => May::Preen,
        (false, false, _) => May::Repair,
        _ => return Err(Failure::usage("Only one of the options -p/-a, -n or -y may be specified.")),
    };
    if may != May::Preen || letters.has('V') {
        call.banner("e2fsck");
    }
    if letters.has('V') {
        return Ok(0);
    }
    if letters.has('D') {
        call.say("-D: directories are left as they are; `extant defrag` makes them smaller");
    }
    let mut journal_only = false;
    for word in letters.texts('E')?.into_iter().flat_map(|words| words.split(',')) {
        match word {
            "journal_only" => journal_only = true,
            "nodiscard" | "no_optimize_extents" => {}
            _ => {
                return Err(Failure::usage(format!(
                    "-E {word} is not served by Extant; e2fsck of e2fsprogs has it"
                )));
            }
        }
    }
    let place = only_device(&letters.places, "e2fsck [-panyfvV] device")?;
    Look { call, place, may, is_forced: letters.has('f'), journal_only }.run()
}

struct Look<'a> {
    call: &'a Call<'a>,
    place: Place,
    may: May,
    is_forced: bool,
    journal_only: bool,
}

impl Look<'_> {
    fn run(&self) -> Outcome {
        let mut output = Output::new();
        let mut superblock = match dumpe2fs::superblock(&self.place) {
            Ok(superblock) => superblock,
            Err(failure) if failure.kind == "corrupt" => {
                return self.damaged(output, &self.place.image.display().to_string(), &[failure.to_string()]);
            }
            Err(failure) => return Err(failure),
        };
        if self.may != May::Nothing && superblock.incompat().contains(IncompatFeatures::RECOVER) {
            output.line(format!("{}: recovering journal", self.name(&superblock)))?;
            let fs = match open_for_writing(&self.place.image, self.place.location()) {
                Ok(fs) => fs,
                Err(failure) if failure.kind == "corrupt" => {
                    return self.damaged(output, &self.name(&superblock), &[failure.to_string()]);
                }
                Err(failure) => return Err(failure),
            };
            unmount(&self.place.image, fs)?;
            superblock = dumpe2fs::superblock(&self.place)?;
        }
        if self.journal_only || !self.is_forced && is_clean(&superblock)? {
            output.line(format!("{}: clean, {}", self.name(&superblock), used(&superblock)))?;
            output.finish()?;
            return Ok(0);
        }
        let findings = match self.findings() {
            Ok(findings) => findings,
            Err(failure) if failure.kind == "corrupt" => vec![failure.to_string()],
            Err(failure) => return Err(failure),
        };
        if !findings.is_empty() {
            return self.damaged(output, &self.name(&superblock), &findings);
        }
        output.line(format!("{}: {}", self.name(&superblock), used(&superblock)))?;
        output.finish()?;
        Ok(0)
    }

    fn findings(&self) -> Result<Vec<String>, Failure> {
        let reading = Reading { location: self.place.location(), ..Reading::default() };
        let fs = open_for_reading(&self.place.image, reading)?;
        let findings =
            fs.check(&mut |_| {}).map_err(|error| Failure::disk(self.place.image.display(), &error))?;
        Ok(findings.iter().map(ToString::to_string).collect())
    }

    fn damaged(&self, mut output: Output, name: &str, findings: &[String]) -> Outcome {
        findings.iter().try_for_each(|finding| output.line(format!("{name}: {finding}")))?;
        let status = match self.may {
            May::Nothing => {
                output.line(format!(
                    "\n{name}: ********** WARNING: Filesystem still has errors **********\n"
                ))?;
                EXIT_FSCK_ERRORS
            }
            May::Preen => {
                output.line(format!(
                    "\n{name}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\t(e2fsck of e2fsprogs repairs; Extant does not)"
                ))?;
                EXIT_FSCK_ERRORS
            }
            May::Repair => {
                self.call.say(
                    "repair is not served by Extant; e2fsck of e2fsprogs has it; the damage is left as it is",
                );
                EXIT_FSCK_ERRORS | EXIT_FSCK_USAGE
            }
        };
        output.finish()?;
        Ok(status)
    }

    /// The label, if there is one, else the device.
    fn name(&self, superblock: &Superblock) -> String {
        match superblock.volume_name() {
            label if label.is_empty() => self.place.image.display().to_string(),
            label => escape(&label),
        }
    }
}

/// Whether the superblock says that the disk is clean and is not due for a check.
fn is_clean(superblock: &Superblock) -> Result<bool, Failure> {
    let state = superblock.state();
    let mounts_max = superblock.s_max_mnt_count().cast_signed();
    let is_due_by_mounts = mounts_max > 0 && i32::from(superblock.s_mnt_count()) >= i32::from(mounts_max);
    let interval_s = u64::from(superblock.s_checkinterval());
    let now = u64::try_from(clock()?.now().0).unwrap_or(0);
    let is_due_by_time = interval_s > 0 && now >= superblock.check_time().saturating_add(interval_s);
    Ok(state.contains(State::VALID)
        && !state.contains(State::ERROR)
        && !superblock.incompat().contains(IncompatFeatures::RECOVER)
        && !is_due_by_mounts
        && !is_due_by_time)
}

/// What is in use of a disk.
fn used(superblock: &Superblock) -> String {
    let (inodes, blocks) = (superblock.s_inodes_count(), superblock.blocks_count());
    let (free_inodes, free_blocks) = (superblock.s_free_inodes_count(), superblock.free_blocks_count());
    format!(
        "{}/{inodes} files, {}/{blocks} blocks",
        inodes.saturating_sub(free_inodes),
        blocks.saturating_sub(free_blocks)
    )
}
