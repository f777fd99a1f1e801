// What the library sees as files.

import assert from "node:assert/strict";
import { it } from "node:test";
import { Folder, MemoryFile, parts } from "../dist/web/src/files.js";

it("keeps bytes in memory", () => {
  const file = new MemoryFile();
  file.write(new Uint8Array([1, 2, 3]), 2);
  assert.deepEqual([...file.bytes()], [0, 0, 1, 2, 3]);
  file.truncate(3);
  assert.equal(file.size(), 3);
  file.write(new Uint8Array([9]), 5);
  // What was cut off does not come back.
  assert.deepEqual([...file.bytes()], [0, 0, 1, 0, 0, 9]);
  const into = new Uint8Array(4);
  assert.equal(file.read(into, 4), 2);
  assert.deepEqual([...into], [0, 9, 0, 0]);
  assert.equal(file.read(into, 100), 0);
});

it("finds, moves and takes away", () => {
  const root = new Folder();
  let closed = 0;
  root.put("/a/b/c", { size: () => 1, read: () => 0, close: () => closed++ });
  root.put("a/d", new MemoryFile(new Uint8Array(4)));
  assert.deepEqual(root.folder("a").names(), ["b", "d"]);
  assert.equal(root.find("/a/./x/../b/c").size(), 1);
  assert.equal(root.find("a/b/c/d"), undefined);
  root.folder("a").move("d", root.folder("e"), "f");
  assert.equal(root.find("a/d"), undefined);
  assert.equal(root.find("e/f").size(), 4);
  root.remove("a");
  assert.equal(closed, 1);
  assert.equal(root.find("a"), undefined);
});

it("takes no path out of its root", () => {
  assert.deepEqual(parts("/../../a//./b/.."), ["a"]);
});
