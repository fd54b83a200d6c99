//! Rows of API tokens. The store knows only their SHA-256.

use std::collections::BTreeSet;
use std::str::FromStr;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::rows::{number, optional_number};
use super::{Fault, Role, Rows, bigint, sought};

/// A token to store.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The SHA-256 of the token's text.
    pub sha256: [u8; 32],
    /// The account that it authenticates.
    pub account: String,
    /// The roles of its bearer; at least one.
    pub roles: BTreeSet<Role>,
    /// The purpose of the token, in its owner's words.
    pub note: String,
    /// The time at which it was created, in microseconds since 1970.
    pub created_at_us: u64,
}

/// A stored token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The number of the row, which names the token without revealing it.
    pub id: u64,
    /// The account that it authenticates.
    pub account: String,
    /// The roles of its bearer.
    pub roles: BTreeSet<Role>,
    /// The purpose of the token, in its owner's words.
    pub note: String,
    /// The time at which it was created, in microseconds since 1970.
    pub created_at_us: u64,
    /// The time at which it was revoked, from which on it is invalid.
    pub revoked_at_us: Option<u64>,
}

impl Rows {
    /// Stores a token and returns its id. Returns `None` if there is no such account.
    pub async fn add_token(&self, token: &NewToken) -> Result<Option<u64>, Fault> {
        let roles: Vec<_> = token.roles.iter().map(|role| role.name()).collect();
        let doing = "saving a token";
        let add = format!(
            "INSERT INTO tokens (sha256, account, roles, note, created_at_us)
             SELECT $1, name, $3, $4, $5 FROM accounts, {} WHERE name = $2
             RETURNING id",
            self.fence()
        );
        let turn = self.turn.take().await;
        // Safe: made of constants and a UUID.
        let row = sqlx::query(AssertSqlSafe(add))
            .bind(&token.sha256[..])
            .bind(&token.account[..])
            .bind(roles.join(","))
            .bind(&token.note[..])
            .bind(bigint(token.created_at_us))
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database(doing))?;
        drop(turn);
        if row.is_none() {
            self.still_leads(doing).await?;
        }
        Ok(row.map(|row| number(&row, 0)))
    }

    /// Reads the token with this SHA-256, revoked or not.
    pub async fn token(&self, sha256: &[u8; 32]) -> Result<Option<Token>, Fault> {
        sqlx::query("SELECT * FROM tokens WHERE sha256 = $1")
            .bind(&sha256[..])
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database("reading a token"))?
            .map(|row| token(&row))
            .transpose()
    }

    /// Returns whether a token with this role is not revoked.
    pub async fn has_token(&self, role: Role) -> Result<bool, Fault> {
        sqlx::query(
            "SELECT id FROM tokens WHERE revoked_at_us IS NULL AND ',' || roles || ',' LIKE $1 LIMIT 1",
        )
        .bind(format!("%,{},%", role.name()))
        .fetch_optional(&self.pool)
        .await
        .map_err(Fault::database("reading the tokens"))
        .map(|row| row.is_some())
    }

    /// Reads the token with this id, revoked or not.
    pub async fn token_numbered(&self, id: u64) -> Result<Option<Token>, Fault> {
        sqlx::query("SELECT * FROM tokens WHERE id = $1")
            .bind(sought(id))
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database("reading a token"))?
            .map(|row| token(&row))
            .transpose()
    }

    /// Returns at most `limit` tokens that are not revoked, each with its SHA-256, by id, those with
    /// an id above `after`.
    pub async fn live_tokens(&self, after: u64, limit: u32) -> Result<Vec<([u8; 32], Token)>, Fault> {
        sqlx::query("SELECT * FROM tokens WHERE id > $1 AND revoked_at_us IS NULL ORDER BY id LIMIT $2")
            .bind(sought(after))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(Fault::database("reading the tokens"))?
            .iter()
            .map(|row| Ok((sha256(row)?, token(row)?)))
            .collect()
    }

    /// Returns at most `limit` tokens of one account or of all accounts, revoked ones too, by id,
    /// those with an id above `after`.
    pub async fn tokens(&self, account: Option<&str>, after: u64, limit: u32) -> Result<Vec<Token>, Fault> {
        let of = match account {
            Some(_) => "SELECT * FROM tokens WHERE id > $1 AND account = $3 ORDER BY id LIMIT $2",
            None => "SELECT * FROM tokens WHERE id > $1 ORDER BY id LIMIT $2",
        };
        self.list_tokens(of, account, after, limit).await
    }

    /// Works like [`Rows::tokens`], without revoked ones.
    pub async fn unrevoked_tokens(
        &self,
        account: Option<&str>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Token>, Fault> {
        let of = match account {
            Some(_) => {
                "SELECT * FROM tokens WHERE id > $1 AND account = $3 AND revoked_at_us IS NULL
                 ORDER BY id LIMIT $2"
            }
            None => "SELECT * FROM tokens WHERE id > $1 AND revoked_at_us IS NULL ORDER BY id LIMIT $2",
        };
        self.list_tokens(of, account, after, limit).await
    }

    async fn list_tokens(
        &self,
        sql: &'static str,
        account: Option<&str>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Token>, Fault> {
        let query = sqlx::query(sql).bind(sought(after)).bind(i64::from(limit));
        let query = match account {
            Some(account) => query.bind(account),
            None => query,
        };
        let rows = query.fetch_all(&self.pool).await.map_err(Fault::database("listing the tokens"))?;
        rows.iter().map(token).collect()
    }

    /// Revokes a token. Returns false if there is no such token, or if it was revoked before.
    pub async fn revoke_token(&self, id: u64, at_us: u64) -> Result<bool, Fault> {
        let doing = "revoking a token";
        let revoke = format!(
            "UPDATE tokens SET revoked_at_us = $2 FROM {} WHERE id = $1 AND revoked_at_us IS NULL",
            self.fence()
        );
        let turn = self.turn.take().await;
        // Safe: made of constants and a UUID.
        let done = sqlx::query(AssertSqlSafe(revoke))
            .bind(sought(id))
            .bind(bigint(at_us))
            .execute(&self.pool)
            .await
            .map_err(Fault::database(doing))?;
        drop(turn);
        if done.rows_affected() == 0 {
            self.still_leads(doing).await?;
        }
        Ok(done.rows_affected() == 1)
    }
}

fn token(row: &AnyRow) -> Result<Token, Fault> {
    let roles: String = row.get("roles");
    let roles =
        roles.split(',').filter(|role| !role.is_empty()).map(Role::from_str).collect::<Result<_, _>>();
    Ok(Token {
        id: number(row, "id"),
        account: row.get("account"),
        roles: roles.map_err(|e| Fault::Row { table: "tokens", what: e.to_string() })?,
        note: row.get("note"),
        created_at_us: number(row, "created_at_us"),
        revoked_at_us: optional_number(row, "revoked_at_us"),
    })
}

fn sha256(row: &AnyRow) -> Result<[u8; 32], Fault> {
    let bytes: Vec<u8> = row.get("sha256");
    bytes.try_into().map_err(|_| Fault::Row { table: "tokens", what: "not a SHA-256".to_owned() })
}
