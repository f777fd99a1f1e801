/// Which binary the build hook brings. The hook itself needs packages that are
/// not among Debian's.
library;

import 'dart:io';
import 'dart:typed_data';

import 'package:cactus_engine/src/hook/prebuilt.dart';

import 'harness.dart';
import 'support.dart' hide Target;

const Target _android = (os: 'android', architecture: 'arm64', isSimulator: false, minimumVersion: null);
const Target _simulator = (os: 'ios', architecture: 'arm64', isSimulator: true, minimumVersion: 13);

/// A Mach-O file that needs a version of iOS.
Uint8List _mach(int major) {
  final data = ByteData(64)
    ..setUint32(0, 0xfeedfacf, Endian.little)
    ..setUint32(16, 2, Endian.little)
    ..setUint32(32, 0x19, Endian.little)
    ..setUint32(36, 8, Endian.little)
    ..setUint32(40, 0x32, Endian.little)
    ..setUint32(44, 24, Endian.little)
    ..setUint32(52, major << 16, Endian.little);
  return data.buffer.asUint8List();
}

void main() {
  group('the build hook', () {
    test('takes a file, or a folder with one for each target', () async {
      final path = folder().path;
      final file = File('$path/android-arm64/libcactus.so')..createSync(recursive: true);
      expect(givenLibrary(path, _android).path, file.path);
      expect(givenLibrary(file.path, _android).path, file.path);
      final error = await thrown<PrebuiltError>(() => givenLibrary(path, _simulator));
      expect(error.message, contains('ios-simulator-arm64'));
    });

    test('fetches nothing without a checksum', () async {
      final hash = 'a' * 64;
      final binaries = {
        'android-arm64': {'url': 'https://example.org/a.so', 'sha256': hash},
        'ios-simulator-arm64': {'url': 'https://example.org/a.dylib'},
      };
      expect(download(binaries, _android), (url: Uri.parse('https://example.org/a.so'), sha256: hash));
      await thrown<PrebuiltError>(() => download(binaries, _simulator));
      await thrown<PrebuiltError>(() => download('here', _android));
      expect(download(const <String, Object>{}, _android), isNull);
      expect(download(null, _android), isNull);
    });

    test('refuses what Android and iOS refuse', () async {
      final told = Platform.environment['CACTUS_LIB_PATH']!;
      final library = File(told).readAsBytesSync();
      final alignment = elfAlignment(ByteData.sublistView(library));
      expect([4096, 16384, 65536], contains(alignment));
      if (alignment < 16384) {
        final error = await thrown<PrebuiltError>(() => checkBinary(library, _android));
        expect(error.message, contains('16384'));
      } else {
        checkBinary(library, _android);
      }
      await thrown<PrebuiltError>(() => checkBinary(_mach(13), _android));
      expect(machMinimum(ByteData.sublistView(_mach(14))), 14);
      checkBinary(_mach(13), _simulator);
      final error = await thrown<PrebuiltError>(() => checkBinary(_mach(14), _simulator));
      expect(error.message, contains('iOS 14'));
    });
  });
}
