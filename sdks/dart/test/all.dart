/// Every test. An argument runs those whose names contain it.
library;

import 'dart:io';

import 'harness.dart';
import 'hook.dart' as hook;
import 'lifetimes.dart' as lifetimes;
import 'media.dart' as media;
import 'requests.dart' as requests;
import 'tools.dart' as tools;

/// Defines all of them.
void define() {
  hook.main();
  lifetimes.main();
  requests.main();
  tools.main();
  media.main();
}

Future<void> main(List<String> arguments) async {
  define();
  final ended = await runTests(say: stdout.writeln, only: arguments.firstOrNull ?? '');
  if (ended.failed > 0 || ended.passed == 0) exitCode = 1;
}
