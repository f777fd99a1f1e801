// A conversation that remembers.
//
//     dart run examples/02-chat.dart MODEL
import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final model = await Model.load(arguments.single);
  final session = await model.session(
    Request(messages: [Message.system('Answer in one sentence.')], options: const GenerateOptions(maxTokens: 60)),
  );
  for (final question in ['Why is the sky blue?', 'And at night?']) {
    final answer = await session.respond(question);
    print('> $question\n${answer.text}\n(${answer.usage.completionTokens} tokens, ${answer.finishReason})');
  }
  print('The conversation has ${session.messages.length} messages.');
  await session.close();
  await model.close();
}
