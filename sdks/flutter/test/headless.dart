/// All tests, in the headless engine of Flutter, without the command `flutter`.
///
/// The engine ends as soon as no port of the isolate is open, with 0 whatever
/// happened. So a port is held until the end, and results go to the file that
/// `CACTUS_TEST_RESULTS` names, with the line `N passed, N failed` as its last.
library;

import 'dart:io';
import 'dart:isolate';

import 'package:flutter_test/flutter_test.dart' as flutter;

import '../../dart/test/all.dart' as engine;
import '../../dart/test/harness.dart';
import 'widgets_test.dart' as widgets;

void main() {
  final open = ReceivePort();
  final results = File(Platform.environment['CACTUS_TEST_RESULTS']!).openSync(mode: FileMode.write);
  void say(String line) => results.writeStringSync('$line\n');
  var (passed, failed) = (0, 0);
  flutter.test('cactus_engine', timeout: flutter.Timeout.none, () async {
    engine.define();
    final ended = await runTests(say: say);
    (passed, failed) = (ended.passed, ended.failed);
  });
  widgets.main();
  flutter.tearDownAll(() {
    for (final name in widgets.defined) {
      final ok = widgets.passed.contains(name);
      say('${ok ? 'passed ' : 'FAILED '} widgets: $name');
      ok ? passed++ : failed++;
    }
    say('all: $passed passed, $failed failed');
    results.closeSync();
    open.close();
  });
}
