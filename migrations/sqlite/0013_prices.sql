-- When each market was opened.
CREATE TABLE markets (
    market    TEXT    PRIMARY KEY,
    number    INTEGER NOT NULL, -- from 0, in the order in which they were opened
    opened_at INTEGER NOT NULL
) STRICT;

-- Every change of the five numbers of a market.
CREATE TABLE price_changes (
    market          TEXT    NOT NULL,
    at_us           INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    idx             INTEGER NOT NULL,
    market_price    INTEGER NOT NULL,
    entry_price     INTEGER,
    floor           INTEGER,
    lowest_accepted INTEGER,
    highest_losing  INTEGER NOT NULL,
    PRIMARY KEY (market, at_us, seq, idx)
) STRICT, WITHOUT ROWID;
