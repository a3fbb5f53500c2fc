// A PostgreSQL of its own: a new cluster in a directory, on a port of its own, gone at the end.

import { execFileSync, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';

import pg from 'pg';

// The first start writes some 40 MB, and a busy machine takes its time.
const START_LIMIT_MS = 120_000;
const LOOK_AGAIN_MS = 50;

/** Where Debian puts the programs of its PostgreSQL; elsewhere they are on the PATH. */
function program(name) {
  const versions = '/usr/lib/postgresql';
  const found = existsSync(versions) ? readdirSync(versions).sort((a, b) => Number(b) - Number(a)) : [];
  return found.length > 0 ? join(versions, found[0], 'bin', name) : name;
}

/** PostgreSQL refuses to be run by root. */
function unprivileged() {
  if (process.getuid() !== 0) return {};
  const id = (flag) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

/** Starts one below `directory`; `restart` and `stop` are those of an operator. */
export async function startPostgres(directory) {
  const data = join(directory, 'postgres');
  const user = unprivileged();
  mkdirSync(data, { mode: 0o700 });
  if (user.uid !== undefined) chownSync(data, user.uid, user.gid);
  const options = { ...user, cwd: '/', encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] };
  execFileSync(
    program('initdb'),
    ['-D', data, '-U', 'bridge', '--auth=trust', '--no-sync', '--encoding=UTF8', '--locale=C'],
    options,
  );
  const port = await freePort();

  let child;
  let log = '';
  const launch = async () => {
    const settings = { listen_addresses: '127.0.0.1', port, unix_socket_directories: '', max_connections: 200 };
    const args = ['-D', data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])];
    child = spawn(program('postgres'), args, { ...user, cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (log += piece));
    await answers();
  };
  const answers = async () => {
    for (const end = Date.now() + START_LIMIT_MS; ; ) {
      try {
        return await query('SELECT 1');
      } catch (problem) {
        if (Date.now() > end || child.exitCode !== null) throw new Error(`PostgreSQL did not start: ${problem}\n${log}`);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
    }
  };
  const query = async (text, values) => {
    const client = new pg.Client({ host: '127.0.0.1', port, user: 'bridge', database: 'postgres' });
    client.on('error', () => {});
    await client.connect();
    try {
      return (await client.query(text, values)).rows;
    } finally {
      await client.end();
    }
  };
  /** `SIGINT` is a fast shutdown: every session is ended at once. */
  const stop = async (signal = 'SIGINT') => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  };
  await launch();
  return {
    port,
    url: (through = port) => `postgres://bridge@127.0.0.1:${through}/postgres`,
    query,
    stop,
    restart: async (between = async () => {}) => {
      await stop();
      await between();
      await launch();
    },
    log: () => log,
  };
}

/** A chat and what belongs to it, besides rows of the audit, and how a row says to which chat. */
const WRITTEN = {
  chats: 'it.key',
  messages: 'it.chat',
  approvals: 'it.chat',
  tool_runs: 'it.chat',
  events: 'it.chat',
  chat_state: 'it.chat',
  files: 'it.chat',
  grown_texts: '(SELECT m.chat FROM adk_bridge.messages m WHERE m.seq = it.message)',
  counted_usage: '(SELECT m.chat FROM adk_bridge.messages m WHERE m.seq = it.message)',
};

/**
 * Where not every change is for the owner: users change titles at whichever replica, and one that lists a chat notes what was
 * seen. Whatever an owner writes notes its epoch in the chat.
 */
const CHANGES = {
  chats: 'INSERT OR UPDATE OF write_epoch, generation',
  messages: 'INSERT OR DELETE OR UPDATE OF id, cut_in, state, open, owed, reply, body',
};

/**
 * Has the database itself keep a record of everything of a chat that was written by another replica than the chat's owner.
 * `strangers` tells them: there must be none, whoever was paused and for how long. Rows of the audit have the name of their
 * writer; the others come over connections that have it as their `application_name`.
 */
export async function watchWriters({ query }) {
  await query(`
    CREATE TABLE public.strangers (replica text, owner text, chat text, kind text, at timestamptz DEFAULT clock_timestamp());
    CREATE FUNCTION public.note_stranger() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
      _owner text;
    BEGIN
      SELECT name INTO _owner FROM adk_bridge.ownership JOIN adk_bridge.replicas ON instance = owner
      WHERE user_id = NEW.user_id AND chat_id = NEW.chat_id;
      IF _owner IS DISTINCT FROM NEW.replica THEN
        INSERT INTO public.strangers (replica, owner, chat, kind) VALUES (NEW.replica, _owner, NEW.chat_id, NEW.kind);
      END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER note_stranger AFTER INSERT ON adk_bridge.audit FOR EACH ROW EXECUTE FUNCTION public.note_stranger();
    CREATE FUNCTION public.note_strange_change(_kind text, _key bigint) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
      _writer text := current_setting('application_name');
      _owner text;
      _chat text;
    BEGIN
      SELECT name, id INTO _owner, _chat FROM adk_bridge.chats c
      LEFT JOIN adk_bridge.ownership o ON o.user_id = c.user_id AND o.chat_id = c.id
      LEFT JOIN adk_bridge.replicas ON instance = owner
      WHERE c.key = _key;
      -- With the chat, everything of it is deleted.
      IF FOUND AND _owner IS DISTINCT FROM _writer THEN
        INSERT INTO public.strangers (replica, owner, chat, kind) VALUES (_writer, _owner, _chat, _kind);
      END IF;
    END $$;
  `);
  for (const [table, chat] of Object.entries(WRITTEN)) {
    await query(`
      CREATE FUNCTION public.note_stranger_in_${table}() RETURNS trigger LANGUAGE plpgsql AS $$
      DECLARE
        it adk_bridge.${table} := coalesce(NEW, OLD);
      BEGIN
        PERFORM public.note_strange_change('${table}', ${chat});
        RETURN NULL;
      END $$;
      CREATE TRIGGER note_stranger AFTER ${CHANGES[table] ?? 'INSERT OR UPDATE OR DELETE'} ON adk_bridge.${table}
        FOR EACH ROW EXECUTE FUNCTION public.note_stranger_in_${table}();
    `);
  }
  return { strangers: () => query('SELECT * FROM public.strangers ORDER BY at') };
}

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}
