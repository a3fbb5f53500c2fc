-- Rows that may hold what an ADK server said about credentials, from before it was withheld. SQL finds them; the program
-- rewrites them when it starts (store/sqlite/credentials.rs), and drops this table when the file holds none of it any more.

CREATE TABLE credentials (
    source TEXT    NOT NULL CHECK (source IN ('messages', 'events', 'approvals')),
    row    INTEGER NOT NULL,
    -- Whether it has been rewritten.
    done   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (source, row)
) STRICT;

INSERT INTO credentials (source, row) SELECT 'messages', seq FROM messages
    WHERE instr(body, 'adk_request_credential') OR instr(reply, 'adk_request_credential')
       OR instr(body, 'uthConfig') OR instr(body, 'uth_config')
       OR instr(body, 'uthCredential') OR instr(body, 'uth_credential')
       OR instr(body, 'authType') OR instr(body, 'auth_type')
       OR instr(body, 'lient_secret') OR instr(body, 'lientSecret')
       OR instr(body, 'efresh_token') OR instr(body, 'efreshToken');
INSERT INTO credentials (source, row) SELECT 'events', seq FROM events
    WHERE instr(body, 'adk_request_credential')
       OR instr(body, 'uthConfig') OR instr(body, 'uth_config')
       OR instr(body, 'uthCredential') OR instr(body, 'uth_credential')
       OR instr(body, 'authType') OR instr(body, 'auth_type')
       OR instr(body, 'lient_secret') OR instr(body, 'lientSecret')
       OR instr(body, 'efresh_token') OR instr(body, 'efreshToken');
INSERT INTO credentials (source, row) SELECT 'approvals', rowid FROM approvals WHERE tool = 'adk_request_credential';
