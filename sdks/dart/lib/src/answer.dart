import 'dart:convert';

import 'error.dart';

/// A call of a tool that the model asks for.
final class ToolCall {
  /// A call as a message has it.
  const ToolCall(this.json);

  /// The call as JSON.
  final Json json;

  Json get _function => json['function'] as Json? ?? const {};

  /// What its result is sent back with.
  String get id => json['id'] as String? ?? '';

  /// The name of the tool.
  String get name => _function['name'] as String? ?? '';

  /// The arguments as text.
  String get argumentsText => switch (_function['arguments']) {
    final String text => text,
    final other => jsonEncode(other),
  };

  /// The arguments; an empty text is an empty object. They follow the tool's
  /// schema.
  ///
  /// Throws a [CactusError] of the kind `text` where they are no JSON object, as
  /// when the call was cut off.
  Json get arguments {
    final text = argumentsText;
    if (text.isEmpty) return {};
    try {
      if (jsonDecode(text) case final Json json) return json;
    } on FormatException {
      // It is said below.
    }
    throw const CactusError(-7, 'text', 'the arguments are no JSON object');
  }
}

/// How many tokens it took.
final class Usage {
  /// Usage as an answer has it.
  const Usage(this.json);

  /// The usage as JSON.
  final Json json;

  /// Tokens of the prompt that were computed for this answer.
  int get promptTokens => json['prompt_tokens'] as int? ?? 0;

  /// Tokens of the prompt that were known from before.
  int get cachedTokens => json['cached_tokens'] as int? ?? 0;

  /// Tokens of the answer.
  int get completionTokens => json['completion_tokens'] as int? ?? 0;

  /// All of them.
  int get totalTokens => json['total_tokens'] as int? ?? 0;
}

/// A whole answer, or as far as it came where it was cancelled.
final class Answer {
  /// An answer as the library has it.
  const Answer(this.json);

  /// Everything that is known of it; `docs/reference/c-abi.md` has the fields.
  final Json json;

  /// The message, to put it into a conversation.
  Json get message => json['message'] as Json? ?? const {};

  /// What was answered.
  String get text => message['content'] as String? ?? '';

  /// What the model thought before, or an empty text.
  String get reasoning => message['reasoning_content'] as String? ?? '';

  /// What the model wants to call.
  List<ToolCall> get toolCalls => [
    for (final call in message['tool_calls'] as List<Object?>? ?? const []) ToolCall(call as Json),
  ];

  /// `stop`, `length`, `tool_calls`, `cancelled` and so on.
  String get finishReason => json['finish_reason'] as String? ?? '';

  /// Whether it was cancelled before its end.
  bool get isCancelled => finishReason == 'cancelled';

  /// Whether it came to its end by itself, and was not cut off.
  bool get isWhole => json['whole'] == true;

  /// How many tokens it took.
  Usage get usage => Usage(json['usage'] as Json? ?? const {});

  /// The ids of the answer's tokens.
  List<int> get tokens => (json['tokens'] as List<Object?>? ?? const []).cast();

  /// Under a policy, where it was answered: `local` or `cloud`.
  String? get route => json['route'] as String?;

  /// Under a policy, who answered: `local`, or the name of a target.
  String? get answeredBy => json['answered_by'] as String?;

  /// Under a policy, why.
  String? get reason => json['reason'] as String?;

  /// Under a policy, how sure the model on this device was, from 0 to 1.
  double? get confidence => (json['confidence'] as num?)?.toDouble();

  /// Under a policy, what it cost, in dollars.
  double? get costUsd => (json['cost_usd'] as num?)?.toDouble();

  /// The text as JSON.
  ///
  /// Throws a [CactusError] where it is none, as when the answer was cut off.
  Object? get decoded {
    try {
      return jsonDecode(text);
    } on FormatException catch (error) {
      throw CactusError(-7, 'text', 'the answer is no JSON: ${error.message} (it ended with `$finishReason`)');
    }
  }

  @override
  String toString() => text;
}
