-- What front ends hand in is part of a chat's state, so the state counts towards what a chat keeps.

UPDATE chats SET bytes = bytes
    + (SELECT coalesce(sum(octet_length(value)), 0) FROM chat_state WHERE chat_state.chat = chats.key);

CREATE TRIGGER state_is_counted AFTER INSERT ON chat_state
BEGIN
    UPDATE chats SET bytes = bytes + octet_length(NEW.value) WHERE chats.key = NEW.chat;
END;

CREATE TRIGGER changed_state_is_counted AFTER UPDATE OF value ON chat_state
BEGIN
    UPDATE chats SET bytes = bytes + octet_length(NEW.value) - octet_length(OLD.value) WHERE chats.key = NEW.chat;
END;

CREATE TRIGGER removed_state_is_counted AFTER DELETE ON chat_state
BEGIN
    UPDATE chats SET bytes = bytes - octet_length(OLD.value) WHERE chats.key = OLD.chat;
END;
