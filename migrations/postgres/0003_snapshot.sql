-- A snapshot counts once its row is here; its body is written before, part by part.
CREATE TABLE snapshot (
    seq          bigint PRIMARY KEY, -- of the last record it contains, the end of a batch
    journal_hash bytea  NOT NULL,    -- of that batch
    state_hash   bytea  NOT NULL,    -- of the exchange, as the core gives it
    at_us        bigint NOT NULL,
    bytes        bigint NOT NULL,
    checksum     bytea  NOT NULL     -- of the body
);
CREATE TABLE snapshot_part (
    seq  bigint NOT NULL,
    part bigint NOT NULL,
    body bytea  NOT NULL,
    PRIMARY KEY (seq, part)
);
