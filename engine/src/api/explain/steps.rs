//! Writes one sentence for each event, and names its rule. A sentence uses only the event as the caller
//! sees it, so it cannot reveal more.

use super::words::{REGROUPED, dollars, instant, nodes};
use kubebid_proto::v1;
use v1::event::Kind;
use v1::event::{claim_dropped, claimed};
use v1::{allocation::EndReason, bid::CloseReason, notice::Reason as NoticeReason};

/// The bid or node that is explained, and what was known of it before an event.
#[derive(Debug, Default)]
pub(super) struct Subject {
    /// The bid that is explained, or the bid of the node that is explained. None for a provider.
    pub(super) bid: Option<u64>,
    /// The unit that the bid had a claim on last.
    claimed_unit: Option<String>,
    /// The unit of a claim that the bid has just been charged for. The event that drops the claim comes next.
    charged_claim: Option<String>,
    /// The bid's ceiling.
    ceiling: Option<u64>,
}

impl Subject {
    pub(super) fn of(bid: Option<u64>) -> Subject {
        Subject { bid, ..Subject::default() }
    }

    /// Returns the step that explains an event, or None if the event explains nothing. Events come
    /// oldest first.
    pub(super) fn step(&mut self, event: v1::Event) -> Option<v1::explain_response::Step> {
        let (rule, text) = self.sentence(event.kind.as_ref()?)?;
        Some(v1::explain_response::Step {
            seq: event.seq,
            at_us: event.at_us,
            rule: rule.to_owned(),
            text,
            event: Some(event),
        })
    }

    fn sentence(&mut self, kind: &Kind) -> Option<(&'static str, String)> {
        Some(match kind {
            Kind::BidPlaced(of) => {
                self.ceiling = Some(of.ceiling_micros);
                let least = if of.min_nodes > 1 {
                    format!(", {} at once or none", of.min_nodes)
                } else {
                    String::new()
                };
                let wanted = nodes(of.max_nodes.into());
                let ceiling = dollars(of.ceiling_micros);
                let place = "and took its place among those of the same ceiling";
                (
                    "R2",
                    format!(
                        "Bid {} was placed for {wanted}{least}, with a ceiling of {ceiling} per node-hour, {place}.",
                        of.bid
                    ),
                )
            }
            Kind::BidAmended(of) => {
                self.ceiling = Some(of.ceiling_micros);
                let (wanted, ceiling) = (nodes(of.max_nodes.into()), dollars(of.ceiling_micros));
                (
                    "R2",
                    format!(
                        "Bid {} was amended: it wants {wanted} in all, with a ceiling of {ceiling}.",
                        of.bid
                    ),
                )
            }
            Kind::BidClosed(of) => {
                let why = match of.reason() {
                    CloseReason::Expired => "its time has come",
                    CloseReason::Ioc => "what it could not get at once it did not want",
                    CloseReason::Cancelled => "its tenant cancelled it",
                    CloseReason::Done => "it wants no more nodes",
                    CloseReason::MarketClosed => "every market that it names has ended",
                    CloseReason::Unspecified => return None,
                };
                let rule = if of.reason() == CloseReason::MarketClosed { "R18" } else { "R14" };
                (rule, format!("Bid {} stopped searching: {why}.", of.bid))
            }
            Kind::Allocated(of) => {
                let claimed = self.claimed_unit.take_if(|unit| *unit == of.unit).is_some();
                if claimed {
                    (
                        "R5",
                        format!(
                            "Node {} was handed over: the notice on {} ended, and the claim on it became an allocation.",
                            of.allocation, of.unit
                        ),
                    )
                } else {
                    (
                        "R3",
                        format!(
                            "Node {} was allocated: {} was free, and the cheapest that could be had.",
                            of.allocation, of.unit
                        ),
                    )
                }
            }
            Kind::Ready(of) => (
                "R4",
                format!(
                    "Node {} was reported ready: billing began, and it is protected for the market's minimum runtime.",
                    of.allocation
                ),
            ),
            Kind::NoticeStarted(of) => self.notice(of)?,
            Kind::NoticeRescinded(of) => (
                "R6",
                format!(
                    "The notice on node {} was taken back: nobody who could have displaced it wants it any more.",
                    of.allocation
                ),
            ),
            Kind::NoticeMoved(of) => {
                ("R19", format!("The deadline of node {} became {}.", of.allocation, instant(of.deadline_us)))
            }
            Kind::Claimed(of) => self.claimed(of)?,
            Kind::ClaimDropped(of) => self.claim_dropped(of)?,
            Kind::Ended(of) => {
                let (rule, why) = match of.reason() {
                    EndReason::Outbid => ("R5", "its notice was over, and a higher bid has the unit"),
                    EndReason::CapacityWithdrawn => {
                        ("R11", "its notice was over, and the provider takes the unit back")
                    }
                    EndReason::ReserveRaised => {
                        ("R11", "its notice was over, and the provider asks for more than the ceiling")
                    }
                    EndReason::Released => ("R14", "its tenant gave it back"),
                    EndReason::Regrouped => ("R14", REGROUPED),
                    EndReason::UnitLost => ("R11", "the provider lost the unit"),
                    EndReason::StartTimeout => ("R11", "nobody reported it ready in time"),
                    EndReason::Funds => {
                        ("R19", "its notice was over, and its account could not pay for longer")
                    }
                    EndReason::Other => ("R5", "its notice was over"),
                    EndReason::Unspecified => return None,
                };
                (rule, format!("Node {} ended: {why}.", of.allocation))
            }
            Kind::Charged(of) => {
                let charge = of.reason();
                let is_claim = charge == v1::charge::Reason::ClaimDropped;
                if is_claim && of.bid.is_some() && of.bid == self.bid {
                    self.charged_claim = Some(of.unit.clone());
                }
                let what = match of.allocation {
                    _ if is_claim => format!("the claim on {}, the market's minimum charge", of.unit),
                    Some(allocation) if charge == v1::charge::Reason::Regrouped => {
                        format!("node {allocation}, as for a release")
                    }
                    Some(allocation) => format!("node {allocation}"),
                    None => of.unit.clone(),
                };
                ("R15", format!("{} was charged for {what}.", dollars(of.debit_micros)))
            }
            Kind::UnitLeaving(of) => ("R11", format!("{} is to leave.", of.unit)),
            Kind::UnitBack(of) => ("R11", format!("{} stays after all.", of.unit)),
            Kind::UnitResting(of) => {
                ("R11", format!("{} rests: no bid gets it until its provider resumes it.", of.unit))
            }
            Kind::UnitResumed(of) => {
                ("R11", format!("{} was resumed by its provider, and is free.", of.unit))
            }
            Kind::UnitRemoved(of) => ("R11", format!("{} is gone.", of.unit)),
            Kind::MarketOpened(_)
            | Kind::RulesChanged(_)
            | Kind::MarketClosing(_)
            | Kind::MarketEnded(_)
            | Kind::OfferPut(_)
            | Kind::UnitAdded(_)
            | Kind::PriceChanged(_)
            | Kind::Funded(_)
            | Kind::BudgetSet(_)
            | Kind::BudgetRenewed(_)
            | Kind::RenewalSet(_)
            | Kind::Rejected(_)
            | Kind::Repeated(_) => return None,
        })
    }

    fn notice(&self, of: &v1::event::NoticeStarted) -> Option<(&'static str, String)> {
        let (rule, why) = match of.reason() {
            NoticeReason::Outbid => {
                let own = self
                    .ceiling
                    .filter(|_| self.bid.is_some())
                    .map(|ceiling| format!(", {}", dollars(ceiling)));
                let own = own.unwrap_or_default();
                (
                    "R4",
                    format!(
                        "another bid's ceiling was above the lowest of the market's nodes{own}, by the increment at least, and this was the newest unprotected node at it"
                    ),
                )
            }
            NoticeReason::CapacityWithdrawn => ("R11", "the provider lowered its capacity".to_owned()),
            NoticeReason::ReserveRaised => {
                ("R11", "the provider raised its reserve above the ceiling".to_owned())
            }
            NoticeReason::Funds => ("R19", "the account cannot pay for longer".to_owned()),
            NoticeReason::Other => ("R5", "its tenant has to give it up".to_owned()),
            NoticeReason::Unspecified => return None,
        };
        let deadline = instant(of.deadline_us);
        Some((rule, format!("Node {} was given notice until {deadline}: {why}.", of.allocation)))
    }

    fn claimed(&mut self, of: &v1::event::Claimed) -> Option<(&'static str, String)> {
        let ours = of.bid.is_some() && of.bid == self.bid;
        let lost = of.was.is_some() && of.was == self.bid;
        let unit = &of.unit;
        if ours {
            self.claimed_unit = Some(unit.clone());
        }
        Some(match of.cause() {
            _ if lost => {
                ("R4", format!("A bid with a ceiling higher by the increment took over the claim on {unit}."))
            }
            claimed::Cause::Displaced if ours => {
                ("R4", format!("It displaced the node on {unit}, and has it when the notice ends."))
            }
            claimed::Cause::ClaimDisplaced if ours => {
                ("R4", format!("It took over the claim on {unit} from a lower bid."))
            }
            claimed::Cause::Standing if ours => {
                ("R6", format!("It claimed {unit}, which is under notice and which nobody else had claimed."))
            }
            claimed::Cause::PassedOn if ours => {
                ("R6", format!("The claim on {unit} was given up by another and passed on to it."))
            }
            claimed::Cause::Unspecified => return None,
            claimed::Cause::Displaced
            | claimed::Cause::ClaimDisplaced
            | claimed::Cause::Standing
            | claimed::Cause::PassedOn => ("R5", format!("{unit} was earmarked for another bid.")),
        })
    }

    fn claim_dropped(&mut self, of: &v1::event::ClaimDropped) -> Option<(&'static str, String)> {
        use claim_dropped::Cause;
        let ours = of.bid.is_some() && of.bid == self.bid;
        if ours {
            self.claimed_unit.take_if(|unit| *unit == of.unit);
        }
        let is_charged = ours && self.charged_claim.take_if(|unit| *unit == of.unit).is_some();
        let (rule, why) = match of.cause() {
            Cause::Rescued if is_charged => (
                "R6",
                "the bid took a free unit of another provider in its place, or has a node of its own back",
            ),
            Cause::Rescued => ("R6", "the bid found a free unit, or has a node of its own back"),
            Cause::HolderBack => ("R4", "the holder of the unit displaced it"),
            Cause::HolderRaised => ("R6", "the holder's ceiling is too high for it"),
            Cause::Lowered => ("R2", "the bid's ceiling is too low for it"),
            Cause::Shrunk => ("R2", "the bid wants fewer nodes"),
            Cause::Cancelled => ("R14", "the bid was cancelled"),
            Cause::Regrouped => ("R14", "its tenant regrouped the bid"),
            Cause::Expired => ("R14", "the bid expired"),
            Cause::OwnSupply => ("R17", "the bid's account began to sell in the market"),
            Cause::ReserveRaised => ("R11", "the unit's reserve is above the bid's ceiling"),
            Cause::CapacityWithdrawn => ("R11", "the unit leaves"),
            Cause::UnitLost => ("R11", "the unit was lost"),
            Cause::StartTimeout => ("R11", "the node on it was not ready in time"),
            Cause::Unspecified => return None,
        };
        // Only the party itself may know why it gave up or lost its claim.
        let text = if is_charged {
            format!("The claim on {} was given up, which is not free of charge (R15): {why}.", of.unit)
        } else if ours {
            format!("The claim on {} was lost: {why}.", of.unit)
        } else {
            format!("The claim of another bid on {} was dropped.", of.unit)
        };
        Some((rule, text))
    }
}
