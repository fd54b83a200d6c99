//! Prints answers: tables for people and spreadsheets, the JSON or YAML of the messages for programs.

use crate::failure::{Exit, Failure};
use crate::time::{SECOND, now_us, relative, rfc3339, to_the_millisecond, to_the_second};
use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use console::{Style, Term};
use kubebid_client::Dollars;
use kubebid_report::csv::csv;
use kubebid_report::text::{is_hidden, printable, printable_json, printable_yaml};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;
use tokio::sync::oneshot;

/// The columns in which tables with sentences are written.
const WIDTH: u16 = 100;
/// The columns between two cells.
const GAP: usize = 2;
/// The columns that a cut text has at least.
const LEAST: usize = 12;
/// The time before a deadline that is near.
const NEAR: u64 = 60 * SECOND;

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
    /// The header of a stream of CSV is written.
    has_header: Cell<bool>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Output { format, has_header: Cell::new(false) }
    }

    /// Returns true if names alone are printed, for scripts.
    pub(crate) fn is_names(&self) -> bool {
        self.format == Format::Name
    }

    /// Prints an answer: as it is, or as people like it.
    pub(crate) fn answer<M: Serialize>(
        &self,
        message: &M,
        human: impl FnOnce(&View) -> String,
    ) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => json_pretty(message)?,
            Format::Yaml => yaml(message)?,
            Format::Table | Format::Wide | Format::Csv | Format::Name => human(&self.view()),
        };
        if self.format == Format::Name && text.is_empty() {
            return Ok(());
        }
        write_line(&text)
    }

    /// Prints one frame of a stream: JSON on one line, a document of YAML, rows of CSV after one header, or none to many
    /// lines for people.
    pub(crate) fn frame<M: Serialize>(
        &self,
        message: &M,
        human: impl FnOnce(&View) -> String,
    ) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => printable_json(&serde_json::to_string(message).map_err(io::Error::from)?),
            Format::Yaml => format!("---\n{}", yaml(message)?),
            Format::Csv if self.has_header.replace(true) => {
                human(&self.view()).split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default()
            }
            Format::Table | Format::Wide | Format::Csv | Format::Name => human(&self.view()),
        };
        if text.is_empty() { Ok(()) } else { write_line(&text) }
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
        let terminal = Term::stdout();
        let width = terminal.is_term().then(|| usize::from(terminal.size().1));
        View { width, is_coloured: console::colors_enabled(), ..View::of(self.format, now_us()) }
    }
}

fn json_pretty<M: Serialize>(message: &M) -> Result<String, io::Error> {
    Ok(printable_json(&serde_json::to_string_pretty(message).map_err(io::Error::from)?))
}

/// Returns a message as YAML. A message with text that a terminal must not get is written like JSON, which YAML
/// understands, with codes for such characters.
fn yaml<M: Serialize>(message: &M) -> Result<String, io::Error> {
    let text = serde_saphyr::to_string(message).map_err(io::Error::other)?;
    if !text.chars().any(|letter| letter != '\n' && is_hidden(letter)) {
        return Ok(text);
    }
    Ok(printable_yaml(&serde_json::to_string_pretty(message).map_err(io::Error::from)?))
}

/// Prints a line. A reader that goes away, as `head` does, ends the program without a message.
pub(crate) fn write_line(text: &str) -> Result<(), Failure> {
    write_bytes(format!("{}\n", text.trim_end()).as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    // What is not written at the end of the process is lost without an error.
    Ok(out.flush()?)
}

/// Prints what clap has to say: the help and the version as answers, and mistakes on standard error. Returns the exit
/// code.
pub(crate) fn explain(said: &clap::Error) -> ExitCode {
    let printed = said.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(fault) if !said.use_stderr() => Failure::from(fault).report(),
        _ => ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(Exit::Fault as u8)),
    }
}

/// Runs a command that prints as things happen, until it ends or the reader of standard output is gone. Without that a
/// command whose reader has gone, as `head` does, would run until the next thing happens.
pub(crate) async fn while_read(stream: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let (gone, is_gone) = oneshot::channel();
    // Not a thread of the runtime, which would wait for it at the end.
    thread::spawn(move || {
        if reader_goes() {
            let _ = gone.send(());
        }
    });
    tokio::select! {
        ended = stream => ended,
        Ok(()) = is_gone => Ok(()),
    }
}

/// Blocks until the reader of standard output is gone. Returns false if that cannot be known.
fn reader_goes() -> bool {
    let out = io::stdout();
    // Errors and the end of the other side are reported without being asked for.
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    loop {
        match poll(&mut polled, None) {
            Ok(_) => return polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// The way in which a person wants to see things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) format: Format,
    pub(crate) now_us: u64,
    /// The columns of the terminal, if it is one.
    width: Option<usize>,
    is_coloured: bool,
}

impl View {
    /// Returns the view of a file or a pipe: nothing is cut, and nothing has a colour.
    pub(crate) fn of(format: Format, now_us: u64) -> Self {
        View { format, now_us, width: None, is_coloured: false }
    }

    /// Returns the view of a terminal of this width, without colours.
    #[cfg(test)]
    pub(crate) fn on_terminal(self, width: usize) -> Self {
        View { width: Some(width), ..self }
    }

    /// Returns true if all columns are shown.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.format, Format::Wide | Format::Csv)
    }

    /// Returns true for the formats that people read.
    pub(crate) fn is_for_people(&self) -> bool {
        match self.format {
            Format::Table | Format::Wide => true,
            Format::Json | Format::Yaml | Format::Csv | Format::Name => false,
        }
    }

    /// Returns a table with what stands around it for people; programs get the table alone.
    pub(crate) fn around(&self, table: String, around: impl FnOnce(&str) -> String) -> String {
        match self.format {
            Format::Csv | Format::Name => table,
            Format::Table | Format::Wide | Format::Json | Format::Yaml => around(&table),
        }
    }

    /// An instant to the second, and how far off it is; exact in CSV.
    pub(crate) fn when(&self, at_us: u64) -> String {
        match relative(at_us, self.now_us) {
            _ if self.format == Format::Csv => rfc3339(at_us),
            Some(relative) => format!("{} ({relative})", to_the_second(at_us)),
            None => to_the_second(at_us),
        }
    }

    /// An instant in a column: how far off it is where that says something, and in wide tables all of it.
    pub(crate) fn brief(&self, at_us: u64) -> String {
        if self.is_wide() {
            return self.when(at_us);
        }
        relative(at_us, self.now_us).unwrap_or_else(|| to_the_second(at_us))
    }

    /// An instant of one of many events: to the millisecond, and exact in CSV.
    pub(crate) fn moment(&self, at_us: u64) -> String {
        if self.format == Format::Csv { rfc3339(at_us) } else { to_the_millisecond(at_us) }
    }

    /// Returns the mark of a node that ends then.
    pub(crate) fn mark(&self, deadline_us: u64) -> Mark {
        if deadline_us.saturating_sub(self.now_us) < NEAR { Mark::Urgent } else { Mark::Notice }
    }

    /// Returns a text in the colour of its mark, on a terminal that has colours.
    fn paint(&self, mark: Mark, text: String) -> String {
        if !self.is_coloured {
            return text;
        }
        let style = Style::new().force_styling(true);
        match mark {
            Mark::None => text,
            Mark::Notice => style.yellow().apply_to(text).to_string(),
            Mark::Urgent => style.red().bold().apply_to(text).to_string(),
        }
    }
}

/// The importance of a line, which a terminal shows as a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    #[default]
    None,
    /// The line of a node under notice.
    Notice,
    /// The line of a node under notice whose deadline is near.
    Urgent,
}

/// `-` for what is absent.
pub(crate) fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A count with its word, as in `1 node` and `2 nodes`.
pub(crate) fn plural(count: u32, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// A price that may be absent, for a column of money.
pub(crate) fn dollars(micros: Option<u64>) -> String {
    or_dash(micros.map(Dollars))
}

/// A price with its unit, or `-` where it is absent.
pub(crate) fn usd(micros: Option<u64>) -> String {
    or_dash(micros.map(|micros| format!("${}", Dollars(micros))))
}

/// An amount that may be negative, with its unit.
pub(crate) fn signed_usd(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}${}", Dollars(micros.unsigned_abs()))
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
    csv: Option<&'static str>,
    kind: Kind,
    shown: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// Dollars, with their sign for people.
    Money,
    /// Sentences, which are wrapped where they are too long.
    Prose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Always,
    Wide,
    /// Not in wide tables and CSV, which say the same in more columns.
    Narrow,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, csv: None, kind, shown: Shown::Always }
}

/// Text. On a terminal that is too narrow it is cut.
pub(crate) const fn text(name: &'static str) -> Column {
    column(name, Kind::Text)
}

/// Numbers.
pub(crate) const fn number(name: &'static str) -> Column {
    column(name, Kind::Number)
}

/// Amounts of dollars, as [`dollars`] writes them.
pub(crate) const fn money(name: &'static str) -> Column {
    column(name, Kind::Money)
}

/// Sentences.
pub(crate) const fn prose(name: &'static str) -> Column {
    column(name, Kind::Prose)
}

impl Column {
    /// Shows the column in wide tables and CSV only.
    pub(crate) const fn wide(self) -> Self {
        Column { shown: Shown::Wide, ..self }
    }

    /// Shows the column neither in wide tables nor in CSV.
    pub(crate) const fn narrow(self) -> Self {
        Column { shown: Shown::Narrow, ..self }
    }

    /// Sets the name in CSV, where it is not the header of the table.
    pub(crate) const fn csv(self, name: &'static str) -> Self {
        Column { csv: Some(name), ..self }
    }

    fn is_shown(&self, is_wide: bool) -> bool {
        match self.shown {
            Shown::Always => true,
            Shown::Wide => is_wide,
            Shown::Narrow => !is_wide,
        }
    }
}

/// A list, one line for each thing.
pub(crate) struct List {
    columns: Vec<Column>,
    view: View,
    rows: Vec<(Mark, Vec<String>)>,
}

impl List {
    pub(crate) fn new(view: &View, columns: &[Column]) -> Self {
        List { columns: columns.to_vec(), view: *view, rows: Vec::new() }
    }

    /// One cell for each column, whether it is shown or not.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.marked(Mark::None, cells);
    }

    /// A row with a mark.
    pub(crate) fn marked(&mut self, mark: Mark, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push((mark, cells));
    }

    /// The table, or what to say where it is empty.
    pub(crate) fn or(self, empty: &str) -> String {
        let List { columns, view, rows } = self;
        let shown: Vec<_> = (0..columns.len()).filter(|at| columns[*at].is_shown(view.is_wide())).collect();
        let columns: Vec<_> = shown.iter().map(|at| columns[*at]).collect();
        let (marks, rows): (Vec<_>, Vec<Vec<_>>) = rows
            .into_iter()
            .map(|(mark, cells)| (mark, shown.iter().map(|at| printable(&cells[*at])).collect()))
            .unzip();
        match view.format {
            Format::Csv => {
                let name = |column: &Column| match column.csv {
                    Some(name) => name.to_owned(),
                    None => column.name.to_lowercase().replace(' ', "_"),
                };
                return csv([columns.iter().map(name).collect()].into_iter().chain(rows));
            }
            Format::Name => {
                let names = rows.into_iter().filter_map(|row| row.into_iter().next());
                return names.collect::<Vec<_>>().join("\n");
            }
            Format::Table | Format::Wide | Format::Json | Format::Yaml => {}
        }
        if rows.is_empty() {
            return empty.to_owned();
        }
        table(&columns, rows, &marks, &view)
    }
}

/// Returns a table for people.
fn table(columns: &[Column], mut rows: Vec<Vec<String>>, marks: &[Mark], view: &View) -> String {
    for (cell, column) in rows.iter_mut().flat_map(|row| row.iter_mut().zip(columns)) {
        let amount = cell.strip_prefix('-').unwrap_or(cell);
        if column.kind == Kind::Money && amount.starts_with(|first: char| first.is_ascii_digit()) {
            cell.insert(cell.len() - amount.len(), '$');
        }
    }
    rows.insert(0, columns.iter().map(|column| column.name.to_owned()).collect());
    if let Some(width) = view.width.filter(|_| view.format == Format::Table) {
        fit(columns, &mut rows, width);
    }
    let mut table = plain();
    let mut rows = rows.into_iter();
    table.set_header(rows.next().unwrap_or_default());
    table.add_rows(rows);
    for (place, column) in columns.iter().enumerate() {
        if let Some(shown) = table.column_mut(place)
            && matches!(column.kind, Kind::Number | Kind::Money)
        {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    if columns.iter().any(|column| column.kind == Kind::Prose) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
        return lines(&table).join("\n");
    }
    let marks = [Mark::None].iter().chain(marks);
    let painted = lines(&table).into_iter().zip(marks).map(|(line, mark)| view.paint(*mark, line));
    painted.collect::<Vec<_>>().join("\n")
}

/// Cuts the longest texts of a table, header included, until its lines have `width` columns.
fn fit(columns: &[Column], rows: &mut [Vec<String>], width: usize) {
    let widest = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let mut widths: Vec<_> = (0..columns.len()).map(widest).collect();
    let between = GAP * columns.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + between > width {
        let texts = (0..columns.len()).filter(|at| columns[*at].kind == Kind::Text);
        let Some(longest) = texts.max_by_key(|at| widths[*at]).filter(|at| widths[*at] > LEAST) else {
            break;
        };
        widths[longest] -= 1;
    }
    for (cell, width) in rows.iter_mut().flat_map(|row| row.iter_mut().zip(&widths)) {
        *cell = cut(cell, *width);
    }
}

/// Returns a text with "…" in place of its middle, if it is longer than `width`: units differ at their ends.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let end = width / 3;
    let begin = width.saturating_sub(end + 1);
    let (first, last) = (text.chars().take(begin), text.chars().skip(length - end));
    first.chain(['…']).chain(last).collect()
}

/// One thing, one line for each of what there is to say about it.
pub(crate) struct Sheet {
    view: View,
    lines: Vec<(&'static str, String, Mark)>,
}

impl Sheet {
    pub(crate) fn new(view: &View) -> Self {
        Sheet { view: *view, lines: Vec::new() }
    }

    pub(crate) fn line(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.marked(Mark::None, name, value)
    }

    /// A line with a mark.
    pub(crate) fn marked(&mut self, mark: Mark, name: &'static str, value: impl Display) -> &mut Self {
        self.lines.push((name, value.to_string(), mark));
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
                let number = |value: &str| printable(value.strip_prefix('$').unwrap_or(value));
                let line = |(name, value, _): &(&str, String, Mark)| (name.replace(' ', "_"), number(value));
                let (names, values): (Vec<String>, Vec<String>) = self.lines.iter().map(line).unzip();
                return csv([names, values]);
            }
            Format::Name => {
                return self.lines.first().map(|(_, value, _)| printable(value)).unwrap_or_default();
            }
            Format::Table | Format::Wide | Format::Json | Format::Yaml => {}
        }
        let mut table = plain();
        for (name, value, _) in &self.lines {
            table.add_row([format!("{name}:"), printable(value)]);
        }
        let marks = self.lines.iter().map(|(_, _, mark)| *mark);
        let painted = lines(&table).into_iter().zip(marks).map(|(line, mark)| self.view.paint(mark, line));
        painted.collect::<Vec<_>>().join("\n")
    }
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Returns the lines of a table without the blanks that padding leaves at both ends.
fn lines(table: &Table) -> Vec<String> {
    let line = |line: String| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned();
    table.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::is_hidden;
    use super::{Format, List, Mark, SECOND, Sheet, View, json_pretty, money, number, prose, text, yaml};
    use expect_test::expect;

    fn list(format: Format) -> String {
        let view = View::of(format, 0);
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
             12  CLOSED  \u{1b}[31mred"#]]
        .assert_eq(&list(Format::Wide));
    }

    #[test]
    fn programs_read_all_columns_or_the_first() {
        expect![[r#"
            bid,state,labels
            7,OPEN,a=b
            12,CLOSED,\u{1b}[31mred"#]]
        .assert_eq(&list(Format::Csv));
        assert_eq!(list(Format::Name), "7\n12");
    }

    #[test]
    fn no_format_prints_a_character_that_hides_or_turns_text() {
        let hidden = ('\0'..=char::MAX).filter(|letter| is_hidden(*letter) && *letter != '\n');
        let label: String = hidden.collect();
        let message = std::collections::BTreeMap::from([(&label, &label)]);
        let (json, yaml) = (json_pretty(&message).unwrap(), yaml(&message).unwrap());
        let formats = [Format::Table, Format::Wide, Format::Csv, Format::Name].map(|format| {
            let view = View::of(format, 0);
            let mut list = List::new(&view, &[text("LABELS")]);
            list.row([label.clone()]);
            let mut sheet = Sheet::new(&view);
            sheet.line("labels", &label);
            format!("{}\n{}", list.or(""), sheet.text())
        });
        for shown in [&json, &yaml].into_iter().chain(&formats) {
            assert_eq!(shown.chars().find(|letter| *letter != '\n' && is_hidden(*letter)), None);
        }
        let read: std::collections::BTreeMap<String, String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read[&label], label);
        let label = "a\u{202e}\u{9b}b\u{e0041}".to_owned();
        let text = super::yaml(&std::collections::BTreeMap::from([("label", &label)])).unwrap();
        let read: std::collections::BTreeMap<String, String> = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read["label"], label);
    }

    #[test]
    fn a_label_is_no_formula_in_a_spreadsheet() {
        let mut list = List::new(&View::of(Format::Csv, 0), &[text("LABELS"), money("PRICE")]);
        list.row(["=HYPERLINK(1)=x".into(), "-2.50".into()]);
        assert_eq!(list.or(""), "labels,price\n'=HYPERLINK(1)=x,-2.50");
        let mut sheet = Sheet::new(&View::of(Format::Csv, 0));
        sheet.line("labels", "@x=y").line("price", "$2.50");
        assert_eq!(sheet.text(), "labels,price\n'@x=y,2.50");
    }

    #[test]
    fn money_has_its_unit_for_people() {
        let shown = |format| {
            let mut list = List::new(&View::of(format, 0), &[text("MARKET"), money("PRICE")]);
            list.row(["a/b".into(), "2.50".into()]);
            list.row(["c/d".into(), "-".into()]);
            list.row(["e/f".into(), "-0.05".into()]);
            list.or("")
        };
        expect![[r#"
            MARKET   PRICE
            a/b      $2.50
            c/d          -
            e/f     -$0.05"#]]
        .assert_eq(&shown(Format::Table));
        assert_eq!(shown(Format::Csv), "market,price\na/b,2.50\nc/d,-\ne/f,-0.05");
    }

    #[test]
    fn a_narrow_terminal_cuts_the_longest_text_and_nothing_else_does() {
        let shown = |format, width| {
            let view = View::of(format, 0).on_terminal(width);
            let mut list = List::new(&view, &[number("BID"), text("UNIT"), text("STATE"), money("PRICE")]);
            let unit = "h100-80gb-sxm5-8x/eu-central-1:datacenter-frankfurt#128";
            list.row(["1234567".into(), unit.into(), "ACTIVE".into(), "16.3925".into()]);
            list.row(["7".into(), "a/b:c#1".into(), "NOTICE".into(), "2.00".into()]);
            list.or("")
        };
        expect![[r#"
                BID  UNIT                          STATE      PRICE
            1234567  h100-80gb-sxm5-8x/…kfurt#128  ACTIVE  $16.3925
                  7  a/b:c#1                       NOTICE     $2.00"#]]
        .assert_eq(&shown(Format::Table, 55));
        assert!(shown(Format::Table, 200).contains("#128"), "a wide terminal has all of it");
        assert!(shown(Format::Wide, 55).contains("#128"), "a wide table has all of it");
        assert!(shown(Format::Csv, 55).contains("#128"));
    }

    #[test]
    fn sentences_are_wrapped() {
        let mut list = List::new(&View::of(Format::Table, 0), &[text("WHEN"), prose("WHAT HAPPENED")]);
        list.row(["3s ago".into(), "Bid 10 was placed for 1 node. ".repeat(5)]);
        let shown = list.or("");
        assert!(shown.lines().count() > 2 && shown.lines().all(|line| line.len() <= 100), "{shown}");
    }

    #[test]
    fn a_notice_has_a_colour_on_a_terminal_that_has_some() {
        let view = View { is_coloured: true, ..View::of(Format::Table, SECOND) };
        assert_eq!(view.mark(30 * SECOND), Mark::Urgent);
        assert_eq!(view.mark(300 * SECOND), Mark::Notice);
        let mut list = List::new(&view, &[text("UNIT")]);
        list.row(["a/b:c#1".into()]);
        list.marked(view.mark(300 * SECOND), ["a/b:c#2".into()]);
        list.marked(view.mark(30 * SECOND), ["a/b:c#3".into()]);
        let shown = "UNIT\na/b:c#1\n\u{1b}[33ma/b:c#2\u{1b}[0m\n\u{1b}[31m\u{1b}[1ma/b:c#3\u{1b}[0m";
        assert_eq!(list.or(""), shown);
        let mut plain = List::new(&View::of(Format::Table, 0), &[text("UNIT")]);
        plain.marked(Mark::Urgent, ["a/b:c#3".into()]);
        assert_eq!(plain.or(""), "UNIT\na/b:c#3");
    }

    #[test]
    fn a_sheet_has_a_line_for_each_fact() {
        let mut sheet = Sheet::new(&View::of(Format::Table, 0));
        sheet.line("bid", 7).some("closed", None::<u64>).some("unfilled", Some("BELOW_FLOOR"));
        expect![[r#"
            bid:       7
            unfilled:  BELOW_FLOOR"#]]
        .assert_eq(&sheet.text());
    }
}
