-- Segments have the operator's part of each amount, and stay when a node turns out to be free of charge. The read model
-- is made from the journal, so its rows are dropped here and written anew when an engine starts, or by
-- `kubebid projections rebuild`.
TRUNCATE bids, allocations, offers, markets, price_changes, charges, events, event_parties;
UPDATE projection SET watermark = 0, first_event = 1, prices_from = 0;
DROP TABLE charge_segments;

CREATE TABLE charge_segments (
    allocation        bigint      NOT NULL,
    claim_seq         bigint      NOT NULL,
    claim_idx         bigint      NOT NULL,
    from_at           timestamptz NOT NULL,
    to_at             timestamptz NOT NULL,
    amount_micros     bigint      NOT NULL,
    fee_micros        bigint      NOT NULL,
    mean_price_micros bigint      NOT NULL,
    min_charge        boolean     NOT NULL,
    total_micros      bigint      NOT NULL,
    total_fee_micros  bigint      NOT NULL,
    remainder         bigint      NOT NULL,
    PRIMARY KEY (allocation, claim_seq, claim_idx, from_at)
);
COMMENT ON TABLE charge_segments IS 'Parts of charges, cut at every full hour; of running nodes the parts up to the last full hour. A node that was free of charge has a last part that takes the others back.';
COMMENT ON COLUMN charge_segments.allocation IS 'Allocation that is billed, or on which a claim is billed.';
COMMENT ON COLUMN charge_segments.claim_seq IS 'For a claim on the allocation, the seq of its charge; otherwise 0.';
COMMENT ON COLUMN charge_segments.claim_idx IS 'For a claim on the allocation, the idx of its charge; otherwise 0.';
COMMENT ON COLUMN charge_segments.from_at IS 'Start of the segment.';
COMMENT ON COLUMN charge_segments.to_at IS 'End of the segment. Equal to the start for a correction.';
COMMENT ON COLUMN charge_segments.amount_micros IS 'Amount, rounded so that the amounts of a charge add up to its debit. Below 0 for what is taken back.';
COMMENT ON COLUMN charge_segments.fee_micros IS 'The marketplace''s part of the amount; the fees of a charge add up to its fee. Below 0 also after the fee was lowered.';
COMMENT ON COLUMN charge_segments.mean_price_micros IS 'Mean price over the segment, in micro-dollars per node-hour.';
COMMENT ON COLUMN charge_segments.min_charge IS 'True for time that was not used but is billed.';
COMMENT ON COLUMN charge_segments.total_micros IS 'Sum of the amounts up to the end of this segment.';
COMMENT ON COLUMN charge_segments.total_fee_micros IS 'Sum of the fees up to the end of this segment.';
COMMENT ON COLUMN charge_segments.remainder IS 'What was rounded off the sum of the amounts, in micro-dollars per hour times microseconds.';
