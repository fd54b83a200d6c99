-- All allocations, as they are at the watermark; ended ones as they were.
CREATE TABLE allocations (
    allocation        INTEGER PRIMARY KEY,
    bid               INTEGER NOT NULL,
    tenant            TEXT    NOT NULL,
    unit              TEXT    NOT NULL,
    market            TEXT    NOT NULL,
    provider          TEXT    NOT NULL,
    state             TEXT    NOT NULL, -- STARTING, ACTIVE, ENDED
    allocated_at      INTEGER NOT NULL,
    start_by          INTEGER NOT NULL,
    ready_at          INTEGER,
    protected_until   INTEGER NOT NULL,
    notice_reason     TEXT,             -- of the notice it is under, or ended under
    notice_started_at INTEGER,
    notice_deadline   INTEGER,
    ended_at          INTEGER,
    end_reason        TEXT,
    last_price        INTEGER           -- what it was billed at the end
) STRICT;
CREATE INDEX allocations_by_tenant ON allocations (tenant, allocation);
CREATE INDEX allocations_by_provider ON allocations (provider, allocation);
CREATE INDEX allocations_by_bid ON allocations (bid, allocation);
CREATE INDEX allocations_by_unit ON allocations (unit, allocation);
CREATE INDEX allocations_by_market ON allocations (market, allocation);
CREATE INDEX allocations_live ON allocations (allocation) WHERE state <> 'ENDED';
