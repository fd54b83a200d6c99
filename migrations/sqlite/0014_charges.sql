-- All charges: debit = credit + fee, in micro-dollars.
CREATE TABLE charges (
    seq        INTEGER NOT NULL,
    idx        INTEGER NOT NULL,
    at_us      INTEGER NOT NULL,
    allocation INTEGER NOT NULL,
    bid        INTEGER NOT NULL, -- that pays
    tenant     TEXT    NOT NULL, -- that pays
    provider   TEXT    NOT NULL,
    unit       TEXT    NOT NULL,
    market     TEXT    NOT NULL,
    own        INTEGER NOT NULL, -- 1 where the payer holds the allocation
    reason     TEXT    NOT NULL,
    from_us    INTEGER NOT NULL, -- of the billed time
    to_us      INTEGER NOT NULL,
    debit      INTEGER NOT NULL,
    fee        INTEGER NOT NULL,
    credit     INTEGER NOT NULL,
    PRIMARY KEY (seq, idx)
) STRICT;
CREATE INDEX charges_by_time ON charges (at_us, seq, idx);
CREATE INDEX charges_by_tenant ON charges (tenant, seq, idx);
CREATE INDEX charges_by_provider ON charges (provider, seq, idx);
CREATE INDEX charges_by_bid ON charges (bid, seq, idx);
CREATE INDEX charges_by_allocation ON charges (allocation, seq, idx);

-- What charges are made of, cut at every full hour, and what running nodes have cost at the full hours so far.
CREATE TABLE charge_segments (
    allocation INTEGER NOT NULL,
    claim_seq  INTEGER NOT NULL, -- of a claim on the allocation: the charge; of the allocation itself: 0, 0
    claim_idx  INTEGER NOT NULL,
    from_us    INTEGER NOT NULL,
    to_us      INTEGER NOT NULL,
    amount     INTEGER NOT NULL, -- rounded so that the amounts add up to the debit
    mean_price INTEGER NOT NULL,
    min_charge INTEGER NOT NULL, -- 1 for time not used but billed
    total      INTEGER NOT NULL, -- of the amounts up to the end of this one ...
    rest       INTEGER NOT NULL, -- ... and what was rounded off, in micro-dollars per hour x microseconds
    PRIMARY KEY (allocation, claim_seq, claim_idx, from_us)
) STRICT, WITHOUT ROWID;
