-- The read model as plain relational tables. They are made from the journal and can be made again at any time, so
-- their rows are dropped here and written anew when an engine starts, or by `kubebid projections rebuild`.
DROP TABLE event_packs;
DROP TABLE account_runs;
DROP TABLE market_runs;
DROP TABLE kind_runs;
DROP TABLE bid_runs;
DROP TABLE allocation_runs;
DROP TABLE allocations;
DROP TABLE offers;
DROP TABLE markets;
DROP TABLE price_changes;
DROP TABLE charges;
DROP TABLE charge_segments;
UPDATE projection SET watermark = 0;
-- Events of earlier commands than this seq may have been dropped (--keep-events).
ALTER TABLE projection ADD COLUMN first_event INTEGER NOT NULL DEFAULT 1;
-- Changes of prices before this time were dropped (--keep-prices), in microseconds since 1970.
ALTER TABLE projection ADD COLUMN prices_from INTEGER NOT NULL DEFAULT 0;

-- Times are microseconds since 1970. Prices are micro-dollars per node-hour, amounts micro-dollars.

-- All bids, with their state at the watermark. A closed bid may still hold nodes.
CREATE TABLE bids (
    bid            INTEGER NOT NULL, -- Number of the bid: the seq of the command that placed it.
    tenant         TEXT    NOT NULL, -- Account that placed the bid and pays for its nodes.
    markets        TEXT,             -- JSON array of the markets that the bid names, in the tenant's order. NULL if it names an instance type.
    instance_type  TEXT,             -- Instance type that the bid names: it looks in every market of this type.
    ceiling_micros INTEGER NOT NULL, -- Highest price that the tenant accepts, in micro-dollars per node-hour.
    min_nodes      INTEGER NOT NULL, -- At entry the bid takes at least this many nodes at once, or none.
    max_nodes      INTEGER NOT NULL, -- The bid takes at most this many nodes.
    time_in_force  TEXT    NOT NULL, -- GTC, GTT or IOC.
    expire_at      INTEGER,          -- Time at which a GTT bid closes.
    on_preemption  TEXT    NOT NULL, -- REQUEUE or CLOSE.
    client_key     TEXT,             -- Idempotency key of the request that placed the bid.
    bid_seq        INTEGER NOT NULL, -- Time priority among bids of the same ceiling: the lower one is first.
    placed_at      INTEGER NOT NULL, -- Time at which the bid was placed.
    state          TEXT    NOT NULL, -- OPEN or CLOSED.
    close_reason   TEXT,             -- EXPIRED, IOC, CANCELLED, DONE and so on. NULL while the bid is open.
    closed_at      INTEGER,          -- Time at which the bid closed. NULL while it is open.
    held           INTEGER NOT NULL, -- Nodes that the bid holds without a notice.
    under_notice   INTEGER NOT NULL, -- Nodes that the bid holds under notice.
    claimed        INTEGER NOT NULL, -- Nodes of others, under notice, that the bid has a claim on.
    unmet          INTEGER NOT NULL, -- Nodes that the bid still looks for.
    PRIMARY KEY (bid)
) STRICT;
CREATE INDEX bids_by_tenant ON bids (tenant, bid);

-- All allocations, with their state at the watermark. An allocation that ended keeps its last state.
CREATE TABLE allocations (
    allocation        INTEGER NOT NULL, -- Number of the allocation.
    bid               INTEGER NOT NULL, -- Bid that holds the node.
    tenant            TEXT    NOT NULL, -- Account of that bid.
    unit              TEXT    NOT NULL, -- Name of the unit: provider, market and number.
    market            TEXT    NOT NULL, -- Market of the unit.
    provider          TEXT    NOT NULL, -- Provider of the unit.
    state             TEXT    NOT NULL, -- STARTING, ACTIVE or ENDED.
    allocated_at      INTEGER NOT NULL, -- Time at which the bid got the node.
    start_by          INTEGER NOT NULL, -- Time by which the node must be reported ready.
    ready_at          INTEGER,          -- Time at which the node was reported ready: billing begins.
    protected_until   INTEGER NOT NULL, -- End of the minimum runtime, during which the node is not pre-empted.
    notice_reason     TEXT,             -- OUTBID, CAPACITY_WITHDRAWN or RESERVE_RAISED: why the node is, or ended, under notice.
    notice_started_at INTEGER,          -- Time at which the notice was given.
    notice_deadline   INTEGER,          -- Time at which the node is taken away at the latest.
    ended_at          INTEGER,          -- Time at which the allocation ended. NULL until then.
    end_reason        TEXT,             -- Why the allocation ended.
    last_price_micros INTEGER,          -- Price at the end, in micro-dollars per node-hour. NULL until then.
    PRIMARY KEY (allocation)
) STRICT;
CREATE INDEX allocations_by_tenant ON allocations (tenant, allocation);
CREATE INDEX allocations_by_provider ON allocations (provider, allocation);
CREATE INDEX allocations_by_bid ON allocations (bid, allocation);
CREATE INDEX allocations_by_unit ON allocations (unit, allocation);
CREATE INDEX allocations_by_market ON allocations (market, allocation);
CREATE INDEX allocations_live ON allocations (allocation) WHERE ended_at IS NULL;

-- Offers as they were last put.
CREATE TABLE offers (
    provider       TEXT    NOT NULL, -- Account that offers the units.
    market         TEXT    NOT NULL, -- Market of the offer.
    capacity       INTEGER NOT NULL, -- Number of units on offer.
    reserve_micros INTEGER NOT NULL, -- Lowest price that the provider accepts, in micro-dollars per node-hour.
    put_at         INTEGER NOT NULL, -- Time at which the offer was put.
    PRIMARY KEY (provider, market)
) STRICT;

-- All markets.
CREATE TABLE markets (
    market    TEXT    NOT NULL, -- Name of the market: instance type and region.
    number    INTEGER NOT NULL, -- Number of the market, from 0, in the order in which markets were opened.
    opened_at INTEGER NOT NULL, -- Time at which the market was opened.
    PRIMARY KEY (market)
) STRICT;

-- Every change of the five prices of a market. All prices are in micro-dollars per node-hour.
CREATE TABLE price_changes (
    market                 TEXT    NOT NULL, -- Market whose prices changed.
    at                     INTEGER NOT NULL, -- Time of the change.
    seq                    INTEGER NOT NULL, -- Number of the command that changed the prices.
    idx                    INTEGER NOT NULL, -- Position of the event among the events of the command.
    market_price_micros    INTEGER NOT NULL, -- Market price over all tenants (rule R8). A node pays at least the reserve, and its own bids do not raise its price.
    entry_price_micros     INTEGER,          -- Lowest ceiling that gets one more node now. NULL if none does.
    floor_micros           INTEGER,          -- Lowest reserve on offer. NULL without offers.
    lowest_accepted_micros INTEGER,          -- Lowest ceiling among live allocations and claims. NULL if there are none.
    highest_losing_micros  INTEGER NOT NULL, -- Highest ceiling among waiting bids, except those that want several nodes at once. 0 if none waits.
    PRIMARY KEY (market, at, seq, idx)
) STRICT;
-- Old rows are found by time. On PostgreSQL they are partitions.
CREATE INDEX price_changes_by_time ON price_changes (at);

-- All charges: debit = credit + fee. All amounts are in micro-dollars.
CREATE TABLE charges (
    seq           INTEGER NOT NULL, -- Number of the command that led to the charge.
    idx           INTEGER NOT NULL, -- Position of the event among the events of the command.
    at            INTEGER NOT NULL, -- Time of the charge.
    allocation    INTEGER NOT NULL, -- Allocation that is billed, or on which a claim is billed.
    bid           INTEGER NOT NULL, -- Bid that pays.
    tenant        TEXT    NOT NULL, -- Account that pays.
    provider      TEXT    NOT NULL, -- Account that is paid.
    unit          TEXT    NOT NULL, -- Unit of the allocation.
    market        TEXT    NOT NULL, -- Market of the unit.
    own           INTEGER NOT NULL, -- True if the paying tenant holds the allocation; false for a claim on the node of another tenant.
    reason        TEXT    NOT NULL, -- Why the node ended, or CLAIM_DROPPED.
    from_at       INTEGER NOT NULL, -- Start of the billed time.
    to_at         INTEGER NOT NULL, -- End of the billed time.
    debit_micros  INTEGER NOT NULL, -- What the tenant pays.
    fee_micros    INTEGER NOT NULL, -- The marketplace's part of the debit.
    credit_micros INTEGER NOT NULL, -- What the provider gets: the rest of the debit.
    PRIMARY KEY (seq, idx)
) STRICT;
CREATE INDEX charges_by_tenant ON charges (tenant, seq, idx);
CREATE INDEX charges_by_provider ON charges (provider, seq, idx);
CREATE INDEX charges_by_bid ON charges (bid, seq, idx);
CREATE INDEX charges_by_allocation ON charges (allocation, seq, idx);
CREATE INDEX charges_by_time ON charges (at, seq, idx);

-- Parts of charges, cut at every full hour; of running nodes the parts up to the last full hour.
CREATE TABLE charge_segments (
    allocation        INTEGER NOT NULL, -- Allocation that is billed, or on which a claim is billed.
    claim_seq         INTEGER NOT NULL, -- For a claim on the allocation, the seq of its charge; otherwise 0.
    claim_idx         INTEGER NOT NULL, -- For a claim on the allocation, the idx of its charge; otherwise 0.
    from_at           INTEGER NOT NULL, -- Start of the segment.
    to_at             INTEGER NOT NULL, -- End of the segment.
    amount_micros     INTEGER NOT NULL, -- Amount, rounded so that the amounts of a charge add up to its debit.
    mean_price_micros INTEGER NOT NULL, -- Mean price over the segment, in micro-dollars per node-hour.
    min_charge        INTEGER NOT NULL, -- True for time that was not used but is billed.
    total_micros      INTEGER NOT NULL, -- Sum of the amounts up to the end of this segment.
    remainder         INTEGER NOT NULL, -- What was rounded off that sum, in micro-dollars per hour times microseconds.
    PRIMARY KEY (allocation, claim_seq, claim_idx, from_at)
) STRICT;

-- All events of the market, in the order of (seq, idx).
CREATE TABLE events (
    seq                 INTEGER NOT NULL, -- Number of the command that led to the event.
    idx                 INTEGER NOT NULL, -- Position of the event among the events of the command.
    at                  INTEGER NOT NULL, -- Time of the event. It never falls in the order of (seq, idx).
    kind                TEXT    NOT NULL, -- Kind of the event: the field of kubebid.auction.v1.Event, such as bid_placed.
    reason              TEXT,             -- Reason of a notice, an end, a charge, a closed bid, a claim or a refusal.
    market              TEXT,             -- Market of the unit or the offer, or the only market of the bid. NULL for bids that name several, and for refusals.
    unit                TEXT,             -- Unit that the event is about.
    allocation          INTEGER,          -- Allocation that the event is about.
    bid                 INTEGER,          -- Bid that the event is about, or that holds the node.
    tenant              TEXT,             -- Account of that bid.
    provider            TEXT,             -- Provider of the offer or the unit.
    claimant_bid        INTEGER,          -- Bid whose claim on the node begins, ends or is charged.
    claimant            TEXT,             -- Account of the claimant's bid.
    former_claimant_bid INTEGER,          -- Bid that had the claim before.
    former_claimant     TEXT,             -- Account of that bid.
    sender              TEXT,             -- Account that sent the command that was refused or repeated.
    message             BLOB    NOT NULL, -- The whole event as a protobuf message: kubebid.auction.v1.Event.
    PRIMARY KEY (seq, idx)
) STRICT;
CREATE INDEX events_by_tenant ON events (tenant, seq, idx) WHERE tenant IS NOT NULL AND kind <> 'bid_placed';
CREATE INDEX events_by_bid ON events (bid, seq, idx) WHERE bid IS NOT NULL AND kind <> 'bid_placed';
CREATE INDEX events_by_provider ON events (provider, seq, idx) WHERE provider IS NOT NULL;
CREATE INDEX events_by_market ON events (market, seq, idx);
CREATE INDEX events_by_kind ON events (kind, seq, idx) WHERE kind NOT IN ('bid_placed', 'bid_amended', 'bid_closed', 'allocated', 'ready', 'ended', 'charged');
CREATE INDEX events_by_time ON events (at, seq, idx);

-- Index of events by the accounts and bids that are rare: claimants, former claimants and senders of refused commands.
CREATE TABLE event_parties (
    account TEXT    NOT NULL, -- Claimant, former claimant or sender.
    bid     INTEGER,          -- Bid of the claimant or the former claimant.
    seq     INTEGER NOT NULL, -- seq of the event.
    idx     INTEGER NOT NULL, -- idx of the event.
    at      INTEGER NOT NULL  -- at of the event.
) STRICT;
CREATE INDEX event_parties_by_account ON event_parties (account, seq, idx);
CREATE INDEX event_parties_by_bid ON event_parties (bid, seq, idx) WHERE bid IS NOT NULL;
CREATE INDEX event_parties_by_seq ON event_parties (seq);
