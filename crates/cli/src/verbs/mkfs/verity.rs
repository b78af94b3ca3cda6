//! The hash tree of dm-verity behind a new file system.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use extant::mkfs::Layout;
use extant_archive::{HashTree, Verity};
use extant_block::BlockDevice;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Output, hex};

/// Whether there is to be a hash tree, and of what kind.
#[derive(Args)]
pub struct VerityOptions {
    /// Append a dm-verity hash tree, and say its root hash
    #[arg(long)]
    verity: bool,
    /// The tree's salt in hexadecimal digits, - for none [default: one that follows from the UUID]
    #[arg(long, value_name = "HEX", requires = "verity", value_parser = Salt::parse)]
    verity_salt: Option<Salt>,
    /// Write the root hash to this file too
    #[arg(long, value_name = "FILE", requires = "verity")]
    root_hash_to: Option<PathBuf>,
}

#[derive(Clone)]
struct Salt(Vec<u8>);

impl Salt {
    fn parse(text: &str) -> Result<Self, String> {
        let digits = if text == "-" { "" } else { text };
        let pairs = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok().filter(|_| !pair.starts_with('+'))
        });
        let bytes = pairs.collect::<Option<Vec<_>>>().ok_or("not pairs of hexadecimal digits")?;
        if bytes.len() > Verity::SALT_BYTES_MAX {
            return Err(format!("longer than {} bytes", Verity::SALT_BYTES_MAX));
        }
        Ok(Self(bytes))
    }
}

/// The size of an image of a file system with its tree.
pub fn bytes_with_tree(layout: &Layout) -> u64 {
    let data_bytes = data_bytes(layout);
    data_bytes + Verity::bytes_for(data_bytes)
}

/// Bytes of the file system, in whole blocks of the tree.
fn data_bytes(layout: &Layout) -> u64 {
    let geometry = layout.geometry();
    (geometry.blocks_count * u64::from(geometry.block_size)).next_multiple_of(Verity::BLOCK_BYTES)
}

/// A tree that was written.
pub struct Written {
    salt: Vec<u8>,
    tree: HashTree,
}

impl VerityOptions {
    pub fn is_wanted(&self) -> bool {
        self.verity
    }

    /// Refuses to append a tree to what has a size of its own.
    pub fn check_target(&self, may_resize: bool) -> Result<(), Failure> {
        if self.verity && !may_resize {
            return Err(Failure::usage("--verity is for image files, which it makes longer"));
        }
        Ok(())
    }

    /// Writes the tree, if it is wanted.
    pub fn write(
        &self,
        image: &Path,
        device: &dyn BlockDevice,
        layout: &Layout,
    ) -> Result<Option<Written>, Failure> {
        if !self.verity {
            return Ok(None);
        }
        let mut verity = Verity::new(layout.superblock().s_uuid());
        if let Some(Salt(salt)) = &self.verity_salt {
            verity = verity.salted(salt).ok_or_else(|| Failure::usage("the salt is too long"))?;
        }
        let tree = verity.write(device, data_bytes(layout)).and_then(|tree| device.flush().map(|()| tree));
        let tree = tree.map_err(|error| Failure::host(image, &error))?;
        if let Some(path) = &self.root_hash_to {
            fs::write(path, hex(&tree.root_hash) + "\n").map_err(|error| Failure::host(path, &error))?;
        }
        Ok(Some(Written { salt: verity.salt().to_vec(), tree }))
    }
}

impl Written {
    /// Says what mounting it takes.
    pub fn describe(&self, output: &mut Output) -> Result<(), Failure> {
        let salt = if self.salt.is_empty() { "-".to_owned() } else { hex(&self.salt) };
        output.line(format!("root hash {}", hex(&self.tree.root_hash)))?;
        output.line(format!("salt {salt}, hash offset {}", self.tree.hash_offset))
    }

    /// The same for programs.
    pub fn document(&self) -> Value {
        json!({
            "root_hash": hex(&self.tree.root_hash),
            "salt": hex(&self.salt),
            "hash_offset_bytes": self.tree.hash_offset,
        })
    }
}
