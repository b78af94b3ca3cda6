//! The text of metadata: sections of names and values, nested.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::slice::Iter;

/// Sections in each other; there are four.
const DEPTH_MAX: usize = 16;

/// A value, or a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Number(u64),
    Text(Vec<u8>),
    List(Vec<Node>),
    Section(Section),
}

/// Names and what they have; of a name that is there twice the last counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section(BTreeMap<Vec<u8>, Node>);

impl Section {
    /// Reads a text. `None` if it is malformed.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut reader = Reader { bytes: text.iter().peekable() };
        let section = reader.section(0)?;
        reader.next_token().is_none().then_some(section)
    }

    fn get(&self, name: &str) -> Option<&Node> {
        self.0.get(name.as_bytes())
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<u64> {
        if let Node::Number(number) = self.get(name)? { Some(*number) } else { None }
    }

    /// A string.
    pub fn text(&self, name: &str) -> Option<&[u8]> {
        if let Node::Text(text) = self.get(name)? { Some(text) } else { None }
    }

    /// A list.
    pub fn list(&self, name: &str) -> Option<&[Node]> {
        if let Node::List(list) = self.get(name)? { Some(list) } else { None }
    }

    /// Whether a list has a string.
    pub fn has(&self, name: &str, word: &str) -> bool {
        self.list(name).is_some_and(|list| list.contains(&Node::Text(word.as_bytes().to_vec())))
    }

    /// A section.
    pub fn section(&self, name: impl AsRef<[u8]>) -> Option<&Self> {
        if let Node::Section(section) = self.0.get(name.as_ref())? { Some(section) } else { None }
    }

    /// All sections with their names, in the order of those.
    pub fn sections(&self) -> impl Iterator<Item = (&[u8], &Self)> {
        self.0.iter().filter_map(|(name, node)| match node {
            Node::Section(section) => Some((name.as_slice(), section)),
            _ => None,
        })
    }
}

struct Reader<'a> {
    bytes: Peekable<Iter<'a, u8>>,
}

impl Reader<'_> {
    /// The next byte that is neither space nor of a comment, which remains.
    fn next_token(&mut self) -> Option<u8> {
        loop {
            match **self.bytes.peek()? {
                b'#' => while self.bytes.next_if(|byte| **byte != b'\n').is_some() {},
                // Texts end with a zero byte.
                byte if byte.is_ascii_whitespace() || byte == 0 => drop(self.bytes.next()),
                byte => return Some(byte),
            }
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        let found = self.next_token()? == byte;
        found.then(|| self.bytes.next()).map(|_| ())
    }

    fn word(&mut self) -> Option<Vec<u8>> {
        self.next_token()?;
        let mut word = Vec::new();
        while let Some(byte) = self.bytes.next_if(|byte| is_of_word(**byte)) {
            word.push(*byte);
        }
        (!word.is_empty()).then_some(word)
    }

    /// What is in a section, up to its end, which remains.
    fn section(&mut self, depth: usize) -> Option<Section> {
        let mut entries = BTreeMap::new();
        while self.next_token().is_some_and(|byte| byte != b'}') {
            let name = self.word()?;
            let node = match self.next_token()? {
                b'{' if depth < DEPTH_MAX => {
                    self.take(b'{')?;
                    let section = self.section(depth + 1)?;
                    self.take(b'}')?;
                    Node::Section(section)
                }
                b'=' => {
                    self.take(b'=')?;
                    self.value()?
                }
                _ => return None,
            };
            entries.insert(name, node);
        }
        Some(Section(entries))
    }

    fn value(&mut self) -> Option<Node> {
        if self.take(b'[').is_none() {
            return self.scalar();
        }
        let mut list = Vec::new();
        while self.take(b']').is_none() {
            list.push(self.scalar()?);
            if self.take(b',').is_none() {
                self.take(b']')?;
                break;
            }
        }
        Some(Node::List(list))
    }

    fn scalar(&mut self) -> Option<Node> {
        if self.take(b'"').is_none() {
            let word = self.word()?;
            return std::str::from_utf8(&word).ok()?.parse().ok().map(Node::Number);
        }
        let mut text = Vec::new();
        loop {
            match *self.bytes.next()? {
                b'"' => return Some(Node::Text(text)),
                b'\\' => text.push(*self.bytes.next()?),
                byte => text.push(byte),
            }
        }
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+_.-/:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_values_are_read() {
        let text = b"# comment\nvg { # more\n a=1 b = \"x \\\"y\\\" \\\\\" c = [] d = [\"p\", 7,\n 8]\n e { f = [1,] } }\nlast=2\0";
        let found = Section::parse(text).unwrap();
        let vg = found.section("vg").unwrap();
        assert_eq!((vg.number("a"), vg.text("b")), (Some(1), Some(&b"x \"y\" \\"[..])));
        assert_eq!((vg.list("c"), vg.list("d").map(<[_]>::len)), (Some(&[][..]), Some(3)));
        assert_eq!(vg.section("e").unwrap().list("f"), Some(&[Node::Number(1)][..]));
        assert!(vg.has("d", "p") && !vg.has("d", "q") && !vg.has("a", "p"));
        assert_eq!((found.number("last"), found.sections().count()), (Some(2), 1));
    }

    #[test]
    fn malformed_texts_are_none() {
        for text in [
            "a",
            "a {",
            "a }",
            "}",
            "a = ",
            "a = [1",
            "a = \"x",
            "a = x",
            "= 1",
            "a = [1 2]",
            "a { b = 1 } }",
            "a = -1",
        ] {
            assert_eq!(Section::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Section::parse("a {".repeat(100_000).as_bytes()), None);
        assert!(Section::parse("".as_bytes()).is_some());
    }
}
