import 'dart:async';
import 'dart:convert';

import 'answer.dart';
import 'error.dart';
import 'schema.dart';

/// A function that a model may call.
///
/// ```dart
/// final weather = Tool(
///   'weather',
///   'The weather of a city',
///   Schema.object({'city': Schema.string()}),
///   (arguments) async => fetchWeather(arguments['city'] as String),
/// );
/// ```
final class Tool {
  /// A tool. What [run] gives is JSON, or a text.
  const Tool(this.name, this.description, this.parameters, this.run);

  /// What the model calls it.
  final String name;

  /// What it does, for the model.
  final String description;

  /// The form of its arguments, which the model cannot but keep to.
  final Schema parameters;

  /// What is done. An exception becomes the result, so that the model can react
  /// to it.
  final FutureOr<Object?> Function(Json arguments) run;

  /// The tool as the OpenAI API has it.
  Json toJson() => {
    'type': 'function',
    'function': {'name': name, 'description': description, 'parameters': parameters.toJson()},
  };

  /// Calls it, and gives what the model reads of it.
  Future<String> call(ToolCall made) async {
    final Object? result;
    try {
      result = await run(made.arguments);
    } on Exception catch (error) {
      return jsonEncode({'error': '$error'});
    }
    return result is String ? result : jsonEncode(result);
  }
}

/// Asked before a tool is called: `false` refuses the call.
typedef ConfirmCall = FutureOr<bool> Function(ToolCall call);
