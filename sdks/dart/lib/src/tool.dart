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

  /// What is done. What it throws becomes the result, as `error: MESSAGE`, so that
  /// the model can react to it.
  final FutureOr<Object?> Function(Json arguments) run;

  /// The tool as the OpenAI API has it.
  Json toJson() => {
    'type': 'function',
    'function': {'name': name, 'description': description, 'parameters': parameters.toJson()},
  };

  /// Calls it, and gives what the model reads of it.
  Future<String> call(ToolCall made) async {
    try {
      final result = await run(made.arguments);
      return result is String ? result : jsonEncode(result);
    } on Object catch (error) {
      return 'error: ${_messageOf(error)}';
    }
  }

  /// What an exception says, without the name of its class.
  static String _messageOf(Object error) => switch (error) {
    CactusError(:final message) || FormatException(:final message) || StateError(:final message) => message,
    // As `Exception('...')` is written.
    _ => '$error'.replaceFirst(RegExp('^Exception: '), ''),
  };
}

/// Asked before a tool is called: `false` refuses the call.
typedef ConfirmCall = FutureOr<bool> Function(ToolCall call);
