//! Calls of providers: put an offer, withdraw a unit, report a unit lost, resume units that rest (R11).

use super::Api;
use crate::auth::caller::Caller;
use crate::wire::command;
use crate::wire::status::ApiError;
use kubebid_core::Command;
use kubebid_core::command::RestingUnits;
use kubebid_core::market_rules::OFFER_UNITS_MAX;
use kubebid_proto::v1;

impl Api {
    /// PutOffer: sets the capacity and the reserve of a provider's offer in a market (R11).
    pub async fn put_offer(
        &self,
        caller: &Caller,
        request: v1::PutOfferRequest,
    ) -> Result<v1::PutOfferResponse, ApiError> {
        let keyed = command::put_offer(&caller.account, &request)?;
        // One command after another, so that each is measured against the offer that the previous
        // one left.
        let alone = caller.session.limit_state.offering.clone().lock_owned().await;
        let cost = match self.cost_of_offer(caller, &keyed.command).await? {
            Ok(cost) => cost,
            Err(_) if self.repeats(caller, keyed.key.as_ref()).await? => 1,
            Err(limit) => return Err(limit),
        };
        // The request itself was already counted as one.
        caller.session.limit_state.requests.charge(cost - 1, self.limits_of(caller).requests());
        let done = self.execute_settling(caller, keyed, cost, move |_| drop(alone)).await?;
        Ok(v1::PutOfferResponse { seq: done.seq, repeated: done.repeated })
    }

    /// Returns how many commands an offer counts as: the units that it adds or withdraws, or all its units if it changes
    /// the reserve or withdraws units that are held. Or returns the limit of the account that it exceeds.
    async fn cost_of_offer(
        &self,
        caller: &Caller,
        command: &Command,
    ) -> Result<Result<u64, ApiError>, ApiError> {
        let Command::PutOffer { provider, market, capacity, reserve } = command else { return Ok(Ok(1)) };
        // An offer that the market refuses anyway gets the market's refusal.
        if *capacity > OFFER_UNITS_MAX {
            return Ok(Ok(1));
        }
        let Some(view) = self.0.engine.views().markets().get(market) else { return Ok(Ok(1)) };
        let (provider, market) = (provider.clone(), view.market);
        let asked = self
            .0
            .engine
            .ask(move |exchange| (exchange.offer_of(market, &provider), exchange.units_offered(&provider)));
        let (offer, offered_in_all) = asked.await?;
        let limits = self.limits_of(caller);
        let offered = offer.as_ref().map_or(0, |offer| offer.capacity);
        let change = capacity.abs_diff(offered);
        if change > limits.units_per_command {
            let most = limits.units_per_command;
            let what = format!(
                "the offer would change by {change} units; one command may change {most}: put it in several steps"
            );
            return Ok(Err(ApiError::limit("units_per_command", what).at("capacity")));
        }
        let more = capacity.saturating_sub(offered);
        if more > 0 && offered_in_all + more > limits.units_offered {
            let most = limits.units_offered;
            let what = format!(
                "{offered_in_all} units are offered in all markets, and {more} more; the account's limit is {most}"
            );
            return Ok(Err(ApiError::limit("units_offered", what).at("capacity")));
        }
        let looks_at_all =
            offer.filter(|offer| offer.reserve != *reserve || offered - offer.free > *capacity);
        let looked_at = looks_at_all.map_or(0, |offer| offer.capacity + offer.leaving);
        Ok(Ok(change.max(looked_at).max(1)))
    }

    /// WithdrawUnit: withdraws one unit. Its holder gets a notice (R11).
    pub async fn withdraw_unit(
        &self,
        caller: &Caller,
        request: v1::WithdrawUnitRequest,
    ) -> Result<v1::WithdrawUnitResponse, ApiError> {
        let done = self.execute(caller, command::withdraw_unit(&caller.account, &request)?).await?;
        Ok(v1::WithdrawUnitResponse { seq: done.seq, repeated: done.repeated })
    }

    /// ReportUnitLost: reports that a unit no longer exists. Its allocation ends at once (R11).
    pub async fn report_unit_lost(
        &self,
        caller: &Caller,
        request: v1::ReportUnitLostRequest,
    ) -> Result<v1::ReportUnitLostResponse, ApiError> {
        let done = self.execute(caller, command::report_unit_lost(&caller.account, &request)?).await?;
        Ok(v1::ReportUnitLostResponse { seq: done.seq, repeated: done.repeated })
    }

    /// ResumeUnits: makes one resting unit free again, or all of a market (R11).
    pub async fn resume_units(
        &self,
        caller: &Caller,
        request: v1::ResumeUnitsRequest,
    ) -> Result<v1::ResumeUnitsResponse, ApiError> {
        let keyed = command::resume_units(&caller.account, &request)?;
        let cost = match self.cost_of_resuming(caller, &keyed.command).await? {
            Ok(cost) => cost,
            Err(_) if self.repeats(caller, keyed.key.as_ref()).await? => 1,
            Err(limit) => return Err(limit),
        };
        // The request itself was already counted as one.
        caller.session.limit_state.requests.charge(cost - 1, self.limits_of(caller).requests());
        let done = self.execute_settling(caller, keyed, cost, |_| ()).await?;
        Ok(v1::ResumeUnitsResponse { seq: done.seq, repeated: done.repeated })
    }

    /// Returns how many commands a resumption counts as: the units that it resumes. Or returns the limit of the account
    /// that it exceeds.
    async fn cost_of_resuming(
        &self,
        caller: &Caller,
        command: &Command,
    ) -> Result<Result<u64, ApiError>, ApiError> {
        let Command::ResumeUnits { provider, units: RestingUnits::AllIn(market) } = command else {
            return Ok(Ok(1));
        };
        let Some(view) = self.0.engine.views().markets().get(market) else { return Ok(Ok(1)) };
        let (provider, market) = (provider.clone(), view.market);
        let offer = self.0.engine.ask(move |exchange| exchange.offer_of(market, &provider)).await?;
        let resting = offer.map_or(0, |offer| offer.resting);
        let most = self.limits_of(caller).units_per_command;
        if resting > most {
            let what = format!("{resting} units rest; one command may change {most}: resume them by name");
            return Ok(Err(ApiError::limit("units_per_command", what).at("market")));
        }
        Ok(Ok(resting.max(1)))
    }
}
