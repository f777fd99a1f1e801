// The engine's worker in Node. Bundles and files are where their paths say.

import { existsSync } from "node:fs";
import { parentPort } from "node:worker_threads";
import { resolve } from "node:path";
import { type Asked, Engine, type Sources, turns } from "./engine.ts";
import { HostFolder } from "./host_files.ts";
import { Failure, type Library } from "./library.ts";

const host: Sources = {
  open: async (library, name) => {
    if (!existsSync(name)) throw new Failure(-16, "not_found", `there is nothing at ${name}`);
    return host.show(library, name);
  },
  close: () => Promise.resolve(),
  nameOf: (path) => path,
  show: (_library: Library, path) => Promise.resolve(resolve(path)),
  reach: (library, path) => host.show(library, path),
};

const port = parentPort!;
const engine = new Engine(host, (answered, transfer) => port.postMessage(answered, transfer as never), turns(), () => new HostFolder("/"));
port.on("message", (asked: Asked) => void engine.take(asked));
