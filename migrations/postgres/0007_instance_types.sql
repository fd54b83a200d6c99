-- What a node of an instance type is, for those who make nodes of it.
CREATE TABLE instance_types (
    name                   text COLLATE "C" PRIMARY KEY,
    allocatable            text   NOT NULL, -- JSON object: resource -> Kubernetes quantity
    node_labels            text   NOT NULL, -- JSON object: label -> value
    on_demand_price_micros bigint           -- per node and hour
);
