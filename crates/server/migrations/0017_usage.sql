-- What users have used of agents, by day. It refers to messages only, so it may run before or after any other migration.

CREATE TABLE usage (
    user   TEXT    NOT NULL,
    -- Days since 1970, as the configuration counts them.
    day    INTEGER NOT NULL,
    agent  TEXT    NOT NULL,
    -- Tokens that went in, and those of them that the model had in its cache.
    input  INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    output INTEGER NOT NULL,
    -- In billionths, at the prices of that day.
    cost   INTEGER NOT NULL,
    PRIMARY KEY (user, day, agent)
) STRICT;

CREATE INDEX usage_by_day ON usage (day);

-- How much of the usage of a reply has been counted: what comes again is not counted again.
CREATE TABLE counted_usage (
    message INTEGER NOT NULL PRIMARY KEY REFERENCES messages (seq) ON DELETE CASCADE,
    input   INTEGER NOT NULL,
    cached  INTEGER NOT NULL,
    output  INTEGER NOT NULL
) STRICT;
