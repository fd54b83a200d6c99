-- More limits of accounts. No limit of its own = NULL.
ALTER TABLE accounts ADD COLUMN max_units_offered INTEGER;
ALTER TABLE accounts ADD COLUMN max_units_per_command INTEGER;
ALTER TABLE accounts ADD COLUMN max_refusals_per_second INTEGER;
ALTER TABLE accounts ADD COLUMN max_commands_per_day INTEGER;
