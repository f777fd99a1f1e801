import 'backend.dart';
import 'error.dart';

/// What is logged.
enum LogLevel {
  /// For those who look for a defect.
  debug,

  /// What happens.
  information,

  /// What somebody should know.
  warning,

  /// What went wrong.
  error,

  /// Nothing.
  nothing,
}

/// Something that the library says.
final class LogRecord {
  /// A record.
  const LogRecord(this.level, this.component, this.message);

  /// How important it is.
  final LogLevel level;

  /// Which part of the library says it.
  final String component;

  /// What it says.
  final String message;
}

/// The library itself.
abstract final class Cactus {
  /// Where the library is: its file, or the folder of it. Set it before
  /// anything else is called. Without it, the environment variable
  /// `CACTUS_LIB_PATH` says so; then the package's own is taken, then the
  /// system's.
  static set libraryPath(String? path) => backend.libraryPath = path;

  /// The version of the library.
  static String get version => backend.version;

  /// The ABI of the library.
  static int get abiVersion => backend.abiVersion;

  /// Whether this platform has the engine at all. On the web it has not.
  static bool get isSupported => backend.isSupported;

  /// Whether the bundle in a folder can be used: `usable`, and if not, `kind`
  /// and `message`. [verify] reads all of it and compares checksums.
  static Future<Json> checkBundle(String path, {bool verify = false}) => backend.checkBundle(path, verify);

  /// Tells the library that memory is short. Answers stay the same.
  static void memoryPressure() => backend.memoryPressure();

  /// Gives what the library says to [listener], from [level] on; `null` ends
  /// that. Without a listener nothing is said.
  static void setLog(void Function(LogRecord record)? listener, {LogLevel level = LogLevel.warning}) =>
      backend.setLog(listener, level);
}
