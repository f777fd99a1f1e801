// Vectors of texts, and an index that finds the nearest.
//
//   node 09-embed-and-search.mjs MODEL [FOLDER]

import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Embedder, Index } from "cactus-engine";

const [source, folder = await mkdtemp(join(tmpdir(), "index-"))] = process.argv.slice(2);
const embedder = await Embedder.load(source);
const texts = ["The river is quick.", "Bread is made of flour.", "A fox runs over the hill."];
const vectors = await embedder.embed(texts);

const index = await Index.open(folder, vectors[0].length);
await index.add(texts.map((document, id) => ({ id, document, vector: vectors[id] })));

const found = await index.query(await embedder.embed("What is bread made of?"), { top_k: 2 });
for (const { id, score } of found) {
  const [{ document }] = await index.get([id]);
  console.log(score.toFixed(3), document);
}
await index.close();
await embedder.close();
