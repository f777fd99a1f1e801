import 'dart:async';

import 'package:cactus_engine/cactus_engine.dart';
import 'package:flutter/widgets.dart';

/// An answer as far as it came.
@immutable
final class AnswerSnapshot {
  /// A snapshot.
  const AnswerSnapshot({this.text = '', this.reasoning = '', this.last, this.error});

  /// What was said so far.
  final String text;

  /// What the model thought so far.
  final String reasoning;

  /// How it ended, where it has.
  final LastEvent? last;

  /// Why there is no answer.
  final CactusError? error;

  /// Whether nothing comes any more.
  bool get isOver => last != null || error != null;

  /// The whole answer, at the end.
  Answer? get answer => switch (last) {
    DoneEvent(:final answer) || CancelledEvent(:final answer) => answer,
    _ => null,
  };

  /// What comes after an event.
  AnswerSnapshot after(Event event) => switch (event) {
    TextEvent() => AnswerSnapshot(text: text + event.text, reasoning: reasoning),
    ReasoningEvent() => AnswerSnapshot(text: text, reasoning: reasoning + event.text),
    ReplacedEvent() => const AnswerSnapshot(),
    FailedEvent(:final error) => AnswerSnapshot(text: text, reasoning: reasoning, last: event, error: error),
    LastEvent() => AnswerSnapshot(text: text, reasoning: reasoning, last: event),
    _ => this,
  };
}

/// Builds itself of a stream, again with each event.
///
/// The stream begins with the widget. When the widget is gone, the answer is
/// cancelled: a screen that somebody leaves computes no further.
class AnswerBuilder extends StatefulWidget {
  /// A widget for what [start] gives.
  ///
  /// [start] is called again where [request] is another than before.
  const AnswerBuilder({required this.start, required this.builder, this.request, this.onEnd, super.key});

  /// Asks, as with `() => session.stream(question)`.
  final AnswerStream Function() start;

  /// Draws what there is.
  final Widget Function(BuildContext context, AnswerSnapshot answer) builder;

  /// What is asked: another one asks again.
  final Object? request;

  /// Called at the end, unless the widget is gone before.
  final void Function(AnswerSnapshot answer)? onEnd;

  @override
  State<AnswerBuilder> createState() => _AnswerBuilderState();
}

class _AnswerBuilderState extends State<AnswerBuilder> {
  AnswerSnapshot _answer = const AnswerSnapshot();
  StreamSubscription<Event>? _subscription;

  @override
  void initState() {
    super.initState();
    _begin();
  }

  @override
  void didUpdateWidget(AnswerBuilder old) {
    super.didUpdateWidget(old);
    if (old.request == widget.request) return;
    _leave();
    _answer = const AnswerSnapshot();
    _begin();
  }

  @override
  void dispose() {
    _leave();
    super.dispose();
  }

  void _begin() {
    _subscription = widget.start().listen(
      (event) => _show(_answer.after(event)),
      onError: (Object error) {
        if (error is! CactusError) throw error; // ignore: only_throw_errors
        _show(AnswerSnapshot(text: _answer.text, reasoning: _answer.reasoning, error: error));
      },
    );
  }

  // It is not waited for: that happens on a helper isolate.
  void _leave() => unawaited(_subscription?.cancel());

  void _show(AnswerSnapshot answer) {
    if (!mounted) return;
    setState(() => _answer = answer);
    if (answer.isOver) widget.onEnd?.call(answer);
  }

  @override
  Widget build(BuildContext context) => widget.builder(context, _answer);
}
