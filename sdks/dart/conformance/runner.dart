/// Runs a plan of the conformance suite through the package's own API.
library;

import 'dart:async';
import 'dart:convert';
import 'dart:io';
import 'dart:typed_data';

import 'package:cactus_engine/cactus_engine.dart';

/// Runs the plan in a file, and writes results to another, line by line.
Future<void> runPlan(String planPath, String resultsPath) async {
  final plan = jsonDecode(await File(planPath).readAsString()) as Json;
  final results = File(resultsPath).openSync(mode: FileMode.write);
  final cases = (plan['cases'] as List<Object?>).cast<Json>();
  for (final each in cases) {
    final runner = _Case();
    final found = <Json>[];
    for (final step in (each['steps'] as List<Object?>).cast<Json>()) {
      found.add(await runner.step(step));
    }
    await runner.close();
    results.writeStringSync('${jsonEncode({'case': each['name'], 'results': found})}\n');
    results.flushSync();
  }
  results.writeStringSync('${jsonEncode({'end': cases.length})}\n');
  results.closeSync();
}

/// A stream that somebody has begun to read.
final class _Reading {
  _Reading(this.stream);

  final AnswerStream stream;
  late final _events = StreamIterator(stream);

  Future<Json?> next() async => await _events.moveNext() ? _events.current.json : null;

  Future<List<Json>> rest() async => [for (Json? event; (event = await next()) != null;) event!];
}

final class _Case {
  final _made = <String, Object>{};

  Future<Json> step(Json step) async {
    try {
      return await _run(step);
    } on CactusError catch (error) {
      return {
        'error': {'kind': error.kind, 'message': error.message},
      };
    }
  }

  Future<void> close() async {
    for (final object in [..._made.values].reversed) {
      await _close(object);
    }
  }

  static Future<void> _close(Object object) => switch (object) {
    final _Reading reading => reading.stream.close(),
    final Model model => model.close(),
    final Session session => session.close(),
    final Embedder embedder => embedder.close(),
    final Index index => index.close(),
    final Transcriber transcriber => transcriber.close(),
    final LiveTranscription live => live.close(),
    _ => throw StateError('$object cannot be closed'),
  };

  T _get<T>(Json step, [String field = 'on']) {
    final object = _made[step[field]];
    if (object == null) throw CactusError(-4, 'handle', 'nothing was made with the name ${step[field]}');
    return object as T;
  }

  Json _keep(Json step, Object object) {
    _made[step['as'] as String] = object;
    return {};
  }

  Future<Json> _run(Json step) async {
    Json? object(String field) => step[field] as Json?;
    String text(String field) => step[field] as String;
    List<T> list<T>(String field) => (step[field] as List<Object?>).cast<T>();
    int number(String field) => step[field] as int;
    bool flag(String field) => step[field] as bool? ?? false;
    switch (step['op']) {
      case 'versions':
        return {'abi': Cactus.abiVersion};
      case 'check_bundle':
        return {'report': await Cactus.checkBundle(text('path'), verify: flag('verify'))};
      case 'memory_pressure':
        Cactus.memoryPressure();
        return {};

      case 'load':
        final options = ModelOptions(more: object('options') ?? const {});
        return _keep(step, await Model.load(text('source'), options: options));
      case 'load_embedder':
        return _keep(step, await Embedder.load(text('source')));
      case 'load_transcriber':
        return _keep(step, await Transcriber.load(text('source')));
      case 'info':
        final info = _get<Model>(step).info;
        return {
          'info': {for (final name in list<String>('fields')) name: info[name]},
        };
      case 'tokenize':
        return {'tokens': await _get<Model>(step).tokenize(text('text'), special: flag('special'))};
      case 'detokenize':
        return {'text': await _get<Model>(step).detokenize(list('tokens'), special: flag('special'))};
      case 'score':
        return {'score': await _get<Model>(step).score(list('tokens'), first: number('first'))};
      case 'set_threads':
        final model = _get<Model>(step);
        model.setThreads(threads: number('threads'), decodeThreads: number('decode_threads'));
        return {};
      case 'set_policy':
        final (policy, options) = (step['policy'] as String?, object('options'));
        switch (_get<Object>(step)) {
          case final Transcriber transcriber:
            await transcriber.setPolicy(policy: policy, options: options);
          case final model:
            await (model as Model).setPolicy(policy: policy, options: options);
        }
        return {};

      case 'session':
        return _keep(step, await _get<Model>(step).session(step['defaults']));
      case 'messages':
        return {'messages': _get<Session>(step).messages};
      case 'respond':
        return {'answer': (await _get<Answering>(step).respond(step['request']!)).json};
      case 'stream':
        return {'events': await _stream(step)};
      case 'start':
        final stream = _get<Answering>(step).stream(step['request']!, joinText: false);
        await stream.begin();
        return _keep(step, _Reading(stream));
      case 'read':
        final (reading, events) = (_get<_Reading>(step, 'of'), <Json>[]);
        for (var left = number('count'); left > 0; left--) {
          if (await reading.next() case final event?) events.add(event);
        }
        return {'events': events};
      case 'cancel':
        _get<_Reading>(step, 'of').stream.cancel();
        return {};
      case 'collect':
        return {'events': await _get<_Reading>(step, 'of').rest()};
      case 'tools':
        return _tools(step);
      case 'structured':
        final form = Form<Object?>(Schema.json(step['schema']!), (json) => json);
        return {'value': await _get<Answering>(step).respondAs(step['request']!, form)};

      case 'embed':
        final vectors = await _get<Embedder>(
          step,
        ).embedAll(list('texts'), normalize: step['normalize'] as bool? ?? true);
        return {'vectors': vectors.map(_hex).toList()};
      case 'embed_image':
        return {
          'vectors': [_hex(await _get<Embedder>(step).embedImage(text('path')))],
        };
      case 'index_open':
        return _keep(step, await Index.open(text('folder'), number('dimension')));
      case 'index_add':
        final (ids, texts, metadatas) = (list<int>('ids'), list<String>('documents'), list<String?>('metadatas'));
        final vectors = list<String>('vectors').map(_vector).toList();
        await _get<Index>(
          step,
        ).add([for (final (i, id) in ids.indexed) Document(id, texts[i], vectors[i], metadata: metadatas[i])]);
        return {};
      case 'index_get':
        return {
          'documents': [
            for (final document in await _get<Index>(step).get(list('ids')))
              [document.text, document.metadata ?? '', _hex(document.vector)],
          ],
        };
      case 'index_query':
        final options = {...?object('options')};
        final count = options.remove('top_k') as int? ?? 10;
        final found = await _get<Index>(
          step,
        ).queryAll(list<String>('vectors').map(_vector).toList(), count: count, options: options);
        return {
          'found': [
            for (final hits in found)
              [
                for (final hit in hits)
                  [
                    hit.id,
                    _hex(Float32List.fromList([hit.score])),
                  ],
              ],
          ],
        };
      case 'index_delete':
        await _get<Index>(step).delete(list('ids'));
        return {};
      case 'index_compact':
        await _get<Index>(step).compact();
        return {};

      case 'transcribe':
        final options = object('options') ?? const {};
        return {'result': (await _get<Transcriber>(step).transcribe(_sound(step), options: options)).json};
      case 'detect_language':
        return {'result': await _get<Transcriber>(step).detectLanguage(_sound(step))};
      case 'speech':
        final options = object('options') ?? const {};
        return {'result': await _get<Transcriber>(step).speechJson(_sound(step), options: options)};
      case 'live':
        return _keep(step, await _get<Transcriber>(step).live(options: object('options') ?? const {}));
      case 'push':
        final pcm = _pcm(text('pcm'));
        final piece = Int16List.sublistView(pcm, number('from'), number('to'));
        return {'result': (await _get<LiveTranscription>(step, 'of').push(piece)).json};
      case 'finish':
        return {'result': (await _get<LiveTranscription>(step, 'of').finish()).json};
      case 'close':
        await _close(_get<Object>(step, 'of'));
        return {};
      case final other:
        return {'absent': 'the runner does not know `$other`'};
    }
  }

  Future<List<Json>> _stream(Json step) async {
    final stream = _get<Answering>(step).stream(step['request']!, joinText: false);
    final (events, after) = (<Json>[], step['cancel_after'] as int?);
    var texts = 0;
    await for (final event in stream) {
      events.add(event.json);
      if (event is TextEvent && ++texts == after) stream.cancel();
      if (event is ConsentEvent) {
        if (step['consent'] case final bool yes) stream.consent(yes);
      }
    }
    return events;
  }

  Future<Json> _tools(Json step) async {
    final request = {...step['request'] as Json};
    final results = step['results'] as Json;
    final calls = <List<Object?>>[];
    bool named(String field, String name) => (step[field] as List<Object?>? ?? const []).contains(name);
    final tools = [
      for (final json in (request.remove('tools') as List<Object?>).cast<Json>())
        if (json['function'] case {
          'name': final String name,
          'description': final String description,
          'parameters': final Object parameters,
        })
          Tool(name, description, Schema.json(parameters), (arguments) {
            calls.add([name, arguments]);
            return named('throws', name) ? throw Exception(results[name]) : results[name];
          }),
    ];
    final answer = await _get<Answering>(
      step,
    ).respondWithTools(request, tools, mostRounds: step['most'] as int, confirm: (call) => !named('refuse', call.name));
    return {'answer': answer.json, 'calls': calls};
  }
}

Sound _sound(Json step) => switch (step['file']) {
  final String path => Sound.file(path),
  _ => Sound.pcm(_pcm(step['pcm'] as String)),
};

Int16List _pcm(String path) => Int16List.sublistView(File(path).readAsBytesSync());

String _hex(Float32List vector) {
  final bits = Uint32List.sublistView(vector);
  return [for (final word in bits) word.toRadixString(16).padLeft(8, '0')].join();
}

Float32List _vector(String hex) => Float32List.sublistView(
  Uint32List.fromList([for (var i = 0; i < hex.length; i += 8) int.parse(hex.substring(i, i + 8), radix: 16)]),
);
