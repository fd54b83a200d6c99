-- A snapshot counts once its row is here; its body is written before, part by part.
CREATE TABLE snapshot (
    seq          INTEGER PRIMARY KEY, -- of the last record it contains, the end of a batch
    journal_hash BLOB    NOT NULL,    -- of that batch
    state_hash   BLOB    NOT NULL,    -- of the exchange, as the core gives it
    at_us        INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    checksum     BLOB    NOT NULL     -- of the body
) STRICT;
CREATE TABLE snapshot_part (
    seq  INTEGER NOT NULL,
    part INTEGER NOT NULL,
    body BLOB    NOT NULL,
    PRIMARY KEY (seq, part)
) STRICT;
