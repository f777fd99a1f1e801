/// Finds the library, and compares its ABI.
library;

import 'dart:ffi';
import 'dart:io';

import 'package:ffi/ffi.dart';

import '../error.dart';
import '../raw.g.dart' as c;
import '../raw_bundled.g.dart' as asset;

/// Where the library is, if somebody has said so. Each isolate has its own:
/// [Lane](lane.dart) hands it on.
String? libraryPath;

/// The functions of the library, found when they are first needed.
final c.Raw raw = c.Raw(lookup);

/// Finds the address of a function.
final c.Lookup lookup = _open();

c.Lookup _open() {
  final (lookup, where) = _find();
  final Pointer<NativeFunction<Uint32 Function()>> address;
  try {
    address = lookup('cactus_abi_version');
  } on ArgumentError {
    throw CactusError(-16, 'not_found', '$where: this is not the library of Cactus');
  }
  checkAbi(address.asFunction<int Function()>()(), where);
  return lookup;
}

/// Throws where the library at [where] has another [abi] than this package.
void checkAbi(int abi, String where, {int expected = c.abiVersion}) {
  if (abi == expected) return;
  final old = abi < expected ? 'the library is old: update it' : 'the package cactus_engine is old: update it';
  throw CactusError(
    -6,
    'unsupported',
    'the library has ABI $abi, and this package is made for ABI $expected; $old ($where)',
  );
}

(c.Lookup, String) _find() {
  final told = libraryPath ?? Platform.environment['CACTUS_LIB_PATH'];
  if (told != null && told.isNotEmpty) {
    final file = FileSystemEntity.isDirectorySync(told) ? [told, _fileName].join(Platform.pathSeparator) : told;
    try {
      return (DynamicLibrary.open(file).lookup, file);
    } on ArgumentError catch (error) {
      throw CactusError(-16, 'not_found', '$file: the library cannot be loaded: ${error.message}');
    }
  }
  // What a build hook has brought.
  try {
    asset.bundled<NativeFunction<Uint32 Function()>>('cactus_abi_version');
    return (asset.bundled, 'the library of the application');
  } on ArgumentError {
    // There is none.
  }
  final tried = <String>[];
  for (final place in _places()) {
    try {
      return (DynamicLibrary.open(place).lookup, place);
    } on ArgumentError {
      tried.add(place);
    }
  }
  throw CactusError(
    -16,
    'not_found',
    'there is no library of Cactus; tried ${tried.join(', ')}. Set the environment variable '
        'CACTUS_LIB_PATH or `Cactus.libraryPath`, or let the build hook bring it',
  );
}

String get _fileName => switch (Platform.operatingSystem) {
  'macos' || 'ios' => 'libcactus.dylib',
  'windows' => 'cactus.dll',
  _ => 'libcactus.so',
};

Iterable<String> _places() {
  final program = File(Platform.resolvedExecutable).parent;
  return switch (Platform.operatingSystem) {
    // As a framework of the application, as an app store wants it.
    'macos' || 'ios' => ['cactus.framework/cactus', _fileName],
    'windows' => [_fileName],
    'linux' => ['${program.path}/lib/$_fileName', '${program.path}/../lib/$_fileName', _fileName],
    _ => [_fileName],
  };
}

/// Throws the last error of this thread.
Never fail() {
  final error = calloc<c.CactusError>();
  try {
    raw.lastError(error);
    final message = error.ref.message == nullptr ? '' : borrow(error.ref.message);
    throw CactusError(error.ref.code, borrow(error.ref.kind), message);
  } finally {
    calloc.free(error);
  }
}

/// Throws where a function has failed.
void check(int code) {
  if (code < 0) fail();
}

/// A text that the library lends.
String borrow(Pointer<Char> text) => text.cast<Utf8>().toDartString();

/// A text that the library gives away.
String take(Pointer<Char> text) {
  try {
    return borrow(text);
  } finally {
    raw.stringFree(text);
  }
}

/// A text for the library.
extension Lend on Arena {
  /// The bytes of [text], as long as this arena lives; NULL for `null`.
  Pointer<Char> text(String? text, String name) {
    if (text == null) return nullptr;
    if (text.contains('\u0000')) {
      throw CactusError.argument('`$name`: a text cannot have the character U+0000 here');
    }
    return text.toNativeUtf8(allocator: this).cast();
  }
}
