//! Sums charges for statements.

use sqlx::Row;
use sqlx::any::AnyRow;

use crate::readmodel::ReadModel;
use crate::readmodel::queries::StatementQuery;
use crate::readmodel::rows::StatementRow;
use crate::store::Fault;
use crate::store::bulk::{Columns, Kind::Number, Kind::Time};
use crate::store::rows::number;
use crate::store::select::Select;
use kubebid_core::money::Amount;

/// The amounts of a charge that statements sum.
const AMOUNTS: Columns = &[("debit_micros", Number), ("credit_micros", Number), ("fee_micros", Number)];

impl ReadModel {
    /// Returns the sums of what was charged, by market, or by market and value of a label. The first
    /// market comes first.
    pub async fn statement(&self, query: &StatementQuery) -> Result<Vec<StatementRow>, Fault> {
        let paid = self.sums(query, "tenant").await?;
        let got = if query.labels.is_empty() { self.sums(query, "provider").await? } else { Vec::new() };
        let mut lines: Vec<(u64, StatementRow)> = Vec::new();
        for (side, rows) in [("tenant", paid), ("provider", got)] {
            for row in rows {
                let label_value: Option<String> = row.get(1);
                let line = StatementRow {
                    market: row.get(0),
                    label_value,
                    debit: if side == "tenant" { sum(&row, 3) } else { Amount::ZERO },
                    credit: if side == "provider" { sum(&row, 5) } else { Amount::ZERO },
                    fee: if side == "provider" { sum(&row, 7) } else { Amount::ZERO },
                    node_time_us: sum(&row, 9).0,
                };
                merge(&mut lines, number(&row, 2), line);
            }
        }
        lines.sort_by(|(a, x), (b, y)| (a, &x.label_value).cmp(&(b, &y.label_value)));
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }

    async fn sums(&self, query: &StatementQuery, side: &str) -> Result<Vec<AnyRow>, Fault> {
        let mut select = Select::new("SELECT c.market, ");
        // A provider does not see labels.
        let split = query.by_label.as_ref().filter(|_| side == "tenant");
        select.add(if split.is_some() { "l.value" } else { "CAST(NULL AS text)" }, &[]);
        select.add(", m.number", &[]);
        // Upper and lower halves are summed separately, which is exact even if the whole sum is
        // above 2^63.
        for half in AMOUNTS.iter().flat_map(|column| [(column, "/"), (column, "%")]) {
            let (column, operator) = half;
            select.add(", CAST(SUM(", &[]).value("c", *column);
            select.add(&format!(" {operator} 4294967296) AS bigint)"), &[]);
        }
        for operator in ["/", "%"] {
            select.add(", CAST(SUM((", &[]).value("c", ("to_at", Time)).add(" - ", &[]);
            select.value("c", ("from_at", Time)).add(&format!(") {operator} 4294967296) AS bigint)"), &[]);
        }
        select.add(" FROM charges c JOIN markets m ON m.market = c.market", &[]);
        if let Some(key) = split {
            select.add(" LEFT JOIN bid_labels l ON l.bid = c.bid AND l.key = ?", &[key]);
        }
        select.add(&format!(" WHERE c.{side} = ?"), &[&query.account]);
        if let Some(from) = query.from {
            select.add(" AND c.at >= ?", &[&from]);
        }
        if let Some(to) = query.to {
            select.add(" AND c.at < ?", &[&to]);
        }
        select.labelled("c.bid", &query.labels);
        select.add(" GROUP BY c.market, m.number", &[]);
        if split.is_some() {
            select.add(", l.value", &[]);
        }
        select.all(&self.tables.reads, "summing charges").await
    }
}

fn merge(lines: &mut Vec<(u64, StatementRow)>, market: u64, line: StatementRow) {
    let same = |(_, known): &&mut (u64, StatementRow)| {
        (&known.market, &known.label_value) == (&line.market, &line.label_value)
    };
    match lines.iter_mut().find(same) {
        Some((_, known)) => {
            known.debit.0 += line.debit.0;
            known.credit.0 += line.credit.0;
            known.fee.0 += line.fee.0;
            known.node_time_us += line.node_time_us;
        }
        None => lines.push((market, line)),
    }
}

/// Reads a sum from its two columns: the upper halves, and then the lower ones.
fn sum(row: &AnyRow, column: usize) -> Amount {
    Amount((u128::from(number(row, column)) << 32) + u128::from(number(row, column + 1)))
}
