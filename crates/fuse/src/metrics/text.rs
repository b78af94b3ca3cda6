//! The metric families: the server's own counts, and those that the engine reports.

use std::time::Duration;

use extant::{ContextStatistics, Filesystem};
use rustix::time::{ClockId, clock_gettime};

use super::exposition::{Exposition, labels, seconds};
use super::{Metrics, NAMES, Request};
use crate::control::CRITERIA;
use crate::ops::Transport;
use crate::timed_device::IO_NAMES;

impl Metrics {
    /// All of it in the form of OpenMetrics 1.0.
    pub(crate) fn text(&self, fs: &Filesystem, known_inodes: usize, transport: Transport) -> String {
        let mut text = Exposition::default();
        text.info("transport", "How requests come.", labels([("name", &transport.name())]));
        text.counter("served_seconds", "Time since it was mounted.", seconds(self.since.elapsed()));
        text.counter("cpu_seconds", "Time in which the server's threads computed.", seconds(cpu_time()));
        self.requests(&mut text);
        self.device(&mut text);
        text.gauge("known_inodes", "Inodes that the kernel holds.", known_inodes);
        fullness(fs, &mut text);
        journal(fs, &mut text);
        allocator(fs, &mut text);
        page_cache(fs, &mut text);
        text.finish()
    }

    fn requests(&self, text: &mut Exposition) {
        let totals = std::array::from_fn::<_, { NAMES.len() }, _>(|request| self.requests.total(request));
        let each = || NAMES.iter().map(|name| labels([("op", name)])).zip(totals);
        text.counters(
            "requests",
            "Requests that were answered. Those of control files are not counted.",
            each().map(|(op, total)| (op, total.ended)),
        );
        text.gauges(
            "requests_under_way",
            "Requests that are being answered.",
            each().map(|(op, total)| (op, total.under_way)),
        );
        text.counters(
            "request_seconds",
            "Time from a request's decoding to its answer, all waiting within the server included.",
            each().map(|(op, total)| (op, seconds(total.time))),
        );
        if self.device.is_some() {
            let waits = NAMES.iter().enumerate().flat_map(|(request, op)| {
                let waits = IO_NAMES.iter().zip(self.device_waits(request));
                waits.map(move |(io, wait)| (labels([("op", op), ("io", io)]), seconds(wait)))
            });
            text.counters(
                "request_device_seconds",
                "Time of requests in which their own threads waited for the device.",
                waits,
            );
        }
        let bytes = |request: Request| totals[request as usize].bytes;
        text.counter("read_bytes", "Bytes read from files.", bytes(Request::Read));
        text.counter("written_bytes", "Bytes written to files.", bytes(Request::Write));
    }

    fn device(&self, text: &mut Exposition) {
        let Some(device) = &self.device else { return };
        let totals = device.totals();
        let each = || totals.iter().map(|(io, total)| (labels([("io", io)]), total));
        text.counters(
            "device_operations",
            "Operations of the device that ended. A write that returns durable is a flush, zeroing a discard.",
            each().map(|(io, total)| (io, total.ended)),
        );
        text.gauges(
            "device_operations_under_way",
            "Operations of the device that did not end yet.",
            each().map(|(io, total)| (io, total.under_way)),
        );
        text.counters(
            "device_bytes",
            "Bytes of these operations.",
            each().map(|(io, total)| (io, total.bytes)),
        );
        text.counters(
            "device_seconds",
            "Time that threads waited for the device, those that write back and commit by themselves included.",
            each().map(|(io, total)| (io, seconds(total.time))),
        );
    }
}

/// The CPU time of the process, in all its threads.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn fullness(fs: &Filesystem, text: &mut Exposition) {
    let full = fs.statistics();
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(full.block_size));
    text.gauge("usable_bytes", "Space for files.", bytes(full.blocks));
    text.gauge("free_bytes", "Space in no use.", bytes(full.free_blocks));
    text.gauge("available_bytes", "Space for others than root.", bytes(full.available_blocks));
    text.gauge("inodes", "Inodes.", full.inodes);
    text.gauge("free_inodes", "Inodes in no use.", full.free_inodes);
    let descriptors = fs.descriptors();
    text.gauge("descriptor_blocks", "Blocks of group descriptors.", descriptors.blocks);
    text.gauge("descriptor_blocks_read", "Those that were read so far.", descriptors.read);
    let tables = fs.table_initialisation();
    text.gauge("inode_tables_seen", "Groups looked at for inode tables to zero.", tables.seen);
    text.counter("inode_tables_zeroed", "Inode tables that were zeroed.", tables.zeroed);
    text.counter("inode_tables_skipped", "Inode tables that were left.", tables.skipped);
}

fn journal(fs: &Filesystem, text: &mut Exposition) {
    let Some(journal) = fs.journal_statistics() else { return };
    let block_size = u64::from(fs.statistics().block_size);
    let bytes = |blocks: u64| blocks.saturating_mul(block_size);
    text.counter("journal_commits", "Transactions that were made durable.", journal.commits);
    text.counter("journal_fast_commits", "Fast commits.", journal.fast_commits);
    text.counter("journal_fast_commit_blocks", "Blocks that they wrote.", journal.fast_commit_blocks);
    text.counter("journal_copies", "Blocks copied to the log.", journal.copies);
    text.counter("journal_revokes", "Revoke records.", journal.revokes);
    text.counter("journal_log_blocks", "Blocks written to the log, of all kinds.", journal.log_blocks);
    text.counter("journal_log_bytes", "The same in bytes.", bytes(journal.log_blocks));
    text.counter("journal_checkpoints", "Checkpoints.", journal.checkpoints);
    text.counter("journal_home_blocks", "Blocks written home by checkpoints.", journal.checkpoint_blocks);
    text.counter("journal_home_bytes", "The same in bytes.", bytes(journal.checkpoint_blocks));
    text.counter(
        "journal_start_waits",
        "Handles that waited: their transaction was about to be committed, or the log full.",
        journal.start_waits,
    );
}

fn allocator(fs: &Filesystem, text: &mut Exposition) {
    let stats = fs.mballoc_statistics();
    text.counter("allocator_searches", "Searches for blocks.", stats.requests);
    text.counter("allocator_failed_searches", "Searches that found nothing.", stats.failed);
    text.counter("allocator_goal_hits", "Searches that ended at their goal.", stats.at_goal);
    text.counter("allocator_blocks", "Blocks that were found.", stats.blocks);
    let by_criterion = |counts: [u64; CRITERIA.len()]| {
        CRITERIA.iter().map(|name| labels([("criterion", name)])).zip(counts).collect::<Vec<_>>()
    };
    text.counters(
        "allocator_groups_considered",
        "Groups that searches looked at.",
        by_criterion(stats.considered),
    );
    text.counters("allocator_hits", "Searches that ended by a criterion.", by_criterion(stats.hits));
    text.counter("allocator_groups_locked", "Groups whose lock searches took.", stats.locks);
    text.counter("allocator_groups_skipped", "Groups left out, for another held their lock.", stats.skipped);
    text.counter("allocator_groups_waited", "Groups whose lock had to be waited for.", stats.waited);
    text.counter("allocator_groups_lost", "Groups that no longer suited under their lock.", stats.lost);
    text.counter("allocator_runs_compared", "Runs of free blocks that were compared.", stats.runs_scanned);
    text.counter("allocator_bitmaps_read", "Block bitmaps that were read.", stats.bitmaps_read);
    let ahead = fs.prealloc_statistics();
    text.gauge("preallocated_blocks", "Blocks that inodes have taken ahead.", ahead.blocks);
    text.counter("preallocation_lookups", "Look-ups in blocks taken ahead.", ahead.lookups);
    text.counter("preallocation_hits", "Look-ups that gave blocks.", ahead.hits);
    text.counter("preallocation_local_hits", "Small files served from a chunk for many.", ahead.local_hits);
    text.counter(
        "preallocation_shortages",
        "Times that all was given back for want of blocks.",
        ahead.shortages,
    );
}

fn page_cache(fs: &Filesystem, text: &mut Exposition) {
    let (Some((bytes, dirty)), Some(stats)) = (fs.page_cache_used(), fs.writeback_statistics()) else {
        return;
    };
    text.gauge("page_cache_bytes", "Bytes of files in the server's memory.", bytes);
    text.gauge("page_cache_dirty_bytes", "Those that are to be written.", dirty);
    text.gauge("page_cache_dirty_max_bytes", "With as many, writers are stopped.", stats.dirty_bytes_max);
    text.gauge("page_cache_background_bytes", "With as many, all is written back.", stats.background_bytes);
    let each = |of: fn(&ContextStatistics) -> u64| {
        let contexts = stats.contexts.iter().enumerate();
        contexts.map(|(index, context)| (labels([("context", &index)]), of(context))).collect::<Vec<_>>()
    };
    text.gauges("writeback_dirty_bytes", "Bytes to be written, by context.", each(|of| of.dirty_bytes));
    text.gauges(
        "writeback_dirty_max_bytes",
        "With as many, its writers are stopped.",
        each(|of| of.dirty_bytes_max),
    );
    text.gauges("writeback_dirty_inodes", "Inodes that wait to be written.", each(|of| of.dirty as u64));
    text.gauges(
        "writeback_inodes_in_flight",
        "Inodes that are being written.",
        each(|of| of.in_flight as u64),
    );
    text.gauges("writeback_inodes_requeued", "Inodes that were busy.", each(|of| of.requeued as u64));
    text.counters("writeback_dirtied_bytes", "Bytes that became dirty.", each(|of| of.dirtied_bytes));
    text.counters("writeback_written_bytes", "Bytes that were written back.", each(|of| of.written_bytes));
    text.gauges("writeback_bandwidth_bytes", "Bytes written in a second of work.", each(|of| of.bandwidth));
    text.counters("writeback_failed", "Times that writing an inode failed.", each(|of| of.failed));
    text.counters("writeback_throttled", "Times that a writer was stopped.", each(|of| of.throttled));
    let throttled = stats
        .contexts
        .iter()
        .enumerate()
        .map(|(index, context)| (labels([("context", &index)]), seconds(context.throttled_for)));
    text.counters("writeback_throttled_seconds", "How long writers were stopped.", throttled);
}

#[cfg(test)]
mod tests;
