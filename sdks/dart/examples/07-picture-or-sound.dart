// A question about a picture, or about a sound.
//
//     dart run examples/07-picture-or-sound.dart MODEL FILE
import 'dart:io';

import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final [source, path] = arguments;
  final model = await Model.load(source);
  final bytes = await File(path).readAsBytes();
  final answer = await model.respond(
    Request(
      messages: [
        Message.user([path.endsWith('.wav') ? Part.audio(bytes) : Part.image(bytes), Part.text('What is it?')]),
      ],
      options: const GenerateOptions(maxTokens: 20, temperature: 0),
    ),
  );
  print('${answer.text}\n(${answer.usage.promptTokens} tokens with the file)');
  await model.close();
}
