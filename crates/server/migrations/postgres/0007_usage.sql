-- What users have used of agents, by day.

CREATE TABLE adk_bridge.usage (
    user_id text   COLLATE "C" NOT NULL,
    -- Days since 1970, as the configuration counts them.
    day     bigint NOT NULL,
    agent   text   COLLATE "C" NOT NULL,
    -- Tokens that went in, and those of them that the model had in its cache.
    input   bigint NOT NULL,
    cached  bigint NOT NULL,
    output  bigint NOT NULL,
    -- In billionths, at the prices of that day.
    cost    bigint NOT NULL,
    PRIMARY KEY (user_id, day, agent)
);

CREATE INDEX usage_by_day ON adk_bridge.usage (day);

-- How much of the usage of a reply has been counted: what comes again, or late, is not counted again.
CREATE TABLE adk_bridge.counted_usage (
    message bigint NOT NULL PRIMARY KEY REFERENCES adk_bridge.messages (seq) ON DELETE CASCADE,
    input   bigint NOT NULL,
    cached  bigint NOT NULL,
    output  bigint NOT NULL
);

-- Counts what the usage of a reply has grown by. Prices are in millionths of millionths for each token.
CREATE FUNCTION adk_bridge.count_usage(
    _user text, _chat text, _epoch bigint, _message text, _agent text, _day bigint,
    _input bigint, _cached bigint, _output bigint,
    _input_price bigint, _cached_price bigint, _output_price bigint)
RETURNS TABLE (new_input bigint, new_cached bigint, new_output bigint, new_cost bigint) LANGUAGE plpgsql AS $$
DECLARE
    _found adk_bridge.chats := adk_bridge.locked_chat(_user, _chat, _epoch);
    _seq bigint;
    _before adk_bridge.counted_usage;
BEGIN
    PERFORM adk_bridge.hurry();
    SELECT max(m.seq) INTO _seq FROM adk_bridge.messages m
    WHERE m.chat = _found.key AND m.id = _message AND m.reply IS NOT NULL;
    IF _seq IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZB003', MESSAGE = 'no such message';
    END IF;
    SELECT * INTO _before FROM adk_bridge.counted_usage c WHERE c.message = _seq;
    new_input := greatest(_input - coalesce(_before.input, 0), 0);
    new_cached := least(greatest(_cached - coalesce(_before.cached, 0), 0), new_input);
    new_output := greatest(_output - coalesce(_before.output, 0), 0);
    new_cost := least(
        trunc(((new_input - new_cached)::numeric * _input_price + new_cached::numeric * _cached_price
            + new_output::numeric * _output_price) / 1000),
        1000000000000000000);
    IF new_input > 0 OR new_output > 0 THEN
        INSERT INTO adk_bridge.counted_usage AS c (message, input, cached, output)
        VALUES (_seq, _input, _cached, _output)
        ON CONFLICT (message) DO UPDATE
        SET input = greatest(c.input, excluded.input), cached = greatest(c.cached, excluded.cached),
            output = greatest(c.output, excluded.output);
        -- Replies of the same user at other replicas wait here, for one statement.
        INSERT INTO adk_bridge.usage AS u (user_id, day, agent, input, cached, output, cost)
        VALUES (_user, _day, _agent, new_input, new_cached, new_output, new_cost)
        ON CONFLICT (user_id, day, agent) DO UPDATE
        SET input = u.input + excluded.input, cached = u.cached + excluded.cached,
            output = u.output + excluded.output, cost = u.cost + excluded.cost;
    END IF;
    RETURN NEXT;
END $$;
