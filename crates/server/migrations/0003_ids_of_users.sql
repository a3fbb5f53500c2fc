-- A chat id belongs to its user: two users may each have a chat `default`. What belongs to a chat refers to it by a key
-- that nobody outside knows; of the chats that are there already, the key is the id that they have. So no row of another
-- table has to be written, however many there are.

DROP INDEX chats_of_user;
-- Everything that refers to it follows.
ALTER TABLE chats RENAME COLUMN id TO key;
-- Chosen by the front end.
ALTER TABLE chats ADD COLUMN id TEXT NOT NULL DEFAULT '';
UPDATE chats SET id = key;
CREATE UNIQUE INDEX chats_by_id ON chats (user, id);
CREATE INDEX chats_of_user ON chats (user, updated_at, id);

ALTER TABLE messages RENAME COLUMN chat_id TO chat;
ALTER TABLE approvals RENAME COLUMN chat_id TO chat;
ALTER TABLE tool_runs RENAME COLUMN chat_id TO chat;
ALTER TABLE chat_state RENAME COLUMN chat_id TO chat;
ALTER TABLE events RENAME COLUMN chat_id TO chat;
ALTER TABLE files RENAME COLUMN chat_id TO chat;
-- It is the chat's.
ALTER TABLE files DROP COLUMN user;

-- What holds for the database as a whole: one row.
CREATE TABLE store (
    one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    -- Tells this database from any other. The directory of files carries the same id.
    id       TEXT    NOT NULL,
    -- Written to find out whether the database can be written to.
    tried_at INTEGER NOT NULL
) STRICT;

INSERT INTO store (one, id, tried_at) VALUES (1, lower(hex(randomblob(16))), 0);

-- Files whose rows are gone and whose content must go too, even if the process ends in between.
CREATE TABLE deleted_files (
    id TEXT NOT NULL PRIMARY KEY
) STRICT;
