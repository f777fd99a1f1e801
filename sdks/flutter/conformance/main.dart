/// The conformance suite in the headless engine of Flutter, which takes no
/// arguments and whose exit code says nothing: `run.sh` looks for the results.
library;

import 'dart:io';
import 'dart:isolate';

import '../../dart/conformance/runner.dart';

Future<void> main() async {
  // The engine ends when no port is open.
  final open = ReceivePort();
  final environment = Platform.environment;
  try {
    await runPlan(environment['CACTUS_PLAN']!, environment['CACTUS_RESULTS']!);
  } finally {
    open.close();
  }
}
