//! Turning the features `quota` and `project` on and off: quota files with the usage as it is, or none.
//!
//! All of it is one transaction. A disk whose log is too small for it is refused.
//!
//! Source: `update_feature_set`, `quota_write_inode`, `quota_remove_inode` of e2fsprogs. Tests: `../tests/quota`.

use std::collections::BTreeMap;

use extant_ondisk::quota::file_with;
use extant_ondisk::{
    Dqblk, GroupNumber, InodeFlags, InodeNumber, LogicalBlock, QuotaType, RoCompatFeatures, Structure,
    Superblock,
};
use extant_rt::Arc;

use super::own_file;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::delete::DELETE_CREDITS;
use crate::inode::truncate::Step;
use crate::metadata::quota::{Charge, quota_inodes};
use crate::metadata::update::{Credits, MetadataUpdate, RUN_CREDITS};
use crate::mount::Volume;

const FEATURES: RoCompatFeatures = RoCompatFeatures::QUOTA.union(RoCompatFeatures::PROJECT);
/// The inodes of the quota files of users and groups.
const RESERVED: [InodeNumber; 2] = [InodeNumber(3), InodeNumber(4)];
const TOO_MANY: Error = Error::Unsupported(
    "quota files of more blocks than a transaction of this journal holds; `tune2fs -O` changes them",
);

/// A quota file that is to be.
struct NewFile {
    quota_type: QuotaType,
    bytes: Vec<u8>,
}

/// Which quota files a disk of these features has.
fn types_of(ro_compat: RoCompatFeatures) -> Vec<QuotaType> {
    let has = |quota_type: &QuotaType| {
        *quota_type != QuotaType::Project || ro_compat.contains(RoCompatFeatures::PROJECT)
    };
    match ro_compat.contains(RoCompatFeatures::QUOTA) {
        true => QuotaType::ALL.into_iter().filter(has).collect(),
        false => Vec::new(),
    }
}

/// Makes and deletes quota files, so that the disk has these features.
///
/// # Errors
/// `Unsupported` for files that one transaction cannot make or delete; `NoSpace`; `Corrupt`; `Io`.
pub(super) fn change(volume: &Volume, wanted: RoCompatFeatures) -> Result<()> {
    let superblock = volume.superblock.lock().clone();
    if superblock.ro_compat() & FEATURES == wanted & FEATURES {
        return Ok(());
    }
    let (old, types) = (quota_inodes(&superblock), types_of(wanted));
    let is_new = |quota_type: &QuotaType| !old.iter().any(|(had, _)| had == quota_type);
    let added: Vec<QuotaType> = match superblock.ro_compat().contains(RoCompatFeatures::QUOTA) {
        // Which of them a disk has is its owner's choice.
        true => types.iter().copied().filter(|new| *new == QuotaType::Project && is_new(new)).collect(),
        false => types.clone(),
    };
    let new = counted(volume, &added)?;
    let gone: Vec<(QuotaType, InodeNumber)> =
        old.into_iter().filter(|(quota_type, _)| !types.contains(quota_type)).collect();
    let removed = gone.iter().map(|(_, number)| volume.special_inode(*number)).collect::<Result<Vec<_>>>()?;
    let steps = removed.iter().map(|inode| removal(volume, inode)).collect::<Result<Vec<_>>>()?;
    let block_size = volume.geometry.block_size as usize;
    let blocks: u32 = new.iter().map(|file| file.bytes.len().div_ceil(block_size) as u32).sum();
    // Each file with its inode, a new number, and the blocks of its tree; bitmaps and descriptors of no more groups than there are.
    let nodes = new.len() as u32 * 2 + blocks / 128 + 1;
    let groups = volume.geometry.group_count.min(blocks + nodes);
    let credits: u32 = steps.iter().flatten().map(|step| step.need().credits + DELETE_CREDITS).sum();
    let credits =
        credits + blocks + nodes + groups * RUN_CREDITS + 4 * (new.len() + removed.len()) as u32 + 2;
    if credits > volume.writable()?.max_credits() / 2 {
        return Err(TOO_MANY);
    }
    // What keeps the update from beginning comes before its first change.
    removed.iter().try_for_each(|inode| volume.prepare_free_node(inode))?;
    let mut update = volume.begin(Credits::new(credits, blocks + nodes))?;
    for (inode, step) in removed.iter().zip(steps) {
        delete(&mut update, volume, inode, step)?;
    }
    let mut made = Vec::new();
    for file in &new {
        made.push((file.quota_type, make(&mut update, volume, file)?));
    }
    update.modify_superblock(|superblock| {
        superblock.set_ro_compat((superblock.ro_compat() - FEATURES) | (wanted & FEATURES));
        gone.iter().for_each(|(quota_type, _)| set_inode(superblock, *quota_type, InodeNumber(0)));
        made.iter().for_each(|(quota_type, number)| set_inode(superblock, *quota_type, *number));
    });
    update.finish();
    Ok(())
}

fn set_inode(superblock: &mut Superblock, quota_type: QuotaType, number: InodeNumber) {
    match quota_type {
        QuotaType::User => superblock.set_s_usr_quota_inum(number.0),
        QuotaType::Group => superblock.set_s_grp_quota_inum(number.0),
        QuotaType::Project => superblock.set_s_prj_quota_inum(number.0),
    }
}

/// The files of some types with the usage as it is on the disk.
fn counted(volume: &Volume, types: &[QuotaType]) -> Result<Vec<NewFile>> {
    if types.is_empty() {
        return Ok(Vec::new());
    }
    // The tables on the disk are to say what memory says.
    volume.writable()?.commit_running()?;
    let mut usage: BTreeMap<(QuotaType, u32), Dqblk> = BTreeMap::new();
    let first = (0..volume.geometry.group_count).map(GroupNumber);
    for group in first {
        let used = volume.geometry.inodes_per_group.saturating_sub(volume.allocator.itable_unused(group)?);
        for number in (0..used).filter_map(|index| volume.geometry.inode_number(group, index)) {
            if volume.special_inodes.contains(number) || !volume.allocator.is_inode_allocated(number)? {
                continue;
            }
            let Some(charge) = Charge::of(&volume.read_inode(number)?, volume.geometry.block_size) else {
                continue;
            };
            for quota_type in types {
                let id = charge.ids[*quota_type as usize];
                let entry = usage.entry((*quota_type, id)).or_insert(Dqblk::new(id));
                entry.curspace = entry.curspace.saturating_add_signed(charge.space);
                entry.curinodes += 1;
            }
        }
    }
    let file = |quota_type: &QuotaType| {
        let entries = usage.iter().filter(|((of, _), _)| of == quota_type).map(|(_, entry)| *entry);
        let bytes = file_with(*quota_type, &entries.collect::<Vec<_>>())
            .map_err(|e| Location::of(Structure::QuotaFile).format(e))?;
        Ok(NewFile { quota_type: *quota_type, bytes })
    };
    types.iter().map(file).collect()
}

/// The one step that frees all blocks of a quota file.
fn removal(volume: &Volume, inode: &Inode) -> Result<Option<Step>> {
    match volume.removal(inode, 0, u64::from(u32::MAX))? {
        Some(step) if step.end() > 0 => Err(Error::Unsupported(
            "turning off quotas of a file that takes several steps to free; `tune2fs -O` does it",
        )),
        step => Ok(step),
    }
}

fn delete(
    update: &mut MetadataUpdate<'_>,
    volume: &Volume,
    inode: &InodeRef,
    step: Option<Step>,
) -> Result<()> {
    if let Some(step) = step {
        update.remove(inode, step)?;
    }
    own_file::delete(update, volume, inode)
}

/// Makes a quota file; its inode.
fn make(update: &mut MetadataUpdate<'_>, volume: &Volume, file: &NewFile) -> Result<InodeNumber> {
    let inode = match RESERVED.get(file.quota_type as usize) {
        Some(number) => volume.special_inode(*number)?,
        None => {
            let inode = own_file::allocate(update, volume)?;
            volume.special_inodes.set_project_quota(inode.number);
            inode
        }
    };
    own_file::initialise(update, volume, &inode, InodeFlags::IMMUTABLE);
    for (logical, bytes) in (0..).zip(file.bytes.chunks(volume.geometry.block_size as usize)) {
        append(update, volume, &inode, LogicalBlock(logical), bytes)?;
    }
    Ok(inode.number)
}

fn append(
    update: &mut MetadataUpdate<'_>,
    volume: &Volume,
    inode: &Arc<Inode>,
    logical: LogicalBlock,
    bytes: &[u8],
) -> Result<()> {
    let (buffer, change) = update.add_block(volume, inode, logical, BufferKind::Quota, &mut None)?;
    update.modify_buffer(&buffer, |target| target[..bytes.len()].copy_from_slice(bytes));
    let size = (u64::from(logical.0) + 1) * u64::from(volume.geometry.block_size);
    update.change_content(inode, change, |raw| raw.set_size(size))
}
