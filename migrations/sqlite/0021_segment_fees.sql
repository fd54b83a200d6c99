-- Segments have the operator's part of each amount, and stay when a node turns out to be free of charge. The read model
-- is made from the journal, so its rows are dropped here and written anew when an engine starts, or by
-- `kubebid projections rebuild`.
DELETE FROM bids;
DELETE FROM allocations;
DELETE FROM offers;
DELETE FROM markets;
DELETE FROM price_changes;
DELETE FROM charges;
DELETE FROM events;
DELETE FROM event_parties;
UPDATE projection SET watermark = 0, first_event = 1, prices_from = 0;
DROP TABLE charge_segments;

-- Parts of charges, cut at every full hour; of running nodes the parts up to the last full hour. A node that was free of
-- charge has a last part that takes the others back.
CREATE TABLE charge_segments (
    allocation        INTEGER NOT NULL, -- Allocation that is billed, or on which a claim is billed.
    claim_seq         INTEGER NOT NULL, -- For a claim on the allocation, the seq of its charge; otherwise 0.
    claim_idx         INTEGER NOT NULL, -- For a claim on the allocation, the idx of its charge; otherwise 0.
    from_at           INTEGER NOT NULL, -- Start of the segment.
    to_at             INTEGER NOT NULL, -- End of the segment. Equal to the start for a correction.
    amount_micros     INTEGER NOT NULL, -- Amount, rounded so that the amounts of a charge add up to its debit. Below 0 for what is taken back.
    fee_micros        INTEGER NOT NULL, -- The marketplace's part of the amount; the fees of a charge add up to its fee. Below 0 also after the fee was lowered.
    mean_price_micros INTEGER NOT NULL, -- Mean price over the segment, in micro-dollars per node-hour.
    min_charge        INTEGER NOT NULL, -- True for time that was not used but is billed.
    total_micros      INTEGER NOT NULL, -- Sum of the amounts up to the end of this segment.
    total_fee_micros  INTEGER NOT NULL, -- Sum of the fees up to the end of this segment.
    remainder         INTEGER NOT NULL, -- What was rounded off the sum of the amounts, in micro-dollars per hour times microseconds.
    PRIMARY KEY (allocation, claim_seq, claim_idx, from_at)
) STRICT;
