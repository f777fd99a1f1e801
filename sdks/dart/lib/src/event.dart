import 'answer.dart';
import 'error.dart';

/// What happens to a request.
///
/// A stream ends with exactly one [LastEvent], and nothing comes after it.
sealed class Event {
  const Event._(this.json);

  /// An event as the library gives it.
  factory Event.of(Json json) => switch (json['event']) {
    'started' => StartedEvent._(json),
    'text' => TextEvent._(json),
    'reasoning' => ReasoningEvent._(json),
    'tool_call' => ToolCallEvent._(json),
    'source' => SourceEvent._(json),
    'replaced' => ReplacedEvent._(json),
    'consent' => ConsentEvent._(json),
    'done' => DoneEvent._(json),
    'cancelled' => CancelledEvent._(json),
    'failed' => FailedEvent._(json),
    _ => OtherEvent._(json),
  };

  /// The event as JSON.
  final Json json;

  @override
  String toString() => '$runtimeType($json)';
}

/// The prompt is computed.
final class StartedEvent extends Event {
  const StartedEvent._(super.json) : super._();

  /// Tokens of the prompt.
  int get promptTokens => json['prompt_tokens'] as int? ?? 0;

  /// How many of them were known from before.
  int get cachedTokens => json['cached_tokens'] as int? ?? 0;
}

/// Text of the answer, whole characters.
final class TextEvent extends Event {
  const TextEvent._(super.json) : super._();

  /// The text that was added.
  String get text => json['text'] as String? ?? '';
}

/// Reasoning before the answer.
final class ReasoningEvent extends Event {
  const ReasoningEvent._(super.json) : super._();

  /// The text that was added.
  String get text => json['text'] as String? ?? '';
}

/// A call of a tool, or a piece of one. The whole calls are in the [Answer].
final class ToolCallEvent extends Event {
  const ToolCallEvent._(super.json) : super._();

  /// Which call of the answer, from 0.
  int get index => json['index'] as int? ?? 0;

  /// The call's id, in its first event.
  String? get id => json['id'] as String?;

  /// The tool's name, in its first event.
  String? get name => json['name'] as String?;

  /// A piece of the arguments' JSON.
  String? get arguments => json['arguments'] as String?;

  /// Whether the call is whole.
  bool get isEnd => json['end'] == true;

  /// Whether it came to nothing, and was given out as text.
  bool get isFailed => json['failed'] == true;
}

/// Under a policy: who answers, before the first of it.
final class SourceEvent extends Event {
  const SourceEvent._(super.json) : super._();

  /// `local` or `cloud`.
  String get side => json['side'] as String? ?? '';

  /// The name of the target.
  String? get target => json['target'] as String?;

  /// Why.
  String get reason => json['reason'] as String? ?? '';
}

/// Under a policy: what was said so far is void, and another answers from the
/// beginning. Throw away the texts that came.
final class ReplacedEvent extends Event {
  const ReplacedEvent._(super.json) : super._();

  /// Why it is void.
  String get reason => json['reason'] as String? ?? '';
}

/// Under a policy: may this leave the device? Answer it with
/// `AnswerStream.consent`, or give `onConsent`. Without an answer nothing
/// leaves.
final class ConsentEvent extends Event {
  const ConsentEvent._(super.json) : super._();

  /// What would leave: `text`, `image` and so on.
  List<String> get classes => (json['classes'] as List<Object?>? ?? const []).cast();

  /// The name of the target.
  String? get target => json['target'] as String?;

  /// Where it would go.
  String? get host => json['host'] as String?;

  /// What it may cost at most, as text for a person: `\$0.05`.
  String? get most => json['most']?.toString();

  /// Why it is wanted.
  String? get reason => json['reason'] as String?;

  /// How sure the model on this device is, from 0 to 1.
  double? get confidence => (json['confidence'] as num?)?.toDouble();
}

/// An event of a later library.
final class OtherEvent extends Event {
  const OtherEvent._(super.json) : super._();
}

/// The end of a stream.
sealed class LastEvent extends Event {
  const LastEvent._(super.json) : super._();
}

/// The end: the whole answer.
final class DoneEvent extends LastEvent {
  const DoneEvent._(super.json) : super._();

  /// The answer.
  Answer get answer => Answer(json['result'] as Json? ?? const {});
}

/// The end of a request that was cancelled.
final class CancelledEvent extends LastEvent {
  const CancelledEvent._(super.json) : super._();

  /// The answer as far as it came.
  Answer get answer => Answer(json['result'] as Json? ?? const {});
}

/// The end of a request that failed.
final class FailedEvent extends LastEvent {
  const FailedEvent._(super.json) : super._();

  /// How and why.
  CactusError get error =>
      CactusError(json['code'] as int? ?? -1, json['kind'] as String? ?? 'internal', json['text'] as String? ?? '');
}
