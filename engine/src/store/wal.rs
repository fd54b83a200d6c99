//! Checks that the write-ahead log beside a SQLite file belongs to the file.
//!
//! Nothing but their names binds the two: SQLite replays any log that it finds beside a file, and a log of another
//! file (an older backup that was put in place of the file) destroys it. After a crash the two belong together in
//! these ways, and each has to pass:
//!
//! - The file is as it was before the log began, and the log has what came after it.
//! - The log was copied into the file in part or in full, and SQLite has not begun it anew. If the crash came in the
//!   middle of that, the file alone is no database, and only both together are.
//!
//! So a check refuses only what contradicts both. The header of the file has a number of its own, which backups do not
//! share, the number of pages, and a counter that never falls; the log has the header's later versions. The last batch of the file alone,
//! if it can be read, is in the journal of both together, and all later batches continue it. If the file is not
//! large, SQLite examines all pages of both together.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use sqlx::{AnyConnection, Connection, Row};

use super::record::{Batch, Position};
use super::sqlite::Sqlite;
use super::{Corrupt, Fault};

/// The size up to which all pages are examined, which takes less than half a second.
const EXAMINED_BYTES: u64 = 64 << 20;

/// The bytes of the header of a SQLite file.
const HEADER: usize = 100;

/// Refuses a log that does not belong to its file. Changes neither of them. No other program may write to them
/// meanwhile.
///
/// # Errors
/// [`Fault::ForeignLog`], and faults of reading the two.
pub(super) async fn check(file: &Path, log: &Path, patience: Duration) -> Result<(), Fault> {
    let unreadable = |path: &Path| {
        let file = path.to_owned();
        move |source| Fault::Prepare { file, source }
    };
    let Some(of_log) = committed_in(log).map_err(unreadable(log))? else { return Ok(()) };
    let Some(of_file) = header_of(file).map_err(unreadable(file))? else {
        let source = sqlx::Error::Protocol("the file is not a database".to_owned());
        return Err(Fault::OpenFile { file: file.to_owned(), source });
    };
    let foreign = |why: String| Fault::ForeignLog { file: file.to_owned(), log: log.to_owned(), why };
    let Committed { pages, headers } = of_log;
    if headers.is_none() && pages != of_file.pages {
        return Err(foreign(format!(
            "the file has {} pages, and the log is of a file with {pages}",
            of_file.pages
        )));
    }
    if let Some((first, last)) = headers {
        if of_file.id != first.id && of_file.id != last.id && of_file.id != 0 {
            return Err(foreign(
                "it is the log of another file, such as the one that a backup was made of".to_owned(),
            ));
        }
        if !(first.counter.saturating_sub(1)..=last.counter).contains(&of_file.counter) {
            let (file, first, last) = (of_file.counter, first.counter, last.counter);
            let why =
                format!("the file has its change {file}, and the log has its changes {first} to {last}");
            return Err(foreign(why));
        }
    }
    let both = Sqlite::to_read(file, patience)?;
    if let Some((name, end)) = end_of_file_alone(file, patience).await {
        let wrong = match continues(&both, end).await {
            Ok(Continued::On) => None,
            // A person may have deleted rows, which makes no file smaller.
            Ok(Continued::Shorter(head))
                if pages >= of_file.pages && is_in_file_alone(file, head, patience).await =>
            {
                None
            }
            Ok(Continued::Shorter(head)) => Some(format!("it ends at {head} and has no such command")),
            Err(why) => Some(why),
        };
        if let Some(why) = wrong {
            return Err(foreign(format!(
                "the journal {name} of the file ends at {end}, and with the log {why}"
            )));
        }
    }
    let length = std::fs::metadata(file).map_err(unreadable(file))?.len();
    if length <= EXAMINED_BYTES
        && let Err(why) = examine(&both).await
    {
        return Err(foreign(format!("with it the file is no sound database: {why}")));
    }
    Ok(())
}

/// The parts of a header that tell SQLite files apart. It is in the first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// `PRAGMA user_version`: a random number of the file, or 0 if it has none yet.
    id: u32,
    /// The file change counter.
    counter: u32,
    /// The number of pages.
    pages: u32,
}

impl Header {
    fn of(page: &[u8]) -> Header {
        Header {
            id: big_endian(&page[60..]),
            counter: big_endian(&page[24..]),
            pages: big_endian(&page[28..]),
        }
    }
}

fn big_endian(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Returns the header of a file; None if it is no SQLite file.
fn header_of(file: &Path) -> io::Result<Option<Header>> {
    let mut page = [0; HEADER];
    let is_sqlite = filled(&mut File::open(file)?, &mut page)? && page.starts_with(b"SQLite format 3\0");
    Ok(is_sqlite.then(|| Header::of(&page)))
}

/// Fills the buffer. Returns false if the file ends before.
fn filled(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The committed transactions of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Committed {
    /// The number of pages of the file after the last one.
    pages: u32,
    /// The first and the last version of the header, if it was written.
    headers: Option<(Header, Header)>,
}

/// Returns what a log has; None if it has no transaction or is missing. SQLite's file format has the layout
/// (<https://www.sqlite.org/fileformat2.html#the_write_ahead_log>).
fn committed_in(log: &Path) -> io::Result<Option<Committed>> {
    let mut log = match File::open(log) {
        Ok(log) => BufReader::new(log),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut start = [0; 32];
    if !filled(&mut log, &mut start)? || big_endian(&start) & !1 != 0x377f_0682 {
        return Ok(None);
    }
    let word = if big_endian(&start) & 1 == 1 { u32::from_be_bytes } else { u32::from_le_bytes };
    let mut sum = Checksum { word, sum: (0, 0) };
    let page_size = big_endian(&start[8..]) as usize;
    sum.add(&start[..24]);
    if !sum.is(&start[24..]) || !page_size.is_power_of_two() || !(512..=65_536).contains(&page_size) {
        return Ok(None);
    }
    let (mut committed, mut headers) = (None, None::<(Header, Header)>);
    let mut frame = vec![0; 24 + page_size];
    while filled(&mut log, &mut frame)? {
        let (head, page) = frame.split_at(24);
        sum.add(&head[..8]);
        sum.add(page);
        if head[8..16] != start[16..24] || !sum.is(&head[16..]) {
            break;
        }
        if big_endian(head) == 1 {
            let header = Header::of(page);
            headers = Some(headers.map_or((header, header), |(first, _)| (first, header)));
        }
        // The last page of a transaction has the number of pages after it.
        let pages = big_endian(&head[4..]);
        if pages != 0 {
            committed = Some(Committed { pages, headers });
        }
    }
    Ok(committed)
}

/// The checksum of a log, which goes over its frames.
struct Checksum {
    word: fn([u8; 4]) -> u32,
    sum: (u32, u32),
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(8) {
            let word = |at: usize| (self.word)([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
            self.sum.0 = self.sum.0.wrapping_add(word(0)).wrapping_add(self.sum.1);
            self.sum.1 = self.sum.1.wrapping_add(word(4)).wrapping_add(self.sum.0);
        }
    }

    fn is(&self, bytes: &[u8]) -> bool {
        (big_endian(bytes), big_endian(&bytes[4..])) == self.sum
    }
}

/// Returns the name of the journal in the file without its log, and the journal's end. Returns None if the journal is
/// empty, or if the file alone cannot be read, because a crash came while the log was copied into it.
async fn end_of_file_alone(file: &Path, patience: Duration) -> Option<(String, Position)> {
    let mut alone = Sqlite::without_log(file, patience).ok()?.connect_as_it_is().await.ok()?;
    let found = read_end(&mut alone).await;
    let _ = alone.close().await;
    found
}

async fn read_end(alone: &mut AnyConnection) -> Option<(String, Position)> {
    let name = sqlx::query("SELECT journal FROM leader").fetch_one(&mut *alone).await.ok()?;
    let last = "SELECT first_seq, last_seq, records FROM journal ORDER BY first_seq DESC LIMIT 1";
    let last = sqlx::query(last).fetch_one(alone).await.ok()?;
    let numbers = (last.try_get::<i64, _>(0).ok()?, last.try_get::<i64, _>(1).ok()?);
    let batch = Batch::decode(last.try_get::<Vec<u8>, _>(2).ok()?.into()).ok()?;
    let is_sound = (batch.first_seq() as i64, batch.last_seq() as i64) == numbers;
    is_sound.then(|| name.try_get(0).ok().map(|name| (name, batch.end())))?
}

/// The journal of a file with its log, compared with the end of the journal of the file alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continued {
    /// It goes on from there.
    On,
    /// It ends before, at this position.
    Shorter(Position),
}

/// Returns true if a batch of the journal of the file alone ends at this position.
async fn is_in_file_alone(file: &Path, position: Position, patience: Duration) -> bool {
    let Ok(alone) = Sqlite::without_log(file, patience) else { return false };
    let Ok(journal) = alone.journal().await else { return false };
    let is_there = position == Position::START || journal.has(position).await.unwrap_or(false);
    journal.close().await;
    is_there
}

/// Checks that the journal goes on from a position to its end. Returns in words what is wrong.
async fn continues(both: &Sqlite, from: Position) -> Result<Continued, String> {
    let words = |fault: Fault| {
        if let Fault::Damaged { first_seq, source: Corrupt::Gap { .. } | Corrupt::Chain } = fault {
            return format!("it goes on with another history at command {first_seq}");
        }
        format!("it cannot be read ({fault})")
    };
    let journal = both.journal().await.map_err(words)?;
    let head = journal.head().await.map_err(words)?;
    if !journal.has(from).await.map_err(words)? {
        if head.seq < from.seq {
            return Ok(Continued::Shorter(head));
        }
        return Err(format!("the journal {} ends at {head} and has no such command", journal.id()));
    }
    let mut reader = journal.read_after(from);
    while !reader.next_chunk().await.map_err(words)?.is_empty() {}
    journal.close().await;
    Ok(Continued::On)
}

/// Lets SQLite examine all pages. Returns in words what is wrong.
async fn examine(both: &Sqlite) -> Result<(), String> {
    let mut connection = both.connect_as_it_is().await.map_err(|fault| fault.to_string())?;
    let said = sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut connection).await;
    let said = said.and_then(|row| row.try_get::<String, _>(0)).map_err(|error| error.to_string());
    let _ = connection.close().await;
    match said?.as_str() {
        "ok" => Ok(()),
        wrong => Err(wrong.to_owned()),
    }
}
