-- API tokens. The token itself is shown once and kept nowhere: only its SHA-256 is here.
CREATE TABLE tokens (
    id            bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    sha256        bytea  NOT NULL UNIQUE CHECK (length(sha256) = 32),
    account       text COLLATE "C" NOT NULL REFERENCES accounts (name),
    roles         text   NOT NULL, -- comma separated
    note          text   NOT NULL,
    created_at_us bigint NOT NULL,
    revoked_at_us bigint
);
CREATE INDEX tokens_by_account ON tokens (account, id);
