-- Whether an answer was refused already is asked with every request that repeats it.

CREATE INDEX audit_refused ON audit (user, chat_id, tool_call_id, approval_id) WHERE kind = 'answer.refused';
