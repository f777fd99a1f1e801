// Vectors, and an index of them.

import { wrong } from "./errors.ts";
import { Closable, type Held, opened } from "./lifetime.ts";
import { type Path, pathOf } from "./paths.ts";

/** A model that makes vectors of texts, and of pictures where it sees. */
export class Embedder extends Closable {
  /** Loads the bundle in a folder. */
  static async load(bundle: Path): Promise<Embedder> {
    const path = pathOf(bundle, "bundle");
    return new Embedder("embedder", await opened((of) => of.init(path, null, false), (of, model) => of.destroy(model)));
  }

  /** The vector of a text, or of each of many; of the length 1 unless `normalize` is false and the model gives others. */
  embed(text: string, options?: { normalize?: boolean }): Promise<Float32Array>;
  embed(texts: string[], options?: { normalize?: boolean }): Promise<Float32Array[]>;
  async embed(texts: string | string[], { normalize = true }: { normalize?: boolean } = {}): Promise<Float32Array | Float32Array[]> {
    if (typeof texts === "string") return this.call((of, model) => of.embed(model, texts, normalize));
    const vectors: Float32Array[] = [];
    for (const text of texts) vectors.push(await this.call((of, model) => of.embed(model, text, normalize)));
    return vectors;
  }

  /** The vector of a picture in a PNG, JPEG or WebP file. */
  async embedImage(path: Path): Promise<Float32Array> {
    return this.call((of, model) => of.imageEmbed(model, pathOf(path, "path")));
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
    const held = await opened((of) => of.indexInit(path, dimension), (of, index) => of.indexDestroy(index));
    const index = new Index("index", held);
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
    await this.call((of, index) => of.indexAdd(index, numbers, documents, metadatas, vectors, this.#dimension));
  }

  /** What the index has of these ids. One that it does not have is an error. */
  async get(ids: number[]): Promise<Stored[]> {
    const { documents, metadatas, embeddings } = await this.call((of, index) => of.indexGet(index, whole(ids)));
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
    const { counts, ids, scores } = await this.call((of, index) => of.indexQuery(index, rows, this.#dimension, json, room));
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
    await this.call((of, index) => of.indexDelete(index, whole(ids)));
  }

  /** Writes the file anew, without what was deleted. */
  async compact(): Promise<void> {
    await this.call((of, index) => of.indexCompact(index));
  }

  /** Nothing of an index can be cancelled, so it is waited for. */
  protected override async closing(held: Held): Promise<void> {
    await this.idle();
    await super.closing(held);
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
