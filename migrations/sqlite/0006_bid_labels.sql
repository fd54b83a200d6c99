-- The labels a tenant put on its bids. The market does not know them.
CREATE TABLE bid_labels (
    bid   INTEGER NOT NULL,
    key   TEXT    NOT NULL,
    value TEXT    NOT NULL,
    PRIMARY KEY (bid, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX bid_labels_by_label ON bid_labels (key, value, bid);
