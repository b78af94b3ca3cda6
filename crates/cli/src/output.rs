//! Text output for people: results, names, errors.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Standard output, buffered; names are escaped if it is a terminal.
pub struct Output {
    out: io::BufWriter<io::StdoutLock<'static>>,
    escapes: bool,
}

impl Output {
    /// Standard output.
    pub fn new() -> Self {
        let escapes = io::stdout().is_terminal();
        Self { out: io::BufWriter::new(io::stdout().lock()), escapes }
    }

    /// A name in the form in which this output shows it.
    pub fn name(&self, name: &[u8]) -> Vec<u8> {
        if self.escapes { escape(name).into_bytes() } else { name.to_vec() }
    }

    /// Writes bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::output(&error))
    }

    /// Writes a line.
    pub fn line(&mut self, line: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.bytes(line.as_ref())?;
        self.bytes(b"\n")
    }

    /// Writes a document.
    pub fn json(&mut self, document: &serde_json::Value) -> Result<(), Failure> {
        self.line(format!("{document:#}"))
    }

    /// Writes out all that is buffered.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

/// Two lower-case hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Printable UTF-8 unchanged; anything else as in C: `\n`, `\033`, `\\`.
pub fn escape(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => shown.push_str("\\\\"),
                '\n' => shown.push_str("\\n"),
                '\t' => shown.push_str("\\t"),
                '\r' => shown.push_str("\\r"),
                _ if is_treacherous(letter) => {
                    let mut buffer = [0; 4];
                    letter
                        .encode_utf8(&mut buffer)
                        .bytes()
                        .for_each(|byte| shown.push_str(&format!("\\{byte:03o}")));
                }
                _ => shown.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\{byte:03o}")));
    }
    shown
}

/// Reports a failure on standard error.
pub fn report(failure: &Failure, as_json: bool) {
    if failure.is_silent() {
        return;
    }
    let text = if as_json {
        let Failure { kind, place, message } = failure;
        serde_json::json!({ "error": { "kind": kind, "where": place, "message": message } }).to_string()
    } else {
        format!("extant: {}", controls_escaped(&failure.to_string()))
    };
    // If standard error cannot be written, the exit status still reports the failure.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Reports something that is no failure, on standard error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "extant: {}", controls_escaped(text));
}

/// A disk's names cannot send orders to the terminal.
fn controls_escaped(text: &str) -> String {
    text.chars()
        .map(
            |letter| if is_treacherous(letter) { letter.escape_default().to_string() } else { letter.into() },
        )
        .collect()
}

/// Control characters, and marks without a form of their own that make a name look like another one, those that turn
/// the direction of writing above all.
fn is_treacherous(letter: char) -> bool {
    let code = u32::from(letter);
    letter.is_control()
        || matches!(code, 0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_unprintable_reaches_the_terminal() {
        assert_eq!(escape("grün\n\x1b[31m\\".as_bytes()), "grün\\n\\033[31m\\\\");
        assert_eq!(escape(b"a\xff\xfeb"), "a\\377\\376b");
        assert_eq!(escape("\u{202e}x".as_bytes()), "\\342\\200\\256x");
        assert_eq!(controls_escaped("a\nb\u{1b}\u{202e}"), "a\\nb\\u{1b}\\u{202e}");
    }
}
