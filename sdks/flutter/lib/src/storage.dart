import 'dart:async';

import 'package:flutter/foundation.dart';
import 'package:flutter/services.dart';

/// Keeps a folder of models out of the backups of iOS, which takes no
/// application that fills them. Do it before the first download.
///
/// Elsewhere there is nothing to do, and this does nothing: on Android, keep
/// models in the folder for files without backup.
Future<void> keepOutOfBackups(String folder) async {
  if (kIsWeb || defaultTargetPlatform != TargetPlatform.iOS) return;
  await const MethodChannel('cactus_flutter').invokeMethod<void>('keepOutOfBackups', folder);
}
