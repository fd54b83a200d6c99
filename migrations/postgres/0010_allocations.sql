-- All allocations, as they are at the watermark; ended ones as they were.
CREATE TABLE allocations (
    allocation        bigint           PRIMARY KEY,
    bid               bigint           NOT NULL,
    tenant            text COLLATE "C" NOT NULL,
    unit              text COLLATE "C" NOT NULL,
    market            text COLLATE "C" NOT NULL,
    provider          text COLLATE "C" NOT NULL,
    state             text             NOT NULL, -- STARTING, ACTIVE, ENDED
    allocated_at      bigint           NOT NULL,
    start_by          bigint           NOT NULL,
    ready_at          bigint,
    protected_until   bigint           NOT NULL,
    notice_reason     text,                      -- of the notice it is under, or ended under
    notice_started_at bigint,
    notice_deadline   bigint,
    ended_at          bigint,
    end_reason        text,
    last_price        bigint                     -- what it was billed at the end
);
CREATE INDEX allocations_by_tenant ON allocations (tenant, allocation);
CREATE INDEX allocations_by_provider ON allocations (provider, allocation);
CREATE INDEX allocations_by_bid ON allocations (bid, allocation);
CREATE INDEX allocations_by_unit ON allocations (unit, allocation);
CREATE INDEX allocations_by_market ON allocations (market, allocation);
CREATE INDEX allocations_live ON allocations (allocation) WHERE state <> 'ENDED';
