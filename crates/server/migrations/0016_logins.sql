-- Logins with the page. What the browser holds is not here: the id is its hash. It refers to no other table, so it may run
-- before or after any other migration.

CREATE TABLE logins (
    id         TEXT    NOT NULL PRIMARY KEY,
    user       TEXT    NOT NULL,
    -- Who has logged in, as JSON.
    body       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX logins_of_user ON logins (user, created_at);
CREATE INDEX logins_by_end ON logins (ends_at);
CREATE INDEX logins_by_use ON logins (seen_at);
