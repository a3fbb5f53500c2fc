-- Tells which checkpoints were left out, so that only their messages have to be stored whole.

-- As `grow_replies`, which stays for replicas of the version before. Returns the places, from 1, of the pieces that were left
-- out because somebody else was writing their chat or message.
CREATE FUNCTION adk_bridge.grow_texts(
    _users text[], _chats text[], _epochs bigint[], _ids text[],
    _parts integer[], _at bigint[], _checksums bigint[], _texts text[])
RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    _open bigint[];
    _locked bigint[];
BEGIN
    PERFORM adk_bridge.hurry();
    SELECT array_agg(DISTINCT m.seq) INTO _open
    FROM unnest(_users, _chats, _epochs, _ids) AS g (user_id, chat_id, epoch, id)
    JOIN adk_bridge.chats c ON c.user_id = g.user_id AND c.id = g.chat_id
    JOIN adk_bridge.messages m ON m.chat = c.key AND m.id = g.id AND m.cut_in IS NULL AND m.open
    WHERE g.epoch IS NULL OR EXISTS (
        SELECT 1 FROM adk_bridge.ownership o
        WHERE o.user_id = g.user_id AND o.chat_id = g.chat_id AND o.epoch = g.epoch);
    -- As `fence` does for one chat: whoever takes one over waits for this transaction, or has come before it.
    SELECT array_agg(seq) INTO _locked FROM (
        SELECT m.seq FROM adk_bridge.messages m
        JOIN adk_bridge.chats c ON c.key = m.chat
        JOIN adk_bridge.ownership o ON o.user_id = c.user_id AND o.chat_id = c.id
        WHERE m.seq = ANY (_open) AND m.open
        FOR SHARE OF m, o SKIP LOCKED) AS owned;
    -- What is written on nobody's behalf has no epoch.
    IF array_position(_epochs, NULL) IS NOT NULL THEN
        SELECT _locked || array_agg(seq) INTO _locked FROM (
            SELECT m.seq FROM adk_bridge.messages m
            WHERE m.seq = ANY (_open) AND m.seq <> ALL (coalesce(_locked, '{}')) AND m.open AND m.seq IN (
                SELECT n.seq FROM unnest(_users, _chats, _epochs, _ids) AS g (user_id, chat_id, epoch, id)
                JOIN adk_bridge.chats c ON c.user_id = g.user_id AND c.id = g.chat_id
                JOIN adk_bridge.messages n ON n.chat = c.key AND n.id = g.id
                WHERE g.epoch IS NULL)
            FOR SHARE OF m SKIP LOCKED) AS unowned;
    END IF;
    INSERT INTO adk_bridge.grown_texts AS stored (message, part, at, checksum, text, epoch)
    SELECT DISTINCT ON (m.seq, g.part, g.at) m.seq, g.part, g.at, g.checksum, g.text, coalesce(g.epoch, 0)
    FROM unnest(_users, _chats, _epochs, _ids, _parts, _at, _checksums, _texts)
        AS g (user_id, chat_id, epoch, id, part, at, checksum, text)
    JOIN adk_bridge.chats c ON c.user_id = g.user_id AND c.id = g.chat_id
    JOIN adk_bridge.messages m ON m.chat = c.key AND m.id = g.id AND m.seq = ANY (_locked)
    WHERE g.epoch IS NULL OR EXISTS (
        SELECT 1 FROM adk_bridge.ownership o
        WHERE o.user_id = g.user_id AND o.chat_id = g.chat_id AND o.epoch = g.epoch)
    ORDER BY m.seq, g.part, g.at, g.epoch DESC
    ON CONFLICT (message, part, at) DO UPDATE
    SET checksum = excluded.checksum, text = excluded.text, epoch = excluded.epoch
    WHERE stored.epoch <= excluded.epoch;
    IF coalesce(cardinality(_open), 0) > coalesce(cardinality(_locked), 0) THEN
        RETURN QUERY
            SELECT g.place FROM unnest(_users, _chats, _ids) WITH ORDINALITY AS g (user_id, chat_id, id, place)
            JOIN adk_bridge.chats c ON c.user_id = g.user_id AND c.id = g.chat_id
            JOIN adk_bridge.messages m ON m.chat = c.key AND m.id = g.id
            WHERE m.seq = ANY (_open) AND m.seq <> ALL (coalesce(_locked, '{}'));
    END IF;
END $$;
