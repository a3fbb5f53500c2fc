// Saves compiling others' crates a second time.

import { cpSync, existsSync, linkSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Gives another build directory what cargo has compiled of others' crates, by links: minutes of which nothing can be learned.
 * The project's own crates are compiled there.
 */
export function shareCompiled(from, to) {
  const isOther = (name) => !/^(lib)?(adk[-_]bridge|xtask)/.test(name);
  for (const name of readdirSync(join(from, '.fingerprint')).filter(isOther)) {
    const options = { recursive: true, preserveTimestamps: true };
    cpSync(join(from, '.fingerprint', name), join(to, '.fingerprint', name), options);
    if (existsSync(join(from, 'build', name))) cpSync(join(from, 'build', name), join(to, 'build', name), options);
  }
  mkdirSync(join(to, 'deps'), { recursive: true });
  for (const name of readdirSync(join(from, 'deps')).filter(isOther)) {
    const [source, target] = [join(from, 'deps', name), join(to, 'deps', name)];
    if (/\.(rlib|rmeta)$/.test(name)) linkSync(source, target);
    else if (/\.(a|d|dll|dylib|so)$/.test(name)) cpSync(source, target, { preserveTimestamps: true });
  }
}
