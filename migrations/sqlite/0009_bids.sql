-- All bids, as they are at the watermark.
CREATE TABLE bids (
    bid           INTEGER PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    market        TEXT,             -- the only one it names
    markets       TEXT,             -- JSON array in the tenant's order, where it names several
    instance_type TEXT,
    ceiling       INTEGER NOT NULL, -- micro-dollars per node-hour, as are all prices
    min_nodes     INTEGER NOT NULL,
    max_nodes     INTEGER NOT NULL,
    tif           TEXT    NOT NULL, -- GTC, GTT, IOC
    expire_at     INTEGER,          -- microseconds since 1970, as are all times
    on_preemption TEXT    NOT NULL, -- REQUEUE, CLOSE
    client_key    TEXT,
    bid_seq       INTEGER NOT NULL, -- its place among bids of the same ceiling
    placed_at     INTEGER NOT NULL,
    state         TEXT    NOT NULL, -- OPEN, CLOSED
    close_reason  TEXT,
    closed_at     INTEGER,
    held          INTEGER NOT NULL,
    under_notice  INTEGER NOT NULL,
    claimed       INTEGER NOT NULL,
    unmet         INTEGER NOT NULL
) STRICT;
CREATE INDEX bids_by_tenant ON bids (tenant, bid);
CREATE INDEX bids_by_type ON bids (instance_type, bid) WHERE instance_type IS NOT NULL;

-- The markets that bids name which name several.
CREATE TABLE bid_markets (
    market TEXT    NOT NULL,
    bid    INTEGER NOT NULL,
    PRIMARY KEY (market, bid)
) STRICT, WITHOUT ROWID;
