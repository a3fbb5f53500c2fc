-- What texts of open replies have grown by since their message was stored, so that a checkpoint need not store it again.

CREATE TABLE adk_bridge.grown_texts (
    message  bigint  NOT NULL REFERENCES adk_bridge.messages (seq) ON DELETE CASCADE,
    -- The index of the part that has the text.
    part     integer NOT NULL,
    -- How many bytes of the text come before, and their checksum: a piece fits in one place only.
    at       bigint  NOT NULL,
    checksum bigint  NOT NULL,
    -- As JSON, which has no NUL.
    text     text    NOT NULL,
    PRIMARY KEY (message, part, at)
);

CREATE FUNCTION adk_bridge.end_grown_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM adk_bridge.grown_texts g WHERE g.message = OLD.seq;
    RETURN NULL;
END $$;

CREATE TRIGGER grown_texts_end AFTER UPDATE OF open ON adk_bridge.messages
    FOR EACH ROW WHEN (OLD.open AND NOT NEW.open) EXECUTE FUNCTION adk_bridge.end_grown_texts();

-- For many chats at once. What belongs to another owner by now, or to a reply that has ended, is left out: the next write of
-- that chat says so.
CREATE FUNCTION adk_bridge.grow_replies(
    _users text[], _chats text[], _epochs bigint[], _ids text[],
    _parts integer[], _at bigint[], _checksums bigint[], _texts text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM adk_bridge.hurry();
    INSERT INTO adk_bridge.grown_texts (message, part, at, checksum, text)
    SELECT DISTINCT ON (m.seq, g.part, g.at) m.seq, g.part, g.at, g.checksum, g.text
    FROM unnest(_users, _chats, _epochs, _ids, _parts, _at, _checksums, _texts)
        AS g (user_id, chat_id, epoch, id, part, at, checksum, text)
    JOIN adk_bridge.chats c ON c.user_id = g.user_id AND c.id = g.chat_id
    JOIN adk_bridge.messages m ON m.chat = c.key AND m.id = g.id AND m.cut_in IS NULL AND m.open
    WHERE g.epoch IS NULL OR EXISTS (
        SELECT 1 FROM adk_bridge.ownership o
        WHERE o.user_id = g.user_id AND o.chat_id = g.chat_id AND o.epoch = g.epoch)
    ON CONFLICT (message, part, at) DO UPDATE SET checksum = excluded.checksum, text = excluded.text;
END $$;
