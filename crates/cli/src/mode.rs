//! Modes as `chmod` takes them: octal, or `u+x,go-w`, `a=rX`.

use extant::mode::{
    S_IALLUGO, S_IRUGO, S_IRWXG, S_IRWXO, S_IRWXU, S_ISGID, S_ISUID, S_ISVTX, S_IWUGO, S_IXUGO,
};

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange {
    clauses: Vec<Clause>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clause {
    Absolute(u16),
    /// Whose bits (as a mask over the mode), how, and which.
    Symbolic {
        who: u16,
        operator: char,
        letters: String,
    },
}

/// Both set-id bits.
const SET_ID: u16 = S_ISUID | S_ISGID;

impl ModeChange {
    /// The change that `text` describes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("invalid mode '{text}'");
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let mode =
                u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= S_IALLUGO).ok_or_else(invalid)?;
            return Ok(Self { clauses: vec![Clause::Absolute(mode)] });
        }
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            let actions = clause.find(['+', '-', '=']).ok_or_else(invalid)?;
            let who = clause[..actions].chars().try_fold(0, |who, letter| match letter {
                'u' => Some(who | S_ISUID | S_IRWXU),
                'g' => Some(who | S_ISGID | S_IRWXG),
                'o' => Some(who | S_ISVTX | S_IRWXO),
                'a' => Some(S_IALLUGO),
                _ => None,
            });
            let who = who.map(|who| if actions == 0 { S_IALLUGO } else { who }).ok_or_else(invalid)?;
            let mut rest = &clause[actions..];
            while let Some(operator) = rest.chars().next() {
                let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
                let letters = &rest[1..end];
                let is_copy = matches!(letters, "u" | "g" | "o");
                if !is_copy && !letters.chars().all(|letter| "rwxXst".contains(letter)) {
                    return Err(invalid());
                }
                clauses.push(Clause::Symbolic { who, operator, letters: letters.to_owned() });
                rest = &rest[end..];
            }
        }
        Ok(Self { clauses })
    }

    /// The mode that `mode` becomes.
    pub fn apply(&self, mode: u16, is_directory: bool) -> u16 {
        self.clauses.iter().fold(mode, |mode, clause| match clause {
            // As chmod: a short number leaves a directory's set-id bits.
            Clause::Absolute(new) if is_directory && new & SET_ID == 0 => mode & SET_ID | new,
            Clause::Absolute(new) => *new,
            Clause::Symbolic { who, operator, letters } => {
                symbolic(mode, is_directory, *who, *operator, letters)
            }
        })
    }
}

fn symbolic(mode: u16, is_directory: bool, who: u16, operator: char, letters: &str) -> u16 {
    let everywhere = |bits: u16| bits << 6 | bits << 3 | bits;
    let bits = match letters {
        "u" => everywhere(mode >> 6 & 7),
        "g" => everywhere(mode >> 3 & 7),
        "o" => everywhere(mode & 7),
        _ => letters.chars().fold(0, |bits, letter| {
            bits | match letter {
                'r' => S_IRUGO,
                'w' => S_IWUGO,
                'x' => S_IXUGO,
                'X' if is_directory || mode & S_IXUGO != 0 => S_IXUGO,
                's' => SET_ID,
                't' => S_ISVTX,
                _ => 0,
            }
        }),
    } & who;
    match operator {
        '+' => mode | bits,
        '-' => mode & !bits,
        _ => {
            let kept = if is_directory { SET_ID } else { 0 };
            mode & (!who | kept) | bits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(text: &str, mode: u16, is_directory: bool) -> u16 {
        ModeChange::parse(text).unwrap().apply(mode, is_directory)
    }

    #[test]
    fn modes_change_as_chmod_changes_them() {
        assert_eq!(apply("755", 0o4644, false), 0o755);
        assert_eq!(apply("755", 0o2700, true), 0o2755);
        assert_eq!(apply("u+x,go-w", 0o666, false), 0o744);
        assert_eq!(apply("a+rX", 0o600, false), 0o644);
        assert_eq!(apply("a+rX", 0o700, false), 0o755);
        assert_eq!(apply("+X", 0o600, true), 0o711);
        assert_eq!(apply("g=u", 0o640, false), 0o660);
        assert_eq!(apply("u+s,+t", 0o755, false), 0o5755);
        assert_eq!(apply("o=", 0o777, false), 0o770);
        assert_eq!(apply("u=rw+x-w", 0o000, false), 0o500);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "8", "10000", "u", "z+x", "u+q", "u+x,", "+rwu"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
