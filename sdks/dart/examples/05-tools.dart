// The model calls functions of the program.
//
//     dart run examples/05-tools.dart MODEL
import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final model = await Model.load(arguments.single);
  final weather = Tool(
    'weather',
    'The weather of a city',
    Schema.object({
      'city': Schema.oneOf(['Paris', 'Rome']),
      'days': Schema.integer(minimum: 1, maximum: 9, description: 'How many days ahead'),
    }),
    (arguments) async => {'city': arguments['city'], 'sky': 'clear', 'celsius': 21},
  );
  final answer = await model.respondWithTools(
    Request(
      messages: [Message.user('What is the weather in Paris?')],
      // A model that knows tools needs no force.
      toolChoice: 'required',
      options: const GenerateOptions(maxTokens: 120, temperature: 0),
    ),
    [weather],
    mostRounds: 1,
    confirm: (call) {
      print('May it call ${call.name}(${call.argumentsText})? Yes.');
      return true;
    },
  );
  print(answer.toolCalls.isEmpty ? answer.text : 'It wants to call ${answer.toolCalls.first.name} again.');
  await model.close();
}
