//! Patterns of the shell: `*`, `?`, `[a-z]`, `[!a-z]`, `\x`. Time is at most the product of both lengths.

/// Whether all of `name` matches.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern_at, mut name_at) = (0, 0);
    // The position of the last star, and how far it reaches.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let rest = &pattern[pattern_at..];
        if rest.first() == Some(&b'*') {
            star = Some((pattern_at, name_at));
            pattern_at += 1;
            continue;
        }
        if rest.is_empty() && name_at == name.len() {
            return true;
        }
        match name.get(name_at).and_then(|byte| one(rest, *byte)) {
            Some(taken) => {
                pattern_at += taken;
                name_at += 1;
            }
            None => {
                let Some((at, reached)) = star.filter(|(_, reached)| *reached < name.len()) else {
                    return false;
                };
                star = Some((at, reached + 1));
                (pattern_at, name_at) = (at + 1, reached + 1);
            }
        }
    }
}

/// How much of the pattern matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', ..] => set(pattern, byte),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

fn set(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if is_negated { 2 } else { 1 };
    // A bracket that comes first is a member.
    let Some(end) = (first + 1..pattern.len()).find(|at| pattern[*at] == b']') else {
        return (byte == b'[').then_some(1);
    };
    let (mut at, mut is_member) = (first, false);
    while at < end {
        let (low, high) = match pattern[at..end] {
            [low, b'-', high, ..] => (low, high),
            _ => (pattern[at], pattern[at]),
        };
        is_member |= (low..=high).contains(&byte);
        at += if pattern[at..end].get(1) == Some(&b'-') && at + 2 < end { 3 } else { 1 };
    }
    (is_member != is_negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_the_shell_matches() {
        let yes = [
            "*|",
            "*|x",
            "a*c|abc",
            "a*c|ac",
            "?b|ab",
            "[a-c]x|bx",
            "[!a-c]x|dx",
            "[]]|]",
            "\\*|*",
            "*.c*f|a.c.cf",
            "[|[",
        ];
        let no = ["|x", "a*c|abd", "?|", "[a-c]x|dx", "[!a]|a", "\\*|x", "*a|ab", "a|A"];
        let test = |text: &str| {
            let (pattern, name) = text.split_once('|').expect("two");
            matches(pattern.as_bytes(), name.as_bytes())
        };
        for text in yes {
            assert!(test(text), "{text}");
        }
        for text in no {
            assert!(!test(text), "{text}");
        }
        // No more than the product of the lengths.
        assert!(!matches(&b"*a".repeat(2000), &b"b".repeat(2000)));
    }
}
