//! Rows of instance types: descriptions of nodes for operators.

use std::collections::BTreeMap;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::rows::optional_number;
use super::{Fault, Rows, bigint};

/// A kind of node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    /// Its name, as in `h100-8x`.
    pub name: String,
    /// Resource to Kubernetes quantity: `cpu` → `4`, `memory` → `16Gi`.
    pub allocatable: BTreeMap<String, String>,
    /// Labels that every such node has.
    pub node_labels: BTreeMap<String, String>,
    /// The provider's regular price, in micro-dollars per node-hour.
    pub on_demand_price_micros: Option<u64>,
}

impl Rows {
    /// Creates the instance type, or replaces it.
    pub async fn put_instance_type(&self, instance_type: &InstanceType) -> Result<(), Fault> {
        let doing = "saving an instance type";
        let put = format!(
            "INSERT INTO instance_types (name, allocatable, node_labels, on_demand_price_micros)
             SELECT $1, $2, $3, $4 FROM {} WHERE true
             ON CONFLICT (name) DO UPDATE SET
                 allocatable = excluded.allocatable, node_labels = excluded.node_labels,
                 on_demand_price_micros = excluded.on_demand_price_micros",
            self.fence()
        );
        let turn = self.turn.take().await;
        // Safe: made of constants and a UUID.
        let put = sqlx::query(AssertSqlSafe(put))
            .bind(&instance_type.name[..])
            .bind(serde_json::json!(instance_type.allocatable).to_string())
            .bind(serde_json::json!(instance_type.node_labels).to_string())
            .bind(instance_type.on_demand_price_micros.map(bigint))
            .execute(&self.pool)
            .await
            .map_err(Fault::database(doing))?;
        drop(turn);
        if put.rows_affected() == 0 { self.still_leads(doing).await } else { Ok(()) }
    }

    /// Reads an instance type; None if it is not described.
    pub async fn instance_type(&self, name: &str) -> Result<Option<InstanceType>, Fault> {
        sqlx::query("SELECT * FROM instance_types WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database("reading an instance type"))?
            .map(|row| instance_type(&row))
            .transpose()
    }

    /// Returns at most `limit` instance types after `after`, in the byte order of their names.
    pub async fn instance_types(&self, after: &str, limit: u32) -> Result<Vec<InstanceType>, Fault> {
        sqlx::query("SELECT * FROM instance_types WHERE name > $1 ORDER BY name LIMIT $2")
            .bind(after)
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(Fault::database("listing the instance types"))?
            .iter()
            .map(instance_type)
            .collect()
    }
}

fn instance_type(row: &AnyRow) -> Result<InstanceType, Fault> {
    Ok(InstanceType {
        name: row.get("name"),
        allocatable: object(row, "allocatable")?,
        node_labels: object(row, "node_labels")?,
        on_demand_price_micros: optional_number(row, "on_demand_price_micros"),
    })
}

fn object(row: &AnyRow, column: &str) -> Result<BTreeMap<String, String>, Fault> {
    serde_json::from_str(&row.get::<String, _>(column))
        .map_err(|e| Fault::Row { table: "instance_types", what: format!("{column}: {e}") })
}
