/// What the tests need of a test framework. The package `test` is not among
/// Debian's, and `test.sh` has no other source.
///
/// `expect` and the matchers are those of the package `matcher`.
library;

import 'dart:async';

import 'package:matcher/matcher.dart';

export 'package:matcher/matcher.dart';

final _tests = <(String, FutureOr<void> Function())>[];
final _after = <FutureOr<void> Function()>[];
String _group = '';

/// Names tests that belong together.
void group(String name, void Function() define) {
  final outer = _group;
  _group = '$outer$name: ';
  define();
  _group = outer;
}

/// Defines a test.
void test(String name, FutureOr<void> Function() body) => _tests.add(('$_group$name', body));

/// Something to be done at the end of the test that runs now.
void addTearDown(FutureOr<void> Function() undo) => _after.add(undo);

/// Fails the test unless [actual] is what is expected: a value or a matcher.
void expect(Object? actual, Object? expected, {String? reason}) {
  final (matcher, state) = (wrapMatcher(expected), <Object?, Object?>{});
  if (matcher.matches(actual, state)) return;
  final what = StringDescription('expected ').addDescriptionOf(matcher).add(', found ').addDescriptionOf(actual);
  matcher.describeMismatch(actual, what.add('; '), state, false);
  throw StateError(reason == null ? '$what' : '$reason: $what');
}

/// The error that [body] throws, which has to be a [T].
Future<T> thrown<T extends Object>(FutureOr<Object?> Function() body) async {
  final Object? value;
  try {
    value = await body();
  } on T catch (error) {
    return error;
  }
  throw StateError('expected a $T, found the value $value');
}

/// Runs the tests whose names contain [only], tells [say] of each, and gives
/// how many passed and failed.
Future<({int passed, int failed})> runTests({
  required void Function(String line) say,
  String only = '',
  Duration limit = const Duration(minutes: 5),
}) async {
  var (passed, failed) = (0, 0);
  for (final (name, body) in _tests.where((test) => test.$1.contains(only))) {
    final watch = Stopwatch()..start();
    final ended = Completer<(Object, StackTrace)?>();
    // An error that nobody waits for is a failure of the test, too.
    unawaited(
      runZonedGuarded(
        () async {
          try {
            await Future.sync(body).timeout(limit);
          } finally {
            for (final undo in _after.reversed.toList()) {
              await undo();
            }
            _after.clear();
          }
          // What is left in the event loop may still fail.
          await Future<void>.delayed(Duration.zero);
          if (!ended.isCompleted) ended.complete(null);
        },
        (error, trace) {
          if (!ended.isCompleted) ended.complete((error, trace));
        },
      ),
    );
    final failure = await ended.future;
    final ms = watch.elapsedMilliseconds;
    if (failure case (final error, final trace)) {
      failed++;
      say('FAILED  $name ($ms ms)\n$error\n$trace');
    } else {
      passed++;
      say('passed  $name ($ms ms)');
    }
  }
  say('$passed passed, $failed failed');
  return (passed: passed, failed: failed);
}
