//! A random search over policies: mutations of the best ones so far, in generations.

use super::book::{Role, Setting};
use super::finding::Measurement;
use super::named::named;
use super::play::{AttackError, Baseline, Runs};
use super::policy::{
    Action, BasePrice, BidChoice, Condition, Count, Force, Level, MarketChoice, Mode, NewBid, NodeChoice,
    Policy, Rule, SLOTS, SLOTS_PER_ACCOUNT, Trigger,
};
use crate::parallel::in_parallel;
use crate::world::RandomStream;
use foldhash::HashSet;
use serde::Serialize;

/// Policies of a generation.
const GENERATION: usize = 48;
/// Best policies of a setting that are mutated.
const POOL: usize = 10;
/// The most triggers, conditions and actions of a policy.
const SIZE: usize = 40;
/// The part of the best score that a shorter policy must keep.
const KEPT: f64 = 0.9;

/// The extent of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Policies to try.
    pub policies: u64,
    /// Seeds of each.
    pub seeds: u64,
    /// Everything that is drawn follows from it.
    pub seed: u64,
    /// Settings in which to try them, in turn.
    pub settings: Vec<Setting>,
}

/// The best policy of a setting, shortened, and measured on seeds that the search did not see.
#[derive(Clone, Debug, Serialize)]
pub struct SearchResult {
    /// The figures on fresh seeds.
    pub measured: Measurement,
    /// Policies that were tried in this setting.
    pub of: u64,
}

/// The best policies of a setting.
struct Pool {
    baseline: Baseline,
    best: Vec<(f64, Policy)>,
    tried: u64,
}

/// Searches, and returns the best policy of each setting. Calls `progress` after each policy.
pub fn search(
    runs: &Runs,
    wanted: &Search,
    progress: impl Fn() + Sync,
) -> Result<Vec<SearchResult>, AttackError> {
    let mut random = RandomStream::named(wanted.seed, "search");
    let seeds = 1_000_000 * (wanted.seed + 1);
    let one = Runs { threads: std::num::NonZeroUsize::MIN, ..runs.clone() };
    let mut pools = Vec::new();
    for setting in &wanted.settings {
        let baseline = runs.baseline(*setting, seeds..seeds + wanted.seeds)?;
        pools.push(Pool { baseline, best: Vec::new(), tried: 0 });
    }
    let mut known: HashSet<(usize, Vec<Rule>)> = HashSet::default();
    // The named policies come first. Then each generation mutates the best of the settings in turn.
    let mut waiting: Vec<(usize, Policy)> = Vec::new();
    for (n, setting) in wanted.settings.iter().enumerate() {
        waiting.extend(named(setting.role()).into_iter().map(|policy| (n, policy)));
    }
    let supplies = |policy: &Policy| {
        let mut acts = policy.rules.iter().flat_map(|rule| &rule.acts);
        acts.any(|act| matches!(act, Action::Offer(..)))
    };
    waiting.retain(|(n, policy)| wanted.settings[*n].role() != Role::Tenant || !supplies(policy));
    waiting.retain(|(n, policy)| known.insert((*n, policy.rules.clone())));
    let mut tried = 0;
    while tried < wanted.policies {
        while waiting.len() < GENERATION {
            let n = (tried as usize + waiting.len()) % pools.len();
            let policy = next(&pools[n], wanted.settings[n].role(), &mut random);
            if known.insert((n, policy.rules.clone())) {
                waiting.push((n, policy));
            }
        }
        let count = waiting.len().min((wanted.policies - tried) as usize).min(GENERATION);
        let generation: Vec<(usize, Policy)> = waiting.drain(..count).collect();
        let measured = in_parallel(runs.threads, generation.len(), |at| {
            let (n, policy) = &generation[at];
            let measured = one.measure(&pools[*n].baseline, policy);
            progress();
            measured
        });
        for ((n, policy), measured) in generation.into_iter().zip(measured) {
            pools[n].add(measured?.score(), policy);
        }
        tried += count as u64;
    }
    let fresh = seeds + 500_000;
    let mut found = Vec::new();
    for pool in pools {
        let Some((score, policy)) = pool.best.first().cloned() else { continue };
        let short = shorten(runs, &pool.baseline, policy, score)?;
        let baseline = runs.baseline(pool.baseline.setting, fresh..fresh + 2 * wanted.seeds)?;
        found.push(SearchResult { measured: runs.measure(&baseline, &short)?, of: pool.tried });
    }
    Ok(found)
}

impl Pool {
    fn add(&mut self, score: f64, policy: Policy) {
        self.tried += 1;
        let at = self.best.partition_point(|(other, _)| *other >= score);
        self.best.insert(at, (score, policy));
        self.best.truncate(POOL);
    }
}

/// Leaves out rules, conditions and actions as long as most of the score stays.
fn shorten(runs: &Runs, baseline: &Baseline, mut policy: Policy, score: f64) -> Result<Policy, AttackError> {
    'shorter: loop {
        for shorter in shorter(&policy) {
            if runs.measure(baseline, &shorter)?.score() >= score - (1.0 - KEPT) * score.abs() {
                policy = shorter;
                continue 'shorter;
            }
        }
        policy.name = format!("found in {}", baseline.setting.name());
        return Ok(policy);
    }
}

fn shorter(policy: &Policy) -> Vec<Policy> {
    let mut all = Vec::new();
    let mut without = |change: &dyn Fn(&mut Vec<Rule>)| {
        let mut shorter = policy.clone();
        change(&mut shorter.rules);
        all.push(shorter);
    };
    for n in 0..policy.rules.len() {
        without(&|rules| {
            rules.remove(n);
        });
        for given in 0..policy.rules[n].given.len() {
            without(&|rules| {
                rules[n].given.remove(given);
            });
        }
        if policy.rules[n].acts.len() > 1 {
            for act in 0..policy.rules[n].acts.len() {
                without(&|rules| {
                    rules[n].acts.remove(act);
                });
            }
        }
    }
    all
}

/// Makes a policy from the best of a setting.
fn next(pool: &Pool, role: Role, random: &mut RandomStream) -> Policy {
    let draw = &mut Draw { random, role };
    let parent = |draw: &mut Draw<'_>| {
        // The better of two.
        let len = pool.best.len() as u64;
        let (a, b) = (draw.below(len.max(1)), draw.below(len.max(1)));
        pool.best.get(a.min(b) as usize).map(|(_, policy)| policy.clone())
    };
    let start = if draw.below(12) == 0 { None } else { parent(draw) };
    let mut policy = start.unwrap_or_else(|| Policy {
        name: String::new(),
        about: String::new(),
        rules: vec![Rule { when: Trigger::Begin, given: Vec::new(), acts: vec![draw.opening()] }],
    });
    if draw.below(4) == 0
        && let Some(other) = parent(draw)
        && !other.rules.is_empty()
    {
        let n = draw.below(other.rules.len() as u64) as usize;
        policy.rules.push(other.rules[n].clone());
    }
    for _ in 0..1 + draw.below(3) {
        draw.mutate(&mut policy.rules);
    }
    while policy.size() > SIZE && policy.rules.len() > 1 {
        let n = draw.below(policy.rules.len() as u64) as usize;
        policy.rules.remove(n);
    }
    (policy.name, policy.about) = ("found".to_owned(), "Found by the search.".to_owned());
    policy
}

/// Draws building blocks.
struct Draw<'a> {
    random: &'a mut RandomStream,
    role: Role,
}

impl Draw<'_> {
    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn mutate(&mut self, rules: &mut Vec<Rule>) {
        if rules.is_empty() {
            rules.push(self.rule());
            return;
        }
        let n = self.below(rules.len() as u64) as usize;
        match self.below(10) {
            0 | 1 => rules.push(self.rule()),
            2 if rules.len() > 1 => {
                rules.remove(n);
            }
            3 => rules[n].when = self.when(),
            4 => {
                let given = self.given();
                rules[n].given.push(given);
            }
            5 if !rules[n].given.is_empty() => {
                let given = self.below(rules[n].given.len() as u64) as usize;
                rules[n].given.remove(given);
            }
            6 | 7 => {
                let at = self.below(rules[n].acts.len() as u64 + 1) as usize;
                let act = self.act();
                rules[n].acts.insert(at, act);
            }
            8 if rules[n].acts.len() > 1 => {
                let at = self.below(rules[n].acts.len() as u64) as usize;
                rules[n].acts.remove(at);
            }
            _ if !rules[n].acts.is_empty() => {
                let at = self.below(rules[n].acts.len() as u64) as usize;
                let act = self.altered(rules[n].acts[at]);
                rules[n].acts[at] = act;
            }
            _ => rules[n].acts.push(self.act()),
        }
    }

    fn rule(&mut self) -> Rule {
        let given = (0..self.below(2)).map(|_| self.given()).collect();
        let acts = (0..1 + self.below(3)).map(|_| self.act()).collect();
        Rule { when: self.when(), given, acts }
    }

    fn seconds(&mut self) -> u16 {
        self.one(&[1, 1, 2, 10, 60, 120, 150, 250, 298, 299, 300, 301, 600, 899, 902, 1200, 1500, 3599, 3602])
    }

    fn when(&mut self) -> Trigger {
        let seconds = self.seconds();
        match self.below(14) {
            0 => Trigger::Begin,
            1 => Trigger::At(u32::from(seconds) * 5),
            2 | 3 => Trigger::Every(u32::from(seconds.max(60))),
            4 => Trigger::Notice,
            5 | 6 => Trigger::Deadline(self.one(&[0, 1, 1, 2, 10, 150, 299])),
            7 => Trigger::Rescinded,
            8 => Trigger::Claimed,
            9 => Trigger::ClaimDropped,
            10 => self.one(&[Trigger::Got, Trigger::Ready]),
            11 => Trigger::Unprotected(self.one(&[0, 0, 1, 300])),
            12 => self.one(&[Trigger::Lost, Trigger::Sold]),
            _ => Trigger::Price,
        }
    }

    fn given(&mut self) -> Condition {
        let yes = self.below(2) == 0;
        match self.below(9) {
            0 => Condition::Protected(yes),
            1 => Condition::UnderNotice(yes),
            2 => Condition::Claims(yes),
            3 => Condition::Full(yes),
            4 => Condition::Rivals(yes),
            5 => Condition::FreeUnits(yes),
            6 => Condition::PriceAtLeast(self.level()),
            7 => Condition::EntryAtMost(self.level()),
            _ => Condition::CeilingBelow(self.level()),
        }
    }

    fn level(&mut self) -> Level {
        let base = self.one(&[
            BasePrice::Value,
            BasePrice::Value,
            BasePrice::Floor,
            BasePrice::Floor,
            BasePrice::Market,
            BasePrice::Entry,
            BasePrice::Losing,
            BasePrice::Lowest,
            BasePrice::Stay,
            BasePrice::Ceiling,
        ]);
        let percent = self.one(&[100, 100, 100, 100, 106, 105, 104, 96, 95, 90, 80, 50, 150, 200, 400]);
        let ticks = self.one(&[0, 0, 0, 1, -1]);
        Level { base, percent, ticks }
    }

    fn slot(&mut self) -> u8 {
        let first = self.below((SLOTS / SLOTS_PER_ACCOUNT) as u64) * SLOTS_PER_ACCOUNT as u64;
        (first + self.one(&[0, 0, 0, 1, 2])) as u8
    }

    fn who(&mut self) -> BidChoice {
        match self.below(6) {
            0..=2 => BidChoice::This,
            3 => BidChoice::Slot(self.slot()),
            4 => BidChoice::All,
            _ => BidChoice::Next(self.one(&[2, 3, 4, 5])),
        }
    }

    fn market(&mut self) -> MarketChoice {
        self.one(&[
            MarketChoice::AnyRegion,
            MarketChoice::AnyRegion,
            MarketChoice::Both,
            MarketChoice::First,
            MarketChoice::Second,
        ])
    }

    fn count(&mut self) -> Count {
        self.one(&[
            Count::Percent(100),
            Count::Percent(100),
            Count::Percent(50),
            Count::Nodes(1),
            Count::Nodes(1),
            Count::Nodes(2),
            Count::Nodes(3),
        ])
    }

    fn new_bid(&mut self) -> NewBid {
        let force = match self.below(6) {
            0 => Force::Ioc,
            1 => Force::Gtt(self.seconds()),
            _ => Force::Gtc,
        };
        NewBid {
            slot: self.slot(),
            level: self.level(),
            count: self.count(),
            least: self.one(&[Count::Nodes(1), Count::Nodes(1), Count::Nodes(2), Count::Percent(100)]),
            force,
            close: self.below(4) == 0,
            market: self.market(),
        }
    }

    fn opening(&mut self) -> Action {
        let value = Level::of(BasePrice::Value, 100);
        let honest = self.below(2) == 0;
        match self.role {
            Role::Seller => Action::Offer(1, MarketChoice::First, u8::MAX, value),
            Role::Tenant if honest => Action::Bid(NewBid::new(value)),
            Role::Tenant | Role::Griefer => Action::Bid(self.new_bid()),
        }
    }

    fn offer(&mut self) -> Action {
        let capacity = self.one(&[0, 1, 1, 2, 3, 5, 6, u8::MAX]);
        Action::Offer(self.one(&[1, 1, 2]), self.market(), capacity, self.level())
    }

    fn act(&mut self) -> Action {
        let supplies = match self.role {
            // Units that do not exist beat everything else that a tenant can do.
            Role::Tenant => 0,
            Role::Seller => 6,
            Role::Griefer => 3,
        };
        if self.below(12) < supplies {
            return match self.below(6) {
                0..=2 => self.offer(),
                3 => Action::Withdraw(1),
                4 => Action::Lose(1),
                _ => Action::Resume(1),
            };
        }
        match self.below(13) {
            0..=4 => Action::Ceiling(self.who(), self.level()),
            5 | 6 => Action::Bid(self.new_bid()),
            7 => Action::Size(self.who(), self.count()),
            8 => Action::Cancel(
                self.who(),
                self.one(&[Mode::Keep, Mode::Release, Mode::Release, Mode::Regroup]),
            ),
            9 => Action::Release(
                self.who(),
                self.one(&[
                    NodeChoice::Newest,
                    NodeChoice::Oldest,
                    NodeChoice::UnderNotice,
                    NodeChoice::Surplus,
                    NodeChoice::All,
                ]),
            ),
            10 => Action::Silent(self.below(2) == 0),
            _ => Action::Wait(self.seconds()),
        }
    }

    /// Changes one part of an action.
    fn altered(&mut self, act: Action) -> Action {
        let first = self.below(2) == 0;
        match act {
            Action::Bid(bid) => {
                let other = self.new_bid();
                Action::Bid(match self.below(6) {
                    0 | 1 => NewBid { level: other.level, ..bid },
                    2 => NewBid { count: other.count, least: other.least, ..bid },
                    3 => NewBid { force: other.force, ..bid },
                    4 => NewBid { market: other.market, close: other.close, ..bid },
                    _ => NewBid { slot: other.slot, ..bid },
                })
            }
            Action::Ceiling(_, level) if first => Action::Ceiling(self.who(), level),
            Action::Ceiling(who, _) => Action::Ceiling(who, self.level()),
            Action::Size(_, count) if first => Action::Size(self.who(), count),
            Action::Size(who, _) => Action::Size(who, self.count()),
            Action::Wait(_) => Action::Wait(self.seconds()),
            Action::Offer(who, market, capacity, _) if first => {
                Action::Offer(who, market, capacity, self.level())
            }
            Action::Offer(..) => self.offer(),
            Action::Cancel(..)
            | Action::Release(..)
            | Action::Withdraw(_)
            | Action::Lose(_)
            | Action::Resume(_)
            | Action::Silent(_) => self.act(),
        }
    }
}
