-- Data to set up and to reach nodes, which the market does not know. The content is deleted when it has no reader any more;
-- the hash stays, so that a repeated request can be compared.
CREATE TABLE node_data (
    kind    text COLLATE "C" NOT NULL, -- 'config': of a bid, for its nodes; 'access': of an allocation
    number  bigint NOT NULL,           -- the bid or the allocation
    seq     bigint NOT NULL,           -- the command that brought it
    sha256  bytea  NOT NULL,
    content bytea,
    PRIMARY KEY (kind, number)
);
CREATE INDEX node_data_kept ON node_data (kind, number) WHERE content IS NOT NULL;
