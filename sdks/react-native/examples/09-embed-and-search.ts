// Vectors of texts, and an index that finds the nearest.
import { Embedder, Index } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string, folder: string): Promise<void> {
  const embedder = await Embedder.load(source);
  const texts = ["The river is quick.", "Bread is made of flour.", "A fox runs over the hill."];
  const vectors = await embedder.embed(texts);
  const index = await Index.open(folder, vectors[0]!.length);
  await index.add(texts.map((document, id) => ({ id, document, vector: vectors[id]! })));
  for (const { id, score } of await index.query(await embedder.embed("What is bread made of?"), { top_k: 2 })) {
    const [found] = await index.get([id]);
    show(`${score.toFixed(3)} ${found!.document}`);
  }
  await index.close();
  await embedder.close();
}
