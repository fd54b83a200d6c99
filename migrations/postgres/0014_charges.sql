-- All charges: debit = credit + fee, in micro-dollars.
CREATE TABLE charges (
    seq        bigint           NOT NULL,
    idx        bigint           NOT NULL,
    at_us      bigint           NOT NULL,
    allocation bigint           NOT NULL,
    bid        bigint           NOT NULL, -- that pays
    tenant     text COLLATE "C" NOT NULL, -- that pays
    provider   text COLLATE "C" NOT NULL,
    unit       text COLLATE "C" NOT NULL,
    market     text COLLATE "C" NOT NULL,
    own        bigint           NOT NULL, -- 1 where the payer holds the allocation
    reason     text             NOT NULL,
    from_us    bigint           NOT NULL, -- of the billed time
    to_us      bigint           NOT NULL,
    debit      bigint           NOT NULL,
    fee        bigint           NOT NULL,
    credit     bigint           NOT NULL,
    PRIMARY KEY (seq, idx)
);
CREATE INDEX charges_by_time ON charges (at_us, seq, idx);
CREATE INDEX charges_by_tenant ON charges (tenant, seq, idx);
CREATE INDEX charges_by_provider ON charges (provider, seq, idx);
CREATE INDEX charges_by_bid ON charges (bid, seq, idx);
CREATE INDEX charges_by_allocation ON charges (allocation, seq, idx);

-- What charges are made of, cut at every full hour, and what running nodes have cost at the full hours so far.
CREATE TABLE charge_segments (
    allocation bigint NOT NULL,
    claim_seq  bigint NOT NULL, -- of a claim on the allocation: the charge; of the allocation itself: 0, 0
    claim_idx  bigint NOT NULL,
    from_us    bigint NOT NULL,
    to_us      bigint NOT NULL,
    amount     bigint NOT NULL, -- rounded so that the amounts add up to the debit
    mean_price bigint NOT NULL,
    min_charge bigint NOT NULL, -- 1 for time not used but billed
    total      bigint NOT NULL, -- of the amounts up to the end of this one ...
    rest       bigint NOT NULL, -- ... and what was rounded off, in micro-dollars per hour x microseconds
    PRIMARY KEY (allocation, claim_seq, claim_idx, from_us)
);
