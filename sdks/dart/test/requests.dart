/// Answers, streams, cancelling, closing, conversations.
library;

import 'dart:async';

import 'package:cactus_engine/cactus_engine.dart';

import 'harness.dart';
import 'support.dart';

void main() {
  group('answers', () {
    test('a greedy answer is the same always, and has its numbers', () async {
      final model = await open();
      const request = Request(
        prompt: 'The fox falls on the train',
        options: GenerateOptions(maxTokens: 12, temperature: 0, seed: 7, more: {'ignore_eos': true}),
      );
      final (a, b) = (await model.respond(request), await model.respond(request));
      expect(a.text, isNotEmpty);
      expect(b.text, a.text);
      expect(b.tokens, a.tokens);
      expect(a.tokens, hasLength(12));
      expect(a.usage.completionTokens, 12);
      expect(a.finishReason, 'length');
      expect(a.isCancelled, isFalse);
      expect(a.toString(), a.text);
    });

    test('what is refused says what is wrong', () async {
      final model = await open();
      for (final (request, word) in [
        ({'messages': <Object>[], 'temprature': 1}, 'temprature'),
        (const Request(prompt: 'x', options: GenerateOptions(temperature: -1)), 'temperature'),
        (const Request(), 'messages'),
      ]) {
        final error = await thrown<CactusError>(() => model.respond(request));
        expect((error.kind, error.code), ('argument', -3));
        expect(error.message, contains(word));
        final inStream = await thrown<CactusError>(() => model.stream(request).toList());
        expect(inStream.kind, 'argument');
      }
      await thrown<ArgumentError>(() => model.respond(5));
    });

    test('tokens become text and back, and can be scored', () async {
      final model = await open();
      final tokens = await model.tokenize('The river is quick');
      expect(tokens, isNotEmpty);
      expect(await model.detokenize(tokens), 'The river is quick');
      final score = await model.score(tokens);
      expect(score['tokens'], tokens.length - 1);
      expect(score['logprob'] as double, lessThan(0));
      expect(await model.tokenize(''), isEmpty);
      expect(await model.detokenize([]), '');
      expect((await thrown<CactusError>(() => model.detokenize([-1]))).kind, 'argument');
      expect((await thrown<CactusError>(() => model.tokenize('a\u0000b'))).kind, 'argument');
    });

    test('hints of heat and memory change nothing', () async {
      final model = await open('chat', const ModelOptions(contextTokens: 256, threads: 2));
      final before = await model.respond(counting(8));
      model.setThreads(threads: 1, decodeThreads: 1);
      Cactus.memoryPressure();
      expect((await model.respond(counting(8))).tokens, before.tokens);
      expect(model.info['family'], isA<String>());
      await thrown<CactusError>(() => model.setThreads(threads: -1));
    });
  });

  group('streams', () {
    test('joined or not, the text is that of the answer, and one event is last', () async {
      final model = await open();
      final joined = await model.stream(counting(40)).toList();
      final single = await model.stream(counting(40), joinText: false).toList();
      for (final events in [joined, single]) {
        expectWhole(events);
        expect(events.first, isA<StartedEvent>());
        expect((events.last as DoneEvent).answer.text, textOf(events));
      }
      expect(textOf(joined), textOf(single));
      expect(joined.length, lessThanOrEqualTo(single.length));
      expect(single.whereType<TextEvent>().length, greaterThan(20));
      expect(await model.stream(counting(40)).texts.join(), textOf(single));
    });

    test('nothing begins before somebody listens, and begin() begins', () async {
      final model = await open();
      final stream = model.stream({'nothing': 1});
      await Future<void>.delayed(const Duration(milliseconds: 20));
      expect((await thrown<CactusError>(stream.begin)).kind, 'argument');
      final other = model.stream(counting(5));
      await other.begin();
      expect((await other.answer).tokens, hasLength(5));
      await thrown<StateError>(other.toList);
    });

    test('cancel ends with the event `cancelled`, whenever it comes', () async {
      final model = await open('tools', roomy);
      final stream = model.stream(endless(), joinText: false);
      final events = <Event>[];
      await for (final event in stream) {
        events.add(event);
        if (event is TextEvent && events.whereType<TextEvent>().length == 3) stream.cancel();
      }
      expectWhole(events);
      final end = events.last as CancelledEvent;
      expect(end.answer.isCancelled, isTrue);
      expect(end.answer.text, textOf(events));
      expect(end.answer.tokens.length, lessThan(endlessTokens));
      expect((await stream.answer).isCancelled, isTrue);
      stream
        ..cancel()
        ..cancel();
      // Before it has begun.
      final early = model.stream(endless())..cancel();
      expectWhole(await early.toList());
    });

    test('leaving a stream cancels it, and waits', () async {
      final model = await open('tools', roomy);
      final stream = model.stream(endless());
      await for (final event in stream) {
        if (event is TextEvent) break;
      }
      // Nothing is under way any more.
      expect((model.info['requests'] as Json)['running'] ?? 0, 0);
      expect((await thrown<CactusError>(() => stream.answer)).kind, 'cancelled');
      expect((await thrown<CactusError>(() => stream.consent(true))).kind, 'handle');
      final other = model.stream(endless());
      final subscription = other.listen(null);
      await other.begin();
      await subscription.cancel();
      expect(await model.respond(counting(3)), isA<Answer>());
    });

    test('a paused stream loses nothing', () async {
      final model = await open();
      final whole = await model.stream(counting(60)).toList();
      final (events, paused, ended) = (<Event>[], Completer<void>(), Completer<void>());
      // It ends by itself.
      // ignore: cancel_subscriptions
      late final StreamSubscription<Event> subscription;
      subscription = model.stream(counting(60), joinText: false).listen((event) {
        events.add(event);
        if (events.length == 4) {
          subscription.pause();
          paused.complete();
        }
      }, onDone: ended.complete);
      await paused.future;
      await Future<void>.delayed(const Duration(milliseconds: 60));
      expect(events.length, 4, reason: 'events while it is paused');
      subscription.resume();
      await ended.future;
      expectWhole(events);
      expect(textOf(events), textOf(whole));
    });

    test('many streams share few isolates, and the event loop goes on', () async {
      final model = await open();
      final one = await model.respond(counting(30));
      var (longest, last) = (0, 0);
      final watch = Stopwatch()..start();
      final ticks = Timer.periodic(const Duration(milliseconds: 2), (_) {
        final now = watch.elapsedMilliseconds;
        if (now - last > longest) longest = now - last;
        last = now;
      });
      final streams = [for (var i = 0; i < 24; i++) model.stream(counting(30)).toList()];
      for (final events in await Future.wait(streams)) {
        expectWhole(events);
        expect(textOf(events), one.text);
      }
      ticks.cancel();
      // Generous, as other programs may run: a call that blocks takes longer.
      expect(longest, lessThan(400));
    });
  });

  group('closing', () {
    test('a model that is closed ends its streams as cancelled', () async {
      final model = await open('tools', roomy);
      final stream = StreamIterator<Event>(model.stream(endless()));
      await stream.moveNext();
      await model.close();
      final events = [stream.current];
      while (await stream.moveNext()) {
        events.add(stream.current);
      }
      expectWhole(events);
      expect(events.last, isA<CancelledEvent>());
    });

    test('what is closed gives an error of the kind handle, always', () async {
      final model = await open();
      final session = await model.session();
      final stream = model.stream(counting(5));
      await stream.begin();
      await Future.wait([stream.close(), stream.close()]);
      await stream.close();
      stream.cancel();
      await Future.wait([session.close(), session.close()]);
      final left = await model.session();
      await Future.wait([model.close(), model.close()]);
      await model.close();
      final calls = <Object? Function()>[
        stream.toList,
        () => stream.answer,
        () => model.respond('x'),
        () => model.stream('x').toList(),
        () => model.stream('x').begin(),
        () => model.tokenize('x'),
        () => model.detokenize([1]),
        () => model.score([1, 2]),
        () => model.info,
        () => model.setThreads(threads: 1),
        model.setPolicy,
        model.session,
        () => session.messages,
        () => session.respond('x'),
        () => left.respond('x'),
      ];
      for (final (i, call) in calls.indexed) {
        final error = await thrown<CactusError>(() async => await call());
        expect(error.kind, 'handle', reason: 'call $i');
        expect(error.isHandle, isTrue);
      }
    });

    test('a stream that is closed while somebody listens ends with an error', () async {
      final model = await open('tools', roomy);
      final stream = model.stream(endless());
      final ended = thrown<CactusError>(stream.toList);
      await stream.begin();
      await stream.close();
      expect((await ended).kind, 'handle');
      expect(await model.respond(counting(3)), isA<Answer>());
    });
  });

  group('conversations', () {
    test('a session remembers, and goes on elsewhere from its messages', () async {
      final model = await open();
      const options = GenerateOptions(maxTokens: 8, temperature: 0, seed: 5);
      final session = await model.session(Request(messages: [Message.system('Be brief.')], options: options));
      final first = await session.respond('one');
      expect(session.messages, hasLength(3));
      expect(session.messages.last['content'], first.text);
      final again = await model.session({'messages': session.messages, 'options': options.toJson()});
      final (a, b) = (await session.respond('two'), await again.respond('two'));
      expect(a.tokens, b.tokens);
      await session.close();
      await again.close();
    });

    test('one request at a time, and closing waits for it', () async {
      final model = await open();
      final session = await model.session();
      final stream = session.stream(
        const Request(options: GenerateOptions(maxTokens: 400, more: {'ignore_eos': true})).toJson()
          ..['messages'] = [Message.user('go').json],
      );
      final events = stream.toList();
      await stream.begin();
      expect((await thrown<CactusError>(() => session.respond('more'))).kind, 'busy');
      await session.close();
      expectWhole(await events);
    });

    test('messages have parts', () {
      final message = Message.user([Part.text('What is '), Part.text('it?')]);
      expect(message.text, 'What is it?');
      expect(message.role, 'user');
      expect(Request.text('hi', system: 'Be kind.').toJson(), {
        'messages': [
          {'role': 'system', 'content': 'Be kind.'},
          {'role': 'user', 'content': 'hi'},
        ],
      });
    });
  });
}
