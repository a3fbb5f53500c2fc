// The commands in the documents' `sh` blocks: which of them are run, with what they have to say, and why others are only parsed.

/** What a command of `cargo xtask` becomes, since it would build everything: the configuration that it would start with is checked. */
const CHECKED = 'adk-bridge check-config';
const IN_ORDER = /^ok +configuration: /m;

/**
 * Each row is found by the beginning of a command. `as` is what is run in its place, `seen` what it has to say; `serves` has it run until
 * it listens; `apart` where there is no configuration; `with` names what has to be there, a method of the world. `why` says why it is only
 * parsed.
 */
export const COMMANDS = [
  { is: /^export ADK_BRIDGE__/, as: ': noted' },
  { is: /^((\w+=\S+) )*cargo xtask run/, as: (line) => line.replace('cargo xtask run', CHECKED), apart: true, seen: IN_ORDER },
  { is: /^cargo xtask test( |$)/, xtask: 'test' },
  { is: /^cargo xtask (release|fleet)\b/, xtask: 'usage', why: 'takes very long' },
  { is: /^cargo xtask format$/, xtask: 'usage', why: 'changes the sources' },
  { is: /^cargo test -p /, why: 'builds the tests; `cargo xtask test test` runs them' },
  { is: /^node --test /, why: 'the step `chat` runs it' },
  { is: /^target\/venv\/bin\/python -m pytest /, why: 'the step `live` runs it' },
  { is: /^adk api_server /, why: 'the step `first-hour` starts one' },
  { is: /^(npm|pip) install \.\/adk/, why: 'the step `packages` installs them' },
  { is: /^npx adk-bridge serve/, as: (line) => line.replace('npx ', ''), serves: true },
  {
    is: /^ADK_BRIDGE__AGENT__\S+ .* npx adk-bridge serve --agent adk/,
    as: (line) => line.replace('npx adk-bridge serve', CHECKED),
    apart: true,
    seen: IN_ORDER,
  },
  { is: /^OTEL_\S+ adk-bridge serve$/, serves: true },
  { is: /^createdb /, with: 'postgres' },
  { is: /^adk-bridge migrate-store /, with: 'postgres', seen: /chats/ },
  { is: /^ADK_BRIDGE__STORE__URL=\S+ adk-bridge serve$/, with: 'postgres', serves: true },
  { is: /^adk-bridge check-config /, seen: IN_ORDER },
  { is: /^adk-bridge doctor /, seen: /./, codes: [0, 1] },
  { is: /^adk-bridge backup /, seen: /./ },
  { is: /^adk-bridge audit verify/, seen: /./ },
  { is: /^adk-bridge audit export/ },
  { is: /^curl .*\/tool-output /, seen: /^status 404$/m },
  { is: /^curl -X POST .*\/stop$/, seen: /^status 204$/m },
  { is: /^curl .*\/api\/files/, with: 'picture', seen: /^status 201$/m },
  { is: /^curl -N .*\/chat /, seen: /\[DONE\][\s\S]*^status 200$/m },
  { is: /^curl /, seen: /^status 200$/m },
];

/** The commands of a block, each on one line. */
export function commandsOf(text) {
  const lines = text.replaceAll(/\\\n\s*/g, '').split('\n');
  return lines.map((line) => line.replace(/(^|\s)\s*#.*$/, '').trim()).filter((line) => line !== '');
}

export const rowsOf = (command) => COMMANDS.filter(({ is }) => is.test(command));
