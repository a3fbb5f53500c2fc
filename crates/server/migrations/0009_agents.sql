-- Which agent answers in a chat: the one of its first message. A chat that has messages and no agent is older than this
-- column, and belongs to the default agent. It refers to no other table and no other column, so it may run before or after
-- any other migration.

ALTER TABLE chats ADD COLUMN agent TEXT;
