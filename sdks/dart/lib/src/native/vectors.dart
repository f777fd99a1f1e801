import 'dart:ffi';
import 'dart:typed_data';

import '../error.dart';
import '../model.dart';
import '../vectors.dart';
import 'calls.dart' as calls;
import 'lane.dart';
import 'model.dart';
import 'owned.dart';

/// A model that makes vectors.
final class NativeEmbedder extends Embedder implements Finalizable {
  NativeEmbedder._(Made made, bool hasDocuments) {
    _owned = Owned(made, this);
    if (hasDocuments) documents = NativeDocuments(_owned, this);
  }

  late final Owned _owned;

  @override
  Documents? documents;

  /// As `Embedder.load`.
  static Future<NativeEmbedder> load(String bundle, String? documents) async =>
      NativeEmbedder._(await jobs.run(calls.initModel, (bundle, documents)), documents != null);

  @override
  Future<Float32List> embed(String text, {bool normalize = true}) async =>
      (await embedAll([text], normalize: normalize)).single;

  @override
  Future<List<Float32List>> embedAll(List<String> texts, {bool normalize = true}) async =>
      jobs.run(calls.embed, (_owned.handle, texts, normalize));

  @override
  Future<Float32List> embedImage(String path) async => jobs.run(calls.embedImage, (_owned.handle, path));

  @override
  Future<void> close() => _owned.close();
}

/// An index that the library holds.
final class NativeIndex extends Index implements Finalizable {
  NativeIndex._(Made made) {
    _owned = Owned(made, this);
  }

  late final Owned _owned;

  /// As `Index.open`.
  static Future<NativeIndex> open(String folder, int dimension) async =>
      NativeIndex._(await jobs.run(calls.openIndex, (folder, dimension)));

  @override
  Future<void> add(List<Document> documents) async => jobs.run(calls.addToIndex, (
    _owned.handle,
    [for (final document in documents) (document.id, document.text, document.metadata, document.vector)],
  ));

  @override
  Future<List<Document>> get(List<int> ids) async => [
    for (final (id, text, metadata, vector) in await jobs.run(calls.getFromIndex, (_owned.handle, ids)))
      Document(id, text, vector, metadata: metadata == '' ? null : metadata),
  ];

  @override
  Future<List<Hit>> query(Float32List vector, {int count = 10, Json options = const {}}) async =>
      (await queryAll([vector], count: count, options: options)).single;

  @override
  Future<List<List<Hit>>> queryAll(List<Float32List> vectors, {int count = 10, Json options = const {}}) async {
    final found = await jobs.run(calls.queryIndex, (_owned.handle, vectors, count, options));
    return [
      for (final (ids, scores) in found) [for (final (i, id) in ids.indexed) Hit(id, scores[i])],
    ];
  }

  @override
  Future<void> delete(List<int> ids) async => jobs.run(calls.deleteFromIndex, (_owned.handle, ids));

  @override
  Future<void> compact() async => jobs.run(calls.compactIndex, _owned.handle);

  @override
  Future<void> close() => _owned.close();
}
