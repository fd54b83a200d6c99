//! Questions put together from what was asked.

use std::fmt::Write;

use sqlx::any::AnyRow;
use sqlx::{AnyPool, AssertSqlSafe};

use super::super::{Fault, Labels, sought};

/// A statement that grows, with its arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Select {
    sql: String,
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug)]
enum Argument {
    Number(i64),
    Text(String),
}

/// What can be an argument.
pub(super) trait Bound {
    fn bound(&self) -> BoundValue<'_>;
}

pub(super) enum BoundValue<'a> {
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
    pub(super) fn new(sql: &str) -> Select {
        Select { sql: sql.to_owned(), arguments: Vec::new() }
    }

    /// Adds text; each `?` in it is the next of `arguments`.
    pub(super) fn add(&mut self, sql: &str, arguments: &[&dyn Bound]) -> &mut Select {
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
    pub(super) fn one_of<T: Bound>(&mut self, before: &str, values: &[T], behind: &str) -> &mut Select {
        if values.is_empty() {
            return self;
        }
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
    pub(super) fn values(&mut self, numbers: &[u64]) -> &mut Select {
        self.add(" (VALUES ", &[]);
        for (n, number) in numbers.iter().enumerate() {
            // Otherwise PostgreSQL takes it for a text.
            self.add(if n == 0 { "(CAST(? AS bigint))" } else { ", (CAST(? AS bigint))" }, &[number]);
        }
        self.add(")", &[])
    }

    /// Adds that the bid in `column` has all of these labels.
    pub(super) fn labelled(&mut self, column: &str, labels: &Labels) -> &mut Select {
        for (key, value) in labels {
            let condition = format!(
                " AND EXISTS (SELECT 1 FROM bid_labels l WHERE l.bid = {column} AND l.key = ? AND l.value = ?)"
            );
            self.add(&condition, &[key, value]);
        }
        self
    }

    /// Adds another statement whole.
    pub(super) fn include(&mut self, other: &Select) -> &mut Select {
        // Its places are numbered from 1.
        let shift = self.arguments.len();
        let mut pieces = other.sql.split('$');
        self.sql.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            let (number, rest) = piece.split_at(digits);
            let number: usize = number.parse().expect("a place has a number");
            write!(self.sql, "${}{rest}", number + shift).expect("a string takes it");
        }
        self.arguments.extend(other.arguments.iter().cloned());
        self
    }

    fn place(&mut self, value: BoundValue<'_>) {
        self.arguments.push(match value {
            BoundValue::Number(number) => Argument::Number(sought(number)),
            BoundValue::Text(text) => Argument::Text(text.to_owned()),
        });
        write!(self.sql, "${}", self.arguments.len()).expect("a string takes it");
    }

    pub(super) async fn all(self, pool: &AnyPool, doing: &'static str) -> Result<Vec<AnyRow>, Fault> {
        // Safe: made of numbers and constants.
        let mut query = sqlx::query(AssertSqlSafe(self.sql));
        for argument in self.arguments {
            query = match argument {
                Argument::Number(number) => query.bind(number),
                Argument::Text(text) => query.bind(text),
            };
        }
        query.fetch_all(pool).await.map_err(Fault::database(doing))
    }
}
