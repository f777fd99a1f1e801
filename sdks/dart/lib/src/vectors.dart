import 'dart:typed_data';

import 'backend.dart';
import 'error.dart';
import 'model.dart';

/// A model that makes vectors of texts, and some of pictures.
abstract class Embedder {
  /// For the package alone.
  const Embedder();

  /// Loads the bundle in a folder, perhaps with a folder of [documents].
  static Future<Embedder> load(String bundle, {String? documents}) => backend.loadEmbedder(bundle, documents);

  /// Its documents, where it was loaded with some.
  Documents? get documents;

  /// The vector of a text. [normalize] gives it the length 1; most models give
  /// no other.
  Future<Float32List> embed(String text, {bool normalize = true});

  /// The vectors of texts.
  Future<List<Float32List>> embedAll(List<String> texts, {bool normalize = true});

  /// The vector of a picture: a PNG, JPEG or WebP file.
  Future<Float32List> embedImage(String path);

  /// Cancels what is under way, waits for it, and frees the model. May be called
  /// again.
  Future<void> close();
}

/// A document of an [Index].
final class Document {
  /// A document with its vector, and a text that belongs to it.
  const Document(this.id, this.text, this.vector, {this.metadata});

  /// What it is found by: any whole number of 32 bits.
  final int id;

  /// Its text.
  final String text;

  /// Its vector. It comes back with the length 1 and 8 bits in each dimension.
  final Float32List vector;

  /// A text that belongs to it, often JSON.
  final String? metadata;
}

/// A document that was found.
final class Hit {
  /// A document and how near it is.
  const Hit(this.id, this.score);

  /// The document's id.
  final int id;

  /// The cosine, 1 at most.
  final double score;

  @override
  String toString() => 'Hit($id, $score)';
}

/// Vectors in a file: what is added or deleted is on the disk when the call
/// ends.
abstract class Index {
  /// For the package alone.
  const Index();

  /// Opens the index in a folder, or makes one there.
  static Future<Index> open(String folder, int dimension) => backend.openIndex(folder, dimension);

  /// Adds documents, or none of them where one is refused.
  Future<void> add(List<Document> documents);

  /// The documents with these ids.
  Future<List<Document>> get(List<int> ids);

  /// The [count] nearest documents to a vector, the best first. [options] has
  /// `score_threshold` and `filter`.
  Future<List<Hit>> query(Float32List vector, {int count = 10, Json options = const {}});

  /// As [query], for several vectors at once.
  Future<List<List<Hit>>> queryAll(List<Float32List> vectors, {int count = 10, Json options = const {}});

  /// Deletes documents. Ids that are not there are left out.
  Future<void> delete(List<int> ids);

  /// Writes the file anew, without what was deleted.
  Future<void> compact();

  /// Closes it. May be called again.
  Future<void> close();
}
