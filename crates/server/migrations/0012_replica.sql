-- Which replica of a cluster did what an audit row tells; here it is the only one, and has no name. It refers to no other
-- table, so it may run before or after any other migration.

ALTER TABLE audit ADD COLUMN replica TEXT;
