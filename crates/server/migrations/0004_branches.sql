-- Front ends edit, delete and switch branches by sending another history. Only what a client has had may be cut because a
-- history lacks it: an answer that never arrived was not deleted by anybody.

-- The messages that no client is known to have had. A table of its own: a message is long, and changing a column of it
-- would write all of it again.
CREATE TABLE unseen (
    seq INTEGER NOT NULL PRIMARY KEY REFERENCES messages (seq) ON DELETE CASCADE
) STRICT;

-- Nobody knows about older answers.
INSERT INTO unseen (seq) SELECT seq FROM messages WHERE reply IS NOT NULL;

-- What the server makes up once and keeps, such as the key that signs addresses.
CREATE TABLE secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;
