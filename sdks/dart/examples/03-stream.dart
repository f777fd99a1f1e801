// Text as it is made.
//
//     dart run examples/03-stream.dart MODEL
import 'dart:io';

import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final model = await Model.load(arguments.single);
  final request = Request.text('Tell me of the fox.', options: const GenerateOptions(maxTokens: 60));
  await for (final event in model.stream(request)) {
    switch (event) {
      case StartedEvent(:final promptTokens):
        print('(the prompt has $promptTokens tokens)');
      case TextEvent(:final text):
        stdout.write(text);
      case DoneEvent(:final answer):
        print('\n(${answer.finishReason})');
      case FailedEvent(:final error):
        print('\n$error');
      default:
    }
  }
  await model.close();
}
