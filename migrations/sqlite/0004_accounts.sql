-- Who deals with the exchange, and how much of it they may use. No limit = NULL.
CREATE TABLE accounts (
    name                    TEXT    PRIMARY KEY,
    max_open_bids           INTEGER,
    max_nodes_wanted        INTEGER,
    max_ceiling_micros      INTEGER,
    max_requests_per_second INTEGER,
    created_at_us           INTEGER NOT NULL
) STRICT;
