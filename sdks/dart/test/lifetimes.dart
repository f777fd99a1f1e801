/// Loading, the library itself, what is forgotten, and many interleavings.
library;

import 'dart:async';
import 'dart:ffi';
import 'dart:io';
import 'dart:isolate';
import 'dart:math';

import 'package:cactus_engine/cactus_engine.dart';
import 'package:cactus_engine/src/native/library.dart';
import 'package:cactus_engine/src/native/owned.dart';
import 'package:cactus_engine/src/native/stream.dart';
import 'package:cactus_engine/src/raw_bundled.g.dart';
import 'package:ffi/ffi.dart';

import 'harness.dart';
import 'support.dart';

/// How many interleavings: 100, or as many as `CACTUS_SOAK` says.
final _rounds = int.parse(Platform.environment['CACTUS_SOAK'] ?? '100');

/// Whether the library has a model with this handle.
bool _isOpen(int handle) => using((arena) {
  final place = arena<Pointer<Char>>();
  final code = raw.modelInfo(Pointer.fromAddress(handle), place);
  if (code == 0) raw.stringFree(place.value);
  return code == 0;
});

/// Makes garbage until [done], or for some seconds.
Future<bool> _collected(bool Function() done) async {
  for (var i = 0; i < 400 && !done(); i++) {
    final garbage = [for (var k = 0; k < 20000; k++) List.filled(16, k)];
    await Future<void>.delayed(Duration(milliseconds: garbage.length ~/ 20000));
  }
  return done();
}

void main() {
  group('the library', () {
    test('has the ABI that the package is made for, and a version', () {
      expect(Cactus.abiVersion, 1);
      expect(Cactus.version, matches(RegExp(r'^\d+\.\d+\.\d+')));
      expect(Cactus.isSupported, isTrue);
    });

    test('of another ABI is refused, and the message names the old side', () async {
      final older = await thrown<CactusError>(() => checkAbi(1, 'here', expected: 2));
      expect(older.message, contains('the library is old'));
      final newer = await thrown<CactusError>(() => checkAbi(3, 'here', expected: 2));
      expect(newer.message, contains('the package cactus_engine is old'));
      checkAbi(2, 'here', expected: 2);
    });

    test('that is not there is named', () async {
      // Each isolate finds the library for itself.
      final error = await Isolate.run(() {
        libraryPath = '/nowhere/libcactus.so';
        return thrown<CactusError>(() => raw.abiVersion());
      });
      expect(error.kind, 'not_found');
      expect(error.message, contains('/nowhere/libcactus.so'));
      final other = await Isolate.run(() {
        libraryPath = 'libm.so.6';
        return thrown<CactusError>(() => raw.abiVersion());
      });
      expect(other.message, contains('not the library of Cactus'));
    });

    test('that no build hook has brought is not taken for one', () async {
      await thrown<ArgumentError>(() => bundled<Void>('cactus_abi_version'));
    });

    test('says what it does', () async {
      final records = <LogRecord>[];
      Cactus.setLog(records.add, level: LogLevel.information);
      final model = await open();
      await model.close();
      Cactus.setLog(null);
      await Future<void>.delayed(const Duration(milliseconds: 20));
      expect(records.where((record) => record.component == 'model'), isNotEmpty);
      expect(records.first.level, isA<LogLevel>());
      final count = records.length;
      await (await open()).close();
      await Future<void>.delayed(const Duration(milliseconds: 20));
      expect(records, hasLength(count));
    });
  });

  group('loading', () {
    test('tells of its progress, and can be stopped', () async {
      final steps = <Progress>[];
      final model = await Model.load(bundle('chat'), options: small, onProgress: steps.add);
      addTearDown(model.close);
      expect(steps.map((step) => step.stage), contains('loading'));
      expect(steps.last.fraction, 1);
      // A source that has to be converted takes long enough to be stopped.
      final error = await thrown<CactusError>(
        () => Model.load(
          '$golden/models/qwen2_tied',
          options: ModelOptions(cache: folder().path, offline: true),
          onProgress: (progress) => progress.stop(),
        ),
      );
      expect(error.kind, 'cancelled');
      // Behind the end of the call a step stops nothing, and writes nothing.
      for (final step in steps) {
        step.stop();
      }
    });

    test('what cannot be loaded says why', () async {
      final missing = await thrown<CactusError>(
        () => Model.load('$bundles/nothing', options: const ModelOptions(offline: true)),
      );
      expect(missing.kind, 'not_found');
      final misspelled = await thrown<CactusError>(
        () => Model.load(bundle('chat'), options: const ModelOptions(more: {'context_token': 5})),
      );
      expect(misspelled.kind, 'argument');
      expect(misspelled.message, contains('context_token'));
      final report = await Cactus.checkBundle(bundle('chat'), verify: true);
      expect(report['usable'], isTrue);
      expect((await Cactus.checkBundle('$bundles/nothing'))['usable'], isFalse);
      expect(await Model.prepare(bundle('chat')), contains('chat'));
    });

    test('the event loop goes on while a model is loaded', () async {
      var (turns, isLoading) = (0, true);
      // As many turns as there are meanwhile, however little time a load takes; where one blocks, there are none.
      Future<void> turn() async {
        for (; isLoading; turns++) {
          await Future<void>.delayed(Duration.zero);
        }
      }

      final turning = turn();
      final models = await Future.wait([for (var i = 0; i < 4; i++) Model.load(bundle('chat'), options: small)]);
      isLoading = false;
      await turning;
      await Future.wait([for (final model in models) model.close()]);
      expect(turns, greaterThan(3));
    });
  });

  group('what is forgotten', () {
    test('is closed by a finalizer, and not on this isolate', () async {
      final before = Owned.count;
      Future<void> forget() async {
        final model = await Model.load(bundle('chat'), options: small);
        await model.session();
        await model.stream(counting(50)).begin();
      }

      await forget();
      expect(Owned.count, before + 3);
      expect(await _collected(() => Owned.count == before), isTrue);
    });

    test('is not closed while something of it is in use', () async {
      final stream = (await Model.load(bundle('chat'), options: small)).stream(counting(120));
      final events = <Event>[];
      await for (final event in stream) {
        events.add(event);
        if (events.length.isEven) await _collected(() => true);
      }
      expect((events.last as DoneEvent).answer.tokens, hasLength(120));
      await ((stream as NativeStream).owner as Model).close();
    });

    test('is closed with its isolate', () async {
      final handle = await Isolate.run(() async {
        final model = await Model.load(bundle('chat'), options: small);
        final stream = model.stream(counting(100));
        await stream.begin();
        expect(model.info, isNotEmpty);
        return Owned.handles.first;
      });
      for (var i = 0; i < 200 && _isOpen(handle); i++) {
        await Future<void>.delayed(const Duration(milliseconds: 5));
      }
      expect(_isOpen(handle), isFalse);
    });
  });

  group('interleavings', () {
    test('$_rounds of open, generate, cancel and close leave nothing', () async {
      final before = Owned.count;
      final random = Random(19);
      Future<void> one(int round) async {
        final model = await Model.load(bundle('chat'), options: small);
        final session = random.nextBool() ? await model.session() : null;
        final work = <Future<void>>[];
        Future<void> calm(Future<Object?> future) =>
            future.then((_) {}, onError: (Object error) => expect(error, isA<CactusError>()));
        for (var i = random.nextInt(4); i >= 0; i--) {
          final from = session != null && random.nextBool() ? session : model;
          final request = from == session
              ? {
                  'messages': [Message.user('go on').json],
                  'options': {'max_tokens': 60, 'ignore_eos': true},
                }
              : counting(60, 'Round $round.');
          final stream = from.stream(request, joinText: random.nextBool());
          final events = <Event>[];
          final done = Completer<void>();
          final subscription = stream.listen(
            events.add,
            onError: (Object error) => expect(error, isA<CactusError>()),
            onDone: () {
              expect(events.whereType<LastEvent>().length, lessThanOrEqualTo(1));
              if (events.any((event) => event is LastEvent)) expect(events.last, isA<LastEvent>());
              done.complete();
            },
          );
          stream.answer.ignore();
          switch (random.nextInt(6)) {
            case 0:
              stream.cancel();
              work.add(done.future);
            case 1:
              work.add(subscription.cancel());
            case 2:
              work.add(Future<void>.delayed(Duration(milliseconds: random.nextInt(6)), subscription.cancel));
            case 3:
              work.add(Future<void>.delayed(Duration(milliseconds: random.nextInt(6)), stream.close));
              work.add(done.future);
            case 4:
              subscription.pause(Future<void>.delayed(Duration(milliseconds: random.nextInt(4))));
              work.add(done.future);
            default:
              work.add(done.future);
          }
        }
        if (random.nextBool()) await Future<void>.delayed(Duration(milliseconds: random.nextInt(8)));
        if (session != null && random.nextBool()) work.add(calm(session.close()));
        if (random.nextBool()) work.add(calm(model.close()));
        if (random.nextBool()) work.add(calm(model.tokenize('in between')));
        await Future.wait(work);
        await session?.close();
        await model.close();
      }

      // A few at once.
      var next = 0;
      Future<void> many() async {
        while (next < _rounds) {
          await one(next++);
        }
      }

      await Future.wait([many(), many(), many()]);
      expect(Owned.count, before);
    });
  });
}
