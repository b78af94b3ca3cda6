//! One reading of a server's metrics: OpenMetrics text, which another program wrote and is not trusted.

use std::collections::BTreeMap;

/// A sample's labels, by name.
type Labels = BTreeMap<String, String>;

/// Values above are no counts, and their sums might not be finite.
const VALUE_MAX: f64 = u64::MAX as f64;

/// The samples of a text.
#[derive(Debug, Default)]
pub struct Snapshot {
    samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Snapshot {
    /// Reads a text. Lines that are not to be understood, and values that are no number from 0 on, are passed over.
    ///
    /// # Errors
    /// What is wrong, if its end is missing.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_suffix("# EOF\n").or_else(|| text.strip_suffix("# EOF"));
        let text = text.ok_or("its metrics are cut off")?;
        let mut snapshot = Self::default();
        for (name, labels, value) in text.lines().filter_map(sample) {
            // A zero may have a sign.
            if (0.0..=VALUE_MAX).contains(&value) {
                snapshot.samples.entry(name.to_owned()).or_default().push((labels, value.abs()));
            }
        }
        Ok(snapshot)
    }

    /// The sample of that name with exactly these labels; the first, if there are several.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |found: &Labels| {
            found.len() == labels.len()
                && labels.iter().all(|(name, value)| found.get(*name).is_some_and(|found| found == value))
        };
        self.samples.get(name)?.iter().find(|(found, _)| has(found)).map(|(_, value)| *value)
    }

    /// What a label says in the samples of that name, each word once, in their order.
    pub fn words<'s>(&'s self, name: &str, label: &str) -> Vec<&'s str> {
        let mut words = Vec::new();
        for (labels, _) in self.samples.get(name).into_iter().flatten() {
            if let Some(word) = labels.get(label).filter(|word| !words.contains(&word.as_str())) {
                words.push(word.as_str());
            }
        }
        words
    }
}

/// One sample: `name{label="word",…} value`, and perhaps a time, which is not wanted.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let value = rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()?;
    (!name.is_empty()).then_some((name, labels, value))
}

/// Labels, and what is behind their closing brace.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let mut word = String::new();
        let mut letters = quoted.char_indices();
        let end = loop {
            word.push(match letters.next()? {
                (end, '"') => break end,
                (_, '\\') => match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                },
                (_, letter) => letter,
            });
        };
        labels.insert(name.to_owned(), word);
        rest = &quoted[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn samples_are_found_by_their_labels() {
        let text = "# HELP a Words.\n# TYPE a counter\na_total{op=\"x\",io=\"y\"} 3 1700000000\n\
            a_total{op=\"q\\\"u\\\\o\\nte\"} 4.5\nb 1e3\nc -0\n# EOF\n";
        let snapshot = Snapshot::parse(text).expect("text");
        assert_eq!(snapshot.value("a_total", &[("io", "y"), ("op", "x")]), Some(3.0));
        assert_eq!(snapshot.value("a_total", &[("op", "x")]), None);
        assert_eq!(snapshot.value("a_total", &[("op", "q\"u\\o\nte")]), Some(4.5));
        assert_eq!(snapshot.value("b", &[]), Some(1000.0));
        assert_eq!(snapshot.words("a_total", "op"), ["x", "q\"u\\o\nte"]);
        assert!(snapshot.value("c", &[]).is_some_and(f64::is_sign_positive));
        assert_eq!(snapshot.words("d", "op"), [""; 0]);
    }

    #[test]
    fn nonsense_is_passed_over_and_what_has_no_end_is_refused() {
        let nonsense = [
            "a NaN",
            "a -1",
            "a +Inf",
            "a 1e300",
            "a",
            "a{",
            "a{x",
            "a{x=\"",
            "a{x=\"\\",
            "a{x=\"1\"",
            "a{} ",
            "a{x=\"1\"}2",
            " 1",
            "{} 1",
            "",
            "\u{0}\u{202e}",
            "a  1",
            "a one",
        ];
        for line in nonsense {
            let snapshot = Snapshot::parse(&format!("{line}\nb 2\n# EOF\n")).expect(line);
            assert_eq!(snapshot.value("b", &[]), Some(2.0), "{line}");
            assert_eq!(snapshot.samples.len(), 1, "{line}: {snapshot:?}");
        }
        for text in ["", "b 2\n", "# EOF\nb 2\n", "# EO"] {
            assert!(Snapshot::parse(text).is_err(), "{text}");
        }
    }
}
