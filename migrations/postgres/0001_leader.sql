-- The one row that says whose journal this is and who may append to it.
CREATE TABLE leader (
    one     bigint PRIMARY KEY CHECK (one = 1),
    journal text   NOT NULL, -- UUID, made once, part of every cursor
    epoch   bigint NOT NULL, -- an append under another epoch is refused
    holder  text   NOT NULL  -- UUID of the writer that took the epoch
);
