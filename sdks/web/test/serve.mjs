// Serves folders to a browser, notes what was asked for, and can be told to fail.

import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".json": "application/json" };

/**
 * Serves each of `folders` (by the beginning of its paths), and each text of `data` (by its path). `breaks(path)` may say after how many
 * bytes a file breaks off, and `change(path, bytes)` may change one; a file of which `stalls(path)` is true begins, and never goes on.
 * `results` gets what the page posts.
 */
export async function serve(folders, { breaks = () => undefined, change, stalls = () => false, data = {} } = {}) {
  const asked = [];
  const results = [];
  const waiting = [];
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://x").pathname));
    if (request.method === "POST") {
      let body = "";
      request.on("data", (piece) => (body += piece));
      request.on("end", () => {
        response.end();
        const result = JSON.parse(body);
        const next = waiting.shift();
        if (next) next(result);
        else results.push(result);
      });
      return;
    }
    asked.push({ path, range: request.headers.range });
    if (path in data) {
      response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "text/plain" }).end(data[path]);
      return;
    }
    const mount = Object.keys(folders).find((mount) => path.startsWith(mount));
    const file = mount === undefined ? undefined : join(folders[mount], path.slice(mount.length));
    const size = file === undefined ? undefined : statSync(file, { throwIfNoEntry: false });
    if (!size?.isFile()) {
      response.writeHead(404).end();
      return;
    }
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    const headers = { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "cache-control": "no-store", "content-length": size.size - from };
    if (from > 0) response.writeHead(206, { ...headers, "content-range": `bytes ${from}-${size.size - 1}/${size.size}` });
    else response.writeHead(200, headers);
    if (stalls(path)) {
      response.write("x");
      return;
    }
    let left = breaks(path) ?? Number.POSITIVE_INFINITY;
    const stream = createReadStream(file, { start: from });
    let at = from;
    stream.on("data", (piece) => {
      const part = left < piece.length ? piece.subarray(0, left) : piece;
      left -= part.length;
      response.write(change?.(path, part, at) ?? part);
      at += part.length;
      if (left === 0) {
        stream.destroy();
        setTimeout(() => response.destroy(), 50);
      }
    });
    stream.on("end", () => response.end());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    address: `http://127.0.0.1:${server.address().port}`,
    asked,
    /** The next thing that the page posts. */
    result: (seconds) =>
      results.length > 0
        ? Promise.resolve(results.shift())
        : new Promise((resolve, reject) => {
            const timer = setTimeout(() => reject(new Error(`the page said nothing for ${seconds} seconds`)), seconds * 1000);
            waiting.push((result) => {
              clearTimeout(timer);
              resolve(result);
            });
          }),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
