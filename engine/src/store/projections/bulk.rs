//! Many rows at once, by column.

/// What a column holds.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Kind {
    Number,
    Text,
    Bytes,
}

/// A statement over many rows, which it finds as the relation `v`.
#[derive(Debug)]
pub(in crate::store) struct Change {
    pub(super) sql: &'static str,
    pub(super) rows: Bulk,
}

/// Rows for one statement.
#[derive(Debug)]
pub(in crate::store) struct Bulk {
    pub(super) names: &'static [(&'static str, Kind)],
    pub(super) columns: Vec<Column>,
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) enum Column {
    Number(Vec<Option<i64>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Vec<u8>>),
}

impl Bulk {
    pub(super) fn new(names: &'static [(&'static str, Kind)], capacity: usize) -> Bulk {
        let column = |(_, kind): &(&str, Kind)| match kind {
            Kind::Number => Column::Number(Vec::with_capacity(capacity)),
            Kind::Text => Column::Text(Vec::with_capacity(capacity)),
            Kind::Bytes => Column::Bytes(Vec::with_capacity(capacity)),
        };
        Bulk { names, columns: names.iter().map(column).collect(), len: 0 }
    }

    /// A row to be filled, column after column.
    pub(super) fn row(&mut self) -> Row<'_> {
        self.len += 1;
        Row { columns: self.columns.iter_mut() }
    }
}

/// A row that is being filled.
pub(super) struct Row<'a> {
    columns: std::slice::IterMut<'a, Column>,
}

impl Row<'_> {
    /// Numbers of ours are below 2^63, but for prices and instants that nobody compares here: those are
    /// kept bit by bit.
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.some_number(Some(number))
    }

    pub(super) fn some_number(&mut self, number: Option<u64>) -> &mut Self {
        match self.columns.next() {
            Some(Column::Number(column)) => column.push(number.map(|number| number as i64)),
            other => panic!("a number for {other:?}"),
        }
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.some_text(Some(text))
    }

    /// Postgres has no NUL in texts.
    pub(super) fn some_text(&mut self, text: Option<&str>) -> &mut Self {
        match self.columns.next() {
            Some(Column::Text(column)) => column.push(text.map(|text| text.replace('\0', "\u{fffd}"))),
            other => panic!("a text for {other:?}"),
        }
        self
    }

    pub(super) fn bytes(&mut self, bytes: Vec<u8>) {
        match self.columns.next() {
            Some(Column::Bytes(column)) => column.push(bytes),
            other => panic!("bytes for {other:?}"),
        }
    }
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.columns.next().is_none(), "a row is filled to its end");
        }
    }
}
