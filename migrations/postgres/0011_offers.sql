-- Offers as they were last put.
CREATE TABLE offers (
    provider text COLLATE "C" NOT NULL,
    market   text COLLATE "C" NOT NULL,
    capacity bigint           NOT NULL,
    reserve  bigint           NOT NULL,
    put_at   bigint           NOT NULL,
    PRIMARY KEY (provider, market)
);
