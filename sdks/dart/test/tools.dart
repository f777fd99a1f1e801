/// Tools, structured output and policies.
library;

import 'dart:async';

import 'package:cactus_engine/cactus_engine.dart';

import 'harness.dart';
import 'support.dart';

enum _Size { small, large }

final _weather = Schema.object({
  'city': Schema.oneOf(['Paris', 'Rome']),
  'days': Schema.integer(minimum: 1, maximum: 9),
});

const _options = GenerateOptions(maxTokens: 120, temperature: 0, seed: 7);

Request _question([String choice = 'required']) => Request(
  messages: [Message.user('What is the weather?')],
  toolChoice: choice,
  options: _options,
  more: const {'parallel_tool_calls': false},
);

final class _Person {
  _Person(this.name, this.age);

  factory _Person.fromJson(Json json) => _Person(json['name'] as String, json['age'] as int);

  final String name;
  final int age;
}

/// Gives answers that were written before, and keeps what it was asked.
final class _Scripted extends Answering {
  _Scripted(this._answers);

  final List<Json> _answers;
  final asked = <Json>[];

  @override
  AnswerStream stream(Object request, {bool joinText = true, OnConsent? onConsent}) => throw UnimplementedError();

  @override
  Future<Answer> respond(Object request, {OnConsent? onConsent}) async {
    asked.add(request as Json);
    return Answer(_answers.removeAt(0));
  }

  @override
  Json followUp(Json request, Answer answer, List<Json> results) => {...request, 'messages': results};
}

Json _calls(List<(String, String)> calls, [String reason = 'tool_calls']) => {
  'finish_reason': reason,
  'message': {
    'role': 'assistant',
    'content': '',
    'tool_calls': [
      for (final (i, (name, arguments)) in calls.indexed)
        {
          'id': 'c$i',
          'type': 'function',
          'function': {'name': name, 'arguments': arguments},
        },
    ],
  },
};

void main() {
  const large = ModelOptions(contextTokens: 2048, threads: 1);
  group('tools', () {
    test('are called with arguments that follow the schema, so many rounds', () async {
      final (model, heard) = (await open('tools', large), <Json>[]);
      final tool = Tool('weather', 'Weather', _weather, (arguments) {
        heard.add(arguments);
        return {'sky': 'clear'};
      });
      final answer = await model.respondWithTools(_question(), [tool], mostRounds: 2);
      expect(heard, hasLength(2));
      for (final arguments in heard) {
        expect(['Paris', 'Rome'], contains(arguments['city']));
        expect(arguments['days'], allOf(isA<int>(), inInclusiveRange(1, 9)));
      }
      // It has to call, so the last answer wants more.
      expect(answer.finishReason, 'tool_calls');
      expect(answer.toolCalls.single.name, 'weather');
      final none = await model.respondWithTools(_question('none'), [tool]);
      expect(none.toolCalls, isEmpty);
      expect(heard, hasLength(2));
    });

    test('a session keeps the calls and their results', () async {
      final model = await open('tools', large);
      final session = await model.session();
      final tool = Tool('weather', 'Weather', _weather, (_) => 'sunny');
      await session.respondWithTools(_question(), [tool], mostRounds: 1);
      final roles = [for (final message in session.messages) message['role']];
      expect(roles, ['user', 'assistant', 'tool', 'assistant']);
      expect(session.messages[2]['content'], 'sunny');
      await session.close();
    });

    test('a refusal and an exception become what the model reads', () async {
      final (model, asked) = (await open('tools', large), <String>[]);
      final tool = Tool('weather', 'Weather', _weather, (_) => throw const FormatException('no network'));
      final session = await model.session();
      await session.respondWithTools(
        _question(),
        [tool],
        mostRounds: 2,
        confirm: (call) {
          asked.add(call.name);
          return asked.length > 1;
        },
      );
      final results = [
        for (final message in session.messages)
          if (message['role'] == 'tool') message['content'],
      ];
      expect(asked, ['weather', 'weather']);
      expect(results, ['error: the call was refused', 'error: no network']);
    });

    test('what is wrong with a call is told to the model', () async {
      final heard = <Json>[];
      final tool = Tool('weather', 'Weather', _weather, (arguments) {
        heard.add(arguments);
        if (heard.length == 2) throw StateError('it rains');
        if (heard.length == 3) throw Exception('nobody knows');
        return 'sunny';
      });
      final (asks, asked) = (
        _Scripted([
          _calls([
            ('weather', ''),
            ('weathr', '{}'),
            ('weather', '{"city": '),
            ('weather', '[1]'),
            ('weather', '{"city":"Rome"}'),
            ('weather', '{}'),
            ('weather', '{"no":1}'),
          ]),
          _calls([], 'stop'),
        ]),
        <String>[],
      );
      final answer = await asks.respondWithTools(
        _question(),
        [tool],
        confirm: (call) {
          asked.add(call.argumentsText);
          return !call.arguments.containsKey('no');
        },
      );
      expect(answer.finishReason, 'stop');
      expect(heard, [
        <String, Object?>{},
        {'city': 'Rome'},
        <String, Object?>{},
      ]);
      expect(asked, ['', '{"city":"Rome"}', '{}', '{"no":1}']);
      expect(
        [for (final message in asks.asked.last['messages']! as List<Json>) message['content']],
        [
          'sunny',
          'error: there is no tool `weathr`',
          'error: the arguments are no JSON object',
          'error: the arguments are no JSON object',
          'error: it rains',
          'error: nobody knows',
          'error: the call was refused',
        ],
      );
    });

    test('no tool is called for an answer that was cancelled', () async {
      final tool = Tool('weather', 'Weather', _weather, (_) => throw StateError('it was called'));
      final asks = _Scripted([
        _calls([('weather', '{}')], 'cancelled'),
      ]);
      expect((await asks.respondWithTools(_question(), [tool])).isCancelled, isTrue);
      expect(asks.asked, hasLength(1));
    });
  });

  group('structured output', () {
    test('is a value of the type that was asked for', () async {
      final model = await open();
      final form = Form.of(
        Schema.object({
          'name': Schema.oneOf(['Ada', 'Bob']),
          'age': Schema.integer(minimum: 1, maximum: 120),
        }),
        _Person.fromJson,
      );
      final person = await model.respondAs(Request.text('Who?', options: _options), form);
      expect(['Ada', 'Bob'], contains(person.name));
      expect(person.age, inInclusiveRange(1, 120));
      final sizes = Form(Schema.array(Schema.enumeration(_Size.values), minItems: 2, maxItems: 2), (json) {
        return [for (final name in json! as List<Object?>) _Size.values.byName(name! as String)];
      });
      expect(await model.respondAs(Request.text('Which?', options: _options), sizes), hasLength(2));
    });

    test('an answer that is cut off is an error of the kind cancelled, and names the reason', () async {
      final model = await open();
      for (final schema in [
        Schema.object({'name': Schema.string()}),
        // What can be read all the same.
        Schema.integer(minimum: 100000, maximum: 999999),
      ]) {
        final form = Form<Object?>(schema, (json) => json);
        final request = Request.text('Who?', options: const GenerateOptions(maxTokens: 1, temperature: 0));
        final error = await thrown<CactusError>(() => model.respondAs(request, form));
        expect((error.kind, error.code), ('cancelled', -11));
        expect(error.message, contains('(length)'));
      }
    });

    test('schemas are JSON Schema', () {
      final schema = Schema.object(
        {
          'name': Schema.string(pattern: '[A-Z].*', description: 'Whose'),
          'size': Schema.enumeration(_Size.values),
          'tags': Schema.array(Schema.string(), maxItems: 3),
          'weight': Schema.number(minimum: 0).nullable,
          'old': Schema.boolean(),
        },
        optional: {'old'},
      );
      expect(schema.toJson(), {
        'type': 'object',
        'properties': {
          'name': {'type': 'string', 'pattern': '[A-Z].*', 'description': 'Whose'},
          'size': {
            'enum': ['small', 'large'],
          },
          'tags': {
            'type': 'array',
            'items': {'type': 'string'},
            'maxItems': 3,
          },
          'weight': {
            'anyOf': [
              {'type': 'number', 'minimum': 0},
              {'type': 'null'},
            ],
          },
          'old': {'type': 'boolean'},
        },
        'required': ['name', 'size', 'tags', 'weight'],
        'additionalProperties': false,
      });
    });
  });

  group('policies', () {
    Future<(Model, Target)> under(String consent) async {
      final (model, target, state) = (await open(), await Target.start(), folder());
      await model.setPolicy(policy: target.policy(consent), options: {'state': state.path});
      return (model, target);
    }

    final hello = Request.text('hello', options: const GenerateOptions(maxTokens: 5, temperature: 0));

    test('a target answers, and the answer says who, why and for how much', () async {
      final (model, target) = await under('always');
      final events = await model.stream(hello).toList();
      expectWhole(events);
      final source = events.whereType<SourceEvent>().single;
      expect((source.side, source.target, source.reason), ('cloud', 'far', 'always'));
      final answer = (events.last as DoneEvent).answer;
      expect((answer.text, answer.route, answer.answeredBy), ('from afar', 'cloud', 'far'));
      expect((answer.reason, answer.costUsd, answer.confidence), ('always', 29e-6, null));
      await model.setPolicy();
      expect((await model.respond(hello)).route, isNull);
      expect(target.asked, 1);
    });

    test('nothing leaves without a yes, however the no comes', () async {
      final (model, target) = await under('ask');
      // Nobody says anything.
      expect((await model.respond(hello)).answeredBy, isNot('far'));
      expect((await model.stream(hello).toList()).whereType<ConsentEvent>(), hasLength(1));
      // By a function, and in the stream.
      expect((await model.respond(hello, onConsent: (_) => false)).answeredBy, isNot('far'));
      final stream = model.stream(hello);
      await for (final event in stream) {
        if (event is ConsentEvent) stream.consent(false);
      }
      expect(target.asked, 0);
      expect((await stream.answer).answeredBy, isNot('far'));
    });

    test('a yes may take its time', () async {
      final (model, target) = await under('ask');
      ConsentEvent? question;
      final answer = await model.respond(
        hello,
        onConsent: (asked) async {
          question = asked;
          await Future<void>.delayed(const Duration(milliseconds: 80));
          return true;
        },
      );
      expect((answer.text, target.asked), ('from afar', 1));
      expect(question!.classes, ['text']);
      expect(question!.target, 'far');
      expect(question!.host, contains('127.0.0.1'));
      expect(question!.most, isNotNull);
      final stream = model.stream(hello);
      await for (final event in stream) {
        if (event is ConsentEvent) {
          await Future<void>.delayed(const Duration(milliseconds: 80));
          stream.consent(true);
          expect((await thrown<CactusError>(() => stream.consent(true))).kind, 'argument');
        }
      }
      expect(target.asked, 2);
    });

    test('cancelling ends a question', () async {
      final (model, target) = await under('ask');
      late final AnswerStream stream;
      stream = model.stream(
        hello,
        onConsent: (_) async {
          stream.cancel();
          // Nobody answers.
          await Completer<void>().future;
          return true;
        },
      );
      final events = await stream.toList();
      expectWhole(events);
      expect(events.last, isA<CancelledEvent>());
      expect(target.asked, 0);
    });

    test('a wrong policy is refused', () async {
      final model = await open();
      final error = await thrown<CactusError>(() => model.setPolicy(policy: 'version = 1\nhandof = "auto"\n'));
      expect(error.message, contains('line 2'));
    });
  });
}
