-- Rows of the audit are chained by hash, those of each chat in a chain of their own, and seals cover them all: what is hashed
-- is written down in audit/chain.rs and audit/seal.rs. The tables mean what those of SQLite mean (migrations/0014).

ALTER TABLE adk_bridge.audit ADD COLUMN previous bigint;
ALTER TABLE adk_bridge.audit ADD COLUMN previous_hash text;
ALTER TABLE adk_bridge.audit ADD COLUMN reason_salt text;
ALTER TABLE adk_bridge.audit ADD COLUMN reason_hash text;
ALTER TABLE adk_bridge.audit ADD COLUMN hash text;

CREATE TABLE adk_bridge.audit_seals (
    number        bigint NOT NULL PRIMARY KEY,
    previous_hash text,
    after_row     bigint NOT NULL,
    through_row   bigint NOT NULL,
    row_count     bigint NOT NULL,
    row_ids       text   NOT NULL,
    digest        text   NOT NULL,
    removed_row   bigint NOT NULL,
    unchained_row bigint NOT NULL,
    at            bigint NOT NULL,
    hash          text   NOT NULL,
    key_id        text,
    signature     text
);

-- The row through which rows may be removed.
CREATE FUNCTION adk_bridge.removed_row() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT s.removed_row FROM adk_bridge.audit_seals s ORDER BY s.number DESC LIMIT 1), 0)
$$;

DROP TRIGGER audit_is_not_changed ON adk_bridge.audit;

-- Only what people wrote can be erased.
CREATE FUNCTION adk_bridge.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    _erased adk_bridge.audit := OLD;
BEGIN
    _erased.reason := NULL;
    _erased.reason_salt := NULL;
    IF NEW IS DISTINCT FROM _erased THEN
        RAISE EXCEPTION 'the audit is append-only';
    END IF;
    RETURN NEW;
END $$;

-- Only what a seal gives up can be removed.
CREATE FUNCTION adk_bridge.refuse_audit_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id > adk_bridge.removed_row() THEN
        RAISE EXCEPTION 'the audit is append-only';
    END IF;
    RETURN OLD;
END $$;

CREATE FUNCTION adk_bridge.refuse_seal_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.through_row > adk_bridge.removed_row()
       OR OLD.number = (SELECT max(s.number) FROM adk_bridge.audit_seals s) THEN
        RAISE EXCEPTION 'the audit is append-only';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON adk_bridge.audit
    FOR EACH ROW EXECUTE FUNCTION adk_bridge.refuse_audit_change();
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON adk_bridge.audit
    FOR EACH ROW EXECUTE FUNCTION adk_bridge.refuse_audit_removal();
CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON adk_bridge.audit
    EXECUTE FUNCTION adk_bridge.refuse_change();
CREATE TRIGGER seals_are_not_changed BEFORE UPDATE OR TRUNCATE ON adk_bridge.audit_seals
    EXECUTE FUNCTION adk_bridge.refuse_change();
CREATE TRIGGER seals_are_not_deleted BEFORE DELETE ON adk_bridge.audit_seals
    FOR EACH ROW EXECUTE FUNCTION adk_bridge.refuse_seal_removal();

-- A value as it is hashed: its length and itself, so that no two lists of values look the same.
CREATE FUNCTION adk_bridge.hashed(_text text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(octet_length(_text) || ':' || _text, '-')
$$;

CREATE FUNCTION adk_bridge.sha256_hex(_text text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(sha256(convert_to(_text, 'UTF8')), 'hex')
$$;

-- The number of the lock under which rows get their ids: "ADKA". Whoever holds it alone knows that no row with a smaller id
-- than the last one is still to come.
CREATE FUNCTION adk_bridge.audit_lock() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 1094994753::bigint $$;

-- Adds rows at the end of the chain of a chat, which is locked. Replicas of the version before call it too, so that a chain
-- has no holes while one version replaces the other: it takes what it took.
CREATE OR REPLACE FUNCTION adk_bridge.add_audit(
    _user text, _chat text, _at bigint[], _turns text[], _connections text[], _kinds text[], _calls text[],
    _tools text[], _approvals text[], _transports text[], _dialects text[], _reasons text[], _hashes text[], _replicas text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _previous bigint;
    _previous_hash text;
    _salt text;
    _reason_hash text;
    _hash text;
BEGIN
    IF coalesce(cardinality(_at), 0) = 0 THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(adk_bridge.audit_lock());
    SELECT a.id, a.hash INTO _previous, _previous_hash FROM adk_bridge.audit a
    WHERE a.user_id = _user AND a.chat_id = _chat ORDER BY a.id DESC LIMIT 1;
    FOR i IN 1 .. cardinality(_at) LOOP
        _salt := NULL;
        _reason_hash := NULL;
        IF _reasons[i] IS NOT NULL THEN
            _salt := replace(gen_random_uuid()::text, '-', '');
            _reason_hash := adk_bridge.sha256_hex(_salt || ':' || _reasons[i]);
        END IF;
        _hash := adk_bridge.sha256_hex(
            'row 1' || adk_bridge.hashed(_previous_hash) || adk_bridge.hashed(_previous::text)
            || adk_bridge.hashed(_at[i]::text) || adk_bridge.hashed(_user) || adk_bridge.hashed(_chat)
            || adk_bridge.hashed(_turns[i]) || adk_bridge.hashed(_connections[i]) || adk_bridge.hashed(_kinds[i])
            || adk_bridge.hashed(_calls[i]) || adk_bridge.hashed(_tools[i]) || adk_bridge.hashed(_approvals[i])
            || adk_bridge.hashed(_transports[i]) || adk_bridge.hashed(_dialects[i]) || adk_bridge.hashed(_reason_hash)
            || adk_bridge.hashed(_hashes[i]) || adk_bridge.hashed(_replicas[i]));
        INSERT INTO adk_bridge.audit
            (user_id, chat_id, at, turn_id, connection_id, kind, tool_call_id, tool_name, approval_id, transport, dialect,
             reason, input_hash, replica, previous, previous_hash, reason_salt, reason_hash, hash)
        VALUES (_user, _chat, _at[i], _turns[i], _connections[i], _kinds[i], _calls[i], _tools[i], _approvals[i],
                _transports[i], _dialects[i], _reasons[i], _hashes[i], _replicas[i], _previous, _previous_hash, _salt,
                _reason_hash, _hash)
        RETURNING id INTO _previous;
        _previous_hash := _hash;
    END LOOP;
END $$;

-- The last row, when no earlier one is still to come. Does not wait long for the writers before: others wait behind.
CREATE FUNCTION adk_bridge.audit_end() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', '1s', true);
    PERFORM pg_advisory_xact_lock(adk_bridge.audit_lock());
    RETURN (SELECT coalesce(max(a.id), 0) FROM adk_bridge.audit a);
END $$;

-- Removes rows that the newest seal gives up, and then the seals over them. Returns how many rows are gone.
CREATE FUNCTION adk_bridge.remove_audit(_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _through bigint := adk_bridge.removed_row();
    _removed bigint;
BEGIN
    PERFORM adk_bridge.hurry();
    -- Another replica may remove others at the same moment.
    DELETE FROM adk_bridge.audit a WHERE a.id IN (
        SELECT r.id FROM adk_bridge.audit r WHERE r.id <= _through ORDER BY r.id LIMIT _limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS _removed = ROW_COUNT;
    IF _removed = 0 AND NOT EXISTS (SELECT 1 FROM adk_bridge.audit a WHERE a.id <= _through) THEN
        DELETE FROM adk_bridge.audit_seals s
        WHERE s.through_row <= _through AND s.number < (SELECT max(n.number) FROM adk_bridge.audit_seals n);
    END IF;
    RETURN _removed;
END $$;

-- Erases what people wrote into rows of a user. Returns how many had something.
CREATE FUNCTION adk_bridge.erase_reasons(_user text, _limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _erased bigint;
BEGIN
    UPDATE adk_bridge.audit a SET reason = NULL, reason_salt = NULL WHERE a.id IN (
        SELECT r.id FROM adk_bridge.audit r
        WHERE r.user_id = _user AND (r.reason IS NOT NULL OR r.reason_salt IS NOT NULL) ORDER BY r.id LIMIT _limit);
    GET DIAGNOSTICS _erased = ROW_COUNT;
    RETURN _erased;
END $$;
