-- Front ends edit, delete and switch branches by sending another history. Only what a client has had may be cut because a
-- history lacks it: an answer that never arrived was not deleted by anybody.

-- Whether it was spoken: no client sent it, and none has it until it has got it.
ALTER TABLE messages ADD COLUMN heard INTEGER NOT NULL DEFAULT 0;

-- The replies and spoken messages that a client is known to have had; nobody knows about older ones. A table of its own:
-- a message is long, and changing a column of it would write all of it again.
CREATE TABLE seen (
    seq INTEGER NOT NULL PRIMARY KEY REFERENCES messages (seq) ON DELETE CASCADE
) STRICT;

-- What the server makes up once and keeps, such as the key that signs addresses.
CREATE TABLE secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;
