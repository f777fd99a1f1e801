/// Bundles of tiny models, and what many tests do.
library;

import 'dart:async';
import 'dart:convert';
import 'dart:io';
import 'dart:math';
import 'dart:typed_data';

import 'package:cactus_engine/cactus_engine.dart';

import 'harness.dart';

/// The folder that `test.sh` has filled.
final bundles = Platform.environment['CACTUS_TEST_BUNDLES'] ?? (throw StateError('CACTUS_TEST_BUNDLES is not set'));

/// The folder `golden` of the repository.
final golden = Platform.environment['CACTUS_TEST_GOLDEN'] ?? (throw StateError('CACTUS_TEST_GOLDEN is not set'));

/// A bundle by its name.
String bundle(String name) => '$bundles/$name';

/// Whether a bundle was made. What cannot be made here says why.
bool has(String name) => Directory(bundle(name)).existsSync();

/// Options of a small model.
const small = ModelOptions(contextTokens: 512, threads: 1);

/// Room for [endless], in the model called `tools`.
const roomy = ModelOptions(contextTokens: 60000, threads: 1);

/// Tokens of [endless].
const endlessTokens = 50000;

/// A request that is not over before somebody cancels it, however fast the
/// machine is.
Json endless() => counting(endlessTokens);

/// A model that is closed at the end of the test.
Future<Model> open([String name = 'chat', ModelOptions options = small]) async {
  final model = await Model.load(bundle(name), options: options);
  addTearDown(model.close);
  return model;
}

/// A request that goes on for [tokens] tokens.
Json counting([int tokens = 200, String prompt = 'Count.']) => {
  'prompt': prompt,
  'options': {'max_tokens': tokens, 'temperature': 0, 'seed': 1, 'ignore_eos': true},
};

/// The texts of events.
String textOf(Iterable<Event> events) => events.whereType<TextEvent>().map((event) => event.text).join();

/// Checks what holds for every stream.
void expectWhole(List<Event> events) {
  expect(events, isNotEmpty);
  expect(events.last, isA<LastEvent>());
  expect(events.whereType<LastEvent>(), hasLength(1));
}

/// A tone that rises for some seconds.
Int16List rising([int seconds = 4]) =>
    Int16List.fromList([for (var i = 0; i < seconds * 16000; i++) (16000 * sin(i * i * 1e-5)).truncate()]);

/// A folder that is deleted at the end of the test.
Directory folder() {
  final made = Directory.systemTemp.createTempSync('cactus-dart-');
  addTearDown(() => made.deleteSync(recursive: true));
  return made;
}

/// A target with the protocol of OpenAI on this machine, and how often it was
/// asked.
final class Target {
  Target._(this._server) {
    _server.listen((request) async {
      asked++;
      await request.drain<void>();
      final response = request.response..headers.contentType = ContentType('text', 'event-stream');
      for (final piece in ['from ', 'afar']) {
        response.write(_chunk({'content': piece}, null));
      }
      response
        ..write(_chunk(const {}, 'stop'))
        ..write(_data({..._head, 'choices': <Object>[], 'usage': _usage}))
        ..write('data: [DONE]\n\n');
      await response.close();
    });
  }

  final HttpServer _server;
  var asked = 0;

  static const Json _head = {'id': 'c', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'm'};
  static const Json _usage = {'prompt_tokens': 20, 'completion_tokens': 9, 'total_tokens': 29};

  static String _data(Json json) => 'data: ${jsonEncode(json)}\n\n';

  static String _chunk(Json delta, String? reason) => _data({
    ..._head,
    'choices': [
      {'index': 0, 'delta': delta, 'finish_reason': reason},
    ],
    'usage': null,
  });

  /// One that is stopped at the end of the test.
  static Future<Target> start() async {
    final server = await HttpServer.bind(InternetAddress.loopbackIPv4, 0);
    addTearDown(() => server.close(force: true));
    return Target._(server);
  }

  /// A policy that hands everything to it; [consent] is `ask` or `always`.
  String policy(String consent) =>
      'version = 1\nhandoff = "always"\n[routing]\nretries = 0\n[consent]\ntext = "$consent"\n'
      '[targets.far]\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:${_server.port}/v1"\nmodel = "m"\n'
      'max_output_tokens = 100\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n';
}
