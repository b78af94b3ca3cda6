//! Files that are read from streams and written to them.

use extant_archive::{
    Attributes, DataRange, Entry, EntryKind, Error, Extent, Shape, Sink, Source, StreamReader, StreamWriter,
    TreePath,
};

fn file(shape: Shape) -> Entry {
    let path = TreePath::parse(b"f").unwrap();
    Entry { path, kind: EntryKind::File(shape), attributes: Attributes::default() }
}

#[test]
fn streams_are_read_to_their_end_and_written_without_holes() {
    let long = vec![7; (3 << 20) + 5];
    let mut out = Vec::new();
    let mut reader =
        StreamReader::new(&long[..], "in", TreePath::parse(b"f").unwrap(), Attributes::default());
    reader.pour(&mut StreamWriter::new(&mut out, "out"), Extent::Everything).unwrap();
    assert!(out == long);

    let mut out = Vec::new();
    let mut writer = StreamWriter::new(&mut out, "out");
    let range = |offset| DataRange { offset, bytes: 2 };
    writer.entry(file(Shape::sparse(10, [range(2), range(6)]).unwrap())).unwrap();
    writer.content(2, b"ab".to_vec()).unwrap();
    writer.content(6, b"cd".to_vec()).unwrap();
    writer.finish().unwrap();
    assert_eq!(out, b"\0\0ab\0\0cd\0\0");
}

#[test]
fn trees_do_not_go_to_a_stream() {
    let mut writer = StreamWriter::new(Vec::new(), "out");
    writer.entry(file(Shape::dense(0))).unwrap();
    assert!(matches!(writer.entry(file(Shape::dense(0))), Err(Error::Refused { .. })));
    let mut writer = StreamWriter::new(Vec::new(), "out");
    let directory = Entry { kind: EntryKind::Directory, ..file(Shape::dense(0)) };
    assert!(matches!(writer.entry(directory), Err(Error::Refused { .. })));
}
