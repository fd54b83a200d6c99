//! Builds SELECT statements from optional conditions and lists.

use std::fmt::Write;

use sqlx::any::AnyRow;

use super::reads::Reads;
use super::rows::Parameters;
use super::{Fault, Labels, sought};

/// A statement that grows, with its arguments. Each of them is a `?` in the text, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Select {
    sql: String,
    arguments: Vec<Argument>,
    /// Its text depends on how many entries a list has, so a connection does not keep it prepared.
    has_list: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Argument {
    Number(i64),
    Text(String),
}

/// A value that can be an argument.
pub(crate) trait Bound {
    fn bound(&self) -> BoundValue<'_>;
}

pub(crate) enum BoundValue<'a> {
    Number(u64),
    Text(&'a str),
}

impl Bound for u64 {
    fn bound(&self) -> BoundValue<'_> {
        BoundValue::Number(*self)
    }
}

impl Bound for u32 {
    fn bound(&self) -> BoundValue<'_> {
        BoundValue::Number((*self).into())
    }
}

impl Bound for &str {
    fn bound(&self) -> BoundValue<'_> {
        BoundValue::Text(self)
    }
}

impl Bound for String {
    fn bound(&self) -> BoundValue<'_> {
        BoundValue::Text(self)
    }
}

impl Select {
    pub(crate) fn new(sql: &str) -> Select {
        Select { sql: sql.to_owned(), ..Select::default() }
    }

    /// Adds text; each `?` in it is the next of `arguments`.
    pub(crate) fn add(&mut self, sql: &str, arguments: &[&dyn Bound]) -> &mut Select {
        let mut pieces = sql.split('?');
        self.sql.push_str(pieces.next().unwrap_or_default());
        let mut arguments = arguments.iter();
        for piece in pieces {
            self.place(arguments.next().expect("an argument for each place").bound());
            self.sql.push_str(piece);
        }
        assert!(arguments.next().is_none(), "a place for each argument");
        self
    }

    /// Adds `column IN (...)`, unless nothing is asked for.
    pub(crate) fn one_of<T: Bound>(&mut self, before: &str, values: &[T], behind: &str) -> &mut Select {
        if values.is_empty() {
            return self;
        }
        self.has_list = true;
        self.sql.push_str(before);
        self.sql.push('(');
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                self.sql.push_str(", ");
            }
            self.place(value.bound());
        }
        self.sql.push(')');
        self.sql.push_str(behind);
        self
    }

    /// Adds a relation of these numbers, whose only column is `column1`.
    pub(crate) fn values(&mut self, numbers: &[u64]) -> &mut Select {
        self.has_list = true;
        self.add(" (VALUES ", &[]);
        for (n, number) in numbers.iter().enumerate() {
            // Otherwise PostgreSQL takes it for a text.
            self.add(if n == 0 { "(CAST(? AS bigint))" } else { ", (CAST(? AS bigint))" }, &[number]);
        }
        self.add(")", &[])
    }

    /// Adds that the bid in `column` has all of these labels.
    pub(crate) fn labelled(&mut self, column: &str, labels: &Labels) -> &mut Select {
        self.has_list |= !labels.is_empty();
        for (key, value) in labels {
            let condition = format!(
                " AND EXISTS (SELECT 1 FROM bid_labels l WHERE l.bid = {column} AND l.key = ? AND l.value = ?)"
            );
            self.add(&condition, &[key, value]);
        }
        self
    }

    /// Adds another statement whole.
    pub(crate) fn include(&mut self, other: &Select) -> &mut Select {
        self.sql.push_str(&other.sql);
        self.arguments.extend(other.arguments.iter().cloned());
        self.has_list |= other.has_list;
        self
    }

    fn place(&mut self, value: BoundValue<'_>) {
        self.arguments.push(match value {
            BoundValue::Number(number) => Argument::Number(sought(number)),
            BoundValue::Text(text) => Argument::Text(text.to_owned()),
        });
        self.sql.push('?');
    }

    pub(crate) async fn all(self, reads: &Reads, doing: &'static str) -> Result<Vec<AnyRow>, Fault> {
        reads.all(self, doing).await
    }

    /// Returns the text, the arguments, and whether a connection should keep the statement prepared.
    pub(crate) fn into_parts(self, parameters: Parameters) -> (String, Vec<Argument>, bool) {
        let sql = match parameters {
            Parameters::InOrder => self.sql,
            Parameters::Numbered => numbered(&self.sql),
        };
        (sql, self.arguments, !self.has_list)
    }
}

/// Gives each `?` its number, as PostgreSQL wants it. None of our texts has one for another reason.
fn numbered(sql: &str) -> String {
    let mut pieces = sql.split('?');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for (n, piece) in (1..).zip(pieces) {
        write!(text, "${n}{piece}").expect("a string takes it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_in_order_for_sqlite_and_numbered_for_postgresql() {
        let mut inner = Select::new("SELECT 1 FROM b");
        inner.one_of(" WHERE c IN ", &[3u64, 4], "");
        let mut select = Select::new("SELECT 1 FROM a");
        select.add(" WHERE d = ? AND EXISTS (", &[&2u64]).include(&inner).add(") LIMIT ?", &[&9u64]);
        let text = |parameters| select.clone().into_parts(parameters).0;
        let in_order = "SELECT 1 FROM a WHERE d = ? AND EXISTS (SELECT 1 FROM b WHERE c IN (?, ?)) LIMIT ?";
        assert_eq!(text(Parameters::InOrder), in_order);
        let numbered =
            "SELECT 1 FROM a WHERE d = $1 AND EXISTS (SELECT 1 FROM b WHERE c IN ($2, $3)) LIMIT $4";
        assert_eq!(text(Parameters::Numbered), numbered);
    }
}
