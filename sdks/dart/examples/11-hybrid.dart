// A target may answer what is too hard for this device, if a person says yes.
//
//     dart run examples/11-hybrid.dart MODEL TARGET
//
// TARGET is the address of a server with the API of OpenAI, and its model: http://127.0.0.1:8081/v1#name
import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final [source, target] = arguments;
  final model = await Model.load(source);
  await model.setPolicy(options: {'target': target, 'handoff': 'always', 'budget': '0.05'});
  final answer = await model.respond(
    Request.text('Explain the theory of everything.', options: const GenerateOptions(maxTokens: 40)),
    // An application shows a dialog here. Without a yes, nothing leaves.
    onConsent: (question) {
      print('May ${question.classes.join(' and ')} go to ${question.host}, for ${question.most} at most? Yes.');
      return true;
    },
  );
  print('${answer.text}\n(by ${answer.answeredBy}, because of ${answer.reason}, for \$${answer.costUsd})');
  await model.close();
}
