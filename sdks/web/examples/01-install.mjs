// Starts the engine, and says what it is.

import { ABI_VERSION, abiVersion, start, version } from "@cactus-engine/web";

export async function run(_source, say) {
  await start();
  say(`cactus ${version()}, ABI ${abiVersion()} of ${ABI_VERSION}`);
}
