-- Events in packs, and bids as they were placed. What the projections know is made again from the journal.
DROP TABLE events;
DROP TABLE bids;
DROP TABLE bid_markets;
TRUNCATE allocations, offers, markets, price_changes, charges, charge_segments;
UPDATE projection SET watermark = 0;

-- All events, those of up to 64 commands that follow each other in a row: each in full, with whom it concerns.
-- Those that came with one transaction are a run of up to 64 packs; pack n of a run begins 64 n commands behind it.
CREATE TABLE event_packs (
    first_seq  bigint PRIMARY KEY, -- run + 64 n
    run        bigint NOT NULL,    -- seq of its first event
    last_at_us bigint NOT NULL,    -- of its last event; never falls
    body       bytea  NOT NULL     -- the message Pack of engine/src/projections/packs.rs
);
ALTER TABLE event_packs ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX event_packs_by_time ON event_packs (last_at_us, first_seq);

-- In which packs of a run something occurs: bit n of packs is pack n. One row for all of a run.
CREATE TABLE account_runs (
    account text COLLATE "C" NOT NULL, -- as any party; '' are the events that concern everyone
    run     bigint           NOT NULL,
    packs   bigint           NOT NULL,
    placed  bytea,                     -- the bids that it placed in the run: PlacedBids of .../placed.rs
    PRIMARY KEY (account, run)
);
ALTER TABLE account_runs ALTER COLUMN placed SET STORAGE EXTERNAL;
CREATE TABLE market_runs (
    market text COLLATE "C" NOT NULL, -- also each one that a bid names, or the instance type that it names
    run    bigint           NOT NULL,
    packs  bigint           NOT NULL,
    PRIMARY KEY (market, run)
);
CREATE TABLE kind_runs (
    kind  text COLLATE "C" NOT NULL, -- the field of kubebid.auction.v1.Event
    run   bigint           NOT NULL,
    packs bigint           NOT NULL,
    PRIMARY KEY (kind, run)
);
CREATE TABLE bid_runs (
    bid    bigint NOT NULL, -- of any party; the number of a bid says where it was placed
    run    bigint NOT NULL,
    packs  bigint NOT NULL,
    state  bytea,           -- what became of it: Touched of engine/src/projections/placed.rs
    closed bigint,          -- 1 where it closed in this run
    PRIMARY KEY (bid, run)
);
CREATE INDEX bids_closed ON bid_runs (bid) WHERE closed = 1;
CREATE TABLE allocation_runs (
    allocation bigint NOT NULL,
    run        bigint NOT NULL,
    packs      bigint NOT NULL,
    PRIMARY KEY (allocation, run)
);

-- Until it ends, what changes about an allocation is in no index.
DROP INDEX allocations_live;
CREATE INDEX allocations_live ON allocations (allocation) WHERE ended_at IS NULL;
ALTER TABLE allocations SET (fillfactor = 85);
