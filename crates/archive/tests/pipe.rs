//! The pipe between a source and a sink: order, failures of either end, panics.

#[path = "common/collect.rs"]
mod collect;

use collect::Collect;
use extant_archive::{
    Attributes, Entry, EntryKind, Error, Extent, Result, Shape, Sink, Source, TreePath, pour_concurrently,
};

fn file(number: usize, size: u64) -> Entry {
    let path = TreePath::parse(number.to_string().as_bytes()).unwrap();
    Entry { path, kind: EntryKind::File(Shape::dense(size)), attributes: Attributes::default() }
}

enum End {
    Well,
    Badly,
    Panic,
}

struct Counting(usize, u64, End);

impl Source for Counting {
    fn pour(&mut self, sink: &mut dyn Sink, _extent: Extent) -> Result<()> {
        for number in 0..self.0 {
            sink.entry(file(number, self.1))?;
            sink.content(0, vec![number as u8; self.1 as usize])?;
        }
        match self.2 {
            End::Well => sink.finish(),
            End::Badly => Err(Error::UnsafeName(b"x".to_vec())),
            End::Panic => panic!("on purpose"),
        }
    }
}

struct Refusing(usize);

impl Sink for Refusing {
    fn entry(&mut self, _entry: Entry) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| Error::UnsafeName(b"enough".to_vec()))?;
        Ok(())
    }

    fn content(&mut self, _offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn everything_arrives_in_order() {
    let mut collect = Collect::default();
    pour_concurrently(Counting(20_000, 100, End::Well), &mut collect, Extent::Everything).unwrap();
    assert!(collect.finished);
    let direct = Collect::all(Counting(20_000, 100, End::Well)).unwrap();
    assert!(collect.entries == direct.entries && collect.contents == direct.contents);
    assert_eq!(collect.by_path().len(), 20_000);
}

#[test]
fn a_failing_source_leaves_the_sink_unfinished() {
    let mut collect = Collect::default();
    let poured = pour_concurrently(Counting(3, 1, End::Badly), &mut collect, Extent::Everything);
    assert!(matches!(poured, Err(Error::UnsafeName(name)) if name == b"x"));
    assert!(!collect.finished && collect.entries.len() == 3);
}

#[test]
fn a_failing_sink_stops_a_source_that_waits_for_room() {
    let poured = pour_concurrently(Counting(1000, 1 << 20, End::Well), &mut Refusing(5), Extent::Everything);
    assert!(matches!(poured, Err(Error::UnsafeName(name)) if name == b"enough"));
}

#[test]
#[cfg_attr(panic = "unwind", should_panic = "on purpose")]
fn a_panic_of_the_source_comes_out() {
    println!("expects a panic: on purpose");
    let _ = pour_concurrently(Counting(3, 1, End::Panic), &mut Refusing(5), Extent::Everything);
}
