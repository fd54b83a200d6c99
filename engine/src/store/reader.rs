//! A role of PostgreSQL that may read the tables that people read, and nothing else.

use super::database::Database as _;
use super::postgres::Postgres;
use super::{Fault, StoreLocation, StoreOptions};
use sqlx::{AnyPool, AssertSqlSafe, Executor};

/// The tables that a reader may read, besides those of the read model.
const BESIDE: [&str; 3] = ["projection", "bid_labels", "instance_types"];

/// Why a role was not granted the right to read.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The store is a SQLite file, which has no roles.
    #[error("a SQLite file has no roles: whoever may read the file may read its tables")]
    Sqlite,
    /// The role could write: it is the engine's own, or a superuser.
    #[error("{0} is the engine's own role or a superuser: name another one for readers")]
    Writer(String),
    /// The store has no such table, because no engine has run on it yet.
    #[error("the store has no table {0} yet: start an engine on it once")]
    NoTable(&'static str),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Fault),
}

/// Lets a role log in and read `tables`. Creates the role if it does not exist. The journal, accounts and
/// tokens stay closed to it. Repeating the call changes nothing but the password.
pub async fn grant_reader(
    options: &StoreOptions,
    role: &str,
    password: Option<&str>,
    tables: &[&'static str],
) -> Result<(), GrantError> {
    let StoreLocation::Postgres(url) = &options.location else { return Err(GrantError::Sqlite) };
    let pool = Postgres::new(url, options.patience)?.pool(1).await?;
    let tables: Vec<&'static str> = tables.iter().copied().chain(BESIDE).collect();
    for table in &tables {
        let known: bool = value(&pool, "SELECT to_regclass($1) IS NOT NULL", &[table]).await?;
        if !known {
            return Err(GrantError::NoTable(table));
        }
    }
    let writes = "SELECT $1 = current_user OR EXISTS (
                      SELECT 1 FROM pg_roles WHERE rolname = $1 AND rolsuper)";
    if value(&pool, writes, &[role]).await? {
        return Err(GrantError::Writer(role.to_owned()));
    }
    let exists: bool =
        value(&pool, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", &[role]).await?;
    // An existing role may belong to an administrator, so it keeps its settings.
    if !exists {
        run(&pool, "SELECT format('CREATE ROLE %I LOGIN', $1)", &[role]).await?;
        run(&pool, "SELECT format('ALTER ROLE %I SET default_transaction_read_only TO on', $1)", &[role])
            .await?;
    }
    if let Some(password) = password {
        run(&pool, "SELECT format('ALTER ROLE %I PASSWORD %L', $1, $2)", &[role, password]).await?;
    }
    run(&pool, "SELECT format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), $1)", &[role]).await?;
    for table in &tables {
        run(&pool, "SELECT format('GRANT SELECT ON %I TO %I', $2, $1)", &[role, table]).await?;
    }
    pool.close().await;
    Ok(())
}

/// Runs the statement that a query returns. The server quotes names and passwords.
async fn run(pool: &AnyPool, query: &'static str, arguments: &[&str]) -> Result<(), Fault> {
    let statement: String = value(pool, query, arguments).await?;
    // Safe: made of constants and of what format() has quoted.
    pool.execute(AssertSqlSafe(statement)).await.map_err(Fault::database("granting a role"))?;
    Ok(())
}

/// Returns the one value of a query.
async fn value<T>(pool: &AnyPool, query: &'static str, arguments: &[&str]) -> Result<T, Fault>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Any> + sqlx::Type<sqlx::Any> + Send + Unpin,
{
    let mut statement = sqlx::query_scalar(query);
    for argument in arguments {
        statement = statement.bind((*argument).to_owned());
    }
    statement.fetch_one(pool).await.map_err(Fault::database("granting a role"))
}
