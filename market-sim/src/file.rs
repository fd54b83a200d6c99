//! Files that are read: packed ones are unpacked, a byte-order mark is left out, and a file of another format is named
//! by its first bytes.

use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The reason for which a file is not read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each has a message that says it")]
pub enum FileError {
    #[error("cannot open {path}")]
    Open { path: String, source: io::Error },
    #[error("cannot read {path}")]
    Read { path: String, source: io::Error },
    #[error("{path} is a folder; {what} is a file")]
    Folder { path: String, what: &'static str },
    #[error("{path} is empty; {form}")]
    Empty { path: String, form: &'static str },
    #[error("{path} is called .gz and is no gzip file: compress it, or give it another name")]
    NoGzip { path: String },
    #[error("{path} is {format}; {form}: {advice}")]
    Format { path: String, format: &'static str, form: &'static str, advice: &'static str },
    #[error("{path} is longer than {megabytes} MiB")]
    TooLong { path: String, megabytes: u64 },
    #[error("{path}, line {line}: a byte is not UTF-8; {form}")]
    Encoding { path: String, line: usize, form: &'static str },
}

/// A kind of file that is read.
#[derive(Clone, Copy, Debug)]
pub struct FileKind {
    /// The name with its article, as in "a trace".
    pub what: &'static str,
    /// The format as a sentence, as in "a trace is CSV with commas".
    pub form: &'static str,
    /// The texts of other formats that can be told by their first lines.
    recognise: fn(&str) -> Option<Known>,
}

/// The name of a format, with its article, and what to do with a file of it.
type Known = (&'static str, &'static str);

/// A trace of jobs, prices or supply.
pub const TRACE: FileKind = FileKind {
    what: "a trace",
    form: "a trace is CSV with commas and a heading, plain or gzip-ed",
    recognise: other_table,
};

/// Commands for `market-sim play`.
pub const COMMANDS: FileKind = FileKind {
    what: "a list of commands",
    form: "commands are JSON objects, one a line",
    recognise: |_| None,
};

/// The settings of a world.
pub const WORLD: FileKind =
    FileKind { what: "a world", form: "a world is a JSON or YAML object", recognise: |_| None };

/// The first bytes of every gzip file (RFC 1952).
const GZIP: &[u8] = &[0x1f, 0x8b];
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// The longest file that is read as a whole.
const MEGABYTES_MAX: u64 = 16;

const SAVE_AS_CSV: &str = "save the sheet as CSV in UTF-8";
const SAVE_AS_UTF8: &str = "save it as UTF-8";
const WITH_PANDAS: &str = "write it as text, as pandas does with to_csv(…, index=False)";

/// Formats by the bytes with which they begin.
const FORMATS: [(&[u8], Known); 20] = [
    (GZIP, ("packed twice by gzip", "unpack it with `gunzip`")),
    (
        b"PK\x03\x04",
        ("a zip archive or an Excel workbook", "unpack it with `unzip`, or save the sheet as CSV"),
    ),
    (b"PK\x05\x06", ("an empty zip archive", "take another file")),
    (b"\xd0\xcf\x11\xe0", ("an Excel workbook of the old format", SAVE_AS_CSV)),
    (b"PAR1", ("a Parquet file", WITH_PANDAS)),
    (b"ARROW1", ("an Arrow (Feather) file", WITH_PANDAS)),
    (b"FEA1", ("a Feather file", WITH_PANDAS)),
    (b"Obj\x01", ("an Avro file", WITH_PANDAS)),
    (b"\x89HDF\r\n", ("an HDF5 file", WITH_PANDAS)),
    (b"\x28\xb5\x2f\xfd", ("packed by zstd", "unpack it with `zstd -d`")),
    (b"BZh", ("packed by bzip2", "unpack it with `bunzip2`")),
    (b"\xfd7zXZ\x00", ("packed by xz", "unpack it with `unxz`")),
    (b"\x04\x22\x4d\x18", ("packed by lz4", "unpack it with `lz4 -d`")),
    (b"7z\xbc\xaf\x27\x1c", ("a 7z archive", "unpack it with `7z x`")),
    (b"SQLite format 3\x00", ("a SQLite database", "export a table with `sqlite3 -csv -header`")),
    (b"%PDF", ("a PDF document", "take the data that it was made of")),
    (b"\xff\xfe", ("text in UTF-16", SAVE_AS_UTF8)),
    (b"\xfe\xff", ("text in UTF-16", SAVE_AS_UTF8)),
    (b"version https://git-lfs", ("a pointer of Git LFS", "fetch the file itself with `git lfs pull`")),
    (b"<", ("a web page or XML", "download the data itself")),
];

/// Opens the text of a file. `bar` shows how much of it has been read. A file that begins as gzip does is unpacked,
/// whatever its name.
pub fn open(path: &Path, kind: &FileKind, bar: &ProgressBar) -> Result<Box<dyn BufRead>, FileError> {
    let called = || path.display().to_string();
    let fault = |source| FileError::Open { path: called(), source };
    let file = File::open(path).map_err(fault)?;
    let about = file.metadata().map_err(fault)?;
    if about.is_dir() {
        return Err(FileError::Folder { path: called(), what: kind.what });
    }
    bar.set_length(about.len());
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    text_of(Box::new(BufReader::new(bar.wrap_read(file))), &called(), kind, named)
}

/// Returns the text of something that is read: unpacked, without a byte-order mark, and of no format that is known to be
/// another one. `named` is true if its name says that it is packed.
pub fn text_of(
    mut file: Box<dyn BufRead>,
    path: &str,
    kind: &FileKind,
    named: bool,
) -> Result<Box<dyn BufRead>, FileError> {
    let mut first = peek(&mut file, path)?;
    let gzipped = first.starts_with(GZIP);
    if gzipped {
        file = Box::new(BufReader::new(MultiGzDecoder::new(file)));
        first = peek(&mut file, path)?;
    }
    if first.starts_with(BYTE_ORDER_MARK) {
        file.consume(BYTE_ORDER_MARK.len());
        first.drain(..BYTE_ORDER_MARK.len());
    }
    if first.is_empty() {
        return Err(FileError::Empty { path: path.to_owned(), form: kind.form });
    }
    if let Some((format, advice)) = other_format(&first, kind) {
        return Err(FileError::Format { path: path.to_owned(), format, form: kind.form, advice });
    }
    if named && !gzipped { Err(FileError::NoGzip { path: path.to_owned() }) } else { Ok(file) }
}

/// Reads a file as a whole.
pub fn read_text(path: &Path, kind: &FileKind) -> Result<String, FileError> {
    let called = || path.display().to_string();
    let file = open(path, kind, &ProgressBar::hidden())?;
    let mut bytes = Vec::new();
    let read = file.take((MEGABYTES_MAX << 20) + 1).read_to_end(&mut bytes);
    read.map_err(|source| FileError::Read { path: called(), source })?;
    if bytes.len() as u64 > MEGABYTES_MAX << 20 {
        return Err(FileError::TooLong { path: called(), megabytes: MEGABYTES_MAX });
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        FileError::Encoding { path: called(), line, form: kind.form }
    })
}

/// Returns what comes next, without consuming it. It does not wait for more than there is.
fn peek(file: &mut Box<dyn BufRead>, path: &str) -> Result<Vec<u8>, FileError> {
    let first = file.fill_buf().map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    Ok(first.to_vec())
}

fn other_format(first: &[u8], kind: &FileKind) -> Option<Known> {
    let begins = |(magic, _): &&(&[u8], Known)| first.starts_with(magic);
    if let Some((_, known)) = FORMATS.iter().find(begins) {
        return Some(*known);
    }
    if first.get(257..262) == Some(b"ustar") {
        return Some(("a tar archive", "unpack it with `tar -xf`"));
    }
    if first.contains(&0) {
        return Some(("binary data of an unknown format", "write it as text"));
    }
    (kind.recognise)(&String::from_utf8_lossy(first))
}

/// Returns the format of a text that is no CSV with commas, if its first lines say so.
fn other_table(first: &str) -> Option<Known> {
    let text = first.trim_start();
    if text.starts_with(['{', '[']) {
        return Some(("JSON", "write it as CSV, as pandas does with read_json(…).to_csv(…, index=False)"));
    }
    let line = text.lines().next()?;
    let numbers = |line: &str| line.split_whitespace().all(|word| word.parse::<f64>().is_ok());
    let fields = line.split_whitespace().count();
    if line.starts_with(';') || (fields == SWF_FIELDS && numbers(line)) {
        return Some((
            "a log in the Standard Workload Format (SWF)",
            "make a demand trace of it: job_id is field 1, submit_time is UnixStartTime plus field 2, duration_s is \
             field 4, and nodes or gpus come from field 5",
        ));
    }
    match line {
        _ if line.contains(',') => None,
        _ if line.contains(';') => Some(("CSV with semicolons", COMMAS)),
        _ if line.contains('\t') => Some(("CSV with tabs", COMMAS)),
        _ if line.contains('|') => Some(("CSV with vertical bars", COMMAS)),
        _ => None,
    }
}

/// The fields of a job in the Standard Workload Format.
const SWF_FIELDS: usize = 18;

const COMMAS: &str = "write it with commas, and numbers with points, as pandas does with read_csv(…, sep=…).to_csv(…, index=False)";
