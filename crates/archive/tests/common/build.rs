//! Archives made byte by byte, as no program writes them.

/// Sets the checksum of a header block.
pub fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// The header of a member with `bytes` of content.
pub fn header(name: &[u8], type_flag: u8, bytes: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    let len = name.len().min(100);
    block[..len].copy_from_slice(&name[..len]);
    for (at, text) in [
        (100, "0000644\0".to_owned()),
        (108, "0000000\0".to_owned()),
        (116, "0000000\0".to_owned()),
        (124, format!("{bytes:011o}\0")),
        (136, "14400000000\0".to_owned()),
        (257, "ustar\x0000".to_owned()),
    ] {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    block[156] = type_flag;
    seal(&mut block);
    block
}

/// A member with its content, padded.
pub fn member(name: &[u8], type_flag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, type_flag, content.len() as u64);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A record of an extended header.
pub fn record(keyword: &str, value: &[u8]) -> Vec<u8> {
    let rest = keyword.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    [format!("{len} {keyword}=").as_bytes(), value, b"\n"].concat()
}

/// An archive of these members.
pub fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}
