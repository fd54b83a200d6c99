-- One row per commit: a packed, checksummed batch of records (engine/src/store/record.rs).
CREATE TABLE journal (
    first_seq bigint PRIMARY KEY,
    last_seq  bigint NOT NULL CHECK (last_seq >= first_seq),
    hash      bytea  NOT NULL, -- of this batch and, through it, of all before
    records   bytea  NOT NULL
);
-- Compressing each batch would cost more time than the disk it saves.
ALTER TABLE journal ALTER COLUMN records SET STORAGE EXTERNAL;
