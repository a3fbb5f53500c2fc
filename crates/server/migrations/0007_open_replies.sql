-- One index for what two did: a chat has one reply in the making and any number of others that wait, and all of them are
-- found by their chat. Every turn writes to it twice.

DROP INDEX replies_running;
DROP INDEX replies_open;

CREATE UNIQUE INDEX replies_open ON messages (chat, CASE state WHEN 'running' THEN 0 ELSE seq END) WHERE open = 1;
