//! Builds SELECT statements from optional conditions and lists.

use sqlx::any::AnyRow;
use sqlx::query::Query;
use sqlx::{AnyPool, AssertSqlSafe, Database, Encode, Type};

use super::bulk::{Columns, Kind, TIME_MAX};
use super::reads::Reads;
use super::rows::Dialect;
use super::{Fault, Labels, sought};
use kubebid_core::units::Micros;

/// A statement that grows, with its arguments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Select {
    pieces: Vec<Piece>,
    /// True if the text depends on how many entries a list has, so that a connection should not keep
    /// it prepared.
    has_list: bool,
}

#[derive(Clone, Debug)]
enum Piece {
    Sql(String),
    Argument(Argument),
    OnPostgres(&'static str),
    /// The value of a column, as a type that `sqlx::Any` knows.
    Value {
        relation: &'static str,
        name: &'static str,
        kind: Kind,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Argument {
    Number(i64),
    Text(String),
    /// Microseconds since 1970.
    Time(i64),
}

/// A value that can be an argument.
pub(crate) trait Bound {
    fn bound(&self) -> Argument;
}

impl Bound for u64 {
    fn bound(&self) -> Argument {
        Argument::Number(sought(*self))
    }
}

impl Bound for u32 {
    fn bound(&self) -> Argument {
        Argument::Number((*self).into())
    }
}

impl Bound for Micros {
    fn bound(&self) -> Argument {
        Argument::Time(sought(self.0.min(TIME_MAX)))
    }
}

impl Bound for &str {
    fn bound(&self) -> Argument {
        Argument::Text((*self).to_owned())
    }
}

impl Bound for String {
    fn bound(&self) -> Argument {
        Argument::Text(self.clone())
    }
}

impl Select {
    pub(crate) fn new(sql: &str) -> Select {
        let mut select = Select::default();
        select.sql(sql);
        select
    }

    /// Adds text. Each `?` in it stands for the next of `arguments`.
    pub(crate) fn add(&mut self, sql: &str, arguments: &[&dyn Bound]) -> &mut Select {
        let mut pieces = sql.split('?');
        self.sql(pieces.next().unwrap_or_default());
        let mut arguments = arguments.iter();
        for piece in pieces {
            let argument = arguments.next().expect("an argument for each place");
            self.pieces.push(Piece::Argument(argument.bound()));
            self.sql(piece);
        }
        assert!(arguments.next().is_none(), "a place for each argument");
        self
    }

    /// Adds text for PostgreSQL only.
    pub(crate) fn on_postgres(&mut self, sql: &'static str) -> &mut Select {
        self.pieces.push(Piece::OnPostgres(sql));
        self
    }

    /// Adds the [values](Select::value) of a relation's columns, with commas between them.
    pub(crate) fn columns(&mut self, relation: &'static str, columns: Columns) -> &mut Select {
        for (n, (name, kind)) in columns.iter().copied().enumerate() {
            self.sql(if n > 0 { ", " } else { " " });
            self.value(relation, (name, kind)).add(" AS ", &[]).sql(name);
        }
        self
    }

    /// Adds the value of a column. A list is a JSON text; a time and a flag are numbers.
    pub(crate) fn value(&mut self, relation: &'static str, column: (&'static str, Kind)) -> &mut Select {
        let (name, kind) = column;
        self.pieces.push(Piece::Value { relation, name, kind });
        self
    }

    /// Adds `column IN (...)`, unless the list is empty.
    pub(crate) fn one_of<T: Bound>(&mut self, before: &str, values: &[T]) -> &mut Select {
        if values.is_empty() {
            return self;
        }
        self.has_list = true;
        self.sql(before);
        for (n, value) in values.iter().enumerate() {
            self.add(if n == 0 { "(?" } else { ", ?" }, &[value]);
        }
        self.sql(")");
        self
    }

    /// Adds the condition that the bid in `column` has all of these labels.
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

    /// Tells a connection not to keep the statement prepared, because its text has many forms.
    pub(crate) fn has_many_forms(&mut self) -> &mut Select {
        self.has_list = true;
        self
    }

    fn sql(&mut self, sql: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Sql(text)) => text.push_str(sql),
            _ => self.pieces.push(Piece::Sql(sql.to_owned())),
        }
    }

    pub(crate) async fn all(self, reads: &Reads, doing: &'static str) -> Result<Vec<AnyRow>, Fault> {
        reads.all(self, doing).await
    }

    /// Runs the statement on a connection that has no time-out for reads.
    pub(crate) async fn all_on(self, pool: &AnyPool, dialect: Dialect) -> Result<Vec<AnyRow>, sqlx::Error> {
        let (sql, arguments, persistent) = self.into_parts(dialect);
        // Safe: made of constants.
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(persistent);
        bind(query, arguments).fetch_all(pool).await
    }

    /// Returns the text, the arguments, and whether a connection should keep the statement prepared.
    pub(crate) fn into_parts(self, dialect: Dialect) -> (String, Vec<Argument>, bool) {
        let (mut sql, mut arguments) = (String::new(), Vec::new());
        for piece in self.pieces {
            match piece {
                Piece::Sql(text) => sql.push_str(&text),
                Piece::OnPostgres(text) => match dialect {
                    Dialect::Postgres => sql.push_str(text),
                    Dialect::Sqlite => {}
                },
                Piece::Argument(argument) => {
                    arguments.push(argument);
                    let argument = arguments.last().expect("it was pushed");
                    sql.push_str(&dialect.argument(arguments.len(), argument));
                }
                Piece::Value { relation, name, kind } => sql.push_str(&dialect.value(relation, name, kind)),
            }
        }
        (sql, arguments, !self.has_list)
    }
}

/// Binds arguments in order.
pub(crate) fn bind<'q, D>(
    mut query: Query<'q, D, D::Arguments>,
    arguments: Vec<Argument>,
) -> Query<'q, D, D::Arguments>
where
    D: Database,
    i64: Type<D> + Encode<'q, D>,
    String: Type<D> + Encode<'q, D>,
{
    for argument in arguments {
        query = match argument {
            Argument::Number(number) | Argument::Time(number) => query.bind(number),
            Argument::Text(text) => query.bind(text),
        };
    }
    query
}

impl Dialect {
    /// Returns the text for a time that is a full hour.
    pub(crate) fn full_hour(self, time: Micros) -> String {
        match self {
            Dialect::Sqlite => time.0.to_string(),
            Dialect::Postgres => {
                format!("(TIMESTAMPTZ 'epoch' + {} * INTERVAL '1 hour')", time.0 / Micros::HOUR.0)
            }
        }
    }

    /// Returns the text for argument number `n`, from 1.
    fn argument(self, n: usize, argument: &Argument) -> String {
        match (self, argument) {
            (Dialect::Sqlite, _) => "?".to_owned(),
            (Dialect::Postgres, Argument::Time(_)) => {
                format!("(TIMESTAMPTZ 'epoch' + ${n} * INTERVAL '1 microsecond')")
            }
            (Dialect::Postgres, Argument::Number(_) | Argument::Text(_)) => format!("${n}"),
        }
    }

    /// Returns the text for the value of a column.
    fn value(self, relation: &str, name: &str, kind: Kind) -> String {
        let column = format!("{relation}.{name}");
        match (self, kind) {
            (Dialect::Postgres, Kind::Time) => {
                format!("CAST(EXTRACT(EPOCH FROM {column}) * 1000000 AS bigint)")
            }
            (Dialect::Postgres, Kind::Texts) => format!("CAST(array_to_json({column}) AS text)"),
            (Dialect::Postgres, Kind::Flag) => format!("CAST(CAST({column} AS integer) AS bigint)"),
            (Dialect::Postgres | Dialect::Sqlite, _) => column,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_gets_its_own_text() {
        const COLUMNS: Columns =
            &[("bid", Kind::Number), ("markets", Kind::Texts), ("placed_at", Kind::Time)];
        let mut select = Select::new("SELECT");
        select.columns("b", COLUMNS).add(" FROM bids b WHERE b.placed_at > ?", &[&Micros(5)]);
        select.one_of(" AND b.bid IN ", &[3u64, 4]).add(" LIMIT ?", &[&9u64]);
        let text = |dialect| select.clone().into_parts(dialect).0;
        assert_eq!(
            text(Dialect::Sqlite),
            "SELECT b.bid AS bid, b.markets AS markets, b.placed_at AS placed_at FROM bids b \
             WHERE b.placed_at > ? AND b.bid IN (?, ?) LIMIT ?"
        );
        assert_eq!(
            text(Dialect::Postgres),
            "SELECT b.bid AS bid, CAST(array_to_json(b.markets) AS text) AS markets, \
             CAST(EXTRACT(EPOCH FROM b.placed_at) * 1000000 AS bigint) AS placed_at FROM bids b \
             WHERE b.placed_at > (TIMESTAMPTZ 'epoch' + $1 * INTERVAL '1 microsecond') AND b.bid IN ($2, $3) LIMIT $4"
        );
    }
}
