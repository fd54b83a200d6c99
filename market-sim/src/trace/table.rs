//! A trace as a table: CSV with a heading, whose rows know their lines.

use super::TraceError;
use super::field::{Field, shortened};
use super::lines::{Lines, ROW_KILOBYTES_MAX, RowTooLong};
use std::io::BufRead;

/// The columns of a kind of trace.
#[derive(Debug)]
pub(super) struct Columns {
    /// The kind with its article, as in "a price trace".
    pub(super) kind: &'static str,
    /// Columns that have to be there.
    pub(super) wanted: &'static [&'static str],
    /// Columns that may be there.
    pub(super) optional: &'static [&'static str],
}

/// All kinds of traces, to name one that is given in the place of another.
static ALL: [&Columns; 5] = [
    &super::demand::COLUMNS,
    &super::prices::COLUMNS,
    &super::supply::NODES,
    &super::supply::GPUS,
    &super::lifetimes::COLUMNS,
];

/// The most columns of a heading that a message shows.
const SHOWN: usize = 20;

impl Columns {
    fn missing(&self, heading: &[String]) -> Vec<&'static str> {
        self.wanted.iter().copied().filter(|column| !heading.iter().any(|found| found == column)).collect()
    }
}

/// A trace, read row by row.
pub(super) struct Table {
    reader: csv::Reader<Lines>,
    columns: &'static Columns,
    /// The place of each of these columns that is there.
    places: Vec<(&'static str, usize)>,
    /// The names of all columns of the file.
    heading: Vec<String>,
    record: csv::StringRecord,
    /// The line of the present row.
    line: u64,
    has_rows: bool,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("columns", &self.columns)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

/// One row of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) line: u64,
    places: &'a [(&'static str, usize)],
    record: &'a csv::StringRecord,
}

impl<'a> Row<'a> {
    /// Returns a field without blanks around it; an empty one if the trace has no such column.
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        let place = self.places.iter().find(|(column, _)| *column == name);
        let text = place.and_then(|(_, place)| self.record.get(*place)).unwrap_or_default();
        Field { line: self.line, name, text: text.trim() }
    }
}

impl Table {
    /// Reads the heading: its names in any case, and with blanks around them. The table has the first of these kinds whose
    /// columns are all there.
    pub(super) fn of(text: Box<dyn BufRead>, kinds: &[&'static Columns]) -> Result<Table, TraceError> {
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(Lines::of(text));
        let mut record = csv::StringRecord::new();
        let read = reader.read_record(&mut record);
        let line = reader.get_mut().line_of_row();
        read.map_err(|error| cannot_read(line, &[], error))?;
        if record.is_empty() {
            return Err(TraceError::Columns("the trace has no line that is not blank".to_owned()));
        }
        let heading: Vec<String> = record.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        let complete = kinds.iter().find(|kind| kind.missing(&heading).is_empty());
        let columns = *complete.ok_or_else(|| TraceError::Columns(other_columns(&heading, kinds)))?;
        let mut places = Vec::new();
        for column in columns.wanted.iter().chain(columns.optional).copied() {
            let mut found = heading.iter().enumerate().filter(|(_, name)| *name == column).map(|(at, _)| at);
            places.extend(found.next().map(|place| (column, place)));
            if found.next().is_some() {
                return Err(TraceError::Columns(format!("line {line}: the column {column} is there twice")));
            }
        }
        Ok(Table { reader, columns, places, heading, record, line, has_rows: false })
    }

    /// Returns whether the table has these columns.
    pub(super) fn has(&self, columns: &Columns) -> bool {
        std::ptr::eq(self.columns, columns)
    }

    /// Reads the next row. A table without any is an error.
    pub(super) fn next_row(&mut self) -> Result<Option<Row<'_>>, TraceError> {
        loop {
            let at = self.reader.position().byte();
            self.reader.get_mut().begin_row(at);
            let read = self.reader.read_record(&mut self.record);
            self.line = self.reader.get_mut().line_of_row();
            let is_row = read.map_err(|error| cannot_read(self.line, &self.heading, error))?;
            match (is_row, self.has_rows) {
                (false, true) => return Ok(None),
                (false, false) => return Err(TraceError::NoRows),
                (true, _) if self.is_blank() => {}
                (true, _) => break,
            }
        }
        self.has_rows = true;
        if self.record.len() != self.heading.len() {
            return Err(self.other_width());
        }
        Ok(Some(Row { line: self.line, places: &self.places, record: &self.record }))
    }

    /// Returns whether the row is a line of blanks.
    fn is_blank(&self) -> bool {
        self.record.len() == 1 && self.record[0].trim().is_empty()
    }

    fn other_width(&self) -> TraceError {
        let has_break = self.record.iter().any(|field| field.contains(['\n', '\r']));
        let fields = match self.record.len() {
            1 => "1 field".to_owned(),
            count => format!("{count} fields"),
        };
        let hint = if has_break { "; is a quotation mark not closed?" } else { "" };
        TraceError::Width { line: self.line, fields, columns: self.heading.len(), hint }
    }
}

fn cannot_read(line: u64, heading: &[String], error: csv::Error) -> TraceError {
    match error.into_kind() {
        csv::ErrorKind::Io(source) if source.get_ref().is_some_and(|inner| inner.is::<RowTooLong>()) => {
            TraceError::LongRow { line, kilobytes: ROW_KILOBYTES_MAX }
        }
        csv::ErrorKind::Io(source) => TraceError::Read { line, source },
        csv::ErrorKind::Utf8 { err, .. } => {
            let number = format!("field {}", err.field() + 1);
            TraceError::Encoding { line, field: heading.get(err.field()).cloned().unwrap_or(number) }
        }
        other @ (csv::ErrorKind::UnequalLengths { .. }
        | csv::ErrorKind::Seek
        | csv::ErrorKind::Serialize(_)
        | csv::ErrorKind::Deserialize { .. }
        | _) => TraceError::Read { line, source: std::io::Error::other(format!("{other:?}")) },
    }
}

/// Says which columns a heading has, which are wanted, and which kind of trace it is instead.
fn other_columns(heading: &[String], kinds: &[&'static Columns]) -> String {
    let shown: Vec<String> =
        heading.iter().take(SHOWN).map(|name| shortened(name).escape_debug().to_string()).collect();
    let more = heading.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let wanted: Vec<String> = kinds
        .iter()
        .map(|kind| format!("{} has the columns {}", kind.kind, kind.wanted.join(", ")))
        .collect();
    let nearest = kinds.iter().map(|kind| kind.missing(heading)).min_by_key(Vec::len).unwrap_or_default();
    let other = ALL.iter().find(|kind| kind.missing(heading).is_empty());
    let other = other.map_or(String::new(), |kind| format!("; it is {}", kind.kind));
    format!(
        "the heading has the columns {}{more}; {}; missing: {}{other}",
        shown.join(", "),
        wanted.join("; "),
        nearest.join(", ")
    )
}
