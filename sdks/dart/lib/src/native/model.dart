import 'dart:convert';
import 'dart:ffi';
import 'dart:isolate';

import 'package:ffi/ffi.dart';

import '../error.dart';
import '../model.dart';
import '../request.dart';
import 'calls.dart' as calls;
import 'lane.dart';
import 'library.dart';
import 'owned.dart';
import 'stream.dart';

/// Does what takes progress, on a helper isolate.
Future<T> watched<T>(OnProgress? onProgress, Future<T> Function(calls.Watch? watch) load) async {
  if (onProgress == null) return load(null);
  // Nothing is written behind the end, whoever keeps a step.
  var stop = calloc<Int32>();
  final port = RawReceivePort((Object? message) {
    final (stage, what, done, total) = message! as (String, String, int, int);
    onProgress(
      Progress(stage, what, done, total, () {
        if (stop != nullptr) stop.value = 1;
      }),
    );
  });
  try {
    return await load((progress: port.sendPort, stop: stop.address));
  } finally {
    port.close();
    final place = stop;
    stop = nullptr;
    calloc.free(place);
  }
}

/// A model that the library holds.
final class NativeModel extends Model implements Finalizable {
  NativeModel._(Made made, bool hasDocuments) {
    _owned = Owned(made, this);
    if (hasDocuments) documents = NativeDocuments(_owned, this);
  }

  late final Owned _owned;

  @override
  Documents? documents;

  /// As `Model.load`.
  static Future<NativeModel> load(String source, Json options, OnProgress? onProgress, String? documents) async {
    final json = jsonEncode(options);
    final made = await watched(onProgress, (watch) async {
      if (documents == null) return jobs.run(calls.loadModel, (source, json, watch));
      final bundle = await jobs.run(calls.prepareModel, (source, json, watch));
      return jobs.run(calls.initModel, (bundle, documents));
    });
    return NativeModel._(made, documents != null);
  }

  @override
  NativeStream stream(Object request, {bool joinText = true, OnConsent? onConsent}) {
    final json = jsonEncode(Request.jsonOf(request));
    return NativeStream(
      () => quick.run(calls.startRequest, (Kind.model, _owned.handle, json)),
      joinText: joinText,
      onConsent: onConsent,
      owner: this,
    );
  }

  @override
  Json get info => using((arena) {
    final place = arena<Pointer<Char>>();
    check(raw.modelInfo(_owned.pointer, place));
    return decodeObject(take(place.value));
  });

  @override
  Future<List<int>> tokenize(String text, {bool special = false}) async =>
      quick.run(calls.tokenize, (_owned.handle, text, special));

  @override
  Future<String> detokenize(List<int> tokens, {bool special = false}) async =>
      quick.run(calls.detokenize, (_owned.handle, tokens, special));

  @override
  Future<Json> score(List<int> tokens, {int first = 1}) async =>
      decodeObject(await jobs.run(calls.score, (_owned.handle, tokens, first)));

  @override
  void setThreads({int threads = 0, int decodeThreads = 0}) {
    if (threads < 0 || decodeThreads < 0) {
      throw const CactusError.argument('`threads`: expected 0 or more');
    }
    check(raw.modelSetThreads(_owned.pointer, threads, decodeThreads));
  }

  @override
  Future<void> setPolicy({String? policy, Json? options}) async =>
      jobs.run(calls.setPolicy, (_owned.handle, policy, options == null ? null : jsonEncode(options)));

  @override
  Future<NativeSession> session([Object? defaults]) async {
    final json = defaults == null ? null : jsonEncode(Request.jsonOf(defaults));
    return NativeSession._(await quick.run(calls.openSession, (_owned.handle, json)), this);
  }

  @override
  Future<void> close() => _owned.close();
}

/// A conversation that the library holds.
final class NativeSession extends Session implements Finalizable {
  NativeSession._(Made made, this._model) {
    _owned = Owned(made, this);
  }

  // Lives as long as its conversations.
  // ignore: unused_field
  final NativeModel _model;
  late final Owned _owned;
  NativeStream? _last;
  Future<void>? _closed;

  @override
  NativeStream stream(Object request, {bool joinText = true, OnConsent? onConsent}) {
    final json = jsonEncode(request is String ? request : Request.jsonOf(request));
    late final NativeStream stream;
    return stream = NativeStream(
      () async {
        final made = await quick.run(calls.startRequest, (Kind.session, _owned.handle, json));
        _last = stream;
        return made;
      },
      joinText: joinText,
      onConsent: onConsent,
      owner: this,
    );
  }

  @override
  List<Json> get messages => using((arena) {
    final place = arena<Pointer<Char>>();
    check(raw.sessionMessages(_owned.pointer, place));
    return (jsonDecode(take(place.value)) as List<Object?>).cast();
  });

  @override
  Future<void> close() => _closed ??= _close();

  Future<void> _close() async {
    await _owned.close();
    await _last?.ended;
  }
}

/// The documents of a model.
final class NativeDocuments extends Documents implements Finalizable {
  /// Those of the model [_owned], which [_owner] keeps open.
  NativeDocuments(this._owned, this._owner);

  final Owned _owned;
  // ignore: unused_field
  final Object _owner;

  @override
  Future<List<Json>> query(String text, {int count = 5}) async {
    final json = await jobs.run(calls.queryDocuments, (_owned.handle, text, count));
    return (decodeObject(json)['chunks'] as List<Object?>).cast();
  }
}
