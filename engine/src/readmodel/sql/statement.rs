//! Sums charges for statements, and reads the nodes that are billed at the ends of their periods.

use sqlx::Row;
use sqlx::any::AnyRow;

use crate::readmodel::ReadModel;
use crate::readmodel::queries::{BilledNodeQuery, StatementQuery};
use crate::readmodel::rows::{BilledNode, Cost, CostMark, StatementRow};
use crate::store::Fault;
use crate::store::bulk::{Columns, Kind::Number, Kind::Text, Kind::Time};
use crate::store::rows::{number, optional_number, optional_time, time};
use crate::store::select::Select;
use kubebid_core::event::ChargeReason;
use kubebid_core::money::Amount;
use kubebid_core::units::{AllocationId, Micros};

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

    /// Reads the nodes of an account that are billed at an instant.
    pub async fn billed_nodes(&self, query: &BilledNodeQuery) -> Result<Vec<BilledNode>, Fault> {
        const NODE: Columns = &[
            ("allocation", Number),
            ("tenant", Text),
            ("provider", Text),
            ("market", Text),
            ("ready_at", Time),
            ("ended_at", Time),
        ];
        const SEGMENT: Columns = &[
            ("from_at", Time),
            ("to_at", Time),
            ("amount_micros", Number),
            ("fee_micros", Number),
            ("total_micros", Number),
            ("total_fee_micros", Number),
        ];
        const CHARGE: Columns = &[("debit_micros", Number)];
        let mut select = Select::new("SELECT");
        select.columns("a", NODE).add(",", &[]).columns("s", SEGMENT).add(",", &[]).columns("c", CHARGE);
        select.add(", c.fee_micros AS charged_fee, ", &[]).value("c", ("to_at", Time));
        select.add(" AS charged_to, ", &[]).value("c", ("from_at", Time)).add(" AS charged_from, ", &[]);
        select.add(if query.by_label.is_some() { "l.value" } else { "CAST(NULL AS text)" }, &[]);
        select.add(
            " AS label_value FROM allocations a
             LEFT JOIN charge_segments s ON s.allocation = a.allocation AND s.claim_seq = 0
                 AND s.claim_idx = 0 AND s.from_at = (
                     SELECT MAX(l.from_at) FROM charge_segments l
                     WHERE l.allocation = a.allocation AND l.claim_seq = 0 AND l.claim_idx = 0 AND l.from_at < ?)
             LEFT JOIN charges c ON c.allocation = a.allocation AND c.reason <> ?",
            &[&query.segment_before, &ChargeReason::ClaimDropped.word()],
        );
        if let Some(key) = &query.by_label {
            select.add(" LEFT JOIN bid_labels l ON l.bid = a.bid AND l.key = ?", &[key]);
        }
        let (account, at) = (&query.account, &query.at);
        if query.labels.is_empty() {
            select.add(" WHERE (a.tenant = ? OR a.provider = ?)", &[account, account]);
        } else {
            select.add(" WHERE a.tenant = ?", &[account]);
        }
        select.add(" AND a.ready_at < ? AND (a.ended_at IS NULL OR a.ended_at >= ?)", &[at, at]);
        select.add(" AND a.allocation > ?", &[&query.after.0]);
        let allocations: Vec<u64> = query.allocations.iter().map(|id| id.0).collect();
        select.one_of(" AND a.allocation IN ", &allocations);
        select.labelled("a.bid", &query.labels);
        select.add(" ORDER BY a.allocation LIMIT ?", &[&query.limit]);
        let rows = select.all(&self.tables.reads, "reading the nodes of a statement").await?;
        Ok(rows.iter().map(billed_node).collect())
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

fn billed_node(row: &AnyRow) -> BilledNode {
    let charge = optional_number(row, "debit_micros").map(|debit| Cost {
        debit: Amount(debit.into()),
        fee: Amount(number(row, "charged_fee").into()),
        time: time(row, "charged_to").since(time(row, "charged_from")),
    });
    BilledNode {
        allocation: AllocationId(number(row, "allocation")),
        tenant: row.get("tenant"),
        provider: row.get("provider"),
        market: row.get("market"),
        label_value: row.get("label_value"),
        ready_at: time(row, "ready_at"),
        ended_at: optional_time(row, "ended_at"),
        segment: optional_time(row, "to_at").map(|to| segment_ends(row, to)),
        charge,
    }
}

/// Returns the cost at both ends of a segment. Its amount and its fee are the differences between them.
fn segment_ends(row: &AnyRow, to: Micros) -> (CostMark, CostMark) {
    let [amount, fee, total, total_fee] = ["amount_micros", "fee_micros", "total_micros", "total_fee_micros"]
        .map(|name| row.get::<i64, _>(name));
    let mark =
        |at, debit: i64, fee: i64| CostMark { at, debit: Amount(debit as u128), fee: Amount(fee as u128) };
    (mark(time(row, "from_at"), total - amount, total_fee - fee), mark(to, total, total_fee))
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
