-- The one row that says whose journal this is and who may append to it.
CREATE TABLE leader (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    journal TEXT    NOT NULL, -- UUID, made once, part of every cursor
    epoch   INTEGER NOT NULL, -- an append under another epoch is refused
    holder  TEXT    NOT NULL  -- UUID of the writer that took the epoch
) STRICT;
