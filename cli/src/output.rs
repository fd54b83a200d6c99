//! Prints answers: tables for people, the JSON of the messages for programs.

use crate::failure::Failure;
use crate::money::Dollars;
use crate::time::{now_us, relative, rfc3339};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Wide,
}

/// The output of answers.
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Output { format }
    }

    /// Prints an answer: as it is, or as people like it.
    pub(crate) fn answer<M: Serialize>(
        &self,
        message: &M,
        human: impl FnOnce(&View) -> String,
    ) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => serde_json::to_string_pretty(message).map_err(io::Error::from)?,
            Format::Table | Format::Wide => human(&self.view()),
        };
        write_line(&text)
    }

    /// Prints one frame of a stream: JSON on one line, or none to many lines for people.
    pub(crate) fn frame<M: Serialize>(
        &self,
        message: &M,
        human: impl FnOnce(&View) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => write_line(&serde_json::to_string(message).map_err(io::Error::from)?),
            Format::Table | Format::Wide => match human(&self.view()) {
                text if text.is_empty() => Ok(()),
                text => write_line(&text),
            },
        }
    }

    /// Prints the numbers of things, one a line, whatever the format.
    pub(crate) fn numbers(&self, numbers: impl IntoIterator<Item = u64>) -> Result<(), Failure> {
        numbers.into_iter().try_for_each(|number| write_line(&number.to_string()))
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    fn view(&self) -> View {
        View { wide: self.format == Format::Wide, now_us: now_us() }
    }
}

/// Prints a line. Who stops reading, as `head` does, ends the program without a word.
pub(crate) fn write_line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end().as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// The way in which a person wants to see things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) wide: bool,
    pub(crate) now_us: u64,
}

impl View {
    /// An instant, and how far off it is.
    pub(crate) fn when(&self, at_us: u64) -> String {
        match relative(at_us, self.now_us) {
            Some(relative) => format!("{} ({relative})", rfc3339(at_us)),
            None => rfc3339(at_us),
        }
    }

    /// An instant in a column: how far off it is where that says something, and in wide tables all of it.
    pub(crate) fn brief(&self, at_us: u64) -> String {
        if self.wide {
            return self.when(at_us);
        }
        relative(at_us, self.now_us).unwrap_or_else(|| rfc3339(at_us))
    }
}

/// `-` for what is absent.
pub(crate) fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A price that may be absent.
pub(crate) fn dollars(micros: Option<u64>) -> String {
    or_dash(micros.map(Dollars))
}

/// `key=value`, with commas.
pub(crate) fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "-".to_owned() } else { pairs.join(",") }
}

/// A column of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    name: &'static str,
    right: bool,
    wide: bool,
}

/// Text.
pub(crate) const fn text(name: &'static str) -> Column {
    Column { name, right: false, wide: false }
}

/// Numbers.
pub(crate) const fn number(name: &'static str) -> Column {
    Column { name, right: true, wide: false }
}

impl Column {
    /// Shows the column in wide tables only.
    pub(crate) const fn wide(self) -> Self {
        Column { wide: true, ..self }
    }
}

/// A list, one line for each thing.
pub(crate) struct List {
    columns: Vec<Column>,
    wide: bool,
    rows: Vec<Vec<String>>,
}

impl List {
    pub(crate) fn new(view: &View, columns: &[Column]) -> Self {
        List { columns: columns.to_vec(), wide: view.wide, rows: Vec::new() }
    }

    /// One cell for each column, wide ones too.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The table, or what to say where it is empty.
    pub(crate) fn or(self, empty: &str) -> String {
        if self.rows.is_empty() {
            return empty.to_owned();
        }
        let shown = |(at, column): (usize, &Column)| (!column.wide || self.wide).then_some(at);
        let shown: Vec<_> = self.columns.iter().enumerate().filter_map(shown).collect();
        let mut table = plain();
        table.set_header(shown.iter().map(|&at| self.columns[at].name));
        for row in &self.rows {
            table.add_row(shown.iter().map(|&at| clean(&row[at])));
        }
        for (place, &at) in shown.iter().enumerate() {
            if let Some(column) = table.column_mut(place)
                && self.columns[at].right
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        lines(&table)
    }
}

/// One thing, one line for each of what there is to say about it.
#[derive(Default)]
pub(crate) struct Sheet(Vec<(&'static str, String)>);

impl Sheet {
    pub(crate) fn line(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.0.push((name, value.to_string()));
        self
    }

    /// Leaves out what is absent.
    pub(crate) fn some<T: Display>(&mut self, name: &'static str, value: Option<T>) -> &mut Self {
        if let Some(value) = value {
            self.line(name, value);
        }
        self
    }

    pub(crate) fn text(&self) -> String {
        let mut table = plain();
        for (name, value) in &self.0 {
            table.add_row([format!("{name}:"), clean(value)]);
        }
        lines(&table)
    }
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Without the blanks that padding leaves at both ends.
fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let line = line.strip_prefix(' ').unwrap_or(&line);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.trim_end().to_owned()
}

/// Labels and descriptions are anyone's: they must not steer the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::{List, Sheet, View, number, text};
    use expect_test::expect;

    fn list(wide: bool) -> String {
        let view = View { wide, now_us: 0 };
        let mut list = List::new(&view, &[number("BID"), text("STATE"), text("LABELS").wide()]);
        list.row(["7".into(), "OPEN".into(), "a=b".into()]);
        list.row(["12".into(), "CLOSED".into(), "\u{1b}[31mred".into()]);
        list.or("nothing")
    }

    #[test]
    fn a_list_has_a_line_for_each_thing() {
        expect![[r#"
            BID  STATE
              7  OPEN
             12  CLOSED"#]]
        .assert_eq(&list(false));
    }

    #[test]
    fn a_wide_list_has_more_columns_and_nothing_steers_the_terminal() {
        expect![[r#"
            BID  STATE   LABELS
              7  OPEN    a=b
             12  CLOSED  �[31mred"#]]
        .assert_eq(&list(true));
    }

    #[test]
    fn a_sheet_has_a_line_for_each_fact() {
        let mut sheet = Sheet::default();
        sheet.line("bid", 7).some("closed", None::<u64>).some("unfilled", Some("BELOW_FLOOR"));
        expect![[r#"
            bid:       7
            unfilled:  BELOW_FLOOR"#]]
        .assert_eq(&sheet.text());
    }
}
