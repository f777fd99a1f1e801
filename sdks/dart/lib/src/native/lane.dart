/// Helper isolates, on which everything happens that takes time.
///
/// An isolate that waits inside of a C function keeps its place among those
/// that may run, and there are few: 8 in an application of Flutter. So the
/// package has at most 6, however many streams there are, and nothing waits in
/// C for long: streams are asked in turn.
library;

import 'dart:async';
import 'dart:collection';
import 'dart:ffi';
import 'dart:isolate';

import 'library.dart';
import 'owned.dart';

/// Events, and the beginnings of requests.
final Lane quick = Lane('cactus-events', 2);

/// What computes or reads files.
final Lane jobs = Lane('cactus-jobs', 3);

/// What waits for the end of something.
final Lane closing = Lane('cactus-close', 1);

/// A job ends as nobody wants its events now.
const pausedBit = 1;

/// A job ends as another wants its isolate.
const wantedBit = 2;

/// A few isolates that do jobs in the order in which they come.
final class Lane {
  /// A lane of at most [most] isolates.
  Lane(this.name, this.most);

  /// What its isolates are called.
  final String name;

  /// Most isolates.
  final int most;

  final _waiting = Queue<_Job>();
  final _idle = <_Worker>[];
  var _workers = 0;

  /// Jobs that go on until their number is not 0: a place that the isolates
  /// share. Only the isolate that the lane works for writes it.
  final endless = <Pointer<Int32>>{};

  /// Whether somebody waits for an isolate.
  bool get isCrowded => _waiting.isNotEmpty;

  /// Runs `work(argument)` on one of the isolates. Both have to be of a kind
  /// that can be sent: a static function, and numbers, texts and lists.
  Future<R> run<A, R>(R Function(A argument) work, A argument) async {
    final job = _Job(_bound(work, argument));
    _waiting.add(job);
    _next();
    return await job.result.future as R;
  }

  // A function of its own, so that what is sent holds nothing else.
  static Object? Function() _bound<A, R>(R Function(A argument) work, A argument) =>
      () => work(argument);

  void _next() {
    while (_waiting.isNotEmpty) {
      if (_idle.isNotEmpty) {
        _idle.removeLast().take(_waiting.removeFirst());
      } else if (_workers < most) {
        _workers++;
        _Worker.spawn(this)
            .then(
              (worker) {
                _idle.add(worker);
                _next();
              },
              onError: (Object error, StackTrace trace) {
                _workers--;
                if (_waiting.isEmpty) return;
                _waiting.removeFirst().result.completeError(error, trace);
              },
            )
            .ignore();
        return;
      } else {
        // Whoever waits gets the place of one that goes on.
        for (final stop in endless) {
          stop.value |= wantedBit;
        }
        return;
      }
    }
  }
}

final class _Job {
  _Job(this.work);

  /// Captures nothing but what was given to [Lane.run].
  final Object? Function() work;
  final result = Completer<Object?>();
}

/// What an isolate has made that somebody has to close.
final class Made {
  /// A handle of a kind.
  const Made(this.kind, this.handle);

  /// Its kind.
  final Kind kind;

  /// Its number.
  final int handle;
}

final class _Worker {
  _Worker(this._lane, this._port, this._jobs);

  final Lane _lane;
  final RawReceivePort _port;
  final SendPort _jobs;
  _Job? _job;

  static Future<_Worker> spawn(Lane lane) async {
    final port = RawReceivePort(null, lane.name);
    final ready = Completer<SendPort>();
    port.handler = (Object? message) => ready.complete(message! as SendPort);
    try {
      await Isolate.spawn(_serve, (port.sendPort, libraryPath), debugName: lane.name, errorsAreFatal: false);
      final worker = _Worker(lane, port, await ready.future);
      port.handler = worker._done;
      port.keepIsolateAlive = false;
      // It ends with the isolate that it works for.
      Isolate.current.addOnExitListener(worker._jobs);
      return worker;
    } on Object {
      port.close();
      rethrow;
    }
  }

  void take(_Job job) {
    _job = job;
    _port.keepIsolateAlive = true;
    try {
      _jobs.send(job.work);
    } on ArgumentError catch (error, trace) {
      _done((error, trace, false));
    }
  }

  void _done(Object? message) {
    final (value, trace, ok) = message! as (Object?, StackTrace?, bool);
    final job = _job!;
    _job = null;
    _port.keepIsolateAlive = false;
    _lane._idle.add(this);
    if (ok) {
      job.result.complete(value);
    } else {
      job.result.completeError(value!, trace);
    }
    _lane._next();
  }

  static void _serve((SendPort, String?) start) {
    final (replies, path) = start;
    libraryPath = path;
    final jobs = RawReceivePort();
    Made? last;
    jobs.handler = (Object? message) {
      if (message == null) {
        // Nobody has heard of what was made last, perhaps; and nobody else closes it.
        if (last case final made?) made.kind.close(made.handle);
        jobs.close();
        return;
      }
      try {
        final value = (message as Object? Function())();
        last = value is Made ? value : null;
        replies.send((value, null, true));
      } on Object catch (error, trace) {
        replies.send((error, trace, false));
      }
    };
    replies.send(jobs.sendPort);
  }
}
