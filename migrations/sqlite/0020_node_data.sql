-- Data to set up and to reach nodes, which the market does not know. The content is deleted when it has no reader any more;
-- the hash stays, so that a repeated request can be compared.
CREATE TABLE node_data (
    kind    TEXT    NOT NULL, -- 'config': of a bid, for its nodes; 'access': of an allocation
    number  INTEGER NOT NULL, -- the bid or the allocation
    seq     INTEGER NOT NULL, -- the command that brought it
    sha256  BLOB    NOT NULL,
    content BLOB,
    PRIMARY KEY (kind, number)
) STRICT;
CREATE INDEX node_data_kept ON node_data (kind, number) WHERE content IS NOT NULL;
