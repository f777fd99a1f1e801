import 'dart:convert';
import 'dart:typed_data';

import 'error.dart';
import 'schema.dart';
import 'tool.dart';

/// A message of a conversation.
final class Message {
  /// A message with a role and a text or parts, as the OpenAI API has it.
  Message(String role, Object content) : json = {'role': role, 'content': _content(content)};

  /// What the model should be like.
  Message.system(String text) : this('system', text);

  /// What a person says: a text, or a list of [Part]s.
  Message.user(Object content) : this('user', content);

  /// What the model has said.
  Message.assistant(String text) : this('assistant', text);

  /// What a tool gave for the call with this id.
  Message.toolResult(String callId, String content)
    : json = {'role': 'tool', 'tool_call_id': callId, 'content': content};

  /// A message as it is.
  const Message.json(this.json);

  /// The message as JSON.
  final Json json;

  /// Who says it.
  String get role => json['role'] as String? ?? '';

  /// Its text, without pictures and sounds.
  String get text => switch (json['content']) {
    final String text => text,
    final List<Object?> parts => [
      for (final part in parts)
        if (part case {'type': 'text', 'text': final String text}) text,
    ].join(),
    _ => '',
  };

  static Object _content(Object content) => switch (content) {
    final String text => text,
    final List<Part> parts => [for (final part in parts) part.json],
    _ => throw ArgumentError.value(content, 'content', 'expected a String or a List<Part>'),
  };
}

/// A piece of a message: text, a picture or a sound.
final class Part {
  /// Text.
  Part.text(String text) : json = {'type': 'text', 'text': text};

  /// A picture: the bytes of a PNG, JPEG or WebP file.
  Part.image(Uint8List bytes) : json = {'type': 'image', 'data': base64Encode(bytes)};

  /// A sound: the bytes of a file in one of the formats that are read.
  Part.audio(Uint8List bytes, {String format = 'wav'})
    : json = {
        'type': 'input_audio',
        'input_audio': {'data': base64Encode(bytes), 'format': format},
      };

  /// A part as it is.
  const Part.json(this.json);

  /// The part as JSON.
  final Json json;
}

/// How an answer is made. What is not given is the model's own.
final class GenerateOptions {
  /// Options. [more] has those that have no name here.
  const GenerateOptions({
    this.maxTokens,
    this.temperature,
    this.topP,
    this.topK,
    this.minP,
    this.seed,
    this.stop,
    this.logprobs,
    this.more = const {},
  });

  /// Most tokens of the answer.
  final int? maxTokens;

  /// 0 takes the most likely token always.
  final double? temperature;

  /// Tokens that have this probability together are drawn from.
  final double? topP;

  /// So many of the most likely tokens are drawn from.
  final int? topK;

  /// Tokens with less than this part of the best one's probability are left out.
  final double? minP;

  /// What chance begins with: the same seed gives the same answer.
  final int? seed;

  /// Texts that end the answer.
  final List<String>? stop;

  /// Log-probabilities of so many tokens at each place.
  final int? logprobs;

  /// Other options, by the names of the C library.
  final Json more;

  /// The options as JSON.
  Json toJson() => {
    'max_tokens': ?maxTokens,
    'temperature': ?temperature,
    'top_p': ?topP,
    'top_k': ?topK,
    'min_p': ?minP,
    'seed': ?seed,
    'stop': ?stop,
    'logprobs': ?logprobs,
    ...more,
  };
}

/// What a model is asked.
///
/// Everywhere a request is taken, a `String` (what a person says) and a `Map`
/// (the request as JSON, with the names of the C library) are taken, too.
final class Request {
  /// A request. [more] has fields that have no name here.
  const Request({
    this.messages,
    this.prompt,
    this.tokens,
    this.tools,
    this.toolChoice,
    this.mostTools,
    this.schema,
    this.regex,
    this.grammar,
    this.reasoning,
    this.priority,
    this.handoff,
    this.options = const GenerateOptions(),
    this.more = const {},
  });

  /// A question of a person.
  Request.text(String text, {String? system, GenerateOptions options = const GenerateOptions()})
    : this(messages: [if (system != null) Message.system(system), Message.user(text)], options: options);

  /// A conversation.
  final List<Message>? messages;

  /// A text that is continued without a template.
  final String? prompt;

  /// Token ids that are continued.
  final List<int>? tokens;

  /// What the model may call.
  final List<Tool>? tools;

  /// `auto`, `none`, `required`, or the JSON of one function.
  final Object? toolChoice;

  /// Offer only so many of the tools.
  final int? mostTools;

  /// What the answer has to follow; at most one of this, [regex] and [grammar].
  final Schema? schema;

  /// A regular expression that the answer has to follow.
  final String? regex;

  /// A grammar that the answer has to follow.
  final String? grammar;

  /// Whether the model reasons first.
  final bool? reasoning;

  /// `low`, `normal` or `high`.
  final String? priority;

  /// `auto`, `never` or `always`, in place of what the policy says.
  final String? handoff;

  /// How the answer is made.
  final GenerateOptions options;

  /// Other fields, by the names of the C library.
  final Json more;

  /// The request as JSON.
  Json toJson() {
    final options = this.options.toJson();
    return {
      if (messages case final all?) 'messages': [for (final message in all) message.json],
      'prompt': ?prompt,
      'tokens': ?tokens,
      if (tools case final all?) 'tools': [for (final tool in all) tool.toJson()],
      'tool_choice': ?toolChoice,
      'most_tools': ?mostTools,
      'schema': ?schema?.toJson(),
      'regex': ?regex,
      'grammar': ?grammar,
      'reasoning': ?reasoning,
      'priority': ?priority,
      'handoff': ?handoff,
      if (options.isNotEmpty) 'options': options,
      ...more,
    };
  }

  /// What any of the forms of a request is as JSON.
  static Json jsonOf(Object request) => switch (request) {
    final String text => {
      'messages': [
        {'role': 'user', 'content': text},
      ],
    },
    final Request request => request.toJson(),
    final Map<Object?, Object?> json => json.cast<String, Object?>(),
    _ => throw ArgumentError.value(request, 'request', 'expected a String, a Request or a Map'),
  };
}
