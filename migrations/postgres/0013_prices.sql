-- When each market was opened.
CREATE TABLE markets (
    market    text COLLATE "C" PRIMARY KEY,
    number    bigint           NOT NULL, -- from 0, in the order in which they were opened
    opened_at bigint           NOT NULL
);

-- Every change of the five numbers of a market.
CREATE TABLE price_changes (
    market          text COLLATE "C" NOT NULL,
    at_us           bigint           NOT NULL,
    seq             bigint           NOT NULL,
    idx             bigint           NOT NULL,
    market_price    bigint           NOT NULL,
    entry_price     bigint,
    floor           bigint,
    lowest_accepted bigint,
    highest_losing  bigint           NOT NULL,
    PRIMARY KEY (market, at_us, seq, idx)
);
