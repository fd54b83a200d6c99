-- API tokens. The token itself is shown once and kept nowhere: only its SHA-256 is here.
CREATE TABLE tokens (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256        BLOB    NOT NULL UNIQUE CHECK (length(sha256) = 32),
    account       TEXT    NOT NULL REFERENCES accounts (name),
    roles         TEXT    NOT NULL, -- comma separated
    note          TEXT    NOT NULL,
    created_at_us INTEGER NOT NULL,
    revoked_at_us INTEGER
) STRICT;
CREATE INDEX tokens_by_account ON tokens (account, id);
