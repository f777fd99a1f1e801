/// What stands behind the API: the library, or on the web nothing.
///
/// Only the native side imports `dart:ffi`, so that an application that
/// imports the package compiles for the web.
library;

import 'backend_web.dart' if (dart.library.io) 'native/backend.dart' as chosen;
import 'cactus.dart';
import 'error.dart';
import 'hearing.dart';
import 'model.dart';
import 'vectors.dart';

/// The one of this platform.
final Backend backend = chosen.create();

/// What a platform has to have.
abstract interface class Backend {
  /// As `Cactus.libraryPath`.
  set libraryPath(String? path);

  /// As `Cactus.version`.
  String get version;

  /// As `Cactus.abiVersion`.
  int get abiVersion;

  /// As `Cactus.isSupported`.
  bool get isSupported;

  /// As `Cactus.checkBundle`.
  Future<Json> checkBundle(String path, bool verify);

  /// As `Cactus.memoryPressure`.
  void memoryPressure();

  /// As `Cactus.setLog`.
  void setLog(void Function(LogRecord record)? listener, LogLevel level);

  /// As `Model.load`.
  Future<Model> loadModel(String source, Json options, OnProgress? onProgress, String? documents);

  /// As `Model.prepare`.
  Future<String> prepareModel(String source, Json options, OnProgress? onProgress);

  /// As `Embedder.load`.
  Future<Embedder> loadEmbedder(String bundle, String? documents);

  /// As `Index.open`.
  Future<Index> openIndex(String folder, int dimension);

  /// As `Transcriber.load`.
  Future<Transcriber> loadTranscriber(String bundle);
}
