// Vectors of texts, and an index that finds the nearest.

import { Embedder, Index, start } from "@cactus-engine/web";

/** `source` is a model that makes vectors; `folder` is one of the engine's own, in memory in a browser. */
export async function run(source, say, folder = "/index") {
  await start();
  const embedder = await Embedder.load(source);
  const texts = ["The river is quick.", "Bread is made of flour.", "A fox runs over the hill."];
  const vectors = await embedder.embed(texts);

  const index = await Index.open(folder, vectors[0].length);
  await index.add(texts.map((document, id) => ({ id, document, vector: vectors[id] })));
  const found = await index.query(await embedder.embed("What is bread made of?"), { top_k: 2 });
  for (const { id, score } of found) {
    const [{ document }] = await index.get([id]);
    say(`${score.toFixed(3)} ${document}`);
  }
  await index.close();
  await embedder.close();
}
