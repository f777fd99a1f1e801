// Makes a bundle of a model, and prints its folder: bundle.js MODEL CACHE
import { prepare } from "../src/index.ts";

const [source, cache] = host.arguments;
prepare(source, { cache, offline: true }).then(
  (path) => (host.print(path), host.exit(0)),
  (error) => (host.print(`FAILED: ${error?.message}`), host.exit(1)),
);
