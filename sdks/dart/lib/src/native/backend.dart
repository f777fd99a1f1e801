/// The backend of platforms with `dart:ffi`.
library;

import 'dart:convert';
import 'dart:ffi';
import 'dart:isolate';

import '../backend.dart';
import '../cactus.dart';
import '../error.dart';
import '../hearing.dart';
import '../model.dart';
import '../raw.g.dart' as c;
import '../vectors.dart';
import 'calls.dart' as calls;
import 'hearing.dart';
import 'lane.dart';
import 'library.dart' as found;
import 'model.dart';
import 'vectors.dart';

/// The one and only.
Backend create() => _Native();

typedef _SetLog = Void Function(Pointer<NativeFunction<c.CactusLogCallback>>, Pointer<Void>);

final class _Native implements Backend {
  @override
  set libraryPath(String? path) => found.libraryPath = path;

  @override
  bool get isSupported => true;

  @override
  String get version => found.borrow(found.raw.version());

  @override
  int get abiVersion => found.raw.abiVersion();

  @override
  Future<Json> checkBundle(String path, bool verify) async =>
      decodeObject(await jobs.run(calls.checkBundle, (path, verify)));

  @override
  void memoryPressure() => found.raw.memoryPressure();

  RawReceivePort? _log;
  void Function(LogRecord record)? _listener;

  @override
  void setLog(void Function(LogRecord record)? listener, LogLevel level) {
    _listener = listener;
    if (listener == null) {
      found.raw.logSetCallback(nullptr, nullptr);
      return;
    }
    found.raw.logSetLevel(level.index);
    if (_log == null) {
      final port = RawReceivePort((Object? message) {
        final (level, component, text) = message! as (int, String, String);
        _listener?.call(LogRecord(LogLevel.values[level.clamp(0, 3)], component, text));
      });
      port.keepIsolateAlive = false;
      _log = port;
      _callback = _toPort(port.sendPort)..keepIsolateAlive = false;
      // Nobody listens when this isolate has ended.
      final end = found.lookup<NativeFunction<_SetLog>>('cactus_log_set_callback');
      NativeFinalizer(end.cast()).attach(_end, nullptr);
    }
    found.raw.logSetCallback(_callback!.nativeFunction, nullptr);
  }

  // It is never closed: a thread of the library may be about to call it.
  NativeCallable<c.CactusLogCallback>? _callback;
  final _end = _End();

  /// Texts are valid until the callback returns, so it has to read them where it
  /// is called, which may be a thread that Dart does not know. That is what
  /// `isolateGroupBound` is for; Dart calls it experimental.
  static NativeCallable<c.CactusLogCallback> _toPort(SendPort to) {
    final port = to;
    return NativeCallable<c.CactusLogCallback>.isolateGroupBound((
      int level,
      Pointer<Char> component,
      Pointer<Char> message,
      Pointer<Void> _,
    ) {
      port.send((level, found.borrow(component), found.borrow(message)));
    });
  }

  @override
  Future<Model> loadModel(String source, Json options, OnProgress? onProgress, String? documents) =>
      NativeModel.load(source, options, onProgress, documents);

  @override
  Future<String> prepareModel(String source, Json options, OnProgress? onProgress) =>
      watched(onProgress, (watch) => jobs.run(calls.prepareModel, (source, jsonEncode(options), watch)));

  @override
  Future<Embedder> loadEmbedder(String bundle, String? documents) => NativeEmbedder.load(bundle, documents);

  @override
  Future<Index> openIndex(String folder, int dimension) => NativeIndex.open(folder, dimension);

  @override
  Future<Transcriber> loadTranscriber(String bundle) => NativeTranscriber.load(bundle);
}

final class _End implements Finalizable {}
