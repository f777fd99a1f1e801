// An answer that is a value of the program's own type.
//
//     dart run examples/06-structured.dart MODEL
import 'package:cactus_engine/cactus_engine.dart';

final class Person {
  const Person(this.name, this.age, this.skills);

  Person.fromJson(Json json)
    : this(json['name'] as String, json['age'] as int, (json['skills'] as List<Object?>).cast());

  static final form = Form.of(
    Schema.object({
      'name': Schema.oneOf(['Ada', 'Bob']),
      'age': Schema.integer(minimum: 1, maximum: 120),
      'skills': Schema.array(Schema.oneOf(['reading', 'writing']), maxItems: 2),
    }),
    Person.fromJson,
  );

  final String name;
  final int age;
  final List<String> skills;
}

Future<void> main(List<String> arguments) async {
  final model = await Model.load(arguments.single);
  final request = Request.text(
    'Who wrote the first program?',
    options: const GenerateOptions(maxTokens: 90, temperature: 0),
  );
  final person = await model.respondAs(request, Person.form);
  print('${person.name} is ${person.age} and likes ${person.skills.join(' and ')}.');
  await model.close();
}
