-- All events, with whom they concern and as what.
CREATE TABLE events (
    seq           INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    at_us         INTEGER NOT NULL, -- never falls in the order of (seq, idx)
    kind          TEXT    NOT NULL, -- the field of kubebid.auction.v1.Event
    market        TEXT,             -- of the unit or the offer, or the only one that the bid names
    unit          TEXT,
    allocation    INTEGER,
    bid           INTEGER,          -- of the holder, or the one that the event is about
    tenant        TEXT,
    claim_bid     INTEGER,          -- that has, had or pays for a claim
    claim_tenant  TEXT,
    former_bid    INTEGER,          -- that had the claim before
    former_tenant TEXT,
    provider      TEXT,
    account       TEXT,             -- that gave the command, of refusals and repetitions
    body          BLOB    NOT NULL, -- kubebid.auction.v1.Event, in full
    PRIMARY KEY (seq, idx)
) STRICT;
-- Bids and nodes are found by whom they concern.
CREATE INDEX events_of_markets ON events (market, seq, idx) WHERE market IS NOT NULL AND tenant IS NULL;
CREATE INDEX events_of_several_markets ON events (seq, idx) WHERE market IS NULL AND bid IS NOT NULL;
CREATE INDEX events_by_allocation ON events (allocation, seq, idx) WHERE allocation IS NOT NULL;
-- The number of a bid says where it was placed.
CREATE INDEX events_by_bid ON events (bid, seq, idx) WHERE bid IS NOT NULL AND kind <> 'bid_placed';
CREATE INDEX events_by_tenant ON events (tenant, seq, idx) WHERE tenant IS NOT NULL;
CREATE INDEX events_by_claim_bid ON events (claim_bid, seq, idx) WHERE claim_bid IS NOT NULL;
CREATE INDEX events_by_claim_tenant ON events (claim_tenant, seq, idx) WHERE claim_tenant IS NOT NULL;
CREATE INDEX events_by_former_bid ON events (former_bid, seq, idx) WHERE former_bid IS NOT NULL;
CREATE INDEX events_by_former_tenant ON events (former_tenant, seq, idx) WHERE former_tenant IS NOT NULL;
CREATE INDEX events_by_provider ON events (provider, seq, idx) WHERE provider IS NOT NULL;
CREATE INDEX events_by_account ON events (account, seq, idx) WHERE account IS NOT NULL;
