-- What retention needs: who of several replicas looks for what is too old, and how files go that are.

CREATE TABLE adk_bridge.jobs (
    name     text        COLLATE "C" NOT NULL PRIMARY KEY,
    -- Until then it is done, or being done, by whoever took it.
    taken_to timestamptz NOT NULL
);

-- Takes a job for a while. Returns whether it was there to be taken.
CREATE FUNCTION adk_bridge.begin_job(_name text, _hold interval) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO adk_bridge.jobs AS j (name, taken_to) VALUES (_name, clock_timestamp() + _hold)
    ON CONFLICT (name) DO UPDATE SET taken_to = excluded.taken_to WHERE j.taken_to <= clock_timestamp();
    RETURN FOUND;
END $$;

-- Forgets files that are older than a time, at most so many, and remembers them as deleted. One with a row that is locked is
-- left to whoever has locked it.
CREATE FUNCTION adk_bridge.delete_old_files(_before bigint, _recordings boolean, _limit bigint)
RETURNS TABLE (user_id text, id text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH old AS (
            SELECT f.id, f.chat FROM adk_bridge.files f
            WHERE f.created_at < _before
              AND (NOT _recordings OR f.media_type = 'audio/wav' AND coalesce(f.name, 'speech.wav') = 'speech.wav')
            LIMIT _limit FOR UPDATE SKIP LOCKED),
        gone AS (DELETE FROM adk_bridge.files f USING old WHERE f.id = old.id RETURNING f.id, f.chat),
        noted AS (
            INSERT INTO adk_bridge.deleted_files (id) SELECT gone.id FROM gone ON CONFLICT DO NOTHING)
        SELECT c.user_id, gone.id FROM gone JOIN adk_bridge.chats c ON c.key = gone.chat;
END $$;
