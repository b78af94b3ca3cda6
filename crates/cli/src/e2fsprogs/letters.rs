//! Command lines of letters, as getopt reads them: letters anywhere, values attached or in the next word, `--` before places.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::Call;
use crate::failure::Failure;

/// What was given.
#[derive(Debug, Default)]
pub struct Letters {
    given: Vec<(char, OsString)>,
    /// Words that belong to no letter.
    pub places: Vec<OsString>,
}

impl Letters {
    /// Reads the command line of `call`. `served` and `refused` are letters, with a colon behind those that take a value.
    ///
    /// # Errors
    /// A letter that is refused or unknown, or one without its value, by name.
    pub fn read(call: &Call, served: &str, refused: &str) -> Result<Self, Failure> {
        let mut letters = Self::default();
        let mut words = call.arguments.iter();
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            if bytes == b"--" {
                letters.places.extend(words.by_ref().cloned());
                break;
            }
            let Some(cluster) = bytes.strip_prefix(b"-").filter(|cluster| !cluster.is_empty()) else {
                letters.places.push(word.clone());
                continue;
            };
            for (index, letter) in cluster.iter().enumerate() {
                let letter = char::from(*letter);
                let Some(takes_value) = takes_value(served, letter) else {
                    return Err(unserved(call.name, refused, letter));
                };
                if !takes_value {
                    letters.given.push((letter, OsString::new()));
                    continue;
                }
                let attached = &cluster[index + 1..];
                let value = match (attached.is_empty(), words.len()) {
                    (false, _) => OsString::from_vec(attached.to_vec()),
                    (true, 0) => {
                        return Err(Failure::usage(format!("option requires an argument -- '{letter}'")));
                    }
                    (true, _) => words.next().cloned().unwrap_or_default(),
                };
                letters.given.push((letter, value));
                break;
            }
        }
        Ok(letters)
    }

    /// Whether the letter was given.
    pub fn has(&self, letter: char) -> bool {
        self.given.iter().any(|(given, _)| *given == letter)
    }

    /// The last value of a letter.
    pub fn value(&self, letter: char) -> Option<&OsStr> {
        self.given.iter().rev().find(|(given, _)| *given == letter).map(|(_, value)| value.as_os_str())
    }

    /// The last value of a letter, as a path.
    pub fn path(&self, letter: char) -> Option<&Path> {
        self.value(letter).map(Path::new)
    }

    /// The last value of a letter, as text.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&self, letter: char) -> Result<Option<&str>, Failure> {
        self.value(letter).map(|value| text_of(letter, value)).transpose()
    }

    /// Every value of a letter, in order.
    ///
    /// # Errors
    /// If one is not UTF-8.
    pub fn texts(&self, letter: char) -> Result<Vec<&str>, Failure> {
        let values = self.given.iter().filter(|(given, _)| *given == letter);
        values.map(|(_, value)| text_of(letter, value)).collect()
    }

    /// The last value of a letter, as a number.
    ///
    /// # Errors
    /// If it is none.
    pub fn number<T: std::str::FromStr>(&self, letter: char) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(letter)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Failure::usage(format!("invalid value of -{letter}: '{text}'")))
    }

    /// Letters and values as they were given, without those in `letters`.
    pub fn without<'a>(&'a self, letters: &'a str) -> impl Iterator<Item = OsString> + 'a {
        let kept = self.given.iter().filter(|(given, _)| !letters.contains(*given));
        kept.map(|(letter, value)| {
            let mut word = OsString::from(format!("-{letter}"));
            word.push(value);
            word
        })
    }
}

fn takes_value(letters: &str, letter: char) -> Option<bool> {
    let at = letters.find(letter).filter(|_| letter != ':')?;
    Some(letters[at + 1..].starts_with(':'))
}

fn unserved(program: &str, refused: &str, letter: char) -> Failure {
    Failure::usage(match refused.contains(letter) && letter != ':' {
        true => format!("-{letter} is not served by Extant; {program} of e2fsprogs has it"),
        false => format!("invalid option -- '{}'", letter.escape_default()),
    })
}

fn text_of(letter: char, value: &OsStr) -> Result<&str, Failure> {
    value
        .to_str()
        .ok_or_else(|| Failure::usage(format!("the value of -{letter} is not UTF-8: '{}'", value.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Letters, String> {
        let arguments: Vec<_> = text.split(' ').map(OsString::from).collect();
        let call = Call { name: "mke2fs", arguments: &arguments };
        Letters::read(&call, "Fqb:E:", "c").map_err(|failure| failure.to_string())
    }

    #[test]
    fn letters_and_places_are_mixed_as_getopt_mixes_them() {
        let letters = read("disk -Fqb 1024 -Ea -E b 64M -- -x").unwrap();
        assert!(letters.has('F') && letters.has('q') && !letters.has('x'));
        assert_eq!(letters.number('b').unwrap(), Some(1024));
        assert_eq!(letters.texts('E').unwrap(), ["a", "b"]);
        assert_eq!(letters.places, ["disk", "64M", "-x"]);
        assert_eq!(letters.without("FqE").collect::<Vec<_>>(), ["-b1024"]);
    }

    #[test]
    fn what_is_not_served_is_refused_by_name() {
        assert!(read("-c disk").unwrap_err().contains("-c is not served"));
        assert_eq!(read("-Z disk").unwrap_err(), "invalid option -- 'Z'");
        assert_eq!(read("-:").unwrap_err(), "invalid option -- ':'");
        assert_eq!(read("disk -b").unwrap_err(), "option requires an argument -- 'b'");
    }
}
