-- A conversation may go on by voice while a question waits: a chat has one reply in the making, and others that wait.

DROP INDEX replies_open;

CREATE UNIQUE INDEX replies_running ON messages (chat_id) WHERE open = 1 AND state = 'running';
CREATE INDEX replies_open ON messages (chat_id) WHERE open = 1;
