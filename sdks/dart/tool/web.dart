// A program for the web that imports the package. It compiles, and says that the engine is not there.
import 'package:cactus_engine/cactus_engine.dart';

Future<void> main() async {
  if (Cactus.isSupported) throw StateError('the web has no engine');
  try {
    await Model.load('smollm2');
  } on UnsupportedError {
    print('web: UnsupportedError');
  }
}
