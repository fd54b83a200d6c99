-- All bids, as they are at the watermark.
CREATE TABLE bids (
    bid           bigint           PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    market        text COLLATE "C",          -- the only one it names
    markets       text,                      -- JSON array in the tenant's order, where it names several
    instance_type text COLLATE "C",
    ceiling       bigint           NOT NULL, -- micro-dollars per node-hour, as are all prices
    min_nodes     bigint           NOT NULL,
    max_nodes     bigint           NOT NULL,
    tif           text             NOT NULL, -- GTC, GTT, IOC
    expire_at     bigint,                    -- microseconds since 1970, as are all times
    on_preemption text             NOT NULL, -- REQUEUE, CLOSE
    client_key    text,
    bid_seq       bigint           NOT NULL, -- its place among bids of the same ceiling
    placed_at     bigint           NOT NULL,
    state         text             NOT NULL, -- OPEN, CLOSED
    close_reason  text,
    closed_at     bigint,
    held          bigint           NOT NULL,
    under_notice  bigint           NOT NULL,
    claimed       bigint           NOT NULL,
    unmet         bigint           NOT NULL
) WITH (fillfactor = 85); -- what changes of a bid is in no index
CREATE INDEX bids_by_tenant ON bids (tenant, bid);
CREATE INDEX bids_by_type ON bids (instance_type, bid) WHERE instance_type IS NOT NULL;

-- The markets that bids name which name several.
CREATE TABLE bid_markets (
    market text COLLATE "C" NOT NULL,
    bid    bigint           NOT NULL,
    PRIMARY KEY (market, bid)
);
