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
CREATE TABLE events_by_account (
    account text COLLATE "C" NOT NULL, -- as any party; '' are the events that concern everyone
    run     bigint           NOT NULL,
    packs   bigint           NOT NULL,
    PRIMARY KEY (account, run)
);
CREATE TABLE events_by_market (
    market text COLLATE "C" NOT NULL, -- also each one that a bid names, or the instance type that it names
    run    bigint           NOT NULL,
    packs  bigint           NOT NULL,
    PRIMARY KEY (market, run)
);
CREATE TABLE events_by_kind (
    kind  text COLLATE "C" NOT NULL, -- the field of kubebid.auction.v1.Event
    run   bigint           NOT NULL,
    packs bigint           NOT NULL,
    PRIMARY KEY (kind, run)
);
CREATE TABLE events_by_bid (
    bid   bigint NOT NULL, -- of any party; the number of a bid says where it was placed
    run   bigint NOT NULL,
    packs bigint NOT NULL,
    PRIMARY KEY (bid, run)
);
CREATE TABLE events_by_allocation (
    allocation bigint NOT NULL,
    run        bigint NOT NULL,
    packs      bigint NOT NULL,
    PRIMARY KEY (allocation, run)
);

-- The bids that a tenant placed in a run, as they were behind it.
CREATE TABLE placed_bids (
    tenant text COLLATE "C" NOT NULL,
    run    bigint           NOT NULL,
    body   bytea            NOT NULL, -- the message PlacedBids of engine/src/projections/placed.rs
    PRIMARY KEY (tenant, run)
);
ALTER TABLE placed_bids ALTER COLUMN body SET STORAGE EXTERNAL;

-- What has changed about bids since, as they are at the watermark.
CREATE TABLE bid_states (
    bid          bigint PRIMARY KEY,
    ceiling      bigint NOT NULL, -- micro-dollars per node-hour
    max_nodes    bigint NOT NULL,
    bid_seq      bigint NOT NULL, -- its place among bids of the same ceiling
    state        text   NOT NULL, -- OPEN, CLOSED
    close_reason text,            -- where it closed since
    closed_at    bigint,          -- microseconds since 1970
    held         bigint NOT NULL,
    under_notice bigint NOT NULL,
    claimed      bigint NOT NULL,
    unmet        bigint NOT NULL
) WITH (fillfactor = 85); -- what changes is in no index

-- Until it ends, what changes about an allocation is in no index.
DROP INDEX allocations_live;
CREATE INDEX allocations_live ON allocations (allocation) WHERE ended_at IS NULL;
ALTER TABLE allocations SET (fillfactor = 85);
