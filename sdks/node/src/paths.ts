// Names of files as people have them: paths, and addresses with `file:`.

import { wrong } from "./errors.ts";

/** A path, or an address of a file. */
export type Path = string | { readonly href: string };

/** The path that the library takes. A name that is no path, such as `smollm2`, stays as it is. */
export function pathOf(path: Path, what: string): string {
  const text = typeof path === "string" ? path : path?.href;
  if (typeof text !== "string") throw wrong(`\`${what}\`: expected a path, found ${text === undefined ? typeof path : typeof text}`);
  if (text.startsWith("file:")) {
    const found = /^file:(?:\/\/(?:localhost)?)?(\/.*)$/.exec(text);
    if (found === null) throw wrong(`\`${what}\`: \`${text}\` is not the address of a file on this machine`);
    const decoded = decodeURIComponent(found[1]!);
    // A drive of Windows.
    return /^\/[A-Za-z]:/.test(decoded) ? decoded.slice(1) : decoded;
  }
  const scheme = /^(content|ph|assets-library|asset):/.exec(text);
  if (scheme !== null) throw wrong(`\`${what}\`: \`${scheme[1]}:\` is no file; copy it to one, and give its path`);
  return text;
}
