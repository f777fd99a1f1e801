// Stops an answer: by its button, or because somebody leaves.
//
//     dart run examples/04-cancel.dart MODEL
import 'dart:io';

import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final model = await Model.load(arguments.single);
  const request = Request(
    prompt: 'Count: one, two,',
    options: GenerateOptions(maxTokens: 300, more: {'ignore_eos': true}),
  );

  // A button calls `cancel`. The stream ends within a token, with what was said so far.
  final stream = model.stream(request);
  await for (final event in stream) {
    if (event is TextEvent) stream.cancel();
    if (event is CancelledEvent) print('Cancelled after ${event.answer.tokens.length} tokens.');
    if (event is DoneEvent) print('It was faster than the button.');
  }

  // Who leaves the loop cancels, too. Nothing runs any more behind it.
  await for (final text in model.stream(request).texts) {
    stdout.writeln('Left at "$text".');
    break;
  }
  await model.close();
}
