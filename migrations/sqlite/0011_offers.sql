-- Offers as they were last put.
CREATE TABLE offers (
    provider TEXT    NOT NULL,
    market   TEXT    NOT NULL,
    capacity INTEGER NOT NULL,
    reserve  INTEGER NOT NULL,
    put_at   INTEGER NOT NULL,
    PRIMARY KEY (provider, market)
) STRICT, WITHOUT ROWID;
