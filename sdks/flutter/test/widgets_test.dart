/// The widgets and the lifecycle, with a real model.
library;

import 'dart:io';
import 'dart:ui';

import 'package:cactus_flutter/cactus_flutter.dart';
import 'package:flutter/material.dart';
import 'package:flutter_test/flutter_test.dart';

import '../example/lib/main.dart' as example;

/// Tests that were defined, for who has no exit code.
final List<String> defined = [];

/// Those that passed.
final List<String> passed = [];

String _bundle(String name) => '${Platform.environment['CACTUS_TEST_BUNDLES']}/$name';

void _test(String name, Future<void> Function(WidgetTester tester) body) {
  defined.add(name);
  testWidgets(name, (tester) async {
    await body(tester);
    passed.add(name);
  });
}

/// Draws and waits until [done].
Future<void> _until(WidgetTester tester, bool Function() done) async {
  for (var i = 0; i < 2000 && !done(); i++) {
    await tester.runAsync(() => Future<void>.delayed(const Duration(milliseconds: 2)));
    await tester.pump();
  }
  expect(done(), isTrue);
  // What became so behind a frame is seen in the next one.
  await tester.pump();
}

Future<T> _real<T>(WidgetTester tester, Future<T> Function() work) async => (await tester.runAsync(work)) as T;

Future<Model> _open(WidgetTester tester, {int threads = 1, String name = 'chat', int contextTokens = 512}) => _real(
  tester,
  () => Model.load(
    _bundle(name),
    options: ModelOptions(contextTokens: contextTokens, threads: threads),
  ),
);

AnswerStream _counting(Model model, int tokens) => model.stream({
  'prompt': 'Count.',
  'options': {'max_tokens': tokens, 'temperature': 0, 'seed': 1, 'ignore_eos': true},
});

Widget _app(Widget child) => MaterialApp(home: Scaffold(body: child));

/// The tests, for `flutter test` and for the headless runner.
void main() {
  _test('text grows until the answer is there', (tester) async {
    // So long that it is drawn more than once.
    final model = await _open(tester, name: 'tools', contextTokens: 4000);
    final lengths = <int>[];
    AnswerSnapshot? ended;
    await tester.pumpWidget(
      _app(
        AnswerBuilder(
          start: () => _counting(model, 2000),
          builder: (context, answer) {
            lengths.add(answer.text.length);
            return Text(answer.text);
          },
          onEnd: (answer) => ended = answer,
        ),
      ),
    );
    await _until(tester, () => ended != null);
    expect(lengths.first, 0);
    expect(lengths.toSet().length, greaterThan(1));
    expect(ended!.text, ended!.answer!.text);
    expect(ended!.answer!.tokens, hasLength(2000));
    expect(find.text(ended!.text), findsOneWidget);
    await _real(tester, model.close);
  });

  _test('a screen that somebody leaves computes no further', (tester) async {
    // So long that it is not over before somebody leaves.
    final model = await _open(tester, name: 'tools', contextTokens: 60000);
    late AnswerStream stream;
    var heard = 0;
    await tester.pumpWidget(
      _app(
        AnswerBuilder(
          start: () => stream = _counting(model, 50000),
          builder: (context, answer) => Text('${heard = answer.text.length}'),
        ),
      ),
    );
    await _until(tester, () => heard > 0);
    await tester.pumpWidget(_app(const Text('elsewhere')));
    final error = await _real(tester, () async {
      try {
        return await stream.answer;
      } on CactusError catch (error) {
        return error;
      }
    });
    expect((error as CactusError).kind, 'cancelled');
    await _real(tester, () async {
      for (var i = 0; i < 200; i++) {
        if (((model.info['requests'] as Json)['running'] ?? 0) == 0) return;
        await Future<void>.delayed(const Duration(milliseconds: 2));
      }
      fail('it goes on');
    });
    await _real(tester, model.close);
  });

  _test('another request begins anew, and a refused one is shown', (tester) async {
    final model = await _open(tester);
    final ends = <AnswerSnapshot>[];
    Widget screen(Object request) => _app(
      AnswerBuilder(
        request: request,
        start: () => model.stream(request),
        builder: (context, answer) => Text(answer.error?.kind ?? 'text ${answer.text}'),
        onEnd: ends.add,
      ),
    );
    await tester.pumpWidget(
      screen(
        const Request(
          prompt: 'x',
          options: GenerateOptions(maxTokens: 300, more: {'ignore_eos': true}),
        ),
      ),
    );
    await tester.pump();
    await tester.pumpWidget(screen({'nothing': 1}));
    await _until(tester, () => ends.isNotEmpty);
    expect(ends.single.error!.kind, 'argument');
    await tester.pump();
    expect(find.text('argument'), findsOneWidget);
    await _real(tester, model.close);
  });

  _test('the system says that memory is short, and that nobody looks', (tester) async {
    final model = await _open(tester, threads: 2);
    final before = await _real(tester, () => _counting(model, 8).answer);
    final lifecycle = CactusLifecycle()..attach();
    addTearDown(lifecycle.detach);
    lifecycle.watch(model);
    expect(lifecycle.isQuiet, isFalse);
    tester.binding.handleMemoryPressure();
    for (final state in [AppLifecycleState.inactive, AppLifecycleState.hidden, AppLifecycleState.paused]) {
      tester.binding.handleAppLifecycleStateChanged(state);
    }
    expect(lifecycle.isQuiet, isTrue);
    expect((await _real(tester, () => _counting(model, 8).answer)).tokens, before.tokens);
    for (final state in [AppLifecycleState.hidden, AppLifecycleState.inactive, AppLifecycleState.resumed]) {
      tester.binding.handleAppLifecycleStateChanged(state);
    }
    expect(lifecycle.isQuiet, isFalse);
    lifecycle.didChangeHeat(Heat.serious);
    expect(lifecycle.isQuiet, isTrue);
    lifecycle.didChangeHeat(Heat.nominal);
    expect((await _real(tester, () => _counting(model, 8).answer)).tokens, before.tokens);
    // A model that was closed meanwhile is forgotten.
    final other = await _open(tester);
    lifecycle.watch(other);
    await _real(tester, other.close);
    lifecycle.didChangeHeat(Heat.critical);
    expect(await _real(tester, lifecycle.didRequestAppExit), AppExitResponse.exit);
    expect(() => model.info, throwsA(isA<CactusError>()));
  });

  _test('the example answers', (tester) async {
    await tester.pumpWidget(MaterialApp(home: example.Chat(model: _bundle('chat'))));
    await _until(tester, () => find.byType(TextField).evaluate().isNotEmpty);
    await tester.enterText(find.byType(TextField), 'Why is the sky blue?');
    await tester.testTextInput.receiveAction(TextInputAction.done);
    await tester.pump();
    await _until(tester, () => find.byType(AnswerBuilder).evaluate().isEmpty);
    expect(find.text('Why is the sky blue?'), findsOneWidget);
    expect(tester.widgetList(find.byType(Text)), hasLength(2));
    await tester.pumpWidget(_app(const Text('elsewhere')));
    await tester.runAsync(() => Future<void>.delayed(const Duration(milliseconds: 50)));
  });
}
