-- Logins with the page. What the browser holds is not here: the id is its hash. It refers to no other table, so it may run
-- before or after any other migration.

CREATE TABLE adk_bridge.logins (
    id         text   COLLATE "C" NOT NULL PRIMARY KEY,
    user_id    text   COLLATE "C" NOT NULL,
    -- Who has logged in, as JSON.
    body       text   NOT NULL,
    created_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    ends_at    bigint NOT NULL
);

CREATE INDEX logins_of_user ON adk_bridge.logins (user_id, created_at);
CREATE INDEX logins_by_end ON adk_bridge.logins (ends_at);
CREATE INDEX logins_by_use ON adk_bridge.logins (seen_at);
