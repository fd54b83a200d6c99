//! Commands about nodes: give one back (R14), report one ready (R15).

use crate::event::{EndReason, Fact};
use crate::exchange::Exchange;
use crate::state::Allocation;
use crate::state::timers::Due;
use crate::types::reject::Reject;
use crate::types::units::AllocationId;

impl Exchange {
    fn allocation_numbered(&self, id: AllocationId) -> Result<&Allocation, Reject> {
        if id.0 == 0 || id.0 > self.last_allocation {
            return Err(Reject::UnknownAllocation);
        }
        self.allocations.get(id).ok_or(Reject::Ended)
    }

    pub(crate) fn release_allocation(&mut self, id: AllocationId) -> Result<(), Reject> {
        if self.allocation_numbered(id)?.tenant != self.caller {
            return Err(Reject::NotYours);
        }

        self.end(id, EndReason::Released);
        Ok(())
    }

    /// Executes a ready report (R15). The first report counts. If `checked`, the sender must be the
    /// tenant or the provider.
    pub(crate) fn report_ready(&mut self, id: AllocationId, checked: bool) -> Result<(), Reject> {
        let allocation = self.allocation_numbered(id)?;
        if checked && self.caller != allocation.tenant && self.caller != allocation.unit.provider {
            return Err(Reject::NotYours);
        }
        if allocation.ready.is_some() {
            return Err(Reject::AlreadyReady);
        }

        let now = self.now;
        let min_runtime = self.market(allocation.unit.market).rules.min_runtime;
        let allocation = self.allocation_mut(id);
        allocation.ready = Some(now);
        allocation.protected_until = now.after(min_runtime);
        let protected_until = allocation.protected_until;
        self.timers.set(protected_until, Due::ProtectionEnds(id));
        self.start_meter(id);
        self.emit(Fact::Ready { node: self.node(id) });
        self.reindex_allocation(id);
        Ok(())
    }
}
