// Vectors, and an index of them.

import { calling, wrong } from "./errors.ts";
import { Closable } from "./lifetime.ts";
import { type Handle, native } from "./native.ts";
import { type Path, pathOf } from "./paths.ts";

const destroy = (handle: Handle) => native().destroy(handle);

/** A model that makes vectors of texts, and of pictures where it sees. */
export class Embedder extends Closable {
  /** Loads the bundle in a folder. */
  static async load(bundle: Path): Promise<Embedder> {
    const path = pathOf(bundle, "bundle");
    const handle = await calling(() => native().init(path, null, false));
    return new Embedder("embedder", { handle, close: destroy });
  }

  /** The vector of a text, or of each of many; of the length 1 unless `normalize` is false and the model gives others. */
  embed(text: string, options?: { normalize?: boolean }): Promise<Float32Array>;
  embed(texts: string[], options?: { normalize?: boolean }): Promise<Float32Array[]>;
  async embed(texts: string | string[], { normalize = true }: { normalize?: boolean } = {}): Promise<Float32Array | Float32Array[]> {
    if (typeof texts === "string") return calling(() => native().embed(this.handle, texts, normalize));
    const vectors: Float32Array[] = [];
    for (const text of texts) vectors.push(await calling(() => native().embed(this.handle, text, normalize)));
    return vectors;
  }

  /** The vector of a picture in a PNG, JPEG or WebP file. */
  async embedImage(path: Path): Promise<Float32Array> {
    return calling(() => native().imageEmbed(this.handle, pathOf(path, "path")));
  }
}

/** A text with its vector. */
export interface Entry {
  id: number;
  document: string;
  metadata?: string | null;
  vector: Float32Array | number[];
}

/** What an index has of an entry. */
export interface Stored {
  id: number;
  document: string;
  metadata: string;
  /** Of the length 1, with 8 bits for each number. */
  vector: Float32Array;
}

export interface Found {
  id: number;
  /** The cosine. */
  score: number;
}

export interface QueryOptions {
  /** How many at most; 10 without it. */
  top_k?: number;
  /** The least cosine. */
  score_threshold?: number;
  filter?: unknown;
}

/** An index of vectors in a folder. Several programs may hold it. */
export class Index extends Closable {
  #dimension = 0;

  /** Opens the index in a folder, or makes one there. */
  static async open(folder: Path, dimension: number): Promise<Index> {
    const path = pathOf(folder, "folder");
    const handle = await calling(() => native().indexInit(path, dimension));
    const index = new Index("index", { handle, close: (handle) => native().indexDestroy(handle) });
    index.#dimension = dimension;
    return index;
  }

  /** How many numbers a vector has. */
  get dimension(): number {
    return this.#dimension;
  }

  /** Adds entries: all of them, or none where one is wrong. They are on the disk when this returns. */
  async add(entries: Entry[]): Promise<void> {
    const numbers = whole(entries.map((entry) => entry.id));
    const vectors = this.#rows(entries.map((entry) => entry.vector));
    const documents = entries.map((entry) => entry.document);
    const metadatas = entries.map((entry) => entry.metadata ?? null);
    await calling(() => native().indexAdd(this.handle, numbers, documents, metadatas, vectors, this.#dimension));
  }

  /** What the index has of these ids. One that it does not have is an error. */
  async get(ids: number[]): Promise<Stored[]> {
    const { documents, metadatas, embeddings } = await calling(() => native().indexGet(this.handle, whole(ids)));
    const size = this.#dimension;
    return ids.map((id, i) => ({
      id,
      document: documents[i]!,
      metadata: metadatas[i]!,
      vector: embeddings.slice(i * size, (i + 1) * size),
    }));
  }

  /** What is nearest to a vector, the best first; or to each of many. */
  query(vector: Float32Array, options?: QueryOptions): Promise<Found[]>;
  query(vectors: Float32Array[], options?: QueryOptions): Promise<Found[][]>;
  async query(vectors: Float32Array | Float32Array[], options: QueryOptions = {}): Promise<Found[] | Found[][]> {
    const isOne = !Array.isArray(vectors);
    const rows = this.#rows(isOne ? [vectors] : vectors);
    const room = typeof options.top_k === "number" && options.top_k > 0 ? options.top_k : 10;
    const json = JSON.stringify(options);
    const { counts, ids, scores } = await calling(() => native().indexQuery(this.handle, rows, this.#dimension, json, room));
    let at = 0;
    const found = Array.from(counts, (count) => {
      const from = at;
      at += count;
      return Array.from({ length: count }, (_, i) => ({ id: ids[from + i]!, score: scores[from + i]! }));
    });
    return isOne ? found[0]! : found;
  }

  /** Deletes entries; ids that it does not have are left out. */
  async delete(ids: number[]): Promise<void> {
    await calling(() => native().indexDelete(this.handle, whole(ids)));
  }

  /** Writes the file anew, without what was deleted. */
  async compact(): Promise<void> {
    await calling(() => native().indexCompact(this.handle));
  }

  /** Vectors, one behind the other. */
  #rows(vectors: ArrayLike<number>[]): Float32Array {
    const size = this.#dimension;
    const rows = new Float32Array(vectors.length * size);
    vectors.forEach((vector, i) => {
      if (vector.length !== size) throw wrong(`vector ${i}: expected ${size} numbers, found ${vector.length}`);
      rows.set(vector, i * size);
    });
    return rows;
  }
}

function whole(ids: number[]): Int32Array {
  const bad = ids.find((id) => !Number.isInteger(id) || id < -0x8000_0000 || id > 0x7fff_ffff);
  if (bad !== undefined) throw wrong(`\`ids\`: ${bad} is no whole number of 32 bits`);
  return Int32Array.from(ids);
}
