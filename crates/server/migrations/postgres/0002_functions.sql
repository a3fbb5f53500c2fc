-- What a method of the store does in one journey: a turn costs two. A function is never changed once it is released, since
-- replicas of two versions share a database while one replaces the other: a new version of it gets a new name.
--
-- What a method refuses is raised, and so nothing of it is stored. The codes are known to store/postgres/error.rs:
--   ZB001 another replica owns the chat   ZB002 no such chat       ZB003 no such message   ZB004 a reply is open
--   ZB005 the reply was cut               ZB006 the message exists ZB007 the approval is decided   ZB008 the tool has run

-- Passes only the owner of a chat, who stays it until the end of the transaction. Without an epoch everybody passes.
CREATE FUNCTION adk_bridge.fence(_user text, _chat text, _epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _epoch IS NULL THEN
        RETURN;
    END IF;
    -- Whoever takes the chat over waits for this transaction, or has come before it.
    PERFORM 1 FROM adk_bridge.ownership o
    WHERE o.user_id = _user AND o.chat_id = _chat AND o.epoch = _epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB001', MESSAGE = 'another replica owns the chat';
    END IF;
END $$;

-- The chat, which nobody else changes until the end of the transaction.
CREATE FUNCTION adk_bridge.locked_chat(_user text, _chat text, _epoch bigint) RETURNS adk_bridge.chats
LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats;
BEGIN
    PERFORM adk_bridge.fence(_user, _chat, _epoch);
    SELECT * INTO _found FROM adk_bridge.chats c WHERE c.user_id = _user AND c.id = _chat FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB002', MESSAGE = 'no such chat';
    END IF;
    RETURN _found;
END $$;

-- Refuses a write that was given up before, and repeated: others have followed since.
CREATE FUNCTION adk_bridge.refuse_late(_found adk_bridge.chats, _epoch bigint, _number bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _found.write_epoch = _epoch AND _found.write_number > _number THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB001', MESSAGE = 'this was given up before';
    END IF;
END $$;

-- Lets the write that follows be lost if the database crashes within a moment. The next commit of a reply makes it last.
CREATE FUNCTION adk_bridge.hurry() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END $$;

CREATE FUNCTION adk_bridge.create_chat(_user text, _chat text, _epoch bigint, _now bigint)
RETURNS adk_bridge.chats LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats;
BEGIN
    PERFORM adk_bridge.fence(_user, _chat, _epoch);
    INSERT INTO adk_bridge.chats (user_id, id, created_at, updated_at) VALUES (_user, _chat, _now, _now)
    ON CONFLICT (user_id, id) DO NOTHING;
    SELECT * INTO _found FROM adk_bridge.chats c WHERE c.user_id = _user AND c.id = _chat;
    IF NOT FOUND THEN
        -- Deleted at this moment.
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the chat is being deleted';
    END IF;
    RETURN _found;
END $$;

CREATE FUNCTION adk_bridge.set_title(_user text, _chat text, _epoch bigint, _title text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
BEGIN
    UPDATE adk_bridge.chats c SET title = _title WHERE c.key = _found.key;
END $$;

-- Returns the files whose content must be deleted.
CREATE FUNCTION adk_bridge.delete_chat(_user text, _chat text, _epoch bigint)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    _key bigint;
BEGIN
    PERFORM adk_bridge.fence(_user, _chat, _epoch);
    -- Whoever adds to the chat at this moment waits, and then finds it gone.
    SELECT c.key INTO _key FROM adk_bridge.chats c WHERE c.user_id = _user AND c.id = _chat FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB002', MESSAGE = 'no such chat';
    END IF;
    RETURN QUERY
        INSERT INTO adk_bridge.deleted_files (id) SELECT f.id FROM adk_bridge.files f WHERE f.chat = _key
        ON CONFLICT DO NOTHING RETURNING deleted_files.id;
    DELETE FROM adk_bridge.chats c WHERE c.key = _key;
END $$;

CREATE FUNCTION adk_bridge.mark_seen(_user text, _chat text, _epoch bigint, _ids text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _key bigint;
BEGIN
    PERFORM adk_bridge.hurry();
    PERFORM adk_bridge.fence(_user, _chat, _epoch);
    SELECT c.key INTO _key FROM adk_bridge.chats c WHERE c.user_id = _user AND c.id = _chat;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB002', MESSAGE = 'no such chat';
    END IF;
    UPDATE adk_bridge.messages m SET seen = true
    WHERE m.chat = _key AND m.id = ANY (_ids) AND m.cut_in IS NULL AND NOT m.seen;
END $$;

-- Puts messages at the end of a chat.
CREATE FUNCTION adk_bridge.add_messages(_key bigint, _ids text[], _bodies text[], _seen boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _taken text;
BEGIN
    IF cardinality(_ids) = 0 THEN
        RETURN;
    END IF;
    SELECT m.id INTO _taken FROM unnest(_ids) WITH ORDINALITY AS m (id, place)
    WHERE EXISTS (SELECT 1 FROM adk_bridge.messages old WHERE old.chat = _key AND old.id = m.id AND old.cut_in IS NULL)
       OR array_position(_ids, m.id) < m.place
    ORDER BY m.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB006', MESSAGE = _taken;
    END IF;
    INSERT INTO adk_bridge.messages (chat, id, state, seen, body)
    SELECT _key, m.id, 'done', _seen, m.body
    FROM unnest(_ids, _bodies) WITH ORDINALITY AS m (id, body, place) ORDER BY m.place;
END $$;

-- Hides messages: those after one, one and those after it, or all but some.
CREATE FUNCTION adk_bridge.cut(_key bigint, _cut text, _at text, _places bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _next bigint;
    _first bigint;
BEGIN
    IF _cut = 'nothing' THEN
        RETURN;
    END IF;
    SELECT c.generation + 1 INTO _next FROM adk_bridge.chats c WHERE c.key = _key;
    IF _cut = 'all but' THEN
        IF EXISTS (SELECT 1 FROM adk_bridge.messages m
                   WHERE m.chat = _key AND m.open AND m.cut_in IS NULL AND m.seq <> ALL (_places)) THEN
            RAISE EXCEPTION USING ERRCODE = 'ZB004', MESSAGE = 'a reply is open';
        END IF;
        -- Hidden first: one that is shown again may have the id of one that was shown.
        UPDATE adk_bridge.messages m SET cut_in = _next
        WHERE m.chat = _key AND m.cut_in IS NULL AND m.seq <> ALL (_places);
        UPDATE adk_bridge.messages m SET cut_in = NULL
        WHERE m.chat = _key AND m.cut_in IS NOT NULL AND m.seq = ANY (_places);
    ELSE
        SELECT m.seq + CASE _cut WHEN 'after' THEN 1 ELSE 0 END INTO _first FROM adk_bridge.messages m
        WHERE m.chat = _key AND m.id = _at AND m.cut_in IS NULL;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'ZB003', MESSAGE = 'no such message';
        END IF;
        IF EXISTS (SELECT 1 FROM adk_bridge.messages m WHERE m.chat = _key AND m.open AND m.seq >= _first) THEN
            RAISE EXCEPTION USING ERRCODE = 'ZB004', MESSAGE = 'a reply is open';
        END IF;
        UPDATE adk_bridge.messages m SET cut_in = _next
        WHERE m.chat = _key AND m.seq >= _first AND m.cut_in IS NULL;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    UPDATE adk_bridge.chats c SET generation = _next WHERE c.key = _key;
END $$;

CREATE FUNCTION adk_bridge.append_messages(
    _user text, _chat text, _epoch bigint, _write uuid, _number bigint, _now bigint,
    _ids text[], _bodies text[], _title text, _bytes bigint, _cut text, _at text, _places bigint[])
RETURNS adk_bridge.chats LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
BEGIN
    IF _found.last_write = _write THEN
        RETURN _found;
    END IF;
    PERFORM adk_bridge.refuse_late(_found, _epoch, _number);
    PERFORM adk_bridge.cut(_found.key, _cut, _at, _places);
    PERFORM adk_bridge.add_messages(_found.key, _ids, _bodies, true);
    -- A clock that was set back does not move a chat down the list.
    UPDATE adk_bridge.chats c
    SET updated_at = greatest(c.updated_at, _now), title = coalesce(c.title, _title), bytes = c.bytes + _bytes,
        last_write = _write, write_epoch = _epoch, write_number = _number
    WHERE c.key = _found.key RETURNING * INTO _found;
    RETURN _found;
END $$;

-- Overwrites a message that is not a reply. A title from the message grows with it; one that the user chose stays.
CREATE FUNCTION adk_bridge.revise_message(
    _user text, _chat text, _epoch bigint, _number bigint, _id text, _body text, _title text, _title_before text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
    _seq bigint;
    _before bigint;
BEGIN
    PERFORM adk_bridge.refuse_late(_found, _epoch, _number);
    PERFORM adk_bridge.hurry();
    SELECT m.seq, octet_length(m.body) INTO _seq, _before FROM adk_bridge.messages m
    WHERE m.chat = _found.key AND m.id = _id AND m.cut_in IS NULL AND m.reply IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB003', MESSAGE = 'no such message';
    END IF;
    UPDATE adk_bridge.messages m SET body = _body WHERE m.seq = _seq;
    UPDATE adk_bridge.chats c
    SET bytes = c.bytes + octet_length(_body) - _before, write_epoch = _epoch, write_number = _number,
        title = CASE WHEN _title IS NOT NULL AND (c.title IS NULL OR c.title = _title_before) THEN _title ELSE c.title END
    WHERE c.key = _found.key;
END $$;

-- Puts a new reply at the end of a chat.
CREATE FUNCTION adk_bridge.add_reply(_key bigint, _id text, _state text, _open boolean, _owed text[], _reply text, _body text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO adk_bridge.messages (chat, id, state, open, owed, seen, reply, body)
    VALUES (_key, _id, _state, _open, _owed, false, _reply, _body);
END $$;

-- Stores new approvals, and decides open ones. A decision never changes: a different one is a conflict.
CREATE FUNCTION adk_bridge.store_approvals(
    _key bigint, _message text, _ids text[], _calls text[], _tools text[], _inputs text[], _hashes text[],
    _asked bigint[], _expires bigint[], _states text[], _reasons text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _stored record;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(_ids), 0) LOOP
        SELECT a.message_id, a.state, a.reason INTO _stored FROM adk_bridge.approvals a
        WHERE a.chat = _key AND a.id = _ids[i];
        IF NOT FOUND THEN
            INSERT INTO adk_bridge.approvals
                (chat, id, message_id, call_id, tool, input, input_hash, asked_at, expires_at, state, reason)
            VALUES (_key, _ids[i], _message, _calls[i], _tools[i], _inputs[i], _hashes[i],
                    _asked[i], _expires[i], _states[i], _reasons[i]);
        ELSIF _stored.message_id <> _message THEN
            RAISE EXCEPTION USING ERRCODE = 'ZB007', MESSAGE = _ids[i], DETAIL = 'part of another reply';
        ELSIF _stored.state = _states[i] AND _stored.reason IS NOT DISTINCT FROM _reasons[i] THEN
            NULL;
        ELSIF _stored.state = 'requested' THEN
            UPDATE adk_bridge.approvals a SET state = _states[i], reason = _reasons[i]
            WHERE a.chat = _key AND a.id = _ids[i];
        ELSE
            RAISE EXCEPTION USING ERRCODE = 'ZB007', MESSAGE = _ids[i], DETAIL = _stored.state;
        END IF;
    END LOOP;
END $$;

-- Journals the runs of server tools; one without an outcome is running.
CREATE FUNCTION adk_bridge.journal_runs(
    _key bigint, _message text, _now bigint, _calls text[], _tools text[], _outcomes text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _stored record;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(_calls), 0) LOOP
        SELECT r.message_id, r.outcome INTO _stored FROM adk_bridge.tool_runs r
        WHERE r.chat = _key AND r.call_id = _calls[i];
        IF NOT FOUND THEN
            -- One that is settled without having run has no run.
            IF _outcomes[i] IS NULL THEN
                INSERT INTO adk_bridge.tool_runs (chat, call_id, message_id, tool, started_at)
                VALUES (_key, _calls[i], _message, _tools[i], _now);
            END IF;
        ELSIF _stored.message_id <> _message THEN
            IF _outcomes[i] IS NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'ZB008', MESSAGE = _calls[i];
            END IF;
        ELSIF _stored.outcome IS NULL THEN
            -- One that is running may be run again if that is harmless; the caller knows.
            IF _outcomes[i] IS NOT NULL THEN
                UPDATE adk_bridge.tool_runs r SET finished_at = _now, outcome = _outcomes[i]
                WHERE r.chat = _key AND r.call_id = _calls[i];
            END IF;
        ELSIF _stored.outcome IS DISTINCT FROM _outcomes[i] THEN
            RAISE EXCEPTION USING ERRCODE = 'ZB008', MESSAGE = _calls[i];
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION adk_bridge.add_audit(
    _user text, _chat text, _at bigint[], _turns text[], _connections text[], _kinds text[], _calls text[],
    _tools text[], _approvals text[], _transports text[], _dialects text[], _reasons text[], _hashes text[], _replicas text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO adk_bridge.audit
        (user_id, chat_id, at, turn_id, connection_id, kind, tool_call_id, tool_name, approval_id, transport, dialect,
         reason, input_hash, replica)
    SELECT _user, _chat, a.at, a.turn, a.connection, a.kind, a.call, a.tool, a.approval, a.transport, a.dialect,
           a.reason, a.hash, a.replica
    FROM unnest(_at, _turns, _connections, _kinds, _calls, _tools, _approvals, _transports, _dialects, _reasons,
                _hashes, _replicas) WITH ORDINALITY
         AS a (at, turn, connection, kind, call, tool, approval, transport, dialect, reason, hash, replica, place)
    ORDER BY a.place;
END $$;

CREATE FUNCTION adk_bridge.append_audit(
    _user text, _chat text, _epoch bigint, _write uuid, _number bigint,
    _at bigint[], _turns text[], _connections text[], _kinds text[], _calls text[],
    _tools text[], _approvals text[], _transports text[], _dialects text[], _reasons text[], _hashes text[],
    _replicas text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
BEGIN
    IF _found.last_write = _write THEN
        RETURN;
    END IF;
    PERFORM adk_bridge.refuse_late(_found, _epoch, _number);
    PERFORM adk_bridge.add_audit(_user, _chat, _at, _turns, _connections, _kinds, _calls, _tools, _approvals,
                                 _transports, _dialects, _reasons, _hashes, _replicas);
    UPDATE adk_bridge.chats c SET last_write = _write, write_epoch = _epoch, write_number = _number
    WHERE c.key = _found.key;
END $$;

-- Begins a reply, in a new chat or at the end of one. Its calls and the audit follow only if there are any.
CREATE FUNCTION adk_bridge.begin_reply(
    _user text, _chat text, _epoch bigint, _write uuid, _number bigint, _now bigint,
    _ids text[], _bodies text[], _heard boolean, _title text, _agent text, _cut text, _at text, _places bigint[],
    _id text, _state text, _open boolean, _owed text[], _reply text, _body text, _bytes bigint,
    _approvals text[] DEFAULT NULL, _approval_calls text[] DEFAULT NULL, _approval_tools text[] DEFAULT NULL,
    _inputs text[] DEFAULT NULL, _input_hashes text[] DEFAULT NULL, _asked bigint[] DEFAULT NULL,
    _expires bigint[] DEFAULT NULL, _approval_states text[] DEFAULT NULL, _approval_reasons text[] DEFAULT NULL,
    _runs text[] DEFAULT NULL, _run_tools text[] DEFAULT NULL, _outcomes text[] DEFAULT NULL,
    _audit_at bigint[] DEFAULT NULL, _turns text[] DEFAULT NULL, _connections text[] DEFAULT NULL,
    _kinds text[] DEFAULT NULL, _audit_calls text[] DEFAULT NULL, _audit_tools text[] DEFAULT NULL,
    _audit_approvals text[] DEFAULT NULL, _transports text[] DEFAULT NULL, _dialects text[] DEFAULT NULL,
    _audit_reasons text[] DEFAULT NULL, _audit_hashes text[] DEFAULT NULL, _replicas text[] DEFAULT NULL)
RETURNS adk_bridge.chats LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats;
BEGIN
    PERFORM adk_bridge.fence(_user, _chat, _epoch);
    LOOP
        SELECT * INTO _found FROM adk_bridge.chats c WHERE c.user_id = _user AND c.id = _chat FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO adk_bridge.chats (user_id, id, created_at, updated_at) VALUES (_user, _chat, _now, _now)
        ON CONFLICT (user_id, id) DO NOTHING RETURNING * INTO _found;
        EXIT WHEN FOUND;
    END LOOP;
    IF _found.last_write = _write THEN
        RETURN _found;
    END IF;
    PERFORM adk_bridge.refuse_late(_found, _epoch, _number);
    PERFORM adk_bridge.cut(_found.key, _cut, _at, _places);
    PERFORM adk_bridge.add_messages(_found.key, _ids, _bodies, NOT _heard);
    -- Shown or cut.
    IF EXISTS (SELECT 1 FROM adk_bridge.messages m WHERE m.chat = _found.key AND m.id = _id) THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB006', MESSAGE = _id;
    END IF;
    PERFORM adk_bridge.add_reply(_found.key, _id, _state, _open, _owed, _reply, _body);
    IF _kinds IS NOT NULL THEN
        PERFORM adk_bridge.store_approvals(
            _found.key, _id, _approvals, _approval_calls, _approval_tools, _inputs, _input_hashes, _asked, _expires,
            _approval_states, _approval_reasons);
        PERFORM adk_bridge.journal_runs(_found.key, _id, _now, _runs, _run_tools, _outcomes);
        PERFORM adk_bridge.add_audit(
            _user, _chat, _audit_at, _turns, _connections, _kinds, _audit_calls, _audit_tools, _audit_approvals,
            _transports, _dialects, _audit_reasons, _audit_hashes, _replicas);
    END IF;
    UPDATE adk_bridge.chats c
    SET updated_at = greatest(c.updated_at, _now), title = coalesce(c.title, _title),
        agent = coalesce(c.agent, _agent), bytes = c.bytes + _bytes, last_write = _write,
        write_epoch = _epoch, write_number = _number
    WHERE c.key = _found.key RETURNING * INTO _found;
    RETURN _found;
END $$;

-- Stores a reply, at the end of the chat if it is new. Returns how much is kept of the chat.
CREATE FUNCTION adk_bridge.commit_reply(
    _user text, _chat text, _epoch bigint, _write uuid, _number bigint, _now bigint,
    _id text, _state text, _open boolean, _owed text[], _reply text, _body text,
    _approvals text[] DEFAULT NULL, _approval_calls text[] DEFAULT NULL, _approval_tools text[] DEFAULT NULL,
    _inputs text[] DEFAULT NULL, _input_hashes text[] DEFAULT NULL, _asked bigint[] DEFAULT NULL,
    _expires bigint[] DEFAULT NULL, _approval_states text[] DEFAULT NULL, _approval_reasons text[] DEFAULT NULL,
    _runs text[] DEFAULT NULL, _run_tools text[] DEFAULT NULL, _outcomes text[] DEFAULT NULL,
    _audit_at bigint[] DEFAULT NULL, _turns text[] DEFAULT NULL, _connections text[] DEFAULT NULL,
    _kinds text[] DEFAULT NULL, _audit_calls text[] DEFAULT NULL, _audit_tools text[] DEFAULT NULL,
    _audit_approvals text[] DEFAULT NULL, _transports text[] DEFAULT NULL, _dialects text[] DEFAULT NULL,
    _audit_reasons text[] DEFAULT NULL, _audit_hashes text[] DEFAULT NULL, _replicas text[] DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
    _seq bigint;
    _before bigint;
    _kept bigint;
BEGIN
    IF _found.last_write = _write THEN
        RETURN _found.bytes;
    END IF;
    PERFORM adk_bridge.refuse_late(_found, _epoch, _number);
    SELECT m.seq, octet_length(m.body) + octet_length(m.reply) INTO _seq, _before FROM adk_bridge.messages m
    WHERE m.chat = _found.key AND m.id = _id AND m.cut_in IS NULL AND m.reply IS NOT NULL;
    IF FOUND THEN
        UPDATE adk_bridge.messages m SET state = _state, open = _open, owed = _owed, reply = _reply, body = _body
        WHERE m.seq = _seq;
    ELSE
        PERFORM 1 FROM adk_bridge.messages m WHERE m.chat = _found.key AND m.id = _id AND m.cut_in IS NULL;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'ZB006', MESSAGE = _id;
        END IF;
        PERFORM 1 FROM adk_bridge.messages m WHERE m.chat = _found.key AND m.id = _id;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'ZB005', MESSAGE = _id;
        END IF;
        PERFORM adk_bridge.add_reply(_found.key, _id, _state, _open, _owed, _reply, _body);
    END IF;
    IF _kinds IS NOT NULL THEN
        PERFORM adk_bridge.store_approvals(
            _found.key, _id, _approvals, _approval_calls, _approval_tools, _inputs, _input_hashes, _asked, _expires,
            _approval_states, _approval_reasons);
        PERFORM adk_bridge.journal_runs(_found.key, _id, _now, _runs, _run_tools, _outcomes);
        PERFORM adk_bridge.add_audit(
            _user, _chat, _audit_at, _turns, _connections, _kinds, _audit_calls, _audit_tools, _audit_approvals,
            _transports, _dialects, _audit_reasons, _audit_hashes, _replicas);
    END IF;
    UPDATE adk_bridge.chats c
    SET updated_at = greatest(c.updated_at, _now), last_write = _write, write_epoch = _epoch, write_number = _number,
        bytes = c.bytes + octet_length(_body) + octet_length(_reply) - coalesce(_before, 0)
    WHERE c.key = _found.key RETURNING c.bytes INTO _kept;
    RETURN _kept;
END $$;

CREATE FUNCTION adk_bridge.checkpoint_reply(
    _user text, _chat text, _epoch bigint, _number bigint,
    _id text, _state text, _open boolean, _owed text[], _reply text, _body text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
    _seq bigint;
    _before bigint;
BEGIN
    PERFORM adk_bridge.refuse_late(_found, _epoch, _number);
    PERFORM adk_bridge.hurry();
    SELECT m.seq, octet_length(m.body) + octet_length(m.reply) INTO _seq, _before FROM adk_bridge.messages m
    WHERE m.chat = _found.key AND m.id = _id AND m.cut_in IS NULL AND m.reply IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB003', MESSAGE = 'no such message';
    END IF;
    UPDATE adk_bridge.messages m SET state = _state, open = _open, owed = _owed, reply = _reply, body = _body
        WHERE m.seq = _seq;
    UPDATE adk_bridge.chats c
    SET bytes = c.bytes + octet_length(_body) + octet_length(_reply) - _before,
        write_epoch = _epoch, write_number = _number
    WHERE c.key = _found.key;
END $$;

CREATE FUNCTION adk_bridge.append_events(
    _user text, _chat text, _epoch bigint, _write uuid, _number bigint, _generation bigint, _message text, _bodies text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
BEGIN
    IF _found.last_write = _write THEN
        RETURN;
    END IF;
    PERFORM adk_bridge.refuse_late(_found, _epoch, _number);
    -- The commit of the reply that they belong to follows and makes them durable with it.
    PERFORM adk_bridge.hurry();
    INSERT INTO adk_bridge.events (chat, generation, message_id, body)
    SELECT _found.key, _generation, _message, e.body
    FROM unnest(_bodies) WITH ORDINALITY AS e (body, place) ORDER BY e.place;
    UPDATE adk_bridge.chats c
    SET last_write = _write, write_epoch = _epoch, write_number = _number,
        bytes = c.bytes + (SELECT coalesce(sum(octet_length(e.body)), 0) FROM unnest(_bodies) AS e (body))
    WHERE c.key = _found.key;
END $$;

-- One value of the chat's state, which nobody else changes until the end of the transaction.
CREATE FUNCTION adk_bridge.locked_state(_user text, _chat text, _epoch bigint, _key text)
RETURNS TABLE (chat bigint, value text) LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
BEGIN
    RETURN QUERY SELECT _found.key, (SELECT s.value FROM adk_bridge.chat_state s
                                     WHERE s.chat = _found.key AND s.key = _key);
END $$;

-- Changes one value of the state of a chat that is locked; without a value there is none any more.
CREATE FUNCTION adk_bridge.set_state(_chat bigint, _key text, _value text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _before bigint;
BEGIN
    SELECT octet_length(s.value) INTO _before FROM adk_bridge.chat_state s WHERE s.chat = _chat AND s.key = _key;
    IF _value IS NULL THEN
        DELETE FROM adk_bridge.chat_state s WHERE s.chat = _chat AND s.key = _key;
    ELSE
        INSERT INTO adk_bridge.chat_state (chat, key, value) VALUES (_chat, _key, _value)
        ON CONFLICT (chat, key) DO UPDATE SET value = excluded.value;
    END IF;
    UPDATE adk_bridge.chats c SET bytes = c.bytes + coalesce(octet_length(_value), 0) - coalesce(_before, 0)
    WHERE c.key = _chat;
END $$;

CREATE FUNCTION adk_bridge.add_file(
    _user text, _chat text, _epoch bigint, _id text, _media_type text, _bytes bigint, _name text, _created bigint,
    _repeated boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
BEGIN
    -- A write that is repeated finds its own row.
    INSERT INTO adk_bridge.files (id, chat, media_type, bytes, name, created_at)
    SELECT _id, _found.key, _media_type, _bytes, _name, _created
    WHERE NOT (_repeated AND EXISTS (SELECT 1 FROM adk_bridge.files f WHERE f.id = _id AND f.chat = _found.key));
END $$;

CREATE FUNCTION adk_bridge.secret(_name text, _fresh bytea) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO adk_bridge.secrets (name, value) VALUES (_name, _fresh) ON CONFLICT DO NOTHING;
    RETURN (SELECT s.value FROM adk_bridge.secrets s WHERE s.name = _name);
END $$;

-- A time as the protocol counts it.
CREATE FUNCTION adk_bridge.millis(_at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM _at) * 1000)::bigint
$$;

-- How long a replica has given no sign of life, in milliseconds.
CREATE FUNCTION adk_bridge.silence(_replica adk_bridge.replicas) RETURNS bigint LANGUAGE sql AS $$
    SELECT greatest(0, (extract(epoch FROM clock_timestamp() - _replica.heartbeat) * 1000)::bigint)
$$;

-- Whether a replica counts as living. That is decided by its own lease, which it counts on: others may have another one
-- while a new configuration replaces an old one.
CREATE FUNCTION adk_bridge.lives(_replica adk_bridge.replicas) RETURNS boolean LANGUAGE sql AS $$
    SELECT _replica.heartbeat > clock_timestamp() - _replica.lease
$$;

-- Adds a replica, unless another one that lives has its name; then that one is returned.
CREATE FUNCTION adk_bridge.join_replica(_name text, _instance text, _address text, _lease interval)
RETURNS TABLE (now_at bigint, name text, address text, silent bigint, lease bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- The chats of the one whose row is replaced belong to nobody any more.
    DELETE FROM adk_bridge.ownership o USING adk_bridge.replicas r
    WHERE r.name = _name AND NOT adk_bridge.lives(r) AND o.owner = r.instance
      AND r.instance <> _instance;
    INSERT INTO adk_bridge.replicas AS r (name, instance, address, lease, heartbeat)
    VALUES (_name, _instance, _address, _lease, clock_timestamp())
    ON CONFLICT (name) DO UPDATE
    SET instance = excluded.instance, address = excluded.address, lease = excluded.lease,
        heartbeat = excluded.heartbeat, draining = false
    WHERE r.instance = excluded.instance OR NOT adk_bridge.lives(r);
    RETURN QUERY
        SELECT adk_bridge.millis(clock_timestamp()), r.name, r.address, adk_bridge.silence(r),
               (extract(epoch FROM r.lease) * 1000)::bigint
        FROM (SELECT 1) AS one LEFT JOIN adk_bridge.replicas r ON r.name = _name AND r.instance <> _instance;
END $$;

-- Renews the lease of a replica, unless it has run out: then no row is returned. A row for each other replica that lives
-- and takes chats, or an empty one.
CREATE FUNCTION adk_bridge.heartbeat(_instance text, _draining boolean)
RETURNS TABLE (now_at bigint, name text, address text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- Waits for the disk: whoever counts on this lease must not lose a part of it to a crash of the database.
    UPDATE adk_bridge.replicas r SET heartbeat = clock_timestamp(), draining = _draining
    WHERE r.instance = _instance AND adk_bridge.lives(r);
    IF FOUND THEN
        RETURN QUERY
            SELECT adk_bridge.millis(clock_timestamp()), r.name, r.address
            FROM (SELECT 1) AS one
            LEFT JOIN adk_bridge.replicas r
                ON r.instance <> _instance AND NOT r.draining AND adk_bridge.lives(r)
            ORDER BY r.name;
    END IF;
END $$;

CREATE FUNCTION adk_bridge.leave_replica(_instance text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM adk_bridge.ownership o WHERE o.owner = _instance;
    DELETE FROM adk_bridge.replicas r WHERE r.instance = _instance;
END $$;

-- Takes a chat for a replica and begins a new epoch, unless another replica that lives has it; then that one is returned.
-- How long the owner before has been silent is returned if it is dead and has not left.
CREATE FUNCTION adk_bridge.take_chat(_user text, _chat text, _instance text)
RETURNS TABLE (epoch bigint, name text, address text, silent bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _held text;
    _owner adk_bridge.replicas;
BEGIN
    PERFORM 1 FROM adk_bridge.replicas r WHERE r.instance = _instance AND adk_bridge.lives(r);
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB001', MESSAGE = 'this replica is dead to the others';
    END IF;
    LOOP
        -- Waits for a write of the owner that is under way.
        SELECT o.owner INTO _held FROM adk_bridge.ownership o
        WHERE o.user_id = _user AND o.chat_id = _chat FOR UPDATE;
        IF NOT FOUND THEN
            RETURN QUERY
                INSERT INTO adk_bridge.ownership AS o (user_id, chat_id, owner, epoch)
                VALUES (_user, _chat, _instance, nextval('adk_bridge.epochs'))
                ON CONFLICT DO NOTHING RETURNING o.epoch, NULL::text, NULL::text, NULL::bigint;
            EXIT WHEN FOUND;
            CONTINUE;
        END IF;
        SELECT * INTO _owner FROM adk_bridge.replicas r WHERE r.instance = _held AND r.instance <> _instance;
        IF FOUND AND adk_bridge.lives(_owner) THEN
            RETURN QUERY SELECT NULL::bigint, _owner.name, _owner.address, NULL::bigint;
        ELSE
            RETURN QUERY
                UPDATE adk_bridge.ownership o SET owner = _instance, epoch = nextval('adk_bridge.epochs')
                WHERE o.user_id = _user AND o.chat_id = _chat
                RETURNING o.epoch, NULL::text, NULL::text,
                          CASE WHEN _owner.name IS NOT NULL THEN adk_bridge.silence(_owner) END;
        END IF;
        EXIT;
    END LOOP;
END $$;

-- Some chats with open replies and without a living owner, in no order: whoever asks at the same moment gets others.
-- Forgets what dead replicas have left of chats that nobody needs to take.
CREATE FUNCTION adk_bridge.orphans(_limit bigint)
RETURNS TABLE (user_id text, chat_id text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM adk_bridge.hurry();
    DELETE FROM adk_bridge.ownership o USING (
        SELECT d.user_id, d.chat_id FROM adk_bridge.ownership d
        WHERE NOT EXISTS (SELECT 1 FROM adk_bridge.replicas r WHERE r.instance = d.owner AND adk_bridge.lives(r))
          AND NOT EXISTS (SELECT 1 FROM adk_bridge.chats c JOIN adk_bridge.messages m ON m.chat = c.key AND m.open
                          WHERE c.user_id = d.user_id AND c.id = d.chat_id)
        FOR UPDATE OF d SKIP LOCKED) AS idle
    WHERE o.user_id = idle.user_id AND o.chat_id = idle.chat_id;
    DELETE FROM adk_bridge.replicas r WHERE r.heartbeat < clock_timestamp() - interval '1 day';
    RETURN QUERY
        SELECT c.user_id, c.id
        FROM adk_bridge.chats c
        LEFT JOIN adk_bridge.ownership o ON o.user_id = c.user_id AND o.chat_id = c.id
        LEFT JOIN adk_bridge.replicas r ON r.instance = o.owner AND adk_bridge.lives(r)
        WHERE c.key IN (SELECT m.chat FROM adk_bridge.messages m WHERE m.open) AND r.name IS NULL
        ORDER BY random() LIMIT _limit;
END $$;
