-- Who deals with the exchange, and how much of it they may use. No limit = NULL.
CREATE TABLE accounts (
    name                    text COLLATE "C" PRIMARY KEY,
    max_open_bids           bigint,
    max_nodes_wanted        bigint,
    max_ceiling_micros      bigint,
    max_requests_per_second bigint,
    created_at_us           bigint NOT NULL
);
