-- The labels a tenant put on its bids. The market does not know them.
CREATE TABLE bid_labels (
    bid   bigint NOT NULL,
    key   text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (bid, key)
);
CREATE INDEX bid_labels_by_label ON bid_labels (key, value, bid);
