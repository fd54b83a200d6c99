-- The read model as plain relational tables. They are made from the journal and can be made again at any time, so
-- their rows are dropped here and written anew when an engine starts, or by `kubebid projections rebuild`.
DROP TABLE event_packs, account_runs, market_runs, kind_runs, bid_runs, allocation_runs;
DROP TABLE allocations, offers, markets, price_changes, charges, charge_segments;
UPDATE projection SET watermark = 0;
ALTER TABLE projection ADD COLUMN first_event bigint NOT NULL DEFAULT 1, ADD COLUMN prices_from bigint NOT NULL DEFAULT 0;
COMMENT ON TABLE projection IS 'How far the tables of the read model are.';
COMMENT ON COLUMN projection.watermark IS 'seq of the last command whose rows the tables have.';
COMMENT ON COLUMN projection.first_event IS 'Events of earlier commands than this seq may have been dropped (--keep-events).';
COMMENT ON COLUMN projection.prices_from IS 'Changes of prices before this time were dropped (--keep-prices), in microseconds since 1970.';

CREATE TABLE bids (
    bid            bigint           NOT NULL,
    tenant         text COLLATE "C" NOT NULL,
    markets        text[],
    instance_type  text COLLATE "C",
    ceiling_micros bigint           NOT NULL,
    min_nodes      bigint           NOT NULL,
    max_nodes      bigint           NOT NULL,
    time_in_force  text COLLATE "C" NOT NULL,
    expire_at      timestamptz,
    on_preemption  text COLLATE "C" NOT NULL,
    client_key     text COLLATE "C",
    bid_seq        bigint           NOT NULL,
    placed_at      timestamptz      NOT NULL,
    state          text COLLATE "C" NOT NULL,
    close_reason   text COLLATE "C",
    closed_at      timestamptz,
    held           bigint           NOT NULL,
    under_notice   bigint           NOT NULL,
    claimed        bigint           NOT NULL,
    unmet          bigint           NOT NULL,
    PRIMARY KEY (bid)
) WITH (fillfactor = 85);
CREATE INDEX bids_by_tenant ON bids (tenant, bid);
COMMENT ON TABLE bids IS 'All bids, with their state at the watermark. A closed bid may still hold nodes.';
COMMENT ON COLUMN bids.bid IS 'Number of the bid: the seq of the command that placed it.';
COMMENT ON COLUMN bids.tenant IS 'Account that placed the bid and pays for its nodes.';
COMMENT ON COLUMN bids.markets IS 'Markets that the bid names, in the tenant''s order. NULL if it names an instance type.';
COMMENT ON COLUMN bids.instance_type IS 'Instance type that the bid names: it looks in every market of this type.';
COMMENT ON COLUMN bids.ceiling_micros IS 'Highest price that the tenant accepts, in micro-dollars per node-hour.';
COMMENT ON COLUMN bids.min_nodes IS 'At entry the bid takes at least this many nodes at once, or none.';
COMMENT ON COLUMN bids.max_nodes IS 'The bid takes at most this many nodes.';
COMMENT ON COLUMN bids.time_in_force IS 'GTC, GTT or IOC.';
COMMENT ON COLUMN bids.expire_at IS 'Time at which a GTT bid closes.';
COMMENT ON COLUMN bids.on_preemption IS 'REQUEUE or CLOSE.';
COMMENT ON COLUMN bids.client_key IS 'Idempotency key of the request that placed the bid.';
COMMENT ON COLUMN bids.bid_seq IS 'Time priority among bids of the same ceiling: the lower one is first.';
COMMENT ON COLUMN bids.placed_at IS 'Time at which the bid was placed.';
COMMENT ON COLUMN bids.state IS 'OPEN or CLOSED.';
COMMENT ON COLUMN bids.close_reason IS 'EXPIRED, IOC, CANCELLED, DONE and so on. NULL while the bid is open.';
COMMENT ON COLUMN bids.closed_at IS 'Time at which the bid closed. NULL while it is open.';
COMMENT ON COLUMN bids.held IS 'Nodes that the bid holds without a notice.';
COMMENT ON COLUMN bids.under_notice IS 'Nodes that the bid holds under notice.';
COMMENT ON COLUMN bids.claimed IS 'Nodes of others, under notice, that the bid has a claim on.';
COMMENT ON COLUMN bids.unmet IS 'Nodes that the bid still looks for.';

CREATE TABLE allocations (
    allocation        bigint           NOT NULL,
    bid               bigint           NOT NULL,
    tenant            text COLLATE "C" NOT NULL,
    unit              text COLLATE "C" NOT NULL,
    market            text COLLATE "C" NOT NULL,
    provider          text COLLATE "C" NOT NULL,
    state             text COLLATE "C" NOT NULL,
    allocated_at      timestamptz      NOT NULL,
    start_by          timestamptz      NOT NULL,
    ready_at          timestamptz,
    protected_until   timestamptz      NOT NULL,
    notice_reason     text COLLATE "C",
    notice_started_at timestamptz,
    notice_deadline   timestamptz,
    ended_at          timestamptz,
    end_reason        text COLLATE "C",
    last_price_micros bigint,
    PRIMARY KEY (allocation)
) WITH (fillfactor = 85);
CREATE INDEX allocations_by_tenant ON allocations (tenant, allocation);
CREATE INDEX allocations_by_provider ON allocations (provider, allocation);
CREATE INDEX allocations_by_bid ON allocations (bid, allocation);
CREATE INDEX allocations_by_unit ON allocations (unit, allocation);
CREATE INDEX allocations_by_market ON allocations (market, allocation);
CREATE INDEX allocations_live ON allocations (allocation) WHERE ended_at IS NULL;
COMMENT ON TABLE allocations IS 'All allocations, with their state at the watermark. An allocation that ended keeps its last state.';
COMMENT ON COLUMN allocations.allocation IS 'Number of the allocation.';
COMMENT ON COLUMN allocations.bid IS 'Bid that holds the node.';
COMMENT ON COLUMN allocations.tenant IS 'Account of that bid.';
COMMENT ON COLUMN allocations.unit IS 'Name of the unit: provider, market and number.';
COMMENT ON COLUMN allocations.market IS 'Market of the unit.';
COMMENT ON COLUMN allocations.provider IS 'Provider of the unit.';
COMMENT ON COLUMN allocations.state IS 'STARTING, ACTIVE or ENDED.';
COMMENT ON COLUMN allocations.allocated_at IS 'Time at which the bid got the node.';
COMMENT ON COLUMN allocations.start_by IS 'Time by which the node must be reported ready.';
COMMENT ON COLUMN allocations.ready_at IS 'Time at which the node was reported ready: billing begins.';
COMMENT ON COLUMN allocations.protected_until IS 'End of the minimum runtime, during which the node is not pre-empted.';
COMMENT ON COLUMN allocations.notice_reason IS 'OUTBID, CAPACITY_WITHDRAWN or RESERVE_RAISED: why the node is, or ended, under notice.';
COMMENT ON COLUMN allocations.notice_started_at IS 'Time at which the notice was given.';
COMMENT ON COLUMN allocations.notice_deadline IS 'Time at which the node is taken away at the latest.';
COMMENT ON COLUMN allocations.ended_at IS 'Time at which the allocation ended. NULL until then.';
COMMENT ON COLUMN allocations.end_reason IS 'Why the allocation ended.';
COMMENT ON COLUMN allocations.last_price_micros IS 'Price at the end, in micro-dollars per node-hour. NULL until then.';

CREATE TABLE offers (
    provider       text COLLATE "C" NOT NULL,
    market         text COLLATE "C" NOT NULL,
    capacity       bigint           NOT NULL,
    reserve_micros bigint           NOT NULL,
    put_at         timestamptz      NOT NULL,
    PRIMARY KEY (provider, market)
);
COMMENT ON TABLE offers IS 'Offers as they were last put.';
COMMENT ON COLUMN offers.provider IS 'Account that offers the units.';
COMMENT ON COLUMN offers.market IS 'Market of the offer.';
COMMENT ON COLUMN offers.capacity IS 'Number of units on offer.';
COMMENT ON COLUMN offers.reserve_micros IS 'Lowest price that the provider accepts, in micro-dollars per node-hour.';
COMMENT ON COLUMN offers.put_at IS 'Time at which the offer was put.';

CREATE TABLE markets (
    market    text COLLATE "C" NOT NULL,
    number    bigint           NOT NULL,
    opened_at timestamptz      NOT NULL,
    PRIMARY KEY (market)
);
COMMENT ON TABLE markets IS 'All markets.';
COMMENT ON COLUMN markets.market IS 'Name of the market: instance type and region.';
COMMENT ON COLUMN markets.number IS 'Number of the market, from 0, in the order in which markets were opened.';
COMMENT ON COLUMN markets.opened_at IS 'Time at which the market was opened.';

CREATE TABLE price_changes (
    market                 text COLLATE "C" NOT NULL,
    at                     timestamptz      NOT NULL,
    seq                    bigint           NOT NULL,
    idx                    bigint           NOT NULL,
    market_price_micros    bigint           NOT NULL,
    entry_price_micros     bigint,
    floor_micros           bigint,
    lowest_accepted_micros bigint,
    highest_losing_micros  bigint           NOT NULL,
    PRIMARY KEY (market, at, seq, idx)
) PARTITION BY RANGE (at);
COMMENT ON TABLE price_changes IS 'Every change of the five prices of a market. All prices are in micro-dollars per node-hour.';
COMMENT ON COLUMN price_changes.market IS 'Market whose prices changed.';
COMMENT ON COLUMN price_changes.at IS 'Time of the change.';
COMMENT ON COLUMN price_changes.seq IS 'Number of the command that changed the prices.';
COMMENT ON COLUMN price_changes.idx IS 'Position of the event among the events of the command.';
COMMENT ON COLUMN price_changes.market_price_micros IS 'Market price over all tenants (rule R8). A node pays at least the reserve, and its own bids do not raise its price.';
COMMENT ON COLUMN price_changes.entry_price_micros IS 'Lowest ceiling that gets one more node now. NULL if none does.';
COMMENT ON COLUMN price_changes.floor_micros IS 'Lowest reserve on offer. NULL without offers.';
COMMENT ON COLUMN price_changes.lowest_accepted_micros IS 'Lowest ceiling among live allocations and claims. NULL if there are none.';
COMMENT ON COLUMN price_changes.highest_losing_micros IS 'Highest ceiling among waiting bids, except those that want several nodes at once. 0 if none waits.';

CREATE TABLE charges (
    seq           bigint           NOT NULL,
    idx           bigint           NOT NULL,
    at            timestamptz      NOT NULL,
    allocation    bigint           NOT NULL,
    bid           bigint           NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    provider      text COLLATE "C" NOT NULL,
    unit          text COLLATE "C" NOT NULL,
    market        text COLLATE "C" NOT NULL,
    own           boolean          NOT NULL,
    reason        text COLLATE "C" NOT NULL,
    from_at       timestamptz      NOT NULL,
    to_at         timestamptz      NOT NULL,
    debit_micros  bigint           NOT NULL,
    fee_micros    bigint           NOT NULL,
    credit_micros bigint           NOT NULL,
    PRIMARY KEY (seq, idx)
);
CREATE INDEX charges_by_tenant ON charges (tenant, seq, idx);
CREATE INDEX charges_by_provider ON charges (provider, seq, idx);
CREATE INDEX charges_by_bid ON charges (bid, seq, idx);
CREATE INDEX charges_by_allocation ON charges (allocation, seq, idx);
CREATE INDEX charges_by_time ON charges (at, seq, idx);
COMMENT ON TABLE charges IS 'All charges: debit = credit + fee. All amounts are in micro-dollars.';
COMMENT ON COLUMN charges.seq IS 'Number of the command that led to the charge.';
COMMENT ON COLUMN charges.idx IS 'Position of the event among the events of the command.';
COMMENT ON COLUMN charges.at IS 'Time of the charge.';
COMMENT ON COLUMN charges.allocation IS 'Allocation that is billed, or on which a claim is billed.';
COMMENT ON COLUMN charges.bid IS 'Bid that pays.';
COMMENT ON COLUMN charges.tenant IS 'Account that pays.';
COMMENT ON COLUMN charges.provider IS 'Account that is paid.';
COMMENT ON COLUMN charges.unit IS 'Unit of the allocation.';
COMMENT ON COLUMN charges.market IS 'Market of the unit.';
COMMENT ON COLUMN charges.own IS 'True if the paying tenant holds the allocation; false for a claim on the node of another tenant.';
COMMENT ON COLUMN charges.reason IS 'Why the node ended, or CLAIM_DROPPED.';
COMMENT ON COLUMN charges.from_at IS 'Start of the billed time.';
COMMENT ON COLUMN charges.to_at IS 'End of the billed time.';
COMMENT ON COLUMN charges.debit_micros IS 'What the tenant pays.';
COMMENT ON COLUMN charges.fee_micros IS 'The marketplace''s part of the debit.';
COMMENT ON COLUMN charges.credit_micros IS 'What the provider gets: the rest of the debit.';

CREATE TABLE charge_segments (
    allocation        bigint      NOT NULL,
    claim_seq         bigint      NOT NULL,
    claim_idx         bigint      NOT NULL,
    from_at           timestamptz NOT NULL,
    to_at             timestamptz NOT NULL,
    amount_micros     bigint      NOT NULL,
    mean_price_micros bigint      NOT NULL,
    min_charge        boolean     NOT NULL,
    total_micros      bigint      NOT NULL,
    remainder         bigint      NOT NULL,
    PRIMARY KEY (allocation, claim_seq, claim_idx, from_at)
);
COMMENT ON TABLE charge_segments IS 'Parts of charges, cut at every full hour; of running nodes the parts up to the last full hour.';
COMMENT ON COLUMN charge_segments.allocation IS 'Allocation that is billed, or on which a claim is billed.';
COMMENT ON COLUMN charge_segments.claim_seq IS 'For a claim on the allocation, the seq of its charge; otherwise 0.';
COMMENT ON COLUMN charge_segments.claim_idx IS 'For a claim on the allocation, the idx of its charge; otherwise 0.';
COMMENT ON COLUMN charge_segments.from_at IS 'Start of the segment.';
COMMENT ON COLUMN charge_segments.to_at IS 'End of the segment.';
COMMENT ON COLUMN charge_segments.amount_micros IS 'Amount, rounded so that the amounts of a charge add up to its debit.';
COMMENT ON COLUMN charge_segments.mean_price_micros IS 'Mean price over the segment, in micro-dollars per node-hour.';
COMMENT ON COLUMN charge_segments.min_charge IS 'True for time that was not used but is billed.';
COMMENT ON COLUMN charge_segments.total_micros IS 'Sum of the amounts up to the end of this segment.';
COMMENT ON COLUMN charge_segments.remainder IS 'What was rounded off that sum, in micro-dollars per hour times microseconds.';

CREATE TABLE events (
    seq                 bigint           NOT NULL,
    idx                 bigint           NOT NULL,
    at                  timestamptz      NOT NULL,
    kind                text COLLATE "C" NOT NULL,
    reason              text COLLATE "C",
    market              text COLLATE "C",
    unit                text COLLATE "C",
    allocation          bigint,
    bid                 bigint,
    tenant              text COLLATE "C",
    provider            text COLLATE "C",
    claimant_bid        bigint,
    claimant            text COLLATE "C",
    former_claimant_bid bigint,
    former_claimant     text COLLATE "C",
    sender              text COLLATE "C",
    message             bytea            NOT NULL,
    PRIMARY KEY (seq, idx, at)
) PARTITION BY RANGE (at);
CREATE INDEX events_by_tenant ON events (tenant, seq, idx) WHERE tenant IS NOT NULL AND kind <> 'bid_placed';
CREATE INDEX events_by_bid ON events (bid, seq, idx) WHERE bid IS NOT NULL AND kind <> 'bid_placed';
CREATE INDEX events_by_provider ON events (provider, seq, idx) WHERE provider IS NOT NULL;
CREATE INDEX events_by_market ON events (market, seq, idx);
CREATE INDEX events_by_kind ON events (kind, seq, idx) WHERE kind NOT IN ('bid_placed', 'bid_amended', 'bid_closed', 'allocated', 'ready', 'ended', 'charged');
CREATE INDEX events_by_time ON events (at, seq, idx);
COMMENT ON TABLE events IS 'All events of the market, in the order of (seq, idx).';
COMMENT ON COLUMN events.seq IS 'Number of the command that led to the event.';
COMMENT ON COLUMN events.idx IS 'Position of the event among the events of the command.';
COMMENT ON COLUMN events.at IS 'Time of the event. It never falls in the order of (seq, idx).';
COMMENT ON COLUMN events.kind IS 'Kind of the event: the field of kubebid.auction.v1.Event, such as bid_placed.';
COMMENT ON COLUMN events.reason IS 'Reason of a notice, an end, a charge, a closed bid, a claim or a refusal.';
COMMENT ON COLUMN events.market IS 'Market of the unit or the offer, or the only market of the bid. NULL for bids that name several, and for refusals.';
COMMENT ON COLUMN events.unit IS 'Unit that the event is about.';
COMMENT ON COLUMN events.allocation IS 'Allocation that the event is about.';
COMMENT ON COLUMN events.bid IS 'Bid that the event is about, or that holds the node.';
COMMENT ON COLUMN events.tenant IS 'Account of that bid.';
COMMENT ON COLUMN events.provider IS 'Provider of the offer or the unit.';
COMMENT ON COLUMN events.claimant_bid IS 'Bid whose claim on the node begins, ends or is charged.';
COMMENT ON COLUMN events.claimant IS 'Account of the claimant''s bid.';
COMMENT ON COLUMN events.former_claimant_bid IS 'Bid that had the claim before.';
COMMENT ON COLUMN events.former_claimant IS 'Account of that bid.';
COMMENT ON COLUMN events.sender IS 'Account that sent the command that was refused or repeated.';
COMMENT ON COLUMN events.message IS 'The whole event as a protobuf message: kubebid.auction.v1.Event.';

CREATE TABLE event_parties (
    account text COLLATE "C" NOT NULL,
    bid     bigint,
    seq     bigint           NOT NULL,
    idx     bigint           NOT NULL,
    at      timestamptz      NOT NULL
);
CREATE INDEX event_parties_by_account ON event_parties (account, seq, idx);
CREATE INDEX event_parties_by_bid ON event_parties (bid, seq, idx) WHERE bid IS NOT NULL;
CREATE INDEX event_parties_by_seq ON event_parties (seq);
COMMENT ON TABLE event_parties IS 'Index of events by the accounts and bids that are rare: claimants, former claimants and senders of refused commands.';
COMMENT ON COLUMN event_parties.account IS 'Claimant, former claimant or sender.';
COMMENT ON COLUMN event_parties.bid IS 'Bid of the claimant or the former claimant.';
COMMENT ON COLUMN event_parties.seq IS 'seq of the event.';
COMMENT ON COLUMN event_parties.idx IS 'idx of the event.';
COMMENT ON COLUMN event_parties.at IS 'at of the event.';
