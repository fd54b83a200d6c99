-- What a node of an instance type is, for those who make nodes of it.
CREATE TABLE instance_types (
    name                   TEXT    PRIMARY KEY,
    allocatable            TEXT    NOT NULL, -- JSON object: resource -> Kubernetes quantity
    node_labels            TEXT    NOT NULL, -- JSON object: label -> value
    on_demand_price_micros INTEGER           -- per node and hour
) STRICT;
