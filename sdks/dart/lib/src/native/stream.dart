import 'dart:async';
import 'dart:ffi';
import 'dart:isolate';

import 'package:ffi/ffi.dart';

import '../answer.dart';
import '../error.dart';
import '../event.dart';
import '../model.dart';
import 'calls.dart' as calls;
import 'lane.dart';
import 'library.dart';
import 'owned.dart';

/// How long an isolate waits for events of one stream, where nobody else wants
/// it, and where others do.
const _patientMs = 25;
const _impatientMs = 2;

/// Joins texts that follow each other, in place.
void joinTexts(List<Json> events) {
  var kept = 0;
  for (final event in events) {
    final last = kept > 0 ? events[kept - 1] : null;
    if (last?['event'] == event['event'] && (event['event'] == 'text' || event['event'] == 'reasoning')) {
      last!['text'] = '${last['text']}${event['text']}';
    } else {
      events[kept++] = event;
    }
  }
  events.length = kept;
}

/// A request whose events are fetched by the helper isolates.
final class NativeStream extends AnswerStream implements Finalizable {
  /// A request that the function begins. [owner] is what it belongs to, which has to
  /// live as long as this.
  NativeStream(this._start, {required bool joinText, required OnConsent? onConsent, required this.owner})
    : _joinText = joinText,
      _onConsent = onConsent;

  final Future<Made> Function() _start;
  final bool _joinText;
  final OnConsent? _onConsent;

  /// The model or session.
  final Object owner;

  late final _controller = StreamController<Event>(
    onListen: _pump,
    onPause: _paused,
    onResume: _resumed,
    onCancel: _left,
  );
  final _answer = Completer<Answer>();
  final _stopped = Completer<bool>();
  Future<void>? _begun;
  Future<void>? _closed;
  Owned? _request;

  /// Events for the end of this turn.
  final _heard = <Json>[];

  /// What ends the reading on a helper isolate.
  Pointer<Int32>? _stop;
  static var _readers = 0;
  var _isOver = false;
  var _isPumping = false;

  /// Completes when nothing of it runs any more.
  final _ended = Completer<void>();

  /// Waits until nothing of it runs, without taking events from who listens.
  Future<void> get ended async {
    await _begun?.then((_) {}, onError: (Object _) {});
    final request = _request;
    if (request == null || request.isClosed) return;
    await closing.run(calls.awaitEnd, request.handle);
  }

  /// Whether something of it may run.
  bool get isUnderway => _begun != null && !_ended.isCompleted;

  @override
  StreamSubscription<Event> listen(
    void Function(Event event)? onData, {
    Function? onError,
    void Function()? onDone,
    bool? cancelOnError,
  }) => _controller.stream.listen(onData, onError: onError, onDone: onDone, cancelOnError: cancelOnError);

  @override
  Future<Answer> get answer {
    // Where somebody listens already, there is nothing to do.
    if (!_controller.hasListener && !_isOver && _closed == null) {
      listen(null, onError: (Object _) {}, cancelOnError: false);
    }
    return _answer.future;
  }

  @override
  Future<void> begin() => _begun ??= _begin();

  Future<void> _begin() async {
    if (_closed != null) throw const CactusError.handle('a request');
    final Made made;
    try {
      made = await _start();
    } on Object {
      _ended.complete();
      rethrow;
    }
    _request = Owned(made, this);
    if (_stopped.isCompleted) raw.requestCancel(_request!.pointer);
  }

  Future<void> _pump() async {
    if (_isPumping || _isOver) return;
    _isPumping = true;
    _readers++;
    try {
      await begin();
      final request = _request!;
      while (!_isOver && !_controller.isPaused) {
        if (_closed != null) throw const CactusError.handle('a request');
        final events = await _read(request.handle);
        _flush();
        for (final json in events) {
          final event = Event.of(json);
          _tell(event);
          if (event is ConsentEvent) await _ask(event);
        }
      }
    } on Object catch (error, trace) {
      _fail(error, trace);
    } finally {
      _isPumping = false;
      _readers--;
    }
  }

  /// Reads on: alone on a helper isolate until somebody else wants it, or once
  /// where more streams than isolates are read.
  Future<List<Json>> _read(int request) async {
    if (_readers > quick.most || quick.isCrowded) {
      return quick.run(calls.nextEvents, (request: request, timeoutMs: _impatientMs, joinText: _joinText));
    }
    final stop = _stop = calloc<Int32>();
    quick.endless.add(stop);
    final port = RawReceivePort((Object? events) {
      // What has come by the end of this turn is told together.
      if (_joinText && _heard.isEmpty) Timer.run(_flush);
      _heard.addAll(events! as List<Json>);
      if (!_joinText) _flush();
    });
    try {
      return await quick.run(calls.followEvents, (
        (request: request, timeoutMs: _patientMs, joinText: _joinText),
        stop.address,
        port.sendPort,
      ));
    } finally {
      port.close();
      quick.endless.remove(stop);
      _stop = null;
      calloc.free(stop);
    }
  }

  void _flush() {
    if (_heard.isEmpty) return;
    final heard = [..._heard];
    _heard.clear();
    if (_joinText) joinTexts(heard);
    for (final json in heard) {
      _tell(Event.of(json));
    }
  }

  void _paused() {
    if (_stop case final stop?) stop.value |= pausedBit;
  }

  void _resumed() {
    if (_stop case final stop?) stop.value &= ~pausedBit;
    unawaited(_pump());
  }

  void _tell(Event event) {
    if (_isOver) return;
    if (event is! LastEvent) {
      _controller.add(event);
      return;
    }
    _isOver = true;
    _request?.released();
    if (!_ended.isCompleted) _ended.complete();
    switch (event) {
      case DoneEvent(:final answer) || CancelledEvent(:final answer):
        _finish(() => _answer.complete(answer));
      case FailedEvent(:final error):
        _finish(() => _answer.completeError(error));
    }
    _controller.add(event);
    unawaited(_controller.close());
  }

  void _fail(Object error, StackTrace trace) {
    _flush();
    if (_isOver) return;
    _isOver = true;
    _finish(() => _answer.completeError(error, trace));
    _controller.addError(error, trace);
    unawaited(_controller.close());
    unawaited(close());
  }

  /// Who waits for the answer hears of it; it is no fault where nobody does.
  void _finish(void Function() complete) {
    if (_answer.isCompleted) return;
    _answer.future.ignore();
    complete();
  }

  Future<void> _ask(ConsentEvent question) async {
    final ask = _onConsent;
    if (ask == null) {
      // A turn, in which the listener hears of it. Where it pauses, this goes on when it resumes.
      await Future<void>(() {});
      return;
    }
    var yes = false;
    try {
      yes = await Future.any([Future.sync(() => ask(question)), _stopped.future]);
    } on Object catch (error, trace) {
      // A question that fails is a no, and whoever asked has to know.
      Zone.current.handleUncaughtError(error, trace);
    }
    if (!_stopped.isCompleted) consent(yes);
  }

  @override
  void consent(bool yes) {
    final request = _request;
    if (request == null || request.isClosed) throw const CactusError.handle('a request');
    check(raw.requestConsent(request.pointer, yes));
  }

  @override
  void cancel() {
    if (!_stopped.isCompleted) _stopped.complete(false);
    final request = _request;
    if (request != null && !request.isClosed) raw.requestCancel(request.pointer);
  }

  /// Somebody has left the stream.
  Future<void> _left() async {
    _paused();
    if (!_isOver) {
      _isOver = true;
      const error = CactusError(-11, 'cancelled', 'the stream was left before its end');
      _finish(() => _answer.completeError(error));
    }
    await close();
  }

  @override
  Future<void> close() => _closed ??= _close();

  Future<void> _close() async {
    cancel();
    try {
      await _begun;
    } on Object {
      return;
    }
    await _request?.close();
    if (!_ended.isCompleted) _ended.complete();
    if (_isOver) return;
    if (_controller.hasListener) {
      // Who is paused hears of it behind the events that came before.
      _fail(const CactusError.handle('a request'), StackTrace.current);
    } else {
      _finish(() => _answer.completeError(const CactusError.handle('a request')));
    }
  }
}
