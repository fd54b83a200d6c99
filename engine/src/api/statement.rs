//! Sums of an account over a period, cut at both ends of it.
//!
//! A period has the charges that were made in it, plus what the nodes that are billed at its end had cost by then, less
//! what those that were billed at its beginning had cost by then. So the sums of adjacent periods add up to the sum of
//! the whole. `readmodel/cuts.rs` says what a node has cost at an instant.

use super::Api;
use super::accruals::marks_of;
use super::billing::period;
use crate::auth::caller::Caller;
use crate::readmodel::queries::{BilledNodeQuery, StatementQuery};
use crate::readmodel::rows::{BilledNode, Cost, Mark};
use crate::store::Labels;
use crate::wire::billing::Sum;
use crate::wire::status::ApiError;
use crate::wire::{page, text};
use kubebid_core::Amount;
use kubebid_core::units::{AllocationId, MarketName, Micros};
use kubebid_proto::v1;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use v1::get_statement_response::Line;

/// The number of nodes that are read at a time.
const MANY: u32 = 1000;

/// The period of a statement, as it is counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    from: Option<Micros>,
    /// The end of the period; for one that goes on, the present.
    to: Micros,
    /// The present, in market time.
    now: Micros,
    /// The charges before this instant are counted, and the nodes that are billed at it. It is the end of the
    /// period, or, if that is later, the instant after the last command: no command before it can come.
    settled: Micros,
    /// True if no command can change the figures. Within an hour the cost of a running node is known only when the
    /// hour is over, so a period that ends within an hour is closed then.
    is_closed: bool,
}

impl Counted {
    /// `last` is the time of the last command.
    fn new(from: Option<Micros>, to: Option<Micros>, last: Micros, now: Micros) -> Counted {
        let next = Micros(last.0 + 1);
        Counted {
            from,
            to: to.map_or(now, |to| to.min(now)),
            now,
            settled: to.map_or(next, |to| to.min(next)),
            is_closed: to.is_some_and(|to| to.0.div_ceil(Micros::HOUR.0) <= last.0 / Micros::HOUR.0),
        }
    }

    /// Returns the instant at which nodes must be billed to have cost something before the period.
    fn settled_from(&self) -> Option<Micros> {
        self.from.map(|from| from.min(self.settled))
    }
}

/// The account whose nodes and charges are counted.
struct Scope {
    account: String,
    labels: Labels,
    by_label: Option<String>,
}

impl Api {
    /// GetStatement: returns the sums of an account in a period, by market and, on request, by the
    /// value of a label.
    pub async fn get_statement(
        &self,
        caller: &Caller,
        request: v1::GetStatementRequest,
    ) -> Result<v1::GetStatementResponse, ApiError> {
        let account = caller.whose_one(request.account.as_deref())?.to_string();
        let after: Option<LineEnd> = page::after(&request.page_token)?;
        text::text("by_label", &request.by_label, text::NOTE)?;
        let labels = text::labels("labels", request.labels)?;
        let (from, to) = period(request.from_us, request.to_us)?;
        // The tables have to have everything up to `last`.
        let (last, seq) = self.engine().ask(|exchange| (exchange.now(), exchange.seq().0)).await?;
        let _turn = self.turn_to_read(caller, request.min_seq.max(self.engine().applied()).max(seq)).await?;
        let seq = self.engine().projected();
        let now = self.engine().market_clock().now(last);
        let by_label = (!request.by_label.is_empty()).then_some(request.by_label);
        let scope = Scope { account: account.clone(), labels, by_label };
        let counted = Counted::new(from, to, last, now);
        let mut lines = Lines::default();
        if from.is_none_or(|from| from <= now) {
            self.sum(caller, &scope, counted, &mut lines).await?;
        }
        let markets = self.engine().views().markets();
        let order: BTreeMap<String, u32> =
            markets.iter().map(|view| (view.name.to_string(), view.market.0)).collect();
        let mut found: Vec<_> = lines.0.into_iter().filter(|(_, parts)| parts.is_any()).collect();
        let place = |(market, value): &(String, Option<String>)| (order.get(market).copied(), value.clone());
        found.sort_by_key(|(line, _)| place(line));
        let mut all = Parts::default();
        found.iter().for_each(|(_, parts)| all.add(parts));
        let after = after.map(|end| place(&end.0));
        let lines = found.into_iter().filter(|(line, _)| after.is_none() || Some(place(line)) > after);
        let lines = lines.map(|(line, parts)| {
            let (market, label_value) = line.clone();
            let message = Line {
                market,
                label_value,
                charged: Some(parts.charged.message()),
                accrued: Some(parts.accrued.message()),
                corrected: Some(parts.corrected.message()),
            };
            (LineEnd(line), message)
        });
        let (lines, next_page_token) = page::fit(lines, None);
        Ok(v1::GetStatementResponse {
            seq,
            account,
            from_us: request.from_us,
            to_us: counted.to.0,
            charged: Some(all.charged.message()),
            accrued: Some(all.accrued.message()),
            lines,
            corrected: Some(all.corrected.message()),
            closed: counted.is_closed,
            next_page_token,
        })
    }

    async fn sum(
        &self,
        caller: &Caller,
        scope: &Scope,
        counted: Counted,
        lines: &mut Lines,
    ) -> Result<(), ApiError> {
        let Counted { from, to, settled, is_closed, .. } = counted;
        let query = StatementQuery {
            account: scope.account.clone(),
            from,
            to: Some(settled),
            labels: scope.labels.clone(),
            by_label: scope.by_label.clone(),
        };
        for row in self.engine().read_model().statement(&query).await? {
            let (debit, credit, fee, node_time_us) = (row.debit, row.credit, row.fee, row.node_time_us);
            let sum = Sum { debit, credit, fee, node_time_us };
            lines.at(row.market, row.label_value).charged.add(&sum);
        }
        // What nodes have cost at the end that had cost something at the beginning.
        let mut later = HashMap::new();
        let before = counted.settled_from();
        let mut after = AllocationId(0);
        while let Some(nodes) = self.billed_nodes(caller, scope, counted, (settled, to), &mut after).await? {
            for (node, cost) in nodes {
                if before.is_some_and(|before| node.ready_at < before) {
                    later.insert(node.allocation, cost);
                    continue;
                }
                for (value, sum) in sides(scope, &node, &cost) {
                    lines.at(node.market.clone(), value).open(is_closed).add(&sum);
                }
            }
        }
        let (Some(from), Some(before)) = (from, before) else { return Ok(()) };
        let mut after = AllocationId(0);
        while let Some(nodes) = self.billed_nodes(caller, scope, counted, (before, from), &mut after).await? {
            for (node, cost) in nodes {
                let is_charged = node.ended_at.is_some_and(|ended| ended < settled);
                let at_the_end = match later.get(&node.allocation) {
                    Some(cost) => *cost,
                    None if is_charged => node.charge.unwrap_or_default(),
                    // It ended while the statement was read.
                    None => continue,
                };
                let sums = sides(scope, &node, &at_the_end).zip(sides(scope, &node, &cost));
                for ((value, end), (_, beginning)) in sums {
                    let (up, down) = end.changes_from(&beginning);
                    let parts = lines.at(node.market.clone(), value);
                    if later.contains_key(&node.allocation) {
                        parts.open(is_closed).add(&up);
                    } else {
                        // The charges that were made have all of it.
                        parts.charged = parts.charged.minus(&end.minus(&up));
                    }
                    parts.corrected.add(&down);
                }
            }
        }
        Ok(())
    }

    /// Reads a page of the nodes that are billed at the first instant of `at`, with what each has cost up to the
    /// second one. Returns None after the last page.
    async fn billed_nodes(
        &self,
        caller: &Caller,
        scope: &Scope,
        counted: Counted,
        (billed_at, at): (Micros, Micros),
        after: &mut AllocationId,
    ) -> Result<Option<Vec<(BilledNode, Cost)>>, ApiError> {
        let mut query = BilledNodeQuery {
            account: scope.account.clone(),
            at: billed_at,
            segment_before: at,
            labels: scope.labels.clone(),
            by_label: scope.by_label.clone(),
            allocations: BTreeSet::new(),
            after: *after,
            limit: MANY,
        };
        let nodes = self.engine().read_model().billed_nodes(&query).await?;
        let Some(last) = nodes.last() else { return Ok(None) };
        *after = last.allocation;
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for node in nodes {
            match node.cost_at(at) {
                Some(cost) => found.push((node, cost)),
                None => unknown.push(node),
            }
        }
        for (node, marks) in self.exchange_marks(unknown, counted.now).await? {
            match marks {
                Some(marks) => {
                    let cost = node.cost_by(at, &marks);
                    found.push((node, cost));
                }
                None => _ = query.allocations.insert(node.allocation),
            }
        }
        if !query.allocations.is_empty() {
            // These have ended since the tables were read, which have their last segments by now.
            self.projected_up_to(caller, self.engine().applied()).await?;
            query.segment_before = Micros(self.market_now().await?.0 + 1);
            query.after = AllocationId(0);
            let nodes = self.engine().read_model().billed_nodes(&query).await?;
            let known = |node: BilledNode| node.cost_at(at).map(|cost| (node, cost));
            found.extend(nodes.into_iter().filter_map(known));
        }
        Ok(Some(found))
    }

    /// Asks the exchange what running nodes cost at the full hours since the last command and at present. None for
    /// a node that has ended.
    async fn exchange_marks(
        &self,
        nodes: Vec<BilledNode>,
        now: Micros,
    ) -> Result<Vec<(BilledNode, Option<Vec<Mark>>)>, ApiError> {
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<AllocationId> = nodes.iter().map(|node| node.allocation).collect();
        let asked = self.engine().ask_each(ids, move |exchange, id| exchange.bills_by_hour(id, now));
        let bills = asked.await?;
        let markets = self.engine().views().markets();
        let marks = nodes.into_iter().zip(bills).map(|(node, bills)| {
            let view = markets.get(&MarketName::new(&node.market));
            let fee_bps = view.map_or(0, |view| view.rules.fee_bps);
            (node, bills.map(|bills| marks_of(bills, fee_bps)))
        });
        Ok(marks.collect())
    }
}

/// Returns what a cost is for the account: as the node's tenant by the value of the label, and as its provider.
fn sides<'a>(
    scope: &'a Scope,
    node: &'a BilledNode,
    cost: &Cost,
) -> impl Iterator<Item = (Option<String>, Sum)> + use<'a> {
    let Cost { debit, fee, time } = *cost;
    let node_time_us = u128::from(time.0);
    let paid = Sum { debit, node_time_us, ..Sum::default() };
    let earned = Sum { debit: Amount::ZERO, credit: Amount(debit.0 - fee.0), fee, node_time_us };
    // A provider does not see labels.
    let paid = (node.tenant == scope.account).then(|| (node.label_value.clone(), paid));
    let earned = (node.provider == scope.account && scope.labels.is_empty()).then_some((None, earned));
    paid.into_iter().chain(earned)
}

/// The parts of a line.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    charged: Sum,
    accrued: Sum,
    corrected: Sum,
}

impl Parts {
    fn add(&mut self, other: &Parts) {
        self.charged.add(&other.charged);
        self.accrued.add(&other.accrued);
        self.corrected.add(&other.corrected);
    }

    /// Returns the part that has what nodes cost that run at the end of the period.
    fn open(&mut self, is_closed: bool) -> &mut Sum {
        if is_closed { &mut self.charged } else { &mut self.accrued }
    }

    fn is_any(&self) -> bool {
        [self.charged, self.accrued, self.corrected].iter().any(|sum| *sum != Sum::default())
    }
}

/// The parts by market and value of the label.
#[derive(Default)]
struct Lines(BTreeMap<(String, Option<String>), Parts>);

impl Lines {
    fn at(&mut self, market: String, value: Option<String>) -> &mut Parts {
        self.0.entry((market, value)).or_default()
    }
}

/// The last line of a page: its market, and its value of the label.
#[derive(Debug)]
struct LineEnd((String, Option<String>));

impl fmt::Display for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            (market, Some(value)) => write!(f, "{market}={value}"),
            (market, None) => f.write_str(market),
        }
    }
}

impl FromStr for LineEnd {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<LineEnd, Infallible> {
        // The name of a market has no "=".
        Ok(LineEnd(match text.split_once('=') {
            Some((market, value)) => (market.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        }))
    }
}
