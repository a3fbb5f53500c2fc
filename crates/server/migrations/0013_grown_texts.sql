-- What texts of open replies have grown by since their message was stored, so that a checkpoint need not store it again.
-- It refers to messages only, so it may run before or after any other migration.

CREATE TABLE grown_texts (
    message  INTEGER NOT NULL REFERENCES messages (seq) ON DELETE CASCADE,
    -- The index of the part that has the text.
    part     INTEGER NOT NULL,
    -- How many bytes of the text come before, and their checksum: a piece fits in one place only.
    at       INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    -- As JSON, which has no NUL.
    text     TEXT    NOT NULL,
    PRIMARY KEY (message, part, at)
) STRICT, WITHOUT ROWID;

-- A message that is stored whole has them, or has taken them back.
CREATE TRIGGER grown_texts_end AFTER UPDATE OF body, open ON messages WHEN old.open = 1 BEGIN
    DELETE FROM grown_texts WHERE message = old.seq;
END;
