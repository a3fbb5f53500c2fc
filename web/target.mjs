// Where `cargo` puts what it builds, and what the tests use of it. `cargo xtask test` makes all of it.

import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

/** Cargo's target directory; a relative one is taken from the project, as the xtask takes it. */
export const TARGET = resolve(root, process.env.CARGO_TARGET_DIR ?? 'target');

/** The server that is tested. */
export const BINARY = process.env.ADK_BRIDGE_BINARY ?? join(TARGET, 'debug/adk-bridge');

/** A Python that has Google's packages. */
export const PYTHON = process.env.ADK_BRIDGE_PYTHON ?? join(TARGET, 'venv/bin/python');

/** Pythons that have older versions of Google's agent kit: the oldest that is supported, and the newest before 2. */
export const OLDEST_PYTHON = process.env.ADK_BRIDGE_OLDEST_PYTHON ?? join(TARGET, 'venv-adk-oldest/bin/python');
export const NEWEST_1_PYTHON = process.env.ADK_BRIDGE_NEWEST_1_PYTHON ?? join(TARGET, 'venv-adk-newest-1/bin/python');

/** A Python that has the official MCP package. */
export const MCP_PYTHON = process.env.ADK_BRIDGE_MCP_PYTHON ?? join(TARGET, 'venv-mcp/bin/python');

/** What starts programs of Python packages without installing them. */
export const PIPX = join(TARGET, 'venv-pipx/bin/pipx');
