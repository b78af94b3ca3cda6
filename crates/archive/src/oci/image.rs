//! One container image as a source of entries.

use std::fs::File;
use std::path::Path;

use extant_rt::Arc;

use super::choice::ImageChoice;
use super::layers::{self, Layer, ReadLayers};
use super::layout::Found;
use super::names::MemberId;
use super::plan::{Plan, PlanPaths};
use super::store::{Form, Store};
use super::tree::Tree;
use super::whiteout::{PREFIX, Whiteout};
use crate::entry::{Attributes, DIRECTORY_MODE, Entry, EntryKind};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink, Source};
use crate::path::TreePath;
use crate::tar::{Input, TarReader};
use crate::user_database::UserDatabase;
use crate::window::Window;

/// The start of an archive in which only an image has nothing but names of an image.
const PEEKED_BYTES: u64 = 64 << 10;

/// An image whose layers are read: its digests are right, and its tree is known. It can be poured any number of times.
#[derive(Debug)]
pub struct Image {
    config: Vec<u8>,
    layers: Vec<Layer>,
    plan: Plan,
    names: UserDatabase,
}

impl Image {
    /// The image in the directory `path`, if it is one.
    ///
    /// # Errors
    /// [`Error::Choice`] if there are several, [`Error::Image`] if a part of it is missing or wrong, [`Error::Host`].
    pub fn in_directory(path: &Path, choice: &ImageChoice, options: &ReadLayers<'_>) -> Result<Option<Self>> {
        Store::directory(path).map_or(Ok(None), |(store, form)| Self::read(&store, form, choice, options))
    }

    /// The image in an archive that is not packed, if it is one.
    ///
    /// # Errors
    /// As [`Image::in_directory`].
    pub fn in_archive(file: File, choice: &ImageChoice, options: &ReadLayers<'_>) -> Result<Option<Self>> {
        let archive = Window::whole(file).map_err(Error::Stream)?;
        let found = Store::archive(&archive)?;
        found.map_or(Ok(None), |(store, form)| Self::read(&store, form, choice, options))
    }

    /// Whether an archive that is read once, from its start, may be an image, which is read from a file only.
    ///
    /// # Errors
    /// [`Error::Stream`].
    pub fn may_be_in(input: &mut Input) -> Result<bool> {
        input.peek(PEEKED_BYTES).map(Store::may_begin)
    }

    fn read(
        store: &Store,
        form: Form,
        choice: &ImageChoice,
        options: &ReadLayers<'_>,
    ) -> Result<Option<Self>> {
        if !store.is_image(form) {
            return Ok(None);
        }
        let Found { config, layers } = store.find(form, choice)?;
        let layers = layers::read(layers, options)?;
        let plan = merge(&layers)?;
        Ok(Some(Self { config, layers, plan, names: UserDatabase::default() }))
    }

    /// The database that maps names in access control lists to ids.
    #[must_use]
    pub fn names(mut self, names: UserDatabase) -> Self {
        self.names = names;
        self
    }

    /// The image's configuration, a JSON document.
    #[must_use]
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    fn pour_layer(&self, layer: &Layer, planned: &[u32], sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let mut reader = TarReader::new(Input::window(layer.archive.clone())).names(self.names.clone());
        let (plan, mut next_number) = (&self.plan.names, 0);
        let mut paths = PlanPaths::new(plan);
        for names in planned.chunk_by(|a, b| plan.member(*a) == plan.member(*b)) {
            let entry = loop {
                let Some(entry) = reader.next_member()? else {
                    return Err(Error::image(&layer.name, "changed while it was read"));
                };
                next_number += 1;
                if next_number > plan.member(names[0]).number {
                    break entry;
                }
            };
            let implied = names.iter().take_while(|name| plan.is_implied(**name)).count();
            for name in &names[..implied] {
                let attributes = Attributes {
                    mode: DIRECTORY_MODE,
                    mtime: entry.attributes.mtime,
                    ..Attributes::default()
                };
                sink.entry(Entry { path: paths.path(*name), kind: EntryKind::Directory, attributes })?;
            }
            let Some((first, others)) = names[implied..].split_first() else { continue };
            let (path, attributes) = (paths.path(*first), entry.attributes);
            let links = others.iter().map(|name| Entry {
                path: paths.path(*name),
                kind: EntryKind::HardLink(path.clone()),
                attributes: attributes.clone(),
            });
            let links: Vec<_> = links.collect();
            sink.entry(Entry { path, kind: entry.kind, attributes })?;
            if extent == Extent::Everything {
                reader.content(sink)?;
            }
            links.into_iter().try_for_each(|link| sink.entry(link))?;
        }
        Ok(())
    }
}

impl Source for Arc<Image> {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let Plan { names, order } = &self.plan;
        for planned in order.chunk_by(|a, b| names.member(*a).layer == names.member(*b).layer) {
            let layer = &self.layers[usize::from(names.member(planned[0]).layer)];
            self.pour_layer(layer, planned, sink, extent)?;
        }
        sink.finish()
    }
}

/// The tree that the layers make, the lowest first.
fn merge(layers: &[Layer]) -> Result<Plan> {
    let mut tree = Tree::new();
    for (index, layer) in (0..).zip(layers) {
        // Below the lowest one there is nothing to be removed.
        if index > 0 {
            each_member(layer, |_, path, role, _| match role {
                Role::Whiteout(Whiteout::Name(name)) => tree.hide(path, name),
                Role::Whiteout(Whiteout::Opaque) => tree.hide_children(path),
                _ => Ok(()),
            })?;
        }
        each_member(layer, |number, _, role, entry| match role {
            Role::File => tree.place(MemberId { layer: index, number }, entry),
            _ => Ok(()),
        })?;
    }
    Ok(tree.into_plan())
}

/// What a member of a layer is.
enum Role<'a> {
    File,
    Whiteout(Whiteout<'a>),
}

impl<'a> Role<'a> {
    fn of(path: &'a TreePath) -> std::result::Result<Self, &'static str> {
        let Some((directory, name)) = path.split_last() else { return Ok(Self::File) };
        let mut above = directory;
        while let Some((next, name)) = above.split_last() {
            if name.starts_with(PREFIX) {
                return match Whiteout::parse(name)? {
                    Some(Whiteout::Metadata) => Ok(Self::Whiteout(Whiteout::Metadata)),
                    _ => Err("a file inside of a whiteout"),
                };
            }
            above = next;
        }
        Ok(Whiteout::parse(name)?.map_or(Self::File, Self::Whiteout))
    }
}

/// Calls `take` with the number of each member, its directory, its role and itself.
fn each_member(
    layer: &Layer,
    mut take: impl FnMut(u32, &TreePath, Role<'_>, &Entry) -> std::result::Result<(), &'static str>,
) -> Result<()> {
    let in_layer = |error: Error| match error {
        error @ (Error::Host { .. } | Error::Image { .. }) => error,
        error => Error::image(&layer.name, error.to_string()),
    };
    let mut reader = TarReader::new(Input::window(layer.archive.clone()));
    let mut number = 0;
    while let Some(entry) = reader.next_member().map_err(in_layer)? {
        let root = TreePath::root();
        let directory = entry.path.split_last().map_or(&root, |(directory, _)| directory);
        let taken = Role::of(&entry.path).and_then(|role| take(number, directory, role, &entry));
        taken.map_err(|reason| Error::image(format!("{}, {}", layer.name, entry.path), reason))?;
        number = number.checked_add(1).ok_or_else(|| Error::image(&layer.name, "more than 2^32 members"))?;
    }
    Ok(())
}
