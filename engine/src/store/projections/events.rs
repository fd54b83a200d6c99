//! Events: found by those whom they concern, and as what.

use prost::Message;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::super::rows::{number, optional_number};
use super::super::{Fault, sought};
use super::select::Select;
use crate::projections::Projections;
use crate::projections::queries::EventQuery;
use crate::projections::rows::{EventRow, Place};
use crate::wire::event::{Parties, Party};
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros, Seq};
use kubebid_proto::v1;

/// Kinds that concern everyone.
const OF_MARKETS: [&str; 3] = ["market_opened", "rules_changed", "price_changed"];

/// As what an account can be concerned by an event; each has an index.
#[derive(Clone, Copy)]
struct Side {
    account: &'static str,
    /// Its bid, where the event has one on this side.
    bid: Option<&'static str>,
    sees_allocation: bool,
}

const SIDES: [Side; 5] = [
    Side { account: "tenant", bid: Some("bid"), sees_allocation: true },
    Side { account: "claim_tenant", bid: Some("claim_bid"), sees_allocation: false },
    Side { account: "former_tenant", bid: Some("former_bid"), sees_allocation: false },
    Side { account: "provider", bid: None, sees_allocation: true },
    Side { account: "account", bid: None, sees_allocation: false },
];

impl Projections {
    pub async fn events(&self, query: &EventQuery) -> Result<Vec<EventRow>, Fault> {
        let first = match query.from {
            Some(from) => match self.first_place_from(from).await? {
                Some(place) => Some(place),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let end = match query.to {
            Some(to) => self.first_place_from(to).await?,
            None => None,
        };
        let branches = branches(query, first, end);
        if branches.is_empty() {
            return Ok(Vec::new());
        }
        let mut select = Select::new("SELECT e.* FROM events e JOIN (");
        for (n, branch) in branches.iter().enumerate() {
            select.add(if n == 0 { "SELECT * FROM (" } else { " UNION SELECT * FROM (" }, &[]);
            select.include(branch).add(&format!(") b{n}"), &[]);
        }
        let order = if query.newest_first { "DESC" } else { "ASC" };
        select.add(") k ON e.seq = k.seq AND e.idx = k.idx", &[]);
        select.add(&format!(" ORDER BY e.seq {order}, e.idx {order} LIMIT ?"), &[&query.limit]);
        let rows = select.all(&self.tables.pool, "listing events").await?;
        rows.iter().map(read).collect()
    }

    /// The last `limit` events of a bid, its nodes and its claims, oldest first.
    pub async fn bid_history(&self, bid: BidId, limit: u32) -> Result<Vec<EventRow>, Fault> {
        self.history(EventQuery { bids: vec![bid], limit, ..EventQuery::default() }).await
    }

    /// The last `limit` events of an allocation and the claims on it, oldest first.
    pub async fn allocation_history(
        &self,
        allocation: AllocationId,
        limit: u32,
    ) -> Result<Vec<EventRow>, Fault> {
        self.history(EventQuery { allocations: vec![allocation], limit, ..EventQuery::default() }).await
    }

    async fn history(&self, query: EventQuery) -> Result<Vec<EventRow>, Fault> {
        let mut events = self.events(&EventQuery { newest_first: true, ..query }).await?;
        events.reverse();
        Ok(events)
    }

    /// Time never falls from one event to the next: an instant is a place, found by halving.
    async fn first_place_from(&self, at: Micros) -> Result<Option<Place>, Fault> {
        let row = sqlx::query(
            // SQLite has the recursive table in one FROM only, so the question is asked twice.
            "WITH RECURSIVE halves (low, high) AS (
                 SELECT CAST(0 AS bigint), watermark FROM projection
                 UNION ALL
                 SELECT CASE WHEN (SELECT e.at_us FROM events e WHERE e.seq > (low + high) / 2
                                   ORDER BY e.seq, e.idx LIMIT 1) < $1 THEN (low + high) / 2 ELSE low END,
                        CASE WHEN (SELECT e.at_us FROM events e WHERE e.seq > (low + high) / 2
                                   ORDER BY e.seq, e.idx LIMIT 1) < $1 THEN high ELSE (low + high) / 2 END
                 FROM halves WHERE high - low > 1
             )
             SELECT seq, idx FROM events WHERE seq > (SELECT MAX(low) FROM halves) AND at_us >= $1
             ORDER BY seq, idx LIMIT 1",
        )
        .bind(sought(at.0))
        .fetch_optional(&self.tables.pool)
        .await
        .map_err(Fault::database("finding an instant among the events"))?;
        Ok(row.map(|row| (number(&row, 0), row.get::<i64, _>(1) as u32)))
    }
}

/// Questions that an index can answer each; together they are the one that was asked.
fn branches(query: &EventQuery, first: Option<Place>, end: Option<Place>) -> Vec<Select> {
    let by_bid = !query.bids.is_empty() || !query.labels.is_empty();
    let by_allocation = !query.allocations.is_empty();
    let sides = SIDES.iter().filter(|side| {
        (!by_bid || side.bid.is_some()) && (query.account.is_none() || !by_allocation || side.sees_allocation)
    });
    let mut selects: Vec<Select> = match &query.account {
        None if by_bid => sides.flat_map(|side| by_bids(everything(), query, side)).collect(),
        None => vec![everything()],
        Some(account) => {
            let mine = sides.flat_map(|side| {
                let mut select = everything();
                select.add(&format!(" AND e.{} = ?", side.account), &[&account.as_str()]);
                by_bids(select, query, side)
            });
            let asked = |kind: &&str| query.kinds.is_empty() || query.kinds.iter().any(|asked| asked == kind);
            let of_markets = (!by_bid && !by_allocation && OF_MARKETS.iter().any(asked)).then(|| {
                let mut select = everything();
                select.one_of(" AND e.kind IN ", &OF_MARKETS, "");
                select
            });
            mine.chain(of_markets).collect()
        }
    };
    let allocations: Vec<u64> = query.allocations.iter().map(|id| id.0).collect();
    for select in &mut selects {
        select.one_of(" AND e.allocation IN ", &allocations, "");
        select.one_of(" AND e.kind IN ", &query.kinds, "");
        bound(select, query, first, end);
    }
    if !query.markets.is_empty() {
        selects = selects.iter().flat_map(|select| in_markets(select, query)).collect();
    }
    selects.into_iter().map(|select| close(select, query)).collect()
}

fn everything() -> Select {
    Select::new("SELECT e.seq, e.idx FROM events e WHERE true")
}

/// Only those with the bids that are asked for on this side.
fn by_bids(mut select: Select, query: &EventQuery, side: &Side) -> Vec<Select> {
    let Some(bid) = side.bid.filter(|_| !query.bids.is_empty() || !query.labels.is_empty()) else {
        return vec![select];
    };
    let bids: Vec<u64> = query.bids.iter().map(|bid| bid.0).collect();
    select.add(&format!(" AND e.{bid} IS NOT NULL"), &[]);
    select.one_of(&format!(" AND e.{bid} IN "), &bids, "");
    select.labelled(&format!("e.{bid}"), &query.labels);
    if bids.is_empty() {
        return vec![select];
    }
    // The number of a bid is that of the command that placed it, and the index leaves it out.
    let mut placed = select.clone();
    placed.add(" AND e.kind = 'bid_placed'", &[]).one_of(" AND e.seq IN ", &bids, "");
    select.add(" AND e.kind <> 'bid_placed'", &[]);
    vec![select, placed]
}

/// Events that have one of the markets, and those of bids that name one of them among others.
fn in_markets(select: &Select, query: &EventQuery) -> Vec<Select> {
    let names: Vec<&str> = query.markets.iter().map(MarketName::as_str).collect();
    let types: Vec<&str> = query.markets.iter().map(|market| market.parts().0).collect();
    let mut of_market = select.clone();
    of_market.one_of(" AND e.tenant IS NULL AND e.market IN ", &names, "");
    let mut of_tenant = select.clone();
    of_tenant.one_of(" AND e.tenant IS NOT NULL AND e.market IN ", &names, "");
    let mut of_bid = select.clone();
    of_bid.add(" AND e.market IS NULL AND e.bid IS NOT NULL AND (EXISTS (SELECT 1 FROM bid_markets m", &[]);
    of_bid.one_of(" WHERE m.bid = e.bid AND m.market IN ", &names, ")");
    of_bid.one_of(
        " OR EXISTS (SELECT 1 FROM bids t WHERE t.bid = e.bid AND t.instance_type IN ",
        &types,
        "))",
    );
    vec![of_market, of_tenant, of_bid]
}

fn bound(branch: &mut Select, query: &EventQuery, first: Option<Place>, end: Option<Place>) {
    if let Some((seq, index)) = first {
        branch.add(" AND (e.seq, e.idx) >= (?, ?)", &[&seq, &index]);
    }
    if let Some((seq, index)) = end {
        branch.add(" AND (e.seq, e.idx) < (?, ?)", &[&seq, &index]);
    }
    if let Some((seq, index)) = query.after {
        let behind = if query.newest_first { "<" } else { ">" };
        branch.add(&format!(" AND (e.seq, e.idx) {behind} (?, ?)"), &[&seq, &index]);
    }
}

fn close(mut branch: Select, query: &EventQuery) -> Select {
    let order = if query.newest_first { "DESC" } else { "ASC" };
    branch.add(&format!(" ORDER BY e.seq {order}, e.idx {order} LIMIT ?"), &[&query.limit]);
    branch
}

fn read(row: &AnyRow) -> Result<EventRow, Fault> {
    let name = |column: &str| row.get::<Option<&str>, _>(column).map(AccountName::new);
    let party = |account: &str, bid: &str| {
        let bid = optional_number(row, bid).map(BidId);
        name(account).zip(bid).map(|(account, bid)| Party { account, bid })
    };
    let event = v1::Event::decode(row.get::<&[u8], _>("body"))
        .map_err(|e| Fault::Row { table: "events", what: e.to_string() })?;
    Ok(EventRow {
        seq: Seq(number(row, "seq")),
        index: row.get::<i64, _>("idx") as u32,
        at: Micros(number(row, "at_us")),
        parties: Parties {
            holder: party("tenant", "bid"),
            claimant: party("claim_tenant", "claim_bid"),
            former: party("former_tenant", "former_bid"),
            provider: name("provider"),
            account: name("account"),
        },
        event,
    })
}
