// Without the network, and with what a phone asks for.
//
//     dart run examples/10-offline-and-lifecycle.dart MODEL
import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  // `offline` takes what is on this device, or fails with the kind `not_found` or `offline`.
  const options = ModelOptions(offline: true, contextTokens: 512);
  try {
    await Model.load('nobody/has-this-model', options: options);
  } on CactusError catch (error) {
    print('As expected: ${error.kind}');
  }
  final model = await Model.load(
    arguments.single,
    options: options,
    onProgress: (progress) => print('${progress.stage} ${((progress.fraction ?? 0) * 100).round()} %'),
  );

  // The system says that memory is short, or that the device is hot. Answers stay the same.
  Cactus.memoryPressure();
  model.setThreads(threads: 1, decodeThreads: 1);

  // A conversation survives the end of the application as JSON.
  const request = GenerateOptions(maxTokens: 20, temperature: 0);
  final session = await model.session(const Request(options: request));
  await session.respond('Remember the number seven.');
  final saved = session.messages;
  await session.close();
  final restored = await model.session({'messages': saved, 'options': request.toJson()});
  print((await restored.respond('Which number?')).text);
  await restored.close();
  await model.close();
}
