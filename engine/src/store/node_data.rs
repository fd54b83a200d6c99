//! Rows of data to set up nodes and to reach them. The market does not know them.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::rows::number;
use super::select::Select;
use super::{Fault, Rows, bigint, sought};

/// The number of rows in one statement. The largest content has 16 KiB.
const ROWS: usize = 64;

/// The number of rows that are read at once. SQLite allows 32,766 parameters.
const LISTED: usize = 1_000;

/// A kind of data of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeDataKind {
    /// Data of a bid's tenant, for the providers of its nodes.
    Config,
    /// Data of a provider, for the holder of a node.
    Access,
}

impl NodeDataKind {
    fn name(self) -> &'static str {
        match self {
            NodeDataKind::Config => "config",
            NodeDataKind::Access => "access",
        }
    }
}

/// The key of a row of data of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeDataKey {
    /// The kind.
    pub kind: NodeDataKind,
    /// The number of the bid or of the allocation.
    pub number: u64,
}

impl NodeDataKey {
    /// Returns the key of the data of a bid's nodes.
    pub fn config(bid: u64) -> NodeDataKey {
        NodeDataKey { kind: NodeDataKind::Config, number: bid }
    }

    /// Returns the key of the access data of an allocation.
    pub fn access(allocation: u64) -> NodeDataKey {
        NodeDataKey { kind: NodeDataKind::Access, number: allocation }
    }
}

/// Data of nodes. Its content is not shown in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeData {
    /// The command that brought it.
    pub seq: u64,
    /// The SHA-256 of the content.
    pub sha256: [u8; 32],
    /// The content. Absent after it was deleted.
    pub content: Option<Bytes>,
}

impl NodeData {
    /// Returns data that no command has brought yet.
    pub fn new(content: Bytes) -> NodeData {
        NodeData { seq: 0, sha256: Sha256::digest(&content).into(), content: Some(content) }
    }

    /// Returns the data as this command brought it.
    pub fn brought_by(&self, seq: u64) -> NodeData {
        NodeData { seq, ..self.clone() }
    }
}

impl fmt::Debug for NodeData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.content.as_ref().map(Bytes::len);
        f.debug_struct("NodeData").field("seq", &self.seq).field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl Rows {
    /// Writes data of nodes, at most one for each key. Data that a later command brought stays. Repeating
    /// the call changes nothing.
    pub async fn put_node_data(&self, data: &[(NodeDataKey, NodeData)]) -> Result<(), Fault> {
        for rows in data.chunks(ROWS) {
            let values: Vec<_> = (0..rows.len()).map(|n| self.dialect.list(5 * n + 1, 5)).collect();
            let sql = format!(
                "INSERT INTO node_data (kind, number, seq, sha256, content)
                 SELECT v.* FROM (VALUES {}) v, {} WHERE true
                 ON CONFLICT (kind, number) DO UPDATE
                 SET seq = excluded.seq, sha256 = excluded.sha256, content = excluded.content
                 WHERE node_data.seq < excluded.seq",
                values.join(", "),
                self.fence()
            );
            // Safe: made of constants and a UUID. Not kept prepared, because each length is a different
            // statement.
            let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(rows.len() == 1);
            for (key, data) in rows {
                query = query.bind(key.kind.name()).bind(bigint(key.number)).bind(bigint(data.seq));
                query = query.bind(&data.sha256[..]).bind(data.content.as_deref().unwrap_or_default());
            }
            let doing = "saving data of nodes";
            let turn = self.turn.take().await;
            let put = query.execute(&self.pool).await.map_err(Fault::database(doing))?;
            drop(turn);
            if put.rows_affected() == 0 {
                self.still_leads(doing).await?;
            }
        }
        Ok(())
    }

    /// Reads the data of a key.
    pub async fn node_data(&self, key: NodeDataKey) -> Result<Option<NodeData>, Fault> {
        sqlx::query("SELECT seq, sha256, content FROM node_data WHERE kind = $1 AND number = $2")
            .bind(key.kind.name())
            .bind(sought(key.number))
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database("reading data of nodes"))?
            .map(|row| node_data(&row))
            .transpose()
    }

    /// Reads the data of many numbers of a kind, by number, without the content. A number without data is left out.
    pub async fn node_data_of(
        &self,
        kind: NodeDataKind,
        numbers: &[u64],
    ) -> Result<BTreeMap<u64, NodeData>, Fault> {
        let mut found = BTreeMap::new();
        for numbers in numbers.chunks(LISTED) {
            let mut select = Select::new("SELECT seq, sha256, NULL, number FROM node_data");
            select.add(" WHERE kind = ?", &[&kind.name()]).one_of(" AND number IN ", numbers);
            for row in select.all(&self.reads, "reading data of nodes").await? {
                found.insert(number(&row, 3), node_data(&row)?);
            }
        }
        Ok(found)
    }

    /// Returns at most `limit` keys of a kind whose content is kept, after the number `after`, in order, each
    /// with the command that brought it.
    pub async fn kept_node_data(
        &self,
        kind: NodeDataKind,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(NodeDataKey, u64)>, Fault> {
        let mut select = Select::new("SELECT number, seq FROM node_data WHERE content IS NOT NULL");
        select.add(" AND kind = ? AND number > ?", &[&kind.name(), &after]);
        select.add(" ORDER BY number LIMIT ?", &[&limit]);
        let rows = select.all(&self.reads, "listing data of nodes").await?;
        let keyed = |row: &AnyRow| (NodeDataKey { kind, number: number(row, 0) }, number(row, 1));
        Ok(rows.iter().map(keyed).collect())
    }

    /// Deletes the content of data of nodes of one kind. The hashes stay.
    pub async fn clear_node_data(&self, kind: NodeDataKind, numbers: &[u64]) -> Result<(), Fault> {
        for numbers in numbers.chunks(ROWS) {
            let (name, list) = (kind.name(), self.dialect.list(1, numbers.len()));
            let sql = format!(
                "UPDATE node_data SET content = NULL FROM {} WHERE kind = '{name}' AND number IN {list}",
                self.fence()
            );
            // Safe: made of constants and a UUID.
            let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(numbers.len() == ROWS);
            for number in numbers {
                query = query.bind(bigint(*number));
            }
            let _turn = self.turn.take().await;
            query.execute(&self.pool).await.map_err(Fault::database("deleting data of nodes"))?;
        }
        Ok(())
    }
}

fn node_data(row: &AnyRow) -> Result<NodeData, Fault> {
    let sha256 = row.get::<Vec<u8>, _>(1).try_into().map_err(|bytes: Vec<u8>| Fault::Row {
        table: "node_data",
        what: format!("sha256: {} bytes", bytes.len()),
    })?;
    let content = row.get::<Option<Vec<u8>>, _>(2).map(Bytes::from);
    Ok(NodeData { seq: number(row, 0), sha256, content })
}
