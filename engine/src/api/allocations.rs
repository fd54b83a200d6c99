//! GetAllocation, ListAllocations, ReportReady, ReleaseAllocation.
