//! Each load on a model of a directory: what it counts, where it writes, and that it leaves nothing behind.

use std::cell::RefCell;
use std::collections::BTreeMap;

use clap::ValueEnum;
use extant_loads::{
    APPEND_BYTES, APPENDED_BYTES_MAX, BURST_BYTES, Directory, FILE_BYTES, Load, Part, Runner,
    SPARSE_STEP_BYTES, Step,
};

/// Where each write of a file began, and where its appends ended.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    written: Vec<u64>,
    end: u64,
    longest: u64,
}

type Contents = std::rc::Rc<RefCell<Content>>;

/// A directory: its path with a slash behind, and the files of all by their paths.
#[derive(Clone, Default)]
struct Model(String, std::rc::Rc<RefCell<BTreeMap<String, Contents>>>);

impl Model {
    fn path(&self, name: &str) -> String {
        self.0.clone() + name
    }
}

impl Directory for Model {
    type File = Contents;
    type Error = &'static str;

    fn create(&self, name: &str) -> Result<Contents, &'static str> {
        let file = Contents::default();
        let taken = self.1.borrow_mut().insert(self.path(name), file.clone());
        if taken.is_some() { Err("the name is taken") } else { Ok(file) }
    }

    fn open(&self, name: &str) -> Result<Contents, &'static str> {
        self.1.borrow().get(&self.path(name)).cloned().ok_or("no such file")
    }

    fn stat(&self, name: &str) -> Result<(), &'static str> {
        let is_dir = self.1.borrow().contains_key(&(self.path(name) + "/"));
        if is_dir { Ok(()) } else { self.open(name).map(drop) }
    }

    fn unlink(&self, name: &str) -> Result<(), &'static str> {
        self.1.borrow_mut().remove(&self.path(name)).map(drop).ok_or("no such name")
    }

    fn allocate(file: &Contents, at: u64, bytes: u64) -> Result<(), &'static str> {
        let mut file = file.borrow_mut();
        if at != file.end {
            return Err("not at the end");
        }
        file.end += bytes;
        file.longest = file.longest.max(file.end);
        Ok(())
    }

    fn write(file: &Contents, at: u64, bytes: &[u8]) -> Result<(), &'static str> {
        let mut file = file.borrow_mut();
        file.written.push(at);
        file.end = file.end.max(at + bytes.len() as u64);
        Ok(())
    }

    fn read(_: &Contents, _: u64, _: &mut [u8]) -> Result<(), &'static str> {
        Ok(())
    }

    fn stat_path(&self, path: &str) -> Result<(), &'static str> {
        self.stat(path)
    }

    fn subdirectory(&self, name: &str) -> Result<Self, &'static str> {
        let path = self.path(name) + "/";
        self.1.borrow_mut().entry(path.clone()).or_default();
        Ok(Self(path, self.1.clone()))
    }

    fn remove_dir(&self, name: &str) -> Result<(), &'static str> {
        let inside = self.path(name) + "/";
        let is_inside = |path: &&String| path.starts_with(&inside);
        if self.1.borrow().keys().filter(is_inside).count() > 1 {
            return Err("not empty");
        }
        self.1.borrow_mut().remove(&inside).map(drop).ok_or("no such directory")
    }

    fn rename(&self, name: &str, to: &Self, new: &str) -> Result<(), &'static str> {
        let file = self.open(name)?;
        self.unlink(name)?;
        self.1.borrow_mut().insert(to.path(new), file);
        Ok(())
    }

    fn link(&self, name: &str, to: &Self, new: &str) -> Result<(), &'static str> {
        let file = self.open(name)?;
        let taken = self.1.borrow_mut().insert(to.path(new), file);
        if taken.is_some() { Err("the name is taken") } else { Ok(()) }
    }

    fn list(&self, visit: &mut dyn FnMut(&str)) -> Result<(), &'static str> {
        let paths: Vec<String> = self.1.borrow().keys().cloned().collect();
        let names = paths.iter().filter_map(|path| path.strip_prefix(&self.0));
        names.filter(|name| !name.contains('/')).for_each(visit);
        Ok(())
    }

    fn bytes(file: &Contents) -> Result<u64, &'static str> {
        Ok(file.borrow().end)
    }

    fn truncate(file: &Contents, bytes: u64) -> Result<(), &'static str> {
        file.borrow_mut().end = bytes;
        Ok(())
    }

    fn fsync(_: &Contents) -> Result<(), &'static str> {
        Ok(())
    }

    fn fdatasync(_: &Contents) -> Result<(), &'static str> {
        Ok(())
    }
}

struct Rounds {
    load: Load,
    left: u32,
    counted: u64,
}

impl Runner for Rounds {
    fn did(&mut self, step: Step) {
        self.counted += u64::from(self.load.counts(step));
    }

    fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

/// Runs a load of two threads in one directory for some rounds; what the first thread's file came to, and its steps.
fn run(load: Load, rounds: u32, steps_max: u64) -> (Content, u64) {
    let dir = Model::default();
    let shared = Model("shared/".to_owned(), dir.1.clone());
    let parts = [0, 1].map(|thread| Part { dir: &dir, shared: &shared, threads: 2, thread, steps_max });
    parts.iter().for_each(|part| load.prepare(part).expect("prepared"));
    let counted = parts.each_ref().map(|part| {
        let mut runner = Rounds { load, left: rounds + 1, counted: 0 };
        load.run(part, &mut runner).expect("done");
        runner.counted
    });
    let file = dir.1.borrow().get("file-0").map(|file| file.borrow().clone());
    parts.iter().zip(counted).for_each(|(part, counted)| load.clean(part, counted).expect("cleaned"));
    assert!(dir.1.borrow().is_empty(), "{load:?} leaves files");
    (file.unwrap_or_default(), counted[0])
}

#[test]
fn loads_count_their_steps_and_leave_nothing() {
    for load in Load::value_variants() {
        let (_, counted) = run(*load, 3, 250);
        match load.ends() {
            true => assert_eq!(counted, 250, "{load:?}"),
            false => {
                assert!(counted >= if load.counts(Step::Sync) { 3 } else { 3 * 100 }, "{load:?}: {counted}")
            }
        }
        let (_, counted) = run(*load, 1, 250);
        assert!(counted > 0 && counted < 250 || !load.ends(), "{load:?} does not stop when told: {counted}");
    }
}

#[test]
fn appends_end_where_the_file_is_cut() {
    assert_eq!(run(Load::Fallocate2, 2, 0).0.longest, FILE_BYTES);
    let (grown, counted) = run(Load::Append, 3, 0);
    assert_eq!((grown.longest, counted), (3 * FILE_BYTES, 3 * FILE_BYTES / APPEND_BYTES));
    assert_eq!(run(Load::Append, 100, 0).0.longest, APPENDED_BYTES_MAX);
}

#[test]
fn bursts_go_where_they_should() {
    let sparse = run(Load::SparseWrites, 10, 300).0.written;
    assert_eq!(sparse, (0..300).map(|index| index * SPARSE_STEP_BYTES).collect::<Vec<_>>());
    let dense: Vec<u64> = (0..300).map(|index| index * BURST_BYTES).collect();
    for load in [Load::RandomFill, Load::RandomFillBySequences] {
        let mut filled = run(load, 10, 300).0.written;
        assert_ne!(filled, dense, "{load:?} is in order");
        if load == Load::RandomFillBySequences {
            assert!(filled.chunks(4).all(|four| four[3] == four[0] + 3 * BURST_BYTES));
        }
        filled.sort_unstable();
        assert_eq!(filled, dense, "{load:?}");
    }
}
