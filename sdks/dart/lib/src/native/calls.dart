/// What runs on helper isolates: static functions of numbers and texts.
library;

import 'dart:convert';
import 'dart:ffi';
import 'dart:isolate';
import 'dart:typed_data';

import 'package:ffi/ffi.dart';

import '../error.dart';
import '../raw.g.dart' as c;
import 'lane.dart';
import 'library.dart';
import 'owned.dart';

/// Bytes for what the library writes into a buffer of the caller: a transcript
/// of many hours.
const _roomBytes = 16 << 20;

Pointer<Void> _at(int handle) => Pointer.fromAddress(handle);

Made _made(Kind kind, Pointer<Void> handle) => handle == nullptr ? fail() : Made(kind, handle.address);

/// How loading is watched: where progress goes, and a number that says stop.
typedef Watch = ({SendPort progress, int stop});

T _watched<T>(Watch? watch, T Function(Pointer<NativeFunction<c.CactusProgressCallback>> callback) load) {
  if (watch == null) return load(nullptr);
  final stop = Pointer<Int32>.fromAddress(watch.stop);
  int tell(Pointer<Char> stage, Pointer<Char> what, int done, int total, Pointer<Void> _) {
    watch.progress.send((borrow(stage), borrow(what), done, total));
    return stop.value;
  }

  final callback = NativeCallable<c.CactusProgressCallback>.isolateLocal(tell, exceptionalReturn: 1);
  try {
    return load(callback.nativeFunction);
  } finally {
    callback.close();
  }
}

/// Loads a model.
Made loadModel((String, String, Watch?) job) => using((arena) {
  final (source, options, watch) = job;
  final model = arena<Pointer<Void>>();
  check(
    _watched(
      watch,
      (callback) =>
          raw.modelLoad(arena.text(source, 'source'), arena.text(options, 'options'), callback, nullptr, model),
    ),
  );
  return Made(Kind.model, model.value.address);
});

/// Gets a bundle, and gives its folder.
String prepareModel((String, String, Watch?) job) => using((arena) {
  final (source, options, watch) = job;
  final path = arena<Pointer<Char>>();
  check(
    _watched(
      watch,
      (callback) =>
          raw.modelPrepare(arena.text(source, 'source'), arena.text(options, 'options'), callback, nullptr, path),
    ),
  );
  return take(path.value);
});

/// Loads a bundle of any kind, perhaps with documents.
Made initModel((String, String?) job) =>
    using((arena) => _made(Kind.model, raw.init(arena.text(job.$1, 'bundle'), arena.text(job.$2, 'documents'), true)));

/// Whether a bundle can be used.
String checkBundle((String, bool) job) => using((arena) {
  final report = arena<Pointer<Char>>();
  final code = raw.checkBundle(arena.text(job.$1, 'path'), job.$2, report);
  if (report.value == nullptr) check(code);
  return take(report.value);
});

/// Token ids of a text.
List<int> tokenize((int, String, bool) job) => using((arena) {
  final (model, text, special) = job;
  final tokens = arena<Pointer<Uint32>>();
  final count = arena<Size>();
  check(raw.modelTokenize(_at(model), arena.text(text, 'text'), special, tokens, count));
  try {
    return [...tokens.value.asTypedList(count.value)];
  } finally {
    raw.tokensFree(tokens.value, count.value);
  }
});

Pointer<Uint32> _tokens(Arena arena, List<int> tokens) {
  final place = arena<Uint32>(tokens.length + 1);
  for (final (i, token) in tokens.indexed) {
    if (token < 0 || token > 0xffffffff) throw CactusError.argument('`tokens`: $token is no token id');
    place[i] = token;
  }
  return place;
}

/// The text of token ids.
String detokenize((int, List<int>, bool) job) => using((arena) {
  final (model, tokens, special) = job;
  final text = arena<Pointer<Char>>();
  check(raw.modelDetokenize(_at(model), _tokens(arena, tokens), tokens.length, special, text));
  return take(text.value);
});

/// How likely tokens are.
String score((int, List<int>, int) job) => using((arena) {
  final (model, tokens, first) = job;
  if (first < 0) throw CactusError.argument('`first`: expected 1 or more, found $first');
  final score = arena<Pointer<Char>>();
  check(raw.modelScore(_at(model), _tokens(arena, tokens), tokens.length, first, score));
  return take(score.value);
});

/// Who else may answer.
void setPolicy((int, String?, String?) job) => using((arena) {
  final (model, policy, options) = job;
  check(raw.modelSetPolicy(_at(model), arena.text(policy, 'policy'), arena.text(options, 'options')));
});

/// Opens a conversation.
Made openSession((int, String?) job) => using((arena) {
  final session = arena<Pointer<Void>>();
  check(raw.sessionOpen(_at(job.$1), arena.text(job.$2, 'defaults'), session));
  return Made(Kind.session, session.value.address);
});

/// Begins a request of a model or a session.
Made startRequest((Kind, int, String) job) => using((arena) {
  final (kind, handle, json) = job;
  final request = arena<Pointer<Void>>();
  final start = kind == Kind.session ? raw.sessionSend : raw.requestStart;
  check(start(_at(handle), arena.text(json, 'request'), nullptr, nullptr, request));
  return Made(Kind.request, request.value.address);
});

/// What [nextEvents] is to do.
typedef Next = ({int request, int timeoutMs, bool joinText});

/// Waits some time for events, and gives all that are there: none, where none
/// came in time. Behind the last one, the request is closed.
List<Json> nextEvents(Next job) => using((arena) {
  final request = _at(job.request);
  final place = arena<Pointer<Char>>();
  final over = arena<Bool>();
  final events = <Json>[];
  var timeout = job.timeoutMs;
  while (true) {
    check(raw.requestNext(request, timeout, place, over));
    if (place.value == nullptr) {
      if (over.value) throw const CactusError(-1, 'internal', 'a request has no last event');
      return events;
    }
    // What comes now is there already.
    timeout = 0;
    final event = decodeObject(take(place.value));
    switch (event['event']) {
      case 'text' || 'reasoning' when job.joinText && events.lastOrNull?['event'] == event['event']:
        final last = events.last;
        last['text'] = '${last['text']}${event['text']}';
        continue;
      case 'done' || 'cancelled' || 'failed':
        events.add(event);
        raw.requestClose(request);
        return events;
      case 'consent':
        // Whoever asks for more has not said yes.
        return events..add(event);
      default:
        events.add(event);
    }
  }
});

/// As [nextEvents], again and again, until the number at an address is not 0.
/// Events go to a port; the last ones, or those that end with a question, are
/// the result.
List<Json> followEvents((Next, int, SendPort) job) {
  final (next, address, port) = job;
  final stop = Pointer<Int32>.fromAddress(address);
  while (stop.value == 0) {
    final events = nextEvents(next);
    if (events.isEmpty) continue;
    if (events.last['event'] case 'done' || 'cancelled' || 'failed' || 'consent') return events;
    port.send(events);
  }
  return const [];
}

/// Waits until a request has ended, whatever came of it.
void awaitEnd(int request) => using((arena) {
  final result = arena<Pointer<Char>>();
  if (raw.requestWait(_at(request), result) == 0) raw.stringFree(result.value);
});

/// The pieces of documents nearest to a question.
String queryDocuments((int, String, int) job) => using((arena) {
  final (model, question, count) = job;
  if (count < 0) throw CactusError.argument('`count`: expected 1 or more, found $count');
  return _written(arena, (buffer, size) => raw.ragQuery(_at(model), arena.text(question, 'text'), buffer, size, count));
});

String _written(Arena arena, int Function(Pointer<Char> buffer, int size) write) {
  // Not of the arena, which would fill it with zeros.
  final buffer = malloc<Char>(_roomBytes);
  arena.using(buffer, malloc.free);
  buffer.value = 0;
  check(write(buffer, _roomBytes));
  return borrow(buffer);
}

Float32List _vector(int Function(Pointer<Float> buffer, int bytes, Pointer<Size> dimension) write) => using((arena) {
  final dimension = arena<Size>();
  for (var room = 4096; ; room = dimension.value) {
    final buffer = arena<Float>(room);
    final count = write(buffer, room * sizeOf<Float>(), dimension);
    if (count == -2 && dimension.value > room) continue;
    check(count);
    return Float32List.fromList(buffer.asTypedList(count));
  }
});

/// Vectors of texts.
List<Float32List> embed((int, List<String>, bool) job) {
  final (model, texts, normalize) = job;
  return [
    for (final text in texts)
      using((arena) {
        final lent = arena.text(text, 'text');
        return _vector((buffer, bytes, dimension) => raw.embed(_at(model), lent, buffer, bytes, dimension, normalize));
      }),
  ];
}

/// The vector of a picture.
Float32List embedImage((int, String) job) => using((arena) {
  final path = arena.text(job.$2, 'path');
  return _vector((buffer, bytes, dimension) => raw.imageEmbed(_at(job.$1), path, buffer, bytes, dimension));
});

/// A recording: a path, or the address and bytes of samples, which are freed.
typedef Recording = ({String? path, int address, int bytes});

T _heard<T>(Recording sound, T Function(Arena arena, Pointer<Char> path, Pointer<Uint8> pcm) hear) {
  final pcm = Pointer<Uint8>.fromAddress(sound.address);
  try {
    return using((arena) => hear(arena, arena.text(sound.path, 'path'), pcm));
  } finally {
    if (sound.address != 0) malloc.free(pcm);
  }
}

/// Writes down what is said. The port gets the request, by its address, and then
/// the text of each segment.
String transcribe((int, Recording, String, SendPort) job) {
  final (model, sound, options, port) = job;
  return _heard(sound, (arena, path, pcm) {
    final place = arena<Pointer<c.CactusRequest>>();
    check(
      raw.transcriptionStart(
        _at(model),
        path,
        pcm,
        sound.bytes,
        arena.text(options, 'options'),
        nullptr,
        nullptr,
        place,
      ),
    );
    final request = place.value;
    try {
      port.send(request.address);
      final next = arena<Pointer<Char>>();
      final over = arena<Bool>();
      while (true) {
        check(raw.requestNext(request, -1, next, over));
        if (next.value == nullptr) throw const CactusError(-1, 'internal', 'a transcription has no last event');
        final event = decodeObject(take(next.value));
        switch (event['event']) {
          case 'text':
            port.send(event['text'] as String? ?? '');
          case 'done':
            return jsonEncode(event['result']);
          case 'cancelled':
            throw const CactusError(-11, 'cancelled', 'the transcription was stopped');
          case 'failed':
            throw CactusError(
              event['code'] as int? ?? -1,
              event['kind'] as String? ?? 'internal',
              event['text'] as String? ?? 'the transcription failed',
            );
        }
      }
    } finally {
      raw.requestClose(request);
    }
  });
}

/// Which language is spoken.
String detectLanguage((int, Recording) job) => _heard(
  job.$2,
  (arena, path, pcm) => _written(
    arena,
    (buffer, size) => raw.detectLanguage(_at(job.$1), path, buffer, size, nullptr, pcm, job.$2.bytes),
  ),
);

/// Where somebody speaks.
String speech((int, Recording, String) job) => _heard(
  job.$2,
  (arena, path, pcm) => _written(
    arena,
    (buffer, size) => raw.vad(_at(job.$1), path, buffer, size, arena.text(job.$3, 'options'), pcm, job.$2.bytes),
  ),
);

/// Begins to listen.
Made startLive((int, String) job) =>
    using((arena) => _made(Kind.live, raw.streamTranscribeStart(_at(job.$1), arena.text(job.$2, 'options'))));

/// Takes samples of live speech.
String pushLive((int, Recording) job) => _heard(
  job.$2,
  (arena, _, pcm) =>
      _written(arena, (buffer, size) => raw.streamTranscribeProcess(_at(job.$1), pcm, job.$2.bytes, buffer, size)),
);

/// Ends live speech.
String finishLive(int live) =>
    using((arena) => _written(arena, (buffer, size) => raw.streamTranscribeStop(_at(live), buffer, size)));

/// Opens an index.
Made openIndex((String, int) job) => using((arena) {
  if (job.$2 < 0) throw CactusError.argument('`dimension`: expected 1 or more, found ${job.$2}');
  return _made(Kind.vectors, raw.indexInit(arena.text(job.$1, 'folder'), job.$2));
});

/// A document as it is sent: id, text, metadata, vector.
typedef SentDocument = (int, String, String?, Float32List);

Pointer<Int> _ids(Arena arena, Iterable<int> ids) {
  final place = arena<Int>(ids.length + 1);
  for (final (i, id) in ids.indexed) {
    if (id != id.toSigned(32)) throw CactusError.argument('`ids`: $id has more than 32 bits');
    place[i] = id;
  }
  return place;
}

Pointer<Pointer<Float>> _vectors(Arena arena, List<Float32List> vectors) {
  final places = arena<Pointer<Float>>(vectors.length + 1);
  for (final (i, vector) in vectors.indexed) {
    if (vector.length != vectors.first.length) {
      throw CactusError.argument('`vectors`: found lengths ${vectors.first.length} and ${vector.length}');
    }
    final place = arena<Float>(vector.length + 1);
    place.asTypedList(vector.length).setAll(0, vector);
    places[i] = place;
  }
  return places;
}

/// Adds documents.
void addToIndex((int, List<SentDocument>) job) => using((arena) {
  final (index, documents) = job;
  if (documents.isEmpty) return;
  final texts = arena<Pointer<Char>>(documents.length);
  final metadatas = arena<Pointer<Char>>(documents.length);
  for (final (i, (_, text, metadata, _)) in documents.indexed) {
    texts[i] = arena.text(text, 'text');
    metadatas[i] = arena.text(metadata, 'metadata');
  }
  final vectors = [for (final (_, _, _, vector) in documents) vector];
  check(
    raw.indexAdd(
      _at(index),
      _ids(arena, documents.map((document) => document.$1)),
      texts,
      metadatas,
      _vectors(arena, vectors),
      documents.length,
      vectors.first.length,
    ),
  );
});

/// Deletes documents.
void deleteFromIndex((int, List<int>) job) => using((arena) {
  if (job.$2.isEmpty) return;
  check(raw.indexDelete(_at(job.$1), _ids(arena, job.$2), job.$2.length));
});

/// Documents by their ids.
List<SentDocument> getFromIndex((int, List<int>) job) => using((arena) {
  final (index, ids) = job;
  final count = ids.length;
  if (count == 0) return const [];
  Pointer<Size> sizes() => arena<Size>(count);
  final places = (
    texts: arena<Pointer<Char>>(count),
    textSizes: sizes(),
    metadatas: arena<Pointer<Char>>(count),
    metadataSizes: sizes(),
    vectors: arena<Pointer<Float>>(count),
    vectorSizes: sizes(),
  );
  int get() => raw.indexGet(
    _at(index),
    _ids(arena, ids),
    count,
    places.texts,
    places.textSizes,
    places.metadatas,
    places.metadataSizes,
    places.vectors,
    places.vectorSizes,
  );
  // First how much room they need, with room for next to nothing.
  for (var i = 0; i < count; i++) {
    places.texts[i] = arena<Char>();
    places.metadatas[i] = arena<Char>();
    places.vectors[i] = arena<Float>();
    places.textSizes[i] = places.metadataSizes[i] = places.vectorSizes[i] = 1;
  }
  var code = get();
  // Another program may write meanwhile.
  for (var tries = 0; code == -2 && tries < 8; tries++) {
    for (var i = 0; i < count; i++) {
      places.texts[i] = arena<Char>(places.textSizes[i]);
      places.metadatas[i] = arena<Char>(places.metadataSizes[i]);
      places.vectors[i] = arena<Float>(places.vectorSizes[i]);
    }
    code = get();
  }
  check(code);
  return [
    for (final (i, id) in ids.indexed)
      (
        id,
        borrow(places.texts[i]),
        borrow(places.metadatas[i]),
        Float32List.fromList(places.vectors[i].asTypedList(places.vectorSizes[i])),
      ),
  ];
});

/// The nearest documents to vectors: ids and scores of each.
List<(List<int>, Float32List)> queryIndex((int, List<Float32List>, int, Json) job) => using((arena) {
  final (index, vectors, most, options) = job;
  if (vectors.isEmpty) return const [];
  if (most < 1) throw CactusError.argument('`count`: expected 1 or more, found $most');
  final count = vectors.length;
  final ids = arena<Pointer<Int>>(count);
  final idSizes = arena<Size>(count);
  final scores = arena<Pointer<Float>>(count);
  final scoreSizes = arena<Size>(count);
  for (var i = 0; i < count; i++) {
    ids[i] = arena<Int>(most);
    scores[i] = arena<Float>(most);
    idSizes[i] = scoreSizes[i] = most;
  }
  check(
    raw.indexQuery(
      _at(index),
      _vectors(arena, vectors),
      count,
      vectors.first.length,
      arena.text(jsonEncode({'top_k': most, ...options}), 'options'),
      ids,
      idSizes,
      scores,
      scoreSizes,
    ),
  );
  return [
    for (var i = 0; i < count; i++)
      ([for (var k = 0; k < idSizes[i]; k++) ids[i][k]], Float32List.fromList(scores[i].asTypedList(scoreSizes[i]))),
  ];
});

/// Writes an index anew.
void compactIndex(int index) => check(raw.indexCompact(_at(index)));
