-- Up to which command the projections know the market: the tables of bids, allocations, events, prices and
-- charges. They are made from the journal and can be made again.
CREATE TABLE projection (
    one       bigint PRIMARY KEY CHECK (one = 1),
    watermark bigint NOT NULL -- seq; moved in the transaction that brings the rows
);
INSERT INTO projection (one, watermark) VALUES (1, 0);
