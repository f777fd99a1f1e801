/// Which binary a build hook brings, and whether it may be brought.
///
/// No package of the Dart team's is needed here, so that it is tested where
/// these cannot be had. `hook/build.dart` is the rest.
library;

import 'dart:io';
import 'dart:typed_data';

/// Android 15 on devices with pages of 16 KB loads nothing that is aligned to
/// less.
const _androidPageBytes = 16384;

/// What a build is for.
typedef Target = ({String os, String architecture, bool isSimulator, int? minimumVersion});

/// A binary that has to be fetched.
typedef Download = ({Uri url, String sha256});

/// A binary that cannot be brought, and why.
final class PrebuiltError implements Exception {
  /// Says what was expected and what was found.
  const PrebuiltError(this.message);

  /// What was expected, and what was found.
  final String message;

  @override
  String toString() => message;
}

/// What a target is called in folders and in the pubspec: `android-arm64`,
/// `ios-simulator-arm64`, `linux-x64`.
String targetName(Target target) => [target.os, if (target.isSimulator) 'simulator', target.architecture].join('-');

/// What the library is called on a system.
String libraryName(String os) => switch (os) {
  'macos' || 'ios' => 'libcactus.dylib',
  'windows' => 'cactus.dll',
  _ => 'libcactus.so',
};

/// The library that [given] names: a file, or a folder with one folder for each
/// target.
File givenLibrary(String given, Target target) {
  final places = [given, '$given/${targetName(target)}/${libraryName(target.os)}', '$given/${libraryName(target.os)}'];
  return places
      .map(File.new)
      .firstWhere(
        (file) => file.existsSync(),
        orElse: () => throw PrebuiltError('there is no library for ${targetName(target)}; tried ${places.join(', ')}'),
      );
}

/// What the pubspec's `binaries` say of a target: an address and a checksum.
Download? download(Object? binaries, Target target) {
  if (binaries == null) return null;
  if (binaries is! Map<Object?, Object?>) throw PrebuiltError('`binaries`: expected a map of targets, found $binaries');
  final name = targetName(target);
  switch (binaries[name]) {
    case null:
      return null;
    case {'url': final String url, 'sha256': final String hash} when RegExp(r'^[0-9a-f]{64}$').hasMatch(hash):
      return (url: Uri.parse(url), sha256: hash);
    case final other:
      throw PrebuiltError('`binaries`: $name: expected a `url` and a `sha256`, found $other');
  }
}

/// Throws where a store or a system would refuse a binary later on.
void checkBinary(Uint8List bytes, Target target) {
  final data = ByteData.sublistView(bytes);
  switch (target.os) {
    case 'android':
      final alignment = elfAlignment(data);
      // Only processors of 64 bits have such pages.
      if (target.architecture.endsWith('64') && alignment < _androidPageBytes) {
        throw PrebuiltError('expected segments aligned to $_androidPageBytes bytes, found $alignment');
      }
    case 'ios':
      final (found, wanted) = (machMinimum(data), target.minimumVersion);
      if (found != null && wanted != null && found > wanted) {
        throw PrebuiltError('the library needs iOS $found, and the application promises iOS $wanted');
      }
  }
}

/// The least alignment of the segments that are loaded.
int elfAlignment(ByteData data) {
  if (data.lengthInBytes < 64 || data.getUint32(0) != 0x7f454c46) {
    throw const PrebuiltError('expected an ELF file');
  }
  final is64 = data.getUint8(4) == 2;
  int word(int at) => is64 ? data.getUint64(at, Endian.little) : data.getUint32(at, Endian.little);
  final first = word(is64 ? 32 : 28);
  final size = data.getUint16(is64 ? 54 : 42, Endian.little);
  final count = data.getUint16(is64 ? 56 : 44, Endian.little);
  int? least;
  for (var i = 0; i < count; i++) {
    final at = first + i * size;
    if (at + size > data.lengthInBytes) throw const PrebuiltError('the ELF file is cut off');
    if (data.getUint32(at, Endian.little) != 1) continue;
    final alignment = word(at + (is64 ? 48 : 28));
    if (least == null || alignment < least) least = alignment;
  }
  return least ?? (throw const PrebuiltError('the ELF file loads nothing'));
}

/// The major version that a Mach-O file needs; `null` where it says none.
int? machMinimum(ByteData data) {
  if (data.lengthInBytes < 32 || data.getUint32(0, Endian.little) != 0xfeedfacf) {
    throw const PrebuiltError('expected a Mach-O file of 64 bits');
  }
  final count = data.getUint32(16, Endian.little);
  var at = 32;
  for (var i = 0; i < count && at + 16 <= data.lengthInBytes; i++) {
    final (command, size) = (data.getUint32(at, Endian.little), data.getUint32(at + 4, Endian.little));
    // LC_BUILD_VERSION, and LC_VERSION_MIN_IPHONEOS before it.
    if (command == 0x32) return data.getUint32(at + 12, Endian.little) >> 16;
    if (command == 0x25) return data.getUint32(at + 8, Endian.little) >> 16;
    if (size < 8) break;
    at += size;
  }
  return null;
}
