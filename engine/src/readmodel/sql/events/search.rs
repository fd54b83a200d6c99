//! Finds the packs that may have wanted events, in order, by the index.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{MANY, StoredPack};
use crate::events::visibility::concerns_everyone;
use crate::readmodel::packs::{EVERYONE, PACK, RUN};
use crate::readmodel::queries::EventQuery;
use crate::store::Fault;
use crate::store::reads::Reads;
use crate::store::rows::number;
use crate::store::select::Select;
use kubebid_core::EventKind;
use kubebid_core::units::Micros;

/// Rows of the index in one answer.
const WINDOW: usize = 256;

/// The position of a search.
#[derive(Debug)]
pub(super) struct Search {
    newest_first: bool,
    /// All must hold; the first is the one that is followed. None: all packs are looked at.
    conditions: Vec<Condition>,
    /// Commands whose events may be wanted, both inclusive.
    low: u64,
    high: u64,
    /// Runs that are not looked up yet, both inclusive; none where nothing is left.
    runs: Option<(u64, u64)>,
    /// Packs in which bids that are asked for were placed, which the index does not say, behind their runs.
    placed: BTreeSet<(u64, u64)>,
    /// Packs that are to be read.
    ready: VecDeque<u64>,
}

/// One of some names or numbers occurs.
#[derive(Debug)]
struct Condition {
    table: &'static str,
    column: &'static str,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    Names(Vec<String>),
    Numbers(Vec<u64>),
}

impl Search {
    /// None where nothing can be found. `labelled` are the bids with the labels that are asked for, where they
    /// are few.
    pub(super) async fn begin(
        reads: &Reads,
        query: &EventQuery,
        labelled: Option<&BTreeSet<u64>>,
    ) -> Result<Option<Search>, Fault> {
        let (mut low, mut high) = (0, u64::MAX);
        match query.after {
            Some((seq, _)) if query.newest_first => high = seq,
            Some((seq, _)) => low = seq,
            None => {}
        }
        if let Some(from) = query.from {
            let Some(first) = first_pack_from(reads, from).await? else { return Ok(None) };
            low = low.max(first);
        }
        if let Some(to) = query.to
            && let Some(first) = first_pack_from(reads, to).await?
        {
            high = high.min(first + PACK - 1);
        }
        let bids = bids(query, labelled);
        if bids.is_empty() && (!query.bids.is_empty() || labelled.is_some()) {
            return Ok(None);
        }
        let placed = placed_in(reads, &bids).await?;
        let conditions = conditions(query, bids);
        let runs = Some((low.saturating_sub(RUN - 1), high));
        let newest_first = query.newest_first;
        let ready = VecDeque::new();
        Ok(Some(Search { newest_first, conditions, low, high, runs, placed, ready }))
    }

    /// The next packs, at most so many; none at the end.
    pub(super) async fn next(&mut self, reads: &Reads, many: usize) -> Result<Vec<StoredPack>, Fault> {
        let mut select = Select::new("SELECT * FROM event_packs");
        if self.conditions.is_empty() {
            let Some((_, high)) = self.runs else { return Ok(Vec::new()) };
            select.add(" WHERE first_seq > ? AND first_seq <= ?", &[&self.low.saturating_sub(PACK), &high]);
        } else {
            while self.ready.is_empty() && self.runs.is_some() {
                self.look_up(reads).await?;
            }
            let packs: Vec<u64> = self.ready.drain(..many.min(self.ready.len())).collect();
            if packs.is_empty() {
                return Ok(Vec::new());
            }
            select.one_of(" WHERE first_seq IN ", &packs, "");
        }
        select.add(&format!(" ORDER BY first_seq {} LIMIT ?", self.order()), &[&(many as u64)]);
        let packs = StoredPack::all(select, reads).await?;
        if self.conditions.is_empty() {
            self.go_on_behind(packs.last().filter(|_| packs.len() == many));
        }
        Ok(packs)
    }

    fn order(&self) -> &'static str {
        if self.newest_first { "DESC" } else { "ASC" }
    }

    /// Moves on, if all packs are read.
    fn go_on_behind(&mut self, last: Option<&StoredPack>) {
        match last {
            None => self.runs = None,
            Some(last) if self.newest_first => match last.first_seq.checked_sub(1) {
                Some(high) => self.runs = Some((0, high)),
                None => self.runs = None,
            },
            Some(last) => self.low = last.first_seq + PACK,
        }
    }

    /// Looks up the next runs.
    async fn look_up(&mut self, reads: &Reads) -> Result<(), Fault> {
        let Some((first, last)) = self.runs.take() else { return Ok(()) };
        let Some((followed, others)) = self.conditions.split_first() else { return Ok(()) };
        let most = WINDOW + followed.keys.len();
        let mut select = followed.select("i");
        select.add(" AND i.run >= ? AND i.run <= ?", &[&first, &last]);
        for other in others {
            let mut beside = other.select("k");
            beside.add(" AND k.run = i.run AND (k.packs & i.packs) <> 0", &[]);
            select.add(" AND EXISTS (", &[]).include(&beside).add(")", &[]);
        }
        select.add(&format!(" ORDER BY i.run {} LIMIT ?", self.order()), &[&(most as u64)]);
        let (rows, mut found) = by_run(select, reads).await?;
        // Where there may be more, the last run may not be complete.
        self.runs = if rows < most {
            None
        } else if self.newest_first {
            found.pop_first().map(|(run, _)| (first, run))
        } else {
            found.pop_last().map(|(run, _)| (run, last))
        };
        let runs: Vec<u64> = found.keys().copied().collect();
        for other in others.iter().filter(|_| !runs.is_empty()) {
            let mut select = other.select("k");
            select.one_of(" AND k.run IN ", &runs, "");
            let (_, beside) = by_run(select, reads).await?;
            for (run, packs) in &mut found {
                *packs &= beside.get(run).copied().unwrap_or(0);
            }
        }
        let packs = found.iter().flat_map(|(run, packs)| packs_of(*run, *packs));
        let mut packs: BTreeSet<u64> = packs.collect();
        let next = self.runs;
        let (now, later) = self.placed.iter().partition(|(run, _)| match next {
            None => true,
            Some((_, next)) if self.newest_first => *run > next,
            Some((next, _)) => *run < next,
        });
        let now: BTreeSet<(u64, u64)> = now;
        self.placed = later;
        packs.extend(now.into_iter().map(|(_, pack)| pack));
        packs.retain(|pack| pack + PACK > self.low && *pack <= self.high);
        self.ready =
            if self.newest_first { packs.into_iter().rev().collect() } else { packs.into_iter().collect() };
        Ok(())
    }
}

impl Condition {
    fn names<'a>(
        table: &'static str,
        column: &'static str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Condition {
        let names: BTreeSet<&str> = names.into_iter().collect();
        Condition { table, column, keys: Keys::Names(names.into_iter().map(str::to_owned).collect()) }
    }

    /// The runs and packs where it holds.
    fn select(&self, name: &str) -> Select {
        let Condition { table, column, keys } = self;
        let mut select = Select::new(&format!("SELECT {name}.run, {name}.packs FROM {table} {name}"));
        let before = format!(" WHERE {name}.{column} IN ");
        match keys {
            Keys::Names(names) => select.one_of(&before, names, ""),
            Keys::Numbers(numbers) => select.one_of(&before, numbers, ""),
        };
        select
    }
}

impl Keys {
    fn len(&self) -> usize {
        match self {
            Keys::Names(names) => names.len(),
            Keys::Numbers(numbers) => numbers.len(),
        }
    }
}

/// Returns the number of rows, and their sum.
async fn by_run(select: Select, reads: &Reads) -> Result<(usize, BTreeMap<u64, u64>), Fault> {
    let rows = select.all(reads, "finding events").await?;
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for row in &rows {
        *found.entry(number(row, 0)).or_default() |= number(row, 1);
    }
    Ok((rows.len(), found))
}

fn packs_of(run: u64, packs: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(u64::BITS)).filter(move |n| packs >> n & 1 == 1).map(move |n| run + n * PACK)
}

/// The bids that are looked for by their numbers; none where others must do.
fn bids(query: &EventQuery, labelled: Option<&BTreeSet<u64>>) -> Vec<u64> {
    let asked: BTreeSet<u64> = query.bids.iter().map(|bid| bid.0).collect();
    match labelled {
        Some(labelled) if asked.is_empty() => labelled.iter().copied().collect(),
        Some(labelled) => asked.intersection(labelled).copied().collect(),
        None => asked.into_iter().collect(),
    }
}

/// Returns the conditions, the most selective first.
fn conditions(query: &EventQuery, bids: Vec<u64>) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if !bids.is_empty() {
        // Where they were placed is known besides, and a bid is enough to go by.
        return vec![Condition { table: "bid_runs", column: "bid", keys: Keys::Numbers(bids) }];
    }
    if !query.allocations.is_empty() {
        let numbers = query.allocations.iter().map(|id| id.0).collect();
        let keys = Keys::Numbers(numbers);
        conditions.push(Condition { table: "allocation_runs", column: "allocation", keys });
    }
    if let Some(account) = &query.account {
        let kinds = &query.kinds;
        let asked = |kind: &EventKind| concerns_everyone(*kind) && (kinds.is_empty() || kinds.contains(kind));
        let everyone =
            query.labels.is_empty() && query.allocations.is_empty() && EventKind::ALL.iter().any(asked);
        let names = [account.as_str()].into_iter().chain(everyone.then_some(EVERYONE));
        conditions.push(Condition::names("account_runs", "account", names));
    }
    if !query.markets.is_empty() {
        let names = query.markets.iter().flat_map(|market| [market.as_str(), market.parts().0]);
        conditions.push(Condition::names("market_runs", "market", names));
    }
    if !query.kinds.is_empty() {
        let names = query.kinds.iter().map(|kind| kind.word());
        conditions.push(Condition::names("kind_runs", "kind", names));
    }
    conditions
}

/// The packs in which bids were placed, behind their runs, where there are such packs.
async fn placed_in(reads: &Reads, bids: &[u64]) -> Result<BTreeSet<(u64, u64)>, Fault> {
    let mut found = BTreeSet::new();
    for bids in bids.chunks(MANY) {
        let mut select = Select::new(
            "SELECT p.run, p.first_seq FROM event_packs p WHERE p.first_seq IN (
                 SELECT (SELECT MAX(m.first_seq) FROM event_packs m WHERE m.first_seq <= b.column1) FROM",
        );
        select.values(bids).add(" b)", &[]);
        let rows = select.all(reads, "finding bids").await?;
        found.extend(rows.iter().map(|row| (number(row, 0), number(row, 1))));
    }
    Ok(found)
}

/// The first pack with an event that is not before an instant: time never falls from one event to the next.
async fn first_pack_from(reads: &Reads, at: Micros) -> Result<Option<u64>, Fault> {
    let mut select = Select::new("SELECT first_seq FROM event_packs");
    select.add(" WHERE last_at_us >= ? ORDER BY last_at_us, first_seq LIMIT 1", &[&at.0]);
    let rows = select.all(reads, "finding an instant among the events").await?;
    Ok(rows.first().map(|row| number(row, 0)))
}
