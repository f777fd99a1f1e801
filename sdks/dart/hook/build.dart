// Brings the library of Cactus into an application of Dart or Flutter.
//
// The application's pubspec says which one: a file or a folder of its own, or an address with a checksum. Without either nothing
// is brought, and the library is looked for where it is told (`CACTUS_LIB_PATH`) or where the system looks.
//
//     hooks:
//       user_defines:
//         cactus_engine:
//           library: native/
//           binaries:
//             android-arm64: {url: "https://example.org/libcactus.so", sha256: "…"}
import 'dart:io';

import 'package:cactus_engine/src/hook/prebuilt.dart';
import 'package:code_assets/code_assets.dart';
import 'package:crypto/crypto.dart';
import 'package:hooks/hooks.dart';

Future<void> main(List<String> arguments) => build(arguments, (input, output) async {
  if (!input.config.buildCodeAssets) return;
  final code = input.config.code;
  final isIos = code.targetOS == OS.iOS;
  final target = (
    os: code.targetOS.name,
    architecture: code.targetArchitecture.name,
    isSimulator: isIos && code.iOS.targetSdk == IOSSdk.iPhoneSimulator,
    minimumVersion: isIos ? code.iOS.targetVersion : null,
  );
  final File file;
  if (input.userDefines.path('library') case final given?) {
    file = givenLibrary(given.toFilePath(), target);
    output.dependencies.add(file.uri);
  } else if (download(input.userDefines['binaries'], target) case final wanted?) {
    file = await _fetched(wanted, input.outputDirectoryShared, target);
  } else {
    return;
  }
  checkBinary(await file.readAsBytes(), target);
  output.assets.code.add(
    CodeAsset(
      package: input.packageName,
      // `lib/src/raw_bundled.g.dart` looks for this one.
      name: 'cactus',
      linkMode: DynamicLoadingBundled(),
      file: file.uri,
    ),
  );
});

/// The file of a download, which has its name when its checksum was right.
Future<File> _fetched(Download wanted, Uri folder, Target target) async {
  final file = File.fromUri(folder.resolve('${wanted.sha256}/${libraryName(target.os)}'));
  if (file.existsSync()) return file;
  await file.parent.create(recursive: true);
  final part = File('${file.path}.part');
  final client = HttpClient();
  try {
    final response = await (await client.getUrl(wanted.url)).close();
    if (response.statusCode != 200) {
      throw PrebuiltError('${wanted.url}: the server says ${response.statusCode}');
    }
    await response.pipe(part.openWrite());
  } finally {
    client.close();
  }
  final found = (await sha256.bind(part.openRead()).first).toString();
  if (found != wanted.sha256) {
    await part.delete();
    throw PrebuiltError('${wanted.url}: expected the checksum ${wanted.sha256}, found $found');
  }
  return part.rename(file.path);
}
