//! How a content lies on the disk: in which runs of blocks, and how many it needs.

use extant_ondisk::extent::MAX_LEN;

use crate::resize::shrink::map::Piece;

/// Blocks of a content that are adjacent in it and on the disk, written or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRun {
    pub(super) logical: u64,
    pub(super) start: u64,
    pub(super) len: u64,
}

impl BlockRun {
    fn is_before(&self, next: &Self) -> bool {
        self.logical + self.len == next.logical
    }

    /// A run that one extent holds no more of gains nothing from being joined.
    fn is_long(&self) -> bool {
        self.len >= u64::from(MAX_LEN)
    }
}

/// The runs of a content.
pub(super) fn runs_of(pieces: &[Piece]) -> Vec<BlockRun> {
    let mut runs = Vec::new();
    for Piece { logical, start, len, .. } in pieces {
        push(&mut runs, BlockRun { logical: (*logical).into(), start: *start, len: (*len).into() });
    }
    runs
}

fn push(runs: &mut Vec<BlockRun>, next: BlockRun) {
    match runs.last_mut() {
        Some(last) if last.is_before(&next) && last.start + last.len == next.start => last.len += next.len,
        _ => runs.push(next),
    }
}

/// The parts of a content that fewer runs could hold: two or more short runs without a hole between them.
pub(super) fn stretches(runs: &[BlockRun]) -> impl Iterator<Item = &[BlockRun]> {
    let parts = runs.chunk_by(|run, next| run.is_before(next) && !run.is_long() && !next.is_long());
    parts.filter(|part| part.len() > 1)
}

/// Runs that become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: BlockRun,
    pub(super) len: u64,
}

/// Of a stretch the runs, side by side, that `len_max` blocks can hold: the most of them, and of as many those with fewer blocks. None
/// if that is not two at least.
pub(super) fn window(stretch: &[BlockRun], len_max: u64) -> Option<Window> {
    let (mut from, mut len, mut best) = (0, 0, None);
    for (at, run) in stretch.iter().enumerate() {
        len += run.len;
        while len > len_max {
            len -= stretch[from].len;
            from += 1;
        }
        let count = at + 1 - from.min(at + 1);
        let is_better = best.is_none_or(|(most, least, _)| count > most || count == most && len < least);
        if count > 1 && is_better {
            best = Some((count, len, stretch[from]));
        }
    }
    best.map(|(_, len, first)| Window { first, len })
}

/// The runs as they are once a window is one run at `to`.
pub(super) fn moved(runs: &[BlockRun], window: Window, to: u64) -> Vec<BlockRun> {
    let mut moved = Vec::with_capacity(runs.len());
    let inside = window.first.logical..window.first.logical + window.len;
    for run in runs {
        let start = match inside.contains(&run.logical) {
            true => to + (run.logical - inside.start),
            false => run.start,
        };
        push(&mut moved, BlockRun { start, ..*run });
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logical: u64, start: u64, len: u64) -> BlockRun {
        BlockRun { logical, start, len }
    }

    #[test]
    fn stretches_end_at_holes_and_at_runs_that_fill_an_extent() {
        let long = u64::from(MAX_LEN);
        let runs = [run(0, 10, 1), run(1, 20, 2), run(5, 30, 1), run(6, 100, long), run(6 + long, 5, 1)];
        let found: Vec<_> = stretches(&runs).collect();
        assert_eq!(found, [&runs[..2]]);
    }

    #[test]
    fn a_window_has_the_most_runs_that_fit() {
        let stretch = [run(0, 10, 5), run(5, 20, 1), run(6, 30, 1), run(7, 40, 6), run(13, 50, 1)];
        assert_eq!(window(&stretch, 14), Some(Window { first: stretch[0], len: 14 }));
        assert_eq!(window(&stretch, 7), Some(Window { first: stretch[0], len: 7 }));
        assert_eq!(window(&stretch, 3), Some(Window { first: stretch[1], len: 2 }));
        assert_eq!(window(&stretch, 1), None);
        let joined = moved(&stretch, Window { first: stretch[1], len: 2 }, 15);
        assert_eq!(joined, [run(0, 10, 7), run(7, 40, 6), run(13, 50, 1)]);
    }
}
