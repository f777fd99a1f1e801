/// Language models on the device: chat, streams, tools, structured output,
/// embeddings, search and transcription.
///
/// ```dart
/// final model = await Model.load('smollm2');
/// await for (final text in model.stream('Why is the sky blue?').texts) {
///   stdout.write(text);
/// }
/// await model.close();
/// ```
library;

export 'src/answer.dart';
export 'src/cactus.dart';
export 'src/error.dart' show CactusError, Json;
export 'src/event.dart';
export 'src/hearing.dart' hide SoundFile, SoundPcm;
export 'src/model.dart';
export 'src/request.dart';
export 'src/schema.dart';
export 'src/tool.dart';
export 'src/vectors.dart';
