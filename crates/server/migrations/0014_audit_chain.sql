-- Rows of the audit are chained by hash, those of each chat in a chain of their own, and seals cover them all. What is hashed
-- is written down in audit/chain.rs and audit/seal.rs. Rows from before have no hash.

-- The row of the same chat before this one, and its hash.
ALTER TABLE audit ADD COLUMN previous INTEGER;
ALTER TABLE audit ADD COLUMN previous_hash TEXT;
-- The chain holds the reason by its digest, so that the reason can be erased. The salt, which goes with it, keeps the digest
-- from being guessed.
ALTER TABLE audit ADD COLUMN reason_salt TEXT;
ALTER TABLE audit ADD COLUMN reason_hash TEXT;
ALTER TABLE audit ADD COLUMN hash TEXT;

CREATE TABLE audit_seals (
    number        INTEGER NOT NULL PRIMARY KEY,
    previous_hash TEXT,
    -- It covers the rows after one, through another: how many, which, and a digest of their hashes.
    after_row     INTEGER NOT NULL,
    through_row   INTEGER NOT NULL,
    row_count     INTEGER NOT NULL,
    row_ids       TEXT    NOT NULL,
    digest        TEXT    NOT NULL,
    -- Rows through this one may be removed, because of their age.
    removed_row   INTEGER NOT NULL,
    -- Rows through this one may have no hash.
    unchained_row INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    hash          TEXT    NOT NULL,
    key_id        TEXT,
    signature     TEXT
) STRICT;

DROP TRIGGER audit_is_not_changed;
DROP TRIGGER audit_is_not_deleted;

-- Only what people wrote can be erased.
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
WHEN NOT (NEW.reason IS NULL AND NEW.reason_salt IS NULL
    AND NEW.id IS OLD.id AND NEW.at IS OLD.at AND NEW.user IS OLD.user AND NEW.chat_id IS OLD.chat_id
    AND NEW.turn_id IS OLD.turn_id AND NEW.connection_id IS OLD.connection_id AND NEW.kind IS OLD.kind
    AND NEW.tool_call_id IS OLD.tool_call_id AND NEW.tool_name IS OLD.tool_name
    AND NEW.approval_id IS OLD.approval_id AND NEW.transport IS OLD.transport AND NEW.dialect IS OLD.dialect
    AND NEW.input_hash IS OLD.input_hash AND NEW.replica IS OLD.replica AND NEW.previous IS OLD.previous
    AND NEW.previous_hash IS OLD.previous_hash AND NEW.reason_hash IS OLD.reason_hash AND NEW.hash IS OLD.hash)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

-- Only what a seal gives up can be removed.
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
WHEN OLD.id > coalesce((SELECT removed_row FROM audit_seals ORDER BY number DESC LIMIT 1), 0)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

CREATE TRIGGER seals_are_not_changed BEFORE UPDATE ON audit_seals
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

CREATE TRIGGER seals_are_not_deleted BEFORE DELETE ON audit_seals
WHEN OLD.number = (SELECT max(number) FROM audit_seals)
    OR OLD.through_row > (SELECT removed_row FROM audit_seals ORDER BY number DESC LIMIT 1)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

CREATE TRIGGER seals_are_not_replaced BEFORE INSERT ON audit_seals
WHEN EXISTS (SELECT 1 FROM audit_seals WHERE number = NEW.number)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
