//! The invariants of funds (I24, I25, I27).

use super::{Verdict, require};
use crate::reservations::exact;
use crate::state::{Allocation, Model};
use kubebid_core::event::{Event, Fact};
use kubebid_core::units::{AccountId, AllocationId, Micros};
use std::collections::BTreeMap;

/// Checks that the reservations of a settled market cover what each node and claim can still cost (I24), and that only
/// funded accounts have any.
pub(super) fn check(model: &Model) -> Verdict {
    for (id, a) in &model.allocations {
        let tenant = model.bids[&a.bid].tenant;
        let funded = model.funded.contains_key(&tenant);
        require(funded == a.reservation.is_some(), || format!("I25: {id} of {tenant:?} reserves {a:?}"))?;
        model.reservation_covers(*id, a)?;
        let Some(claim) = a.claim() else { continue };
        let by = model.bids[&claim.bid].tenant;
        let funded = model.funded.get(&by);
        require(funded.is_some() == claim.span.is_some(), || format!("I25: the claim on {id} of {by:?}"))?;
        let (Some(funded), Some(span)) = (funded, claim.span) else { continue };
        let renewal = funded.renewal.ok_or_else(|| format!("R19: {by:?} has a claim, and no renewal"))?;
        let until_renewal = renewal.next.since(model.now);
        require(until_renewal <= span.renewal, || format!("I24: the claim on {id} has {span:?}"))?;
    }
    Ok(())
}

impl Model {
    /// Checks that a node can cost no more than it reserves, at its ceiling, until the latest deadline that it can get.
    fn reservation_covers(&self, id: AllocationId, a: &Allocation) -> Verdict {
        let Some(reservation) = a.reservation else { return Ok(()) };
        let renewal = self.funded[&self.bids[&a.bid].tenant].renewal;
        let renewal = renewal.ok_or_else(|| format!("R19: {id} has no renewal"))?;
        require(renewal.next > self.now, || format!("R19: {id} was not renewed"))?;
        let tail = reservation.span.tail;
        let own_deadline = a.notice.as_ref().map(|notice| notice.deadline);
        let latest = if reservation.unfunded {
            own_deadline.ok_or_else(|| format!("I27: {id} is unfunded, and not under notice"))?
        } else {
            let next = renewal.next.after(self.rules(a.unit.market).notice.min(tail));
            own_deadline.map_or(next, |own| own.min(next))
        };
        let run = a.ready.map_or(Micros(0), |ready| self.now.since(ready));
        let least = self.least_charge(a.unit, Some(reservation.span)).since(run);
        let ceiling = self.reserved_ceiling_of(a);
        let cost = exact(a.bill) + exact(ceiling.over(latest.since(self.now).max(least)));
        let reserved = self.reserved_by_node(a);
        require(cost <= reserved, || format!("I24: {id} can cost {cost}, and reserves {reserved}: {a:?}"))
    }
}

/// Checks that funds changed by what the events tell, and that no account is overspent but by a cut (I24, I25).
pub(super) fn check_step(before: &Model, events: &[Event], after: &Model) -> Verdict {
    let mut books: BTreeMap<AccountId, i128> =
        before.funded.iter().map(|(account, funded)| (*account, funded.funds)).collect();
    let mut given: Vec<AccountId> = Vec::new();
    for Event { fact, .. } in events {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these change funds")]
        match fact {
            Fact::Funded { account, funds } | Fact::BudgetSet { account, funds, .. } => {
                match funds {
                    Some(funds) => books.insert(*account, funds.0),
                    None => books.remove(account),
                };
                given.push(*account);
            }
            Fact::BudgetRenewed { account, funds } => {
                books.insert(*account, funds.0);
                given.push(*account);
            }
            Fact::Charged { tenant, debit, .. } => {
                if let Some(funds) = books.get_mut(tenant) {
                    *funds -= i128::try_from(debit.0).map_err(|error| error.to_string())?;
                }
            }
            _ => {}
        }
    }
    let funds: BTreeMap<AccountId, i128> =
        after.funded.iter().map(|(account, funded)| (*account, funded.funds)).collect();
    require(books == funds, || format!("I25: the events tell of {books:?}, and not of {funds:?}"))?;
    for account in after.funded.keys().filter(|account| !given.contains(account)) {
        let (was, is) = (before.available(*account), after.available(*account));
        let held = was.zip(is).is_some_and(|(was, is)| is >= was.min(0));
        require(held, || format!("I24: {account:?} had {was:?} available, and has {is:?}"))?;
    }
    Ok(())
}
