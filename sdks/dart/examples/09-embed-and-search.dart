// Vectors of texts, an index of them, and a question.
//
//     dart run examples/09-embed-and-search.dart BUNDLE
import 'dart:io';

import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final embedder = await Embedder.load(arguments.single);
  const texts = ['The river is quick.', 'Bread is baked.', 'The word is written.'];
  final vectors = await embedder.embedAll(texts);

  // An application keeps it in the folder of its own files.
  final folder = await Directory.systemTemp.createTemp('cactus');
  final index = await Index.open(folder.path, vectors.first.length);
  await index.add([for (final (i, text) in texts.indexed) Document(i, text, vectors[i])]);

  final hits = await index.query(await embedder.embed('The river is quick.'), count: 2);
  for (final document in await index.get([for (final hit in hits) hit.id])) {
    print(document.text);
  }
  await index.close();
  await embedder.close();
  await folder.delete(recursive: true);
}
