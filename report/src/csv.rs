//! CSV for spreadsheets. Every export of CSV goes through here.

use crate::text::printable;
use std::io::{self, Write};

/// Writes rows of CSV (RFC 4180). A text that a spreadsheet would take for a formula gets an apostrophe, and what a
/// terminal must not get is written as its code ([`printable`]).
#[derive(Debug)]
pub struct CsvWriter<W: Write>(csv::Writer<W>);

impl<W: Write> CsvWriter<W> {
    /// Returns a writer without any rows. Rows may have different lengths.
    pub fn new(out: W) -> CsvWriter<W> {
        CsvWriter(csv::WriterBuilder::new().flexible(true).from_writer(out))
    }

    /// Adds a row.
    pub fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) -> io::Result<()> {
        for cell in cells {
            self.0.write_field(safe(cell.as_ref()))?;
        }
        // Ends the row.
        Ok(self.0.write_record(None::<&[u8]>)?)
    }

    /// Writes everything out.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns rows as CSV, with a line feed after each but the last.
pub fn csv<T: AsRef<str>>(rows: impl IntoIterator<Item = impl IntoIterator<Item = T>>) -> String {
    let mut bytes = Vec::new();
    let mut out = CsvWriter::new(&mut bytes);
    rows.into_iter().try_for_each(|row| out.row(row)).expect("memory takes it");
    out.finish().expect("memory takes it");
    String::from_utf8(bytes).expect("texts went in").trim_end_matches('\n').to_owned()
}

/// Returns a cell for a number that may be absent, with at least one decimal.
pub fn number(value: Option<f64>) -> String {
    value.map(|value| format!("{value:?}")).unwrap_or_default()
}

/// Returns a cell that no spreadsheet takes for a formula. Formulas begin with one of `= + - @`, also in their full
/// width. Numbers may begin with a sign, and `-` alone stands for what is absent.
fn safe(cell: &str) -> String {
    const FIRST: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let is_number =
        cell.bytes().all(|byte| b"0123456789.+-eE".contains(&byte)) && cell.parse::<f64>().is_ok();
    let cell = printable(cell);
    if cell.trim_start().starts_with(FIRST) && !is_number && cell != "-" { format!("'{cell}") } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_formula() {
        for text in [
            "=1+1",
            "=cmd|' /C calc'!A0",
            "+1-cmd",
            "-2+3",
            "@SUM(A1)",
            " =1",
            "＝1+1",
            "－1+1",
            "+infinity",
            "-nan",
            "--",
            "=HYPERLINK(\"http://x\",\"y\")",
        ] {
            let line = csv([[text]]);
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
            let row = reader.records().next().unwrap().unwrap();
            assert_eq!(row.get(0), Some(format!("'{text}").as_str()));
        }
    }

    #[test]
    fn numbers_and_other_texts_stay_as_they_are() {
        let rows = [["-0.05", "+7", "-1e-7"], ["-", "a=b", "x-y"], ["", "'", "5 - 3"]];
        assert_eq!(csv(rows), "-0.05,+7,-1e-7\n-,a=b,x-y\n,',5 - 3");
    }

    #[test]
    fn cells_with_quotes_and_commas_are_quoted() {
        assert_eq!(csv([vec!["a,b", "c\"d"], vec!["g"]]), "\"a,b\",\"c\"\"d\"\ng");
        assert_eq!(csv([[""; 1], ["x"]]), "\"\"\nx");
        assert_eq!(number(Some(-0.5)), "-0.5");
        assert_eq!(number(None), "");
    }

    #[test]
    fn a_row_is_one_line_without_hidden_characters() {
        for letter in ('\0'..=char::MAX).filter(|letter| crate::text::is_hidden(*letter)) {
            let line = csv([[format!("{letter}=1"), format!("a{letter}")]]);
            assert_eq!(line, format!("\\u{{{0:x}}}=1,a\\u{{{0:x}}}", letter as u32));
        }
    }
}
