-- One row per commit: a packed, checksummed batch of records (engine/src/store/record.rs).
CREATE TABLE journal (
    first_seq INTEGER PRIMARY KEY,
    last_seq  INTEGER NOT NULL CHECK (last_seq >= first_seq),
    hash      BLOB    NOT NULL, -- of this batch and, through it, of all before
    records   BLOB    NOT NULL
) STRICT;
