/// What the library holds for this isolate, and how it is closed in any case.
///
/// The functions that close wait for what is under way, so they are called on
/// a helper isolate. An object that was forgotten is closed there, too: a
/// `Finalizer` of Dart says so in the event loop. A `NativeFinalizer` would
/// close on the thread that happens to collect garbage, which may be the one
/// that draws; so it is left for the end of the isolate, when nothing is drawn
/// any more, and belongs to an object that lives until then.
library;

import 'dart:async';
import 'dart:ffi';

import 'lane.dart';
import 'library.dart';

typedef _Close = Void Function(Pointer<Void>);

/// What a handle is of.
enum Kind {
  /// A model of any kind.
  model('cactus_destroy', 'a model'),

  /// A conversation.
  session('cactus_session_close', 'a session'),

  /// A request.
  request('cactus_request_close', 'a request'),

  /// An index.
  vectors('cactus_index_destroy', 'an index'),

  /// Live speech. Its function has more than one parameter, so no finalizer
  /// can call it: at the end of the isolate its model is closed, and it is not.
  live(null, 'a live transcription');

  const Kind(this.function, this.what);

  /// The function that closes it.
  final String? function;

  /// What it is called.
  final String what;

  /// Closes it, here and now. A handle that was closed is left alone.
  void close(int handle) {
    final pointer = Pointer<Void>.fromAddress(handle);
    switch (this) {
      case model:
        raw.destroy(pointer);
      case session:
        raw.sessionClose(pointer);
      case request:
        raw.requestClose(pointer);
      case vectors:
        raw.indexDestroy(pointer);
      case live:
        raw.streamTranscribeStop(pointer, nullptr, 0);
    }
  }
}

/// A handle that is closed once.
final class Owned implements Finalizable {
  /// Takes what [made] is. It is closed when [owner] is forgotten.
  Owned(Made made, Object owner) : kind = made.kind, handle = made.handle {
    _all.add(this);
    if (_atEnd[kind] case final finalizer?) {
      finalizer.attach(this, pointer, detach: this);
    }
    _forgotten.attach(owner, this, detach: this);
  }

  static final _all = <Owned>{};
  static final _forgotten = Finalizer<Owned>((owned) => owned.close().ignore());
  static final Map<Kind, NativeFinalizer> _atEnd = {
    for (final kind in Kind.values)
      if (kind.function case final name?) kind: NativeFinalizer(lookup<NativeFunction<_Close>>(name)),
  };

  /// How many are open, for tests.
  static int get count => _all.length;

  /// Their numbers, in the order in which they were opened, for tests.
  static Iterable<int> get handles => _all.map((owned) => owned.handle);

  /// What it is.
  final Kind kind;

  /// Its number.
  final int handle;

  Future<void>? _closed;

  /// The number as the functions of C take it.
  Pointer<Void> get pointer => Pointer.fromAddress(handle);

  /// Whether [close] was called.
  bool get isClosed => _closed != null;

  /// Cancels what is under way, and waits for it on a helper isolate.
  Future<void> close() => _closed ??= _close();

  Future<void> _close() async {
    // What occupies helper isolates ends, so that this one has not to wait for them.
    switch (kind) {
      case Kind.model:
        raw.stop(pointer);
      case Kind.request:
        raw.requestCancel(pointer);
      case Kind.session || Kind.vectors || Kind.live:
        break;
    }
    await closing.run(_closeHandle, (kind, handle));
    _release();
  }

  /// The handle was closed already.
  void released() {
    _closed ??= Future.value();
    _release();
  }

  void _release() {
    _all.remove(this);
    _forgotten.detach(this);
    _atEnd[kind]?.detach(this);
  }

  static void _closeHandle((Kind, int) owned) => owned.$1.close(owned.$2);
}
