//! An exchange in this process with a journal, which crashes again and again: records and snapshots must bring back the
//! same market.

use super::{InProcess, Venue, VenueError};
use kubebid_core::numbers::Supply;
use kubebid_core::units::{AllocationId, MarketId, Names};
use kubebid_core::{Answer, Auction, Exchange, Price, StampedCommand};
use std::num::NonZeroU64;

/// An exchange in this process that is lost and recovered from its journal.
#[derive(Debug)]
pub struct JournaledVenue {
    venue: InProcess,
    /// Number of commands from one loss to the next.
    every: NonZeroU64,
    snapshot: Vec<u8>,
    /// Records since the snapshot, and below the end of each.
    journal: Vec<u8>,
    ends: Vec<usize>,
    losses: u64,
}

impl JournaledVenue {
    /// Makes a venue with an empty exchange, which is lost after every `every` commands.
    pub fn new(every: NonZeroU64) -> JournaledVenue {
        let snapshot = Exchange::new().snapshot();
        let (journal, ends) = (Vec::new(), Vec::new());
        JournaledVenue { venue: InProcess::new(), every, snapshot, journal, ends, losses: 0 }
    }

    /// Drops the exchange and recovers it from the snapshot and the records after it. Every other time it
    /// takes a snapshot, so that recovery also needs several rounds of records.
    fn lose(&mut self) -> Result<(), VenueError> {
        let fault = |what: &str| VenueError(format!("recovering from the journal: {what}"));
        let before = self.venue.exchange.state_hash();
        let mut recovered = Exchange::restore(&self.snapshot).map_err(|error| fault(&error.to_string()))?;
        let mut begin = 0;
        for end in &self.ends {
            let record = StampedCommand::decode(&self.journal[begin..*end]);
            let _ = recovered.apply(&record.map_err(|error| fault(&error.to_string()))?);
            begin = *end;
        }
        if recovered.state_hash() != before {
            return Err(fault("the market is not what it was"));
        }
        self.losses += 1;
        if self.losses.is_multiple_of(2) {
            self.snapshot = recovered.snapshot();
            self.journal.clear();
            self.ends.clear();
        }
        self.venue.exchange = recovered;
        Ok(())
    }
}

impl Venue for JournaledVenue {
    fn apply(&mut self, command: &StampedCommand) -> Result<Answer, VenueError> {
        command.encode(&mut self.journal);
        self.ends.push(self.journal.len());
        let answer = self.venue.apply(command)?;
        if answer.seq.0.is_multiple_of(self.every.get()) {
            self.lose()?;
        }
        Ok(answer)
    }

    fn names(&self) -> &Names {
        self.venue.names()
    }

    fn price_to_stay(&mut self, node: AllocationId) -> Result<Option<Price>, VenueError> {
        self.venue.price_to_stay(node)
    }

    fn supply(&mut self, market: MarketId) -> Result<Supply, VenueError> {
        self.venue.supply(market)
    }

    fn name(&self) -> String {
        format!("in process, lost and recovered every {} commands", self.every)
    }
}
