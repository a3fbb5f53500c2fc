-- What survives: chats, their messages and replies, approvals, tool runs, the audit, agents' events, files.

-- Tells a database of this program from any other: "ADKB".
PRAGMA application_id = 1094994754;

CREATE TABLE chats (
    -- Chosen by the front end.
    id         TEXT    NOT NULL PRIMARY KEY,
    user       TEXT    NOT NULL,
    title      TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Counts the cuts.
    generation INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX chats_of_user ON chats (user, updated_at, id);

CREATE TABLE messages (
    -- Also the order within a chat.
    seq     INTEGER NOT NULL PRIMARY KEY,
    chat_id TEXT    NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    id      TEXT    NOT NULL,
    -- The generation that began without it; what is cut is kept and not shown.
    cut_in  INTEGER,
    state   TEXT    NOT NULL CHECK (state IN ('done', 'waiting', 'running')),
    -- Whether it is a reply that a restart must take up again.
    open    INTEGER NOT NULL DEFAULT 0,
    -- What a reply needs besides its message to go on, as JSON. It stands before the body, so that reading it does
    -- not walk through a long one.
    reply   TEXT,
    -- The message, as JSON.
    body    TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX messages_shown ON messages (chat_id, id) WHERE cut_in IS NULL;
CREATE INDEX messages_cut ON messages (chat_id, id) WHERE cut_in IS NOT NULL;
CREATE INDEX messages_in_order ON messages (chat_id, seq);
-- A chat has one reply in the making.
CREATE UNIQUE INDEX replies_open ON messages (chat_id) WHERE open = 1;

CREATE TABLE approvals (
    chat_id    TEXT    NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    id         TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    -- The arguments that were shown, and are run.
    input      TEXT    NOT NULL,
    input_hash TEXT    NOT NULL,
    asked_at   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    state      TEXT    NOT NULL
        CHECK (state IN ('requested', 'approved', 'denied', 'expired', 'superseded')),
    reason     TEXT,
    PRIMARY KEY (chat_id, id)
) STRICT;

CREATE INDEX approvals_of_reply ON approvals (chat_id, message_id);
CREATE INDEX approvals_waiting ON approvals (chat_id) WHERE state = 'requested';

-- Runs of server tools: a run that is started here and not finished is never started again.
CREATE TABLE tool_runs (
    chat_id     TEXT    NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    call_id     TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER,
    outcome     TEXT,
    PRIMARY KEY (chat_id, call_id),
    CHECK ((finished_at IS NULL) = (outcome IS NULL))
) STRICT;

CREATE INDEX tool_runs_of_reply ON tool_runs (chat_id, message_id);

CREATE TABLE chat_state (
    chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (chat_id, key)
) STRICT;

-- What remote agents said, as it came: a session that is lost or cut can be made again from it.
CREATE TABLE events (
    seq        INTEGER NOT NULL PRIMARY KEY,
    chat_id    TEXT    NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    body       TEXT    NOT NULL
) STRICT;

CREATE INDEX events_in_order ON events (chat_id, generation, seq);

CREATE TABLE files (
    id         TEXT    NOT NULL PRIMARY KEY,
    chat_id    TEXT    NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    user       TEXT    NOT NULL,
    media_type TEXT    NOT NULL,
    bytes      INTEGER NOT NULL,
    name       TEXT,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX files_of_chat ON files (chat_id);

-- No reference to the chat: the audit outlives it.
CREATE TABLE audit (
    id            INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at            INTEGER NOT NULL,
    user          TEXT    NOT NULL,
    chat_id       TEXT    NOT NULL,
    turn_id       TEXT,
    connection_id TEXT,
    kind          TEXT    NOT NULL,
    tool_call_id  TEXT,
    tool_name     TEXT,
    approval_id   TEXT,
    transport     TEXT,
    dialect       TEXT,
    reason        TEXT,
    input_hash    TEXT
) STRICT;

CREATE INDEX audit_of_chat ON audit (user, chat_id, id);

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

-- REPLACE deletes without asking the trigger above.
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
