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
CREATE TABLE events_by_account (
    account TEXT    NOT NULL, -- as any party; '' are the events that concern everyone
    run     INTEGER NOT NULL,
    packs   INTEGER NOT NULL,
    PRIMARY KEY (account, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE events_by_market (
    market TEXT    NOT NULL, -- also each one that a bid names, or the instance type that it names
    run    INTEGER NOT NULL,
    packs  INTEGER NOT NULL,
    PRIMARY KEY (market, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE events_by_kind (
    kind  TEXT    NOT NULL, -- the field of kubebid.auction.v1.Event
    run   INTEGER NOT NULL,
    packs INTEGER NOT NULL,
    PRIMARY KEY (kind, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE events_by_bid (
    bid   INTEGER NOT NULL, -- of any party; the number of a bid says where it was placed
    run   INTEGER NOT NULL,
    packs INTEGER NOT NULL,
    PRIMARY KEY (bid, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE events_by_allocation (
    allocation INTEGER NOT NULL,
    run        INTEGER NOT NULL,
    packs      INTEGER NOT NULL,
    PRIMARY KEY (allocation, run)
) STRICT, WITHOUT ROWID;

-- The bids that a tenant placed in a run, as they were behind it.
CREATE TABLE placed_bids (
    tenant TEXT    NOT NULL,
    run    INTEGER NOT NULL,
    body   BLOB    NOT NULL, -- the message PlacedBids of engine/src/projections/placed.rs
    PRIMARY KEY (tenant, run)
) STRICT;

-- What has changed about bids since, as they are at the watermark.
CREATE TABLE bid_states (
    bid          INTEGER PRIMARY KEY,
    ceiling      INTEGER NOT NULL, -- micro-dollars per node-hour
    max_nodes    INTEGER NOT NULL,
    bid_seq      INTEGER NOT NULL, -- its place among bids of the same ceiling
    state        TEXT    NOT NULL, -- OPEN, CLOSED
    close_reason TEXT,             -- where it closed since
    closed_at    INTEGER,          -- microseconds since 1970
    held         INTEGER NOT NULL,
    under_notice INTEGER NOT NULL,
    claimed      INTEGER NOT NULL,
    unmet        INTEGER NOT NULL
) STRICT;

-- Until it ends, what changes about an allocation is in no index.
DROP INDEX allocations_live;
CREATE INDEX allocations_live ON allocations (allocation) WHERE ended_at IS NULL;
