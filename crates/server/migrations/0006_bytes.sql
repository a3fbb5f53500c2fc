-- How many bytes a chat keeps of messages and of what remote agents said, cut ones included: what a user has is counted at
-- start from the chats alone.

ALTER TABLE chats ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

-- The length of a text is in the head of its row: no message is read for it.
UPDATE chats SET bytes =
    (SELECT coalesce(sum(octet_length(body) + coalesce(octet_length(reply), 0)), 0) FROM messages WHERE chat = key)
    + (SELECT coalesce(sum(octet_length(body)), 0) FROM events WHERE chat = key);

-- Rows go only with their chat, and so does the number. Messages are counted by the statement that marks their chat as
-- changed.
CREATE TRIGGER event_is_counted AFTER INSERT ON events
BEGIN
    UPDATE chats SET bytes = bytes + octet_length(NEW.body) WHERE key = NEW.chat;
END;
