-- More limits of accounts. No limit of its own = NULL.
ALTER TABLE accounts ADD COLUMN max_units_offered BIGINT;
ALTER TABLE accounts ADD COLUMN max_units_per_command BIGINT;
ALTER TABLE accounts ADD COLUMN max_refusals_per_second BIGINT;
ALTER TABLE accounts ADD COLUMN max_commands_per_day BIGINT;
