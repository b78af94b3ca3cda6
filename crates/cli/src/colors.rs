//! Colours of names by what their files are, as `ls` of coreutils has them: from `LS_COLORS`, and its defaults.
//!
//! Leaves out: links whose target is missing, files with capabilities, and escapes in `LS_COLORS`, which no terminal needs.

use std::collections::HashMap;
use std::io::{IsTerminal as _, stdout};

use clap::ValueEnum;
use extant::{FileType, Metadata};

/// Colours that coreutils has without `LS_COLORS`.
const DEFAULTS: &str = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:sg=30;43:st=37;44:ow=34;42:tw=30;42";

/// When names have colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Whatever standard output is
    Always,
    /// Not at all
    Never,
}

/// Colours by type and by suffix.
pub struct Colors {
    by_type: HashMap<Vec<u8>, Vec<u8>>,
    /// Of several that fit the last counts.
    by_suffix: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Colors {
    /// The colours that the environment has; none where names have none.
    pub fn of_environment(when: ColorWhen) -> Option<Self> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = || std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match when {
            ColorWhen::Never => return None,
            ColorWhen::Auto if !stdout().is_terminal() || is_set("NO_COLOR") || is_dumb() => return None,
            ColorWhen::Auto | ColorWhen::Always => {}
        }
        Some(Self::parse(std::env::var_os("LS_COLORS").unwrap_or_default().as_encoded_bytes()))
    }

    /// Reads `key=colour` between colons, over the defaults.
    fn parse(text: &[u8]) -> Self {
        let mut colors = Self { by_type: HashMap::new(), by_suffix: Vec::new() };
        for word in [DEFAULTS.as_bytes(), text].into_iter().flat_map(|text| text.split(|byte| *byte == b':'))
        {
            let mut halves = word.splitn(2, |byte| *byte == b'=');
            let (Some(key), Some(color)) = (halves.next(), halves.next()) else { continue };
            if !color.iter().all(|byte| byte.is_ascii_digit() || *byte == b';') {
                continue;
            }
            match key.strip_prefix(b"*") {
                Some(suffix) => colors.by_suffix.push((suffix.to_vec(), color.to_vec())),
                None => drop(colors.by_type.insert(key.to_vec(), color.to_vec())),
            }
        }
        colors
    }

    /// `shown` in the colour of the file `name`.
    pub fn paint(&self, shown: Vec<u8>, name: &[u8], metadata: &Metadata) -> Vec<u8> {
        match self.color(name, metadata) {
            Some(color) => [b"\x1b[", color, b"m", &shown, b"\x1b[0m"].concat(),
            None => shown,
        }
    }

    fn color(&self, name: &[u8], metadata: &Metadata) -> Option<&[u8]> {
        let key = self.key(metadata);
        if key != "fi" {
            return self.of_type(key);
        }
        let fits = self.by_suffix.iter().rev().find(|(suffix, _)| name.ends_with(suffix));
        match fits {
            Some((_, color)) => Some(color.as_slice()).filter(|color| is_color(color)),
            None => self.of_type(key),
        }
    }

    fn of_type(&self, key: &str) -> Option<&[u8]> {
        self.by_type.get(key.as_bytes()).map(Vec::as_slice).filter(|color| is_color(color))
    }

    /// The key of a file, of those that have a colour.
    fn key(&self, metadata: &Metadata) -> &'static str {
        let has = |bits: u32| u32::from(metadata.mode) & bits == bits;
        let is_any = |key| self.of_type(key).is_some();
        match metadata.file_type {
            FileType::Directory if has(0o1002) && is_any("tw") => "tw",
            FileType::Directory if has(0o2) && is_any("ow") => "ow",
            FileType::Directory if has(0o1000) && is_any("st") => "st",
            FileType::Directory => "di",
            FileType::Symlink => "ln",
            FileType::Fifo => "pi",
            FileType::Socket => "so",
            FileType::BlockDevice => "bd",
            FileType::CharDevice => "cd",
            _ if has(0o4000) && is_any("su") => "su",
            _ if has(0o2000) && is_any("sg") => "sg",
            _ if u32::from(metadata.mode) & 0o111 != 0 && is_any("ex") => "ex",
            _ if metadata.links > 1 && is_any("mh") => "mh",
            _ => "fi",
        }
    }
}

/// Nothing and 0 are the terminal's own colour.
fn is_color(color: &[u8]) -> bool {
    !matches!(color, b"" | b"0" | b"00")
}
