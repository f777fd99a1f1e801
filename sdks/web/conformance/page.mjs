// The page that runs a plan: bundles come from their addresses, and files that are read by a path are put into memory before.

import * as api from "/sdks/web/dist/web/src/index.js";
import { runWeb } from "./plan.mjs";

const post = (said) => fetch("/result", { method: "POST", body: JSON.stringify(said) });

async function bytesOf(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: status ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** Why a page cannot run a case. */
function lacks({ name }) {
  return name === "30-full-disk" ? "an index is in memory in pages, and no disk can be full" : undefined;
}

try {
  const { cases, files } = await (await fetch("/plan.json")).json();
  await api.start();
  await runWeb(
    api,
    { cases },
    {
      read: bytesOf,
      write: (line) => post({ line }),
      before: async ({ name }) => {
        for (const path of files[name]) await api.putFile(path, await bytesOf(path));
      },
      after: async ({ name }) => {
        for (const path of files[name]) await api.removeFile(path);
      },
    },
    lacks,
  );
} catch (error) {
  await post({ failed: String(error?.stack ?? error) });
}
