//! Figures with their spread.

/// A figure of several rounds.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds a round.
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The figure in the middle; 0 of none.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    /// How many rounds there were.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The least.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The most.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The rounds that are so.
    pub fn only(&self, is_kept: &[bool]) -> Self {
        Self(self.0.iter().zip(is_kept).filter(|(_, is_kept)| **is_kept).map(|(figure, _)| *figure).collect())
    }

    /// Round by round, whether the figure differs from another by less than half of that.
    pub fn is_near(&self, figure: f64) -> Vec<bool> {
        self.0.iter().map(|own| (own - figure).abs() <= figure / 2.0).collect()
    }

    /// Round by round, this series over another.
    pub fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    /// Round by round, this series without another.
    pub fn minus(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect())
    }

    /// The median and the spread in a unit of so much, to so many decimal places; nothing of no rounds.
    pub fn cell(&self, unit: f64, places: usize) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let [median, min, max] = [self.median(), self.min(), self.max()].map(|figure| figure / unit);
        format!("{median:.places$} ({min:.places$}–{max:.places$})")
    }

    /// A line in a unit that is so much per second.
    pub fn line(&self, name: &str, per_second: f64, unit: &str) -> String {
        let (median, min, max) =
            (self.median() / per_second, self.min() / per_second, self.max() / per_second);
        format!("{name:<44} {median:9.1} {unit:<5} ({min:.1} to {max:.1})")
    }

    /// A line of ratios.
    pub fn ratio_line(&self, name: &str) -> String {
        format!("{name:<44} {:9.2} x     ({:.2} to {:.2})", self.median(), self.min(), self.max())
    }
}
