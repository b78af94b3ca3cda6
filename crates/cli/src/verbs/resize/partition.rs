//! `extant resize --resize-partition`: the partition changes with its file system.
//!
//! A partition becomes longer before its file system, and shorter after it, so that a crash leaves the file system inside of it.

use extant_block::{BlockDevice, FileDevice, PartitionTable};

use super::Resize;
use crate::failure::Failure;
use crate::size;

impl Resize {
    /// Makes the partition long enough for a file system of `wanted` bytes, or as long as it can be. The image file becomes longer for it,
    /// if the partition is the last one.
    pub(super) fn grow_partition(&self, file: &FileDevice, wanted: Option<u64>) -> Result<(), Failure> {
        let (mut table, number) = self.table(file)?;
        let room = |file: &FileDevice| table.most_bytes(number, file.size());
        let mut most = room(file).ok_or_else(|| self.no_such(number))?;
        let bytes = wanted.unwrap_or(most);
        if bytes > most {
            let longer = table.device_bytes_for(number, bytes).ok_or_else(|| {
                let message =
                    format!("partition {number} has room for {} ({most} bytes) only", size::show(most));
                self.refused(message)
            })?;
            file.grow(longer).map_err(|error| Failure::host(&self.image, &error))?;
            most = room(file).ok_or_else(|| self.no_such(number))?;
        }
        let bytes = bytes.min(most);
        if table.bytes(number) < Some(bytes) {
            table.set_bytes(file, number, bytes).map_err(|error| Failure::host(&self.image, &error))?;
        }
        Ok(())
    }

    /// Makes sure that [`Resize::shrink_partition`] can be done.
    pub(super) fn check_partition(&self, file: &FileDevice) -> Result<(), Failure> {
        let (table, number) = self.table(file)?;
        table.most_bytes(number, file.size()).map(drop).ok_or_else(|| self.no_such(number))
    }

    /// Makes the partition as long as its file system.
    pub(super) fn shrink_partition(&self, file: &FileDevice, bytes: u64) -> Result<(), Failure> {
        let (mut table, number) = self.table(file)?;
        if table.bytes(number) > Some(bytes) {
            table.set_bytes(file, number, bytes).map_err(|error| Failure::host(&self.image, &error))?;
        }
        Ok(())
    }

    fn table(&self, file: &FileDevice) -> Result<(PartitionTable, u32), Failure> {
        if file.is_block_special() {
            let message = "the kernel has read the partition table of a block device; change it by `growpart` or `sfdisk`";
            return Err(self.refused(message.to_owned()));
        }
        let table = PartitionTable::read(file).map_err(|error| Failure::host(&self.image, &error))?;
        let table = table.ok_or_else(|| {
            let message = "has no partition table that can be changed: neither an MBR, nor a GPT that is whole at the front";
            self.refused(message.to_owned())
        })?;
        Ok((table, self.location.partition.unwrap_or(0)))
    }

    fn no_such(&self, number: u32) -> Failure {
        self.refused(format!(
            "the end of partition {number} cannot be changed: it is a logical one, is not there, or the image is shorter than its \
             partitions"
        ))
    }

    fn refused(&self, message: String) -> Failure {
        Failure::new("no_partition", self.image.display().to_string(), message)
    }
}
