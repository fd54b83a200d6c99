//! Writes many rows at once, by column.

mod postgres;
mod sqlite;

pub(super) use postgres::PostgresBulkWriter;
pub(super) use sqlite::SqliteBulkWriter;

use std::fmt;

/// The type of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Number,
    Text,
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

#[derive(Debug)]
pub(crate) enum Column {
    Number(Vec<Option<i64>>),
    Text(Pieces),
    Bytes(Pieces),
}

/// Texts or bytes one behind the other, so that a million of them are one allocation.
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
            Kind::Number => Column::Number(Vec::with_capacity(capacity)),
            Kind::Text => Column::Text(Pieces::default()),
            Kind::Bytes => Column::Bytes(Pieces::default()),
        };
        let columns = names.iter().map(column).collect();
        Bulk { names, columns, len: 0 }
    }

    /// A row to be filled, column after column.
    pub(crate) fn row(&mut self) -> Row<'_> {
        self.len += 1;
        Row { columns: self.columns.iter_mut() }
    }

    /// The names of the columns, as statements list them.
    pub(crate) fn list(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }
}

/// A row that is being filled.
pub(crate) struct Row<'a> {
    columns: std::slice::IterMut<'a, Column>,
}

impl Row<'_> {
    /// Numbers of ours are below 2^63, but for prices and instants that nobody compares here: those are
    /// kept bit by bit.
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

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.some_text(Some(text))
    }

    /// Postgres has no NUL in texts.
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

    /// Bytes that `fill` adds to those of the column.
    pub(crate) fn bytes(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.some_bytes(Some(fill))
    }

    pub(crate) fn some_bytes(&mut self, fill: Option<impl FnOnce(&mut Vec<u8>)>) -> &mut Self {
        match self.columns.next() {
            Some(Column::Bytes(Pieces { bytes, spans })) => {
                let start = bytes.len();
                spans.push(fill.map(|fill| {
                    fill(bytes);
                    (start, bytes.len())
                }));
            }
            other => panic!("bytes for {other:?}"),
        }
        self
    }
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.columns.next().is_none(), "a row is filled to its end");
        }
    }
}

/// One who writes rows, on a connection of its own.
#[async_trait::async_trait]
pub(crate) trait BulkWriter: fmt::Debug + Send {
    /// Makes the changes and moves the watermark, all or nothing. Where the watermark is not `before`,
    /// nothing changes and what it is is returned.
    async fn write(
        &mut self,
        before: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Option<u64>, sqlx::Error>;
}
