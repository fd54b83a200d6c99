//! Jobs: what their tenants ask for, their progress, and their end.

use super::demand::DrawnJob;
use super::run::{Due, Node, World, WorldError, price};
use super::tenants::{Kind, Opening, Want};
use crate::bid::standing_bid;
use crate::participant::Participant;
use foldhash::HashMap;
use kubebid_core::command::{CancelMode, PlaceBid, TimeInForce};
use kubebid_core::units::{AccountName, AllocationId, BidId, Micros};
use kubebid_core::{Command, Price};

/// Time between two looks of a tenant that waits.
const THINK: Micros = Micros::seconds(3600);
const LOOK: Micros = Micros::seconds(600);

/// A place in the table, and the serial number of its occupant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobId {
    slot: u32,
    serial: u64,
}

#[derive(Debug)]
pub(super) struct Job {
    market: u32,
    account: AccountName,
    pub(super) want: Want,
    deadline: Micros,
    bid: Option<BidId>,
    ceiling: Price,
    searching: bool,
    pub(super) held: u32,
    working: u32,
    /// Node-time still to be done, as of `since`.
    left: u64,
    since: Micros,
    due: Option<Micros>,
}

impl Job {
    /// Returns the node-time still to be done at `now`, if nothing has changed since it was last counted.
    pub(super) fn left_at(&self, now: Micros) -> u64 {
        self.left.saturating_sub(now.since(self.since).0 * u64::from(self.working))
    }
}

#[derive(Debug, Default)]
pub(super) struct JobTable {
    slots: Vec<(u64, Option<Job>)>,
    free: Vec<u32>,
    by_bid: HashMap<BidId, JobId>,
}

impl JobTable {
    fn add(&mut self, job: Job) -> JobId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.0 += 1;
        place.1 = Some(job);
        JobId { slot, serial: place.0 }
    }

    pub(super) fn of(&self, bid: BidId) -> Option<JobId> {
        self.by_bid.get(&bid).copied()
    }

    /// Returns the job, or `None` if it is over.
    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let (serial, job) = &mut self.slots[id.slot as usize];
        job.as_mut().filter(|_| *serial == id.serial)
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Job> {
        self.slots.iter().filter_map(|(_, job)| job.as_ref())
    }

    fn remove(&mut self, id: JobId) -> Option<Job> {
        self.get_mut(id)?;
        let job = self.slots[id.slot as usize].1.take()?;
        self.free.push(id.slot);
        if let Some(bid) = job.bid {
            self.by_bid.remove(&bid);
        }
        Some(job)
    }
}

impl World<'_> {
    pub(super) fn start_job(&mut self, market: u32, drawn: DrawnJob) -> Result<(), WorldError> {
        let tenant = self.markets[market as usize].tenant(drawn.kind, drawn.account);
        let budget = (self.settings.jobs.daily_budget * 24.0 * self.settings.on_demand_micros as f64) as u128;
        if tenant.spent_today(self.now) > budget {
            self.outcome.over_budget += 1;
            return Ok(());
        }
        let account = tenant.name.clone();
        let latest_start = Micros(drawn.deadline.0.saturating_sub(drawn.duration.0));
        let want = Want {
            kind: drawn.kind,
            watched: drawn.watched,
            nodes: drawn.nodes,
            worth: price(drawn.worth, self.on_demand()),
            submitted: self.now,
            latest_start,
        };
        let left = drawn.duration.0 * u64::from(drawn.nodes);
        self.begin(market, account, want, (drawn.deadline, left, None))
    }

    /// Begins a bid of a rush: it is held for a time, however many nodes it gets.
    pub(super) fn start_rush(
        &mut self,
        market: u32,
        number: u64,
        (nodes, hold, worth): (u32, Micros, f64),
    ) -> Result<(), WorldError> {
        let account = self.markets[market as usize].tenant(Kind::Urgent, number).name.clone();
        let end = self.now.after(hold);
        let worth = price(worth, self.on_demand());
        let want = Want {
            kind: Kind::Urgent,
            watched: false,
            nodes,
            worth,
            submitted: self.now,
            latest_start: self.now,
        };
        self.begin(market, account, want, (end, 0, Some(end)))
    }

    fn begin(
        &mut self,
        market: u32,
        account: AccountName,
        want: Want,
        (deadline, left, due): (Micros, u64, Option<Micros>),
    ) -> Result<(), WorldError> {
        let sums = self.outcome.sums(want);
        sums.jobs += 1;
        sums.work_us += u128::from(left);
        // Taken back if the job ends otherwise.
        sums.finished_us += u128::from(left);
        let (ceiling, since) = (Price::ZERO, self.now);
        let id = self.jobs.add(Job {
            market,
            account,
            want,
            deadline,
            bid: None,
            ceiling,
            searching: false,
            held: 0,
            working: 0,
            left,
            since,
            due,
        });
        if let Some(end) = due {
            self.agenda.plan(end, Due::Done(id));
        }
        self.open_bid(id)?;
        if want.revises() {
            self.agenda.plan(self.now.after(THINK), Due::Think(id));
        }
        Ok(())
    }

    fn open_bid(&mut self, id: JobId) -> Result<(), WorldError> {
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let (market, want, deadline) = (job.market, job.want, job.deadline);
        if want.kind == Kind::Sniper {
            // The entry price changes with time too. A market that shares its exchange may have moved the clock already.
            self.send(Command::AdvanceTime)?;
        }
        let seen = self.seen(market);
        let (ceiling, nodes, time_in_force) = match want.open(&seen) {
            // A rush ends by itself, at an instant of its own.
            Opening::Bid { ceiling, nodes } if want.kind == Kind::Urgent => {
                (ceiling, nodes, TimeInForce::Gtc)
            }
            Opening::Bid { ceiling, nodes } => (ceiling, nodes, TimeInForce::Gtt),
            Opening::Take { ceiling, nodes } => (ceiling, nodes, TimeInForce::Ioc),
            Opening::Later => {
                self.agenda.plan(self.now.after(LOOK), Due::Think(id));
                return Ok(());
            }
        };
        if time_in_force == TimeInForce::Gtt {
            self.agenda.plan(deadline, Due::Expiry(id));
        }
        let job = self.jobs.get_mut(id).expect("just seen");
        (job.ceiling, job.searching) = (ceiling, true);
        let command = Command::PlaceBid(PlaceBid {
            markets: Some(vec![self.markets[market as usize].name.clone()]),
            expire_at: (time_in_force == TimeInForce::Gtt).then_some(deadline),
            time_in_force,
            ..standing_bid(job.account.clone(), ceiling, nodes)
        });
        self.outcome.bids += 1;
        let answer = self.apply(command)?;
        let bid = BidId(answer.seq.0);
        self.jobs.get_mut(id).expect("no event was handled yet").bid = Some(bid);
        self.jobs.by_bid.insert(bid, id);
        if want.watched {
            self.watched.insert(bid);
        }
        self.on_events(&answer.events);
        Ok(())
    }

    /// Lets a tenant that waits look again: at the market, or at its own ceiling.
    pub(super) fn think(&mut self, id: JobId) -> Result<(), WorldError> {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let (market, want, ceiling) = (job.market, job.want, job.ceiling);
        let Some(bid) = job.bid else {
            if now < job.deadline {
                return self.open_bid(id);
            }
            self.give_up(id);
            return Ok(());
        };
        if !job.searching {
            return Ok(());
        }
        let waits = job.held == 0;
        let tenant = job.account.clone();
        let seen = self.seen(market);
        self.agenda.plan(now.after(THINK), Due::Think(id));
        match want.revise(&seen, ceiling, waits) {
            Some(ceiling) => self.amend(id, tenant, (bid, ceiling)),
            None => Ok(()),
        }
    }

    fn amend(
        &mut self,
        id: JobId,
        tenant: AccountName,
        (bid, ceiling): (BidId, Price),
    ) -> Result<(), WorldError> {
        let command = Command::AmendBid { tenant, bid, ceiling: Some(ceiling), max_nodes: None };
        let accepted = self.send(command)?.outcome == kubebid_core::answer::Outcome::Accepted;
        if let Some(job) = self.jobs.get_mut(id).filter(|_| accepted) {
            job.ceiling = ceiling;
        }
        Ok(())
    }

    /// Lets the tenant of a node under notice raise its bid, if its strategy says so.
    pub(super) fn stay_or_go(&mut self, allocation: AllocationId) -> Result<(), WorldError> {
        let Some(Node { job: id, .. }) = self.nodes.get(&allocation).copied() else { return Ok(()) };
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let (market, want, tenant) = (job.market, job.want, job.account.clone());
        let (Some(bid), ceiling) = (job.bid, job.ceiling) else { return Ok(()) };
        let to_stay = self.venue.price_to_stay(allocation)?;
        match want.at_notice(&self.seen(market), to_stay).filter(|raised| *raised > ceiling) {
            Some(raised) => self.amend(id, tenant, (bid, raised)),
            None => Ok(()),
        }
    }

    pub(super) fn noticed(&mut self, allocation: AllocationId) {
        let Some(Node { job, .. }) = self.nodes.get(&allocation).copied() else { return };
        let Some(job) = self.jobs.get_mut(job) else { return };
        self.outcome.sums(job.want).notices += 1;
        if job.want.would_stay() {
            self.worried.push(allocation);
        }
    }

    pub(super) fn node_ended(&mut self, at: Micros, allocation: AllocationId) {
        let Some(node) = self.nodes.remove(&allocation) else { return };
        if let Some(ready) = node.ready {
            self.go_back(node.job, at.since(ready));
            self.works(at, node.job, -1);
        }
        let Some(job) = self.jobs.get_mut(node.job) else { return };
        job.held -= 1;
        self.outcome.sums(job.want).interruptions += 1;
        if job.held == 0 && !job.searching {
            self.bid_is_over(node.job);
        }
    }

    /// Takes back the work that a lost node did since its last checkpoint.
    fn go_back(&mut self, id: JobId, ran: Micros) {
        let between = self.settings.jobs.checkpoint_minutes * 60_000_000;
        let Some(job) = self.jobs.get_mut(id).filter(|_| between > 0) else { return };
        let lost = ran.0 % between;
        job.left += lost;
        self.outcome.sums(job.want).lost_us += u128::from(lost);
    }

    pub(super) fn bid_closed(&mut self, bid: BidId) {
        let Some(id) = self.jobs.of(bid) else { return };
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.searching = false;
        if job.held == 0 {
            self.bid_is_over(id);
        }
    }

    /// Ends a bid that holds and seeks nothing: a sniper looks again later, the others give up.
    fn bid_is_over(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.want.kind != Kind::Sniper {
            return self.give_up(id);
        }
        let bid = job.bid.take().expect("it had a bid");
        self.jobs.by_bid.remove(&bid);
        self.agenda.plan(self.now.after(LOOK), Due::Think(id));
    }

    fn give_up(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(id) {
            let sums = self.outcome.sums(job.want);
            sums.given_up += 1;
            sums.finished_us -= u128::from(job.left);
            sums.waited_us += u128::from(self.now.since(job.since).0);
        }
    }

    /// Counts the work up to `at`, and plans when it will be done if nothing changes.
    pub(super) fn works(&mut self, at: Micros, id: JobId, more: i32) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let passed = at.since(job.since).0;
        job.left = job.left_at(at);
        job.since = at;
        if job.working == 0 {
            self.outcome.sums(job.want).waited_us += u128::from(passed);
        }
        job.working = job.working.saturating_add_signed(more);
        if job.want.kind == Kind::Urgent {
            return;
        }
        job.due = (job.working > 0).then(|| at.after(Micros(job.left.div_ceil(u64::from(job.working)))));
        if let Some(due) = job.due {
            self.agenda.plan(due, Due::Done(id));
        }
    }

    /// Moves the clock when a bid expires, so that its job learns of it at that instant.
    pub(super) fn expiry(&mut self, id: JobId) -> Result<(), WorldError> {
        if self.jobs.get_mut(id).is_some() { self.send(Command::AdvanceTime).map(|_| ()) } else { Ok(()) }
    }

    pub(super) fn done(&mut self, id: JobId) -> Result<(), WorldError> {
        let now = self.now;
        if self.jobs.get_mut(id).is_none_or(|job| job.due != Some(now)) {
            return Ok(());
        }
        let Some(job) = self.jobs.remove(id) else { return Ok(()) };
        let sums = self.outcome.sums(job.want);
        sums.done += 1;
        sums.late += u64::from(now > job.deadline);
        sums.turnaround_us += u128::from(now.since(job.want.submitted).0);
        match job.bid {
            Some(bid) if job.searching || job.held > 0 => {
                let mode = CancelMode::Release;
                self.send(Command::CancelBid { tenant: job.account, bid, mode }).map(|_| ())
            }
            Some(_) | None => Ok(()),
        }
    }
}
