// Vectors, indexes and documents.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { Documents, Embedder, Index } from "../dist/node.mjs";
import { bundle, chatBundle, folder, golden, kind } from "./support.mjs";

test("texts and pictures become vectors", async (t) => {
  const embedder = await Embedder.load(await bundle("embedding/bert"));
  t.after(() => embedder.close());
  const one = await embedder.embed("the word");
  assert.ok(one instanceof Float32Array);
  assert.ok(Math.abs(one.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-4);
  const [again, other] = await embedder.embed(["the word", "bread"]);
  assert.deepEqual(again, one);
  assert.notDeepEqual(other, one);
  await assert.rejects(embedder.embed("the ".repeat(5000)));
  const sees = await Embedder.load(await bundle("embedding/clip_pictures"));
  const picture = await sees.embedImage(join(golden, "pictures/files/rgb.png"));
  assert.equal(picture.length, (await sees.embed("a picture")).length);
  await assert.rejects(sees.embedImage(join(golden, "README.md")));
  await sees.close();
  await assert.rejects(sees.embed("x"), kind("handle"));
});

test("an index keeps what was added, finds it, and is there again", async (t) => {
  const path = folder();
  let index = await Index.open(path, 2);
  await index.add([
    { id: 1, document: "one", metadata: "first", vector: [1, 0] },
    { id: -2, document: "grüße ".repeat(100), vector: new Float32Array([0.6, 0.8]) },
  ]);
  const found = await index.query(new Float32Array([1, 0]));
  assert.deepEqual(found.map(({ id }) => id), [1, -2]);
  assert.ok(found[0].score > 0.99 && found[1].score < 0.7);
  const many = await index.query([new Float32Array([1, 0]), new Float32Array([0, 1])], { top_k: 1 });
  assert.deepEqual(many.map((hits) => hits.map(({ id }) => id)), [[1], [-2]]);
  await assert.rejects(index.add([{ id: 3, document: "x", vector: [1] }]), kind("argument"));
  await assert.rejects(index.add([{ id: 1, document: "again", vector: [1, 1] }]), kind("argument"));
  await assert.rejects(index.get([77]), kind("argument"));
  await index.close();
  await assert.rejects(index.query(new Float32Array([1, 0])), kind("handle"));
  index = await Index.open(path, 2);
  t.after(() => index.close());
  const [second, first] = await index.get([-2, 1]);
  assert.deepEqual([first.document, first.metadata, second.document], ["one", "first", "grüße ".repeat(100)]);
  assert.equal(second.vector.length, 2);
  assert.deepEqual(await index.get([]), []);
  await index.delete([1, 99]);
  await index.compact();
  assert.deepEqual((await index.query(new Float32Array([1, 0]))).map(({ id }) => id), [-2]);
  await assert.rejects(Index.open(path, 3));
});

test("a model answers from a folder of documents", async (t) => {
  const documents = folder();
  writeFileSync(join(documents, "river.md"), "# Rivers\n\nThe river is quick.\n");
  writeFileSync(join(documents, "bread.md"), "# Bread\n\nBread is made of flour.\n");
  process.env.CACTUS_EMBEDDER = await bundle("embedding/bert");
  const model = await Documents.open(await chatBundle(), documents);
  t.after(() => model.close());
  const chunks = await model.query("the river", 2);
  assert.ok(chunks.length > 0 && chunks.every((chunk) => chunk.content && chunk.source), JSON.stringify(chunks));
  assert.ok((await model.respond({ prompt: "x", options: { max_tokens: 2 } })).tokens.length > 0);
  await model.close();
  await assert.rejects(model.query("x"), kind("handle"));
});
