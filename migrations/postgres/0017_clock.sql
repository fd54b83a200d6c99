-- The clock of the engine that led last: one that starts on the same machine compares its own with it.
CREATE TABLE clock (
    one       integer PRIMARY KEY CHECK (one = 1),
    boot_id   text   NOT NULL, -- of the start of the machine, as the kernel names it
    offset_us bigint NOT NULL  -- market time less the time since that start, in microseconds
);
