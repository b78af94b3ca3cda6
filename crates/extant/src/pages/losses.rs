//! Data that could not be written back, told once to each open file.
//!
//! Source: `lib/errseq.c`.

use extant_rt::{AtomicU32, Ordering};

/// Of a node: how often data was lost, in steps of two, and in the lowest bit whether anybody was told of the last time.
#[derive(Debug, Default)]
pub(crate) struct Losses(AtomicU32);

/// Of an open file: what it was told.
#[derive(Debug)]
pub(crate) struct Seen(AtomicU32);

const TOLD: u32 = 1;

impl Losses {
    pub(crate) fn add(&self) {
        // Relaxed here and below: the number stands for itself.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |losses| {
            Some((losses & !TOLD).wrapping_add(2))
        });
    }

    /// Of a file that is opened now: a loss that nobody was told of is told to it.
    pub(crate) fn opened(&self) -> Seen {
        let losses = self.0.load(Ordering::Relaxed);
        Seen(AtomicU32::new(if losses & TOLD != 0 { losses } else { 0 }))
    }

    /// Whether something was lost that this open file was not told.
    pub(crate) fn tell(&self, seen: &Seen) -> bool {
        let losses = self.0.load(Ordering::Relaxed);
        if losses == 0 || losses | TOLD == seen.0.load(Ordering::Relaxed) {
            return false;
        }
        self.0.fetch_or(TOLD, Ordering::Relaxed);
        seen.0.swap(losses | TOLD, Ordering::Relaxed) != losses | TOLD
    }
}

impl Clone for Seen {
    fn clone(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_is_told_once_and_an_untold_loss_is_told_to_the_next() {
        let losses = Losses::default();
        let (one, other) = (losses.opened(), losses.opened());
        assert!(!losses.tell(&one));
        losses.add();
        let late = losses.opened();
        assert!(losses.tell(&one) && !losses.tell(&one));
        assert!(losses.tell(&other) && losses.tell(&late));
        assert!(!losses.tell(&losses.opened()), "all were told");
        losses.add();
        assert!(losses.tell(&one) && !losses.tell(&one) && losses.tell(&other));
    }
}
