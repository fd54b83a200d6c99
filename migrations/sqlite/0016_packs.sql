-- Events in packs, and bids as they were placed. What the projections know is made again from the journal.
DROP TABLE events;
DROP TABLE bids;
DROP TABLE bid_markets;
DELETE FROM allocations;
DELETE FROM offers;
DELETE FROM markets;
DELETE FROM price_changes;
DELETE FROM charges;
DELETE FROM charge_segments;
UPDATE projection SET watermark = 0;

-- All events, those of up to 64 commands that follow each other in a row: each in full, with whom it concerns.
-- Those that came with one transaction are a run of up to 64 packs; pack n of a run begins 64 n commands behind it.
CREATE TABLE event_packs (
    first_seq  INTEGER PRIMARY KEY, -- run + 64 n
    run        INTEGER NOT NULL,    -- seq of its first event
    last_at_us INTEGER NOT NULL,    -- of its last event; never falls
    body       BLOB    NOT NULL     -- the message Pack of engine/src/projections/packs.rs
) STRICT;
CREATE INDEX event_packs_by_time ON event_packs (last_at_us, first_seq);

-- In which packs of a run something occurs: bit n of packs is pack n. One row for all of a run.
CREATE TABLE account_runs (
    account TEXT    NOT NULL, -- as any party; '' are the events that concern everyone
    run     INTEGER NOT NULL,
    packs   INTEGER NOT NULL,
    placed  BLOB,             -- the bids that it placed in the run: PlacedBids of .../placed.rs
    PRIMARY KEY (account, run)
) STRICT;
CREATE TABLE market_runs (
    market TEXT    NOT NULL, -- also each one that a bid names, or the instance type that it names
    run    INTEGER NOT NULL,
    packs  INTEGER NOT NULL,
    PRIMARY KEY (market, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE kind_runs (
    kind  TEXT    NOT NULL, -- the field of kubebid.auction.v1.Event
    run   INTEGER NOT NULL,
    packs INTEGER NOT NULL,
    PRIMARY KEY (kind, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE bid_runs (
    bid    INTEGER NOT NULL, -- of any party; the number of a bid says where it was placed
    run    INTEGER NOT NULL,
    packs  INTEGER NOT NULL,
    state  BLOB,             -- what became of it: Touched of engine/src/projections/placed.rs
    closed INTEGER,          -- 1 where it closed in this run
    PRIMARY KEY (bid, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX bids_closed ON bid_runs (bid) WHERE closed = 1;
CREATE TABLE allocation_runs (
    allocation INTEGER NOT NULL,
    run        INTEGER NOT NULL,
    packs      INTEGER NOT NULL,
    PRIMARY KEY (allocation, run)
) STRICT, WITHOUT ROWID;

-- Until it ends, what changes about an allocation is in no index.
DROP INDEX allocations_live;
CREATE INDEX allocations_live ON allocations (allocation) WHERE ended_at IS NULL;
