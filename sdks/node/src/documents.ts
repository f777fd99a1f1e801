// A model that answers from a folder of documents.

import { opened } from "./lifetime.ts";
import { Model } from "./model.ts";
import { type Path, pathOf } from "./paths.ts";

/** A piece of a document. */
export interface Chunk {
  score: number;
  /** The file. */
  source: string;
  content: string;
  /** The cosine. */
  similarity?: number | null;
  [name: string]: unknown;
}

/** A model with a folder of documents. Everything that a model does, it does, too. */
export class Documents extends Model {
  /**
   * Loads the bundle in a folder, and brings the index of the documents in step with them. Vectors come from the model that the
   * environment variable `CACTUS_EMBEDDER` names, unless it makes some itself.
   */
  static async open(bundle: Path, folder: Path): Promise<Documents> {
    const [path, documents] = [pathOf(bundle, "bundle"), pathOf(folder, "folder")];
    return new Documents(await opened((of) => of.init(path, documents, false), (of, model) => of.destroy(model)));
  }

  /** The pieces that are nearest to a question, the best first. */
  async query(text: string, count = 5): Promise<Chunk[]> {
    const { chunks } = JSON.parse(await this.call((of, model) => of.ragQuery(model, text, count)));
    return chunks;
  }
}
