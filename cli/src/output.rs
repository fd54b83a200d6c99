//! Prints answers: tables for people and spreadsheets, the JSON or YAML of the messages for programs.

use crate::failure::Failure;
use crate::time::{now_us, relative, rfc3339};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use kubebid_client::Dollars;
use serde::Serialize;
use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// The API's message
    Json,
    /// The API's message
    Yaml,
    /// All columns, with exact times
    Csv,
    /// The first column alone
    Name,
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
            Format::Yaml => yaml(message)?,
            Format::Table | Format::Wide | Format::Csv | Format::Name => human(&self.view()),
        };
        if self.format == Format::Name && text.is_empty() {
            return Ok(());
        }
        write_line(&text)
    }

    /// Prints one frame of a stream: JSON on one line, a document of YAML, or none to many lines for people.
    pub(crate) fn frame<M: Serialize>(
        &self,
        message: &M,
        human: impl FnOnce(&View) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => write_line(&serde_json::to_string(message).map_err(io::Error::from)?),
            Format::Yaml => write_line(&format!("---\n{}", yaml(message)?)),
            Format::Table | Format::Wide | Format::Csv | Format::Name => match human(&self.view()) {
                text if text.is_empty() => Ok(()),
                text => write_line(&text),
            },
        }
    }

    /// Prints the numbers of things, one a line, whatever the format.
    pub(crate) fn numbers(&self, numbers: impl IntoIterator<Item = u64>) -> Result<(), Failure> {
        numbers.into_iter().try_for_each(|number| write_line(&number.to_string()))
    }

    /// Returns true if the answer is printed as the API's message.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }

    fn view(&self) -> View {
        View { format: self.format, now_us: now_us() }
    }
}

fn yaml<M: Serialize>(message: &M) -> Result<String, io::Error> {
    serde_saphyr::to_string(message).map_err(io::Error::other)
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
    pub(crate) format: Format,
    pub(crate) now_us: u64,
}

impl View {
    /// Returns true if all columns are shown.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.format, Format::Wide | Format::Csv)
    }

    /// Returns a table with what stands around it for people; programs get the table alone.
    pub(crate) fn around(&self, table: String, around: impl FnOnce(&str) -> String) -> String {
        match self.format {
            Format::Csv | Format::Name => table,
            Format::Table | Format::Wide | Format::Json | Format::Yaml => around(&table),
        }
    }

    /// An instant, and how far off it is.
    pub(crate) fn when(&self, at_us: u64) -> String {
        match relative(at_us, self.now_us) {
            _ if self.format == Format::Csv => rfc3339(at_us),
            Some(relative) => format!("{} ({relative})", rfc3339(at_us)),
            None => rfc3339(at_us),
        }
    }

    /// An instant in a column: how far off it is where that says something, and in wide tables all of it.
    pub(crate) fn brief(&self, at_us: u64) -> String {
        if self.is_wide() {
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
    view: View,
    rows: Vec<Vec<String>>,
}

impl List {
    pub(crate) fn new(view: &View, columns: &[Column]) -> Self {
        List { columns: columns.to_vec(), view: *view, rows: Vec::new() }
    }

    /// One cell for each column, wide ones too.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The table, or what to say where it is empty.
    pub(crate) fn or(self, empty: &str) -> String {
        match self.view.format {
            Format::Csv => {
                let header = self.columns.iter().map(|column| column.name.to_lowercase().replace(' ', "_"));
                return csv([header.collect()].into_iter().chain(self.rows));
            }
            Format::Name => {
                let names = self.rows.into_iter().filter_map(|row| row.into_iter().next());
                return names.map(|name| clean(&name)).collect::<Vec<_>>().join("\n");
            }
            Format::Table | Format::Wide | Format::Json | Format::Yaml => {}
        }
        if self.rows.is_empty() {
            return empty.to_owned();
        }
        let shown = |(at, column): (usize, &Column)| (!column.wide || self.view.is_wide()).then_some(at);
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
pub(crate) struct Sheet {
    view: View,
    lines: Vec<(&'static str, String)>,
}

impl Sheet {
    pub(crate) fn new(view: &View) -> Self {
        Sheet { view: *view, lines: Vec::new() }
    }

    pub(crate) fn line(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.lines.push((name, value.to_string()));
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
        match self.view.format {
            Format::Csv => {
                let (names, values) =
                    self.lines.iter().map(|(name, value)| (name.replace(' ', "_"), value.clone())).unzip();
                return csv([names, values]);
            }
            Format::Name => return self.lines.first().map(|(_, value)| clean(value)).unwrap_or_default(),
            Format::Table | Format::Wide | Format::Json | Format::Yaml => {}
        }
        let mut table = plain();
        for (name, value) in &self.lines {
            table.add_row([format!("{name}:"), clean(value)]);
        }
        lines(&table)
    }
}

/// Returns rows as RFC 4180 has them.
fn csv(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    let written =
        rows.into_iter().try_for_each(|row| writer.write_record(row.iter().map(|cell| clean(cell))));
    let bytes = written.ok().and_then(|()| writer.into_inner().ok()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default().trim_end().to_owned()
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
    use super::{Format, List, Sheet, View, number, text};
    use expect_test::expect;

    fn list(format: Format) -> String {
        let view = View { format, now_us: 0 };
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
        .assert_eq(&list(Format::Table));
    }

    #[test]
    fn a_wide_list_has_more_columns_and_nothing_steers_the_terminal() {
        expect![[r#"
            BID  STATE   LABELS
              7  OPEN    a=b
             12  CLOSED  �[31mred"#]]
        .assert_eq(&list(Format::Wide));
    }

    #[test]
    fn programs_read_all_columns_or_the_first() {
        expect![[r#"
            bid,state,labels
            7,OPEN,a=b
            12,CLOSED,�[31mred"#]]
        .assert_eq(&list(Format::Csv));
        assert_eq!(list(Format::Name), "7\n12");
    }

    #[test]
    fn a_sheet_has_a_line_for_each_fact() {
        let mut sheet = Sheet::new(&View { format: Format::Table, now_us: 0 });
        sheet.line("bid", 7).some("closed", None::<u64>).some("unfilled", Some("BELOW_FLOOR"));
        expect![[r#"
            bid:       7
            unfilled:  BELOW_FLOOR"#]]
        .assert_eq(&sheet.text());
    }
}
