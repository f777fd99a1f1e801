import 'backend.dart';

/// The web has no `dart:ffi`.
Backend create() => const _Web();

final class _Web implements Backend {
  const _Web();

  @override
  bool get isSupported => false;

  @override
  Object? noSuchMethod(Invocation invocation) => throw UnsupportedError(
    'cactus_engine does not run on the web: it needs the native library. '
    'Look at `Cactus.isSupported` before you call it.',
  );
}
