/// Language models on the device, for Flutter.
///
/// All of `package:cactus_engine`, widgets for streams of text, and what the
/// system says of memory, heat and the background.
library;

export 'package:cactus_engine/cactus_engine.dart';

export 'src/answer_builder.dart';
export 'src/lifecycle.dart';
export 'src/storage.dart';
