-- Until when who leads may be taken to be alive, on this database's clock. Engines that wait look at it; what
-- keeps an older one from writing is the epoch in leader, which changes in the transaction that takes this row.
CREATE TABLE lease (
    one     integer PRIMARY KEY CHECK (one = 1),
    holder  text        NOT NULL, -- UUID of the writer, as in leader
    until   timestamptz NOT NULL,
    pid     integer     NOT NULL, -- of the session that took or renewed it last ...
    started timestamptz NOT NULL  -- ... and when that began: once it has ended, nobody renews
);
INSERT INTO lease (one, holder, until, pid, started) VALUES (1, '', 'epoch', 0, 'epoch');
