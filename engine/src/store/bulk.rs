//! Writes many rows at once, by column.

mod postgres;
mod sqlite;

pub(super) use postgres::PostgresBulkWriter;
pub(super) use sqlite::SqliteBulkWriter;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime};
use kubebid_core::units::Micros;
use std::collections::BTreeSet;
use std::fmt;

/// A month in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Month {
    year: i32,
    month: u32,
}

impl Month {
    pub(crate) fn of(at: Micros) -> Month {
        let at = DateTime::from_timestamp_micros(at.0.min(TIME_MAX) as i64).expect("TIME_MAX is a time");
        Month { year: at.year(), month: at.month() }
    }

    fn next(self) -> Month {
        match self.month {
            12 => Month { year: self.year + 1, month: 1 },
            month => Month { month: month + 1, ..self },
        }
    }

    /// Returns the start of the month. The last month of chrono's calendar has no next one.
    pub(crate) fn start(self) -> Micros {
        let date = NaiveDate::from_ymd_opt(self.year, self.month, 1);
        date.map_or(Micros(TIME_MAX), |date| {
            Micros(date.and_time(NaiveTime::MIN).and_utc().timestamp_micros() as u64)
        })
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Text,
    /// A list of texts, which is not empty and has no empty text.
    Texts,
    /// Microseconds since 1970.
    Time,
    /// True or false.
    Flag,
    Bytes,
}

/// Columns of a table or relation, in order.
pub(crate) type Columns = &'static [(&'static str, Kind)];

/// A statement and its rows.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) how: How,
    pub(crate) rows: Bulk,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// Adds them to this table.
    Append(&'static str),
    /// Adds them to this table, which PostgreSQL divides by the column `at`: one partition for each month.
    AppendByMonth(&'static str),
    /// Runs this statement, which finds them as the relation `v`.
    Statement(&'static str),
}

/// Rows of the same columns.
#[derive(Debug)]
pub(crate) struct Bulk {
    pub(crate) names: Vec<(&'static str, Kind)>,
    pub(crate) columns: Vec<Column>,
    pub(crate) len: usize,
}

/// The values of a column.
#[derive(Debug)]
pub(crate) enum Column {
    /// Numbers, times, and flags as 0 or 1.
    Number(Vec<Option<i64>>),
    Text(Pieces),
    /// Lists of texts, each list with [`SEPARATOR`] between its texts.
    Texts(Pieces),
    Bytes(Pieces),
}

/// The latest time in a table, in microseconds since 1970: the year 262142, the last one of chrono.
pub(crate) const TIME_MAX: u64 = 8_210_266_876_799_999_999;

/// A day in microseconds.
const DAY_MICROS: i64 = 86_400_000_000;

/// The character between the texts of a list: U+001F, "unit separator", which no name contains.
const SEPARATOR: u8 = 0x1f;

/// Texts or bytes in one buffer, so that a million of them are one allocation.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    spans: Vec<Option<(usize, usize)>>,
}

impl Pieces {
    fn push(&mut self, piece: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(piece.unwrap_or_default());
        self.spans.push(piece.map(|_| (start, self.bytes.len())));
    }

    pub(crate) fn get(&self, row: usize) -> Option<&[u8]> {
        self.spans[row].map(|(start, end)| &self.bytes[start..end])
    }

    /// Returns the texts of a row in a column of lists.
    pub(crate) fn texts(&self, row: usize) -> Option<Vec<&str>> {
        self.text(row).map(|texts| texts.split(char::from(SEPARATOR)).collect())
    }

    /// Returns the text of a row in a column of texts.
    pub(crate) fn text(&self, row: usize) -> Option<&str> {
        self.get(row).map(|bytes| std::str::from_utf8(bytes).expect("texts went in"))
    }
}

impl Bulk {
    /// Makes an empty set of rows with the columns of all `lists`.
    pub(crate) fn new(lists: &[Columns], capacity: usize) -> Bulk {
        let names = lists.concat();
        let column = |(_, kind): &(&str, Kind)| match kind {
            Kind::Number | Kind::Time | Kind::Flag => Column::Number(Vec::with_capacity(capacity)),
            Kind::Text => Column::Text(Pieces::default()),
            Kind::Texts => Column::Texts(Pieces::default()),
            Kind::Bytes => Column::Bytes(Pieces::default()),
        };
        let columns = names.iter().map(column).collect();
        Bulk { names, columns, len: 0 }
    }

    /// Adds a row, to be filled column after column.
    pub(crate) fn row(&mut self) -> Row<'_> {
        self.len += 1;
        Row { columns: self.columns.iter_mut() }
    }

    /// Returns the months in which rows happened, by their column `at`.
    pub(crate) fn months(&self) -> BTreeSet<Month> {
        let at = self.names.iter().position(|(name, _)| *name == "at").expect("the rows have a time");
        let Column::Number(times) = &self.columns[at] else { panic!("a time is a number") };
        // Many rows have few different days, and computing the month of a time is the slow part.
        let days: BTreeSet<i64> =
            times.iter().flatten().map(|micros| micros.div_euclid(DAY_MICROS)).collect();
        days.into_iter().map(|day| Month::of(Micros((day * DAY_MICROS) as u64))).collect()
    }

    /// Returns the names of some columns, as statements list them.
    pub(crate) fn list(&self, columns: &[usize]) -> String {
        let names: Vec<&str> = columns.iter().map(|column| self.names[*column].0).collect();
        names.join(", ")
    }
}

impl Column {
    /// Returns true if a row has a value in this column.
    fn has_values(&self) -> bool {
        match self {
            Column::Number(numbers) => numbers.iter().any(Option::is_some),
            Column::Text(pieces) | Column::Texts(pieces) | Column::Bytes(pieces) => {
                pieces.spans.iter().any(Option::is_some)
            }
        }
    }
}

/// A row that is being filled.
pub(crate) struct Row<'a> {
    columns: std::slice::IterMut<'a, Column>,
}

impl Row<'_> {
    /// Adds a number. Our own numbers are below 2^63. Prices may be larger; they are stored bit by
    /// bit, which is right as long as SQL does not compare them.
    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.some_number(Some(number))
    }

    pub(crate) fn some_number(&mut self, number: Option<u64>) -> &mut Self {
        match self.columns.next() {
            Some(Column::Number(column)) => column.push(number.map(|number| number as i64)),
            other => panic!("a number for {other:?}"),
        }
        self
    }

    /// Adds a number that may be below 0.
    pub(crate) fn signed(&mut self, number: i64) -> &mut Self {
        self.number(number as u64)
    }

    pub(crate) fn time(&mut self, time: Micros) -> &mut Self {
        self.some_time(Some(time))
    }

    /// Adds a time. A time after [`TIME_MAX`] becomes that one.
    pub(crate) fn some_time(&mut self, time: Option<Micros>) -> &mut Self {
        self.some_number(time.map(|time| time.0.min(TIME_MAX)))
    }

    pub(crate) fn flag(&mut self, flag: bool) -> &mut Self {
        self.number(flag.into())
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.some_text(Some(text))
    }

    /// Adds a list of texts; NULL if it is empty.
    pub(crate) fn texts<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> &mut Self {
        match self.columns.next() {
            Some(Column::Texts(Pieces { bytes, spans })) => {
                let start = bytes.len();
                for text in texts {
                    if bytes.len() > start {
                        bytes.push(SEPARATOR);
                    }
                    bytes.extend_from_slice(text.as_bytes());
                }
                spans.push((bytes.len() > start).then_some((start, bytes.len())));
            }
            other => panic!("texts for {other:?}"),
        }
        self
    }

    /// Adds a text. PostgreSQL has no NUL character in texts: it becomes U+FFFD.
    pub(crate) fn some_text(&mut self, text: Option<&str>) -> &mut Self {
        match self.columns.next() {
            Some(Column::Text(column)) => match text.filter(|text| text.contains('\0')) {
                Some(text) => column.push(Some(text.replace('\0', "\u{fffd}").as_bytes())),
                None => column.push(text.map(str::as_bytes)),
            },
            other => panic!("a text for {other:?}"),
        }
        self
    }

    /// Adds the bytes that `fill` appends to those of the column.
    pub(crate) fn bytes(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        match self.columns.next() {
            Some(Column::Bytes(Pieces { bytes, spans })) => {
                let start = bytes.len();
                fill(bytes);
                spans.push(Some((start, bytes.len())));
            }
            other => panic!("bytes for {other:?}"),
        }
        self
    }
}

impl std::ops::Drop for Row<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.columns.next().is_none(), "a row is filled to its end");
        }
    }
}

/// Rows that are no longer kept.
#[derive(Debug)]
pub(crate) struct Drop {
    pub(crate) table: &'static str,
    /// The start of the first month that is kept.
    pub(crate) first_month: Micros,
    pub(crate) before: Vec<String>,
    pub(crate) after: Vec<String>,
}

/// Writes rows on a connection of its own.
#[async_trait::async_trait]
pub(crate) trait BulkWriter: fmt::Debug + Send {
    /// Makes the changes and moves the watermark from `before` to `after`, all or nothing. If the
    /// watermark is not `before`, changes nothing and returns it.
    async fn write(
        &mut self,
        before: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Option<u64>, sqlx::Error>;

    /// Drops the rows of a table before a month, and runs statements before and after that in the
    /// same transaction. Does nothing if there are no such rows.
    async fn drop_months_before(&mut self, drop: &Drop) -> Result<(), sqlx::Error>;
}
