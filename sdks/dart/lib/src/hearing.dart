import 'dart:typed_data';

import 'backend.dart';
import 'error.dart';

/// A recording: a file, or samples.
sealed class Sound {
  /// A file of any format that is read.
  const factory Sound.file(String path) = SoundFile;

  /// Mono, 16,000 samples a second.
  const factory Sound.pcm(Int16List samples) = SoundPcm;
}

/// A file with a recording.
final class SoundFile implements Sound {
  /// A file of any format that is read.
  const SoundFile(this.path);

  /// Where it is.
  final String path;
}

/// Samples: mono, 16,000 a second.
final class SoundPcm implements Sound {
  /// The samples.
  const SoundPcm(this.samples);

  /// The samples.
  final Int16List samples;
}

/// What was said in a recording.
final class Transcript {
  /// A transcript as the library has it.
  const Transcript(this.json);

  /// Everything that is known of it.
  final Json json;

  /// All of the text.
  String get text => json['response'] as String? ?? '';

  /// The language, where the model tells.
  String? get language => json['language'] as String?;

  /// Pieces of the text with their times.
  List<Segment> get segments => [
    for (final segment in json['segments'] as List<Object?>? ?? const []) Segment(segment as Json),
  ];

  @override
  String toString() => text;
}

/// A piece of a transcript.
final class Segment {
  /// A segment as the library has it.
  const Segment(this.json);

  /// The segment as JSON.
  final Json json;

  /// Its text.
  String get text => json['text'] as String? ?? '';

  /// Where it begins, in seconds.
  double get start => (json['start'] as num? ?? 0).toDouble();

  /// Where it ends, in seconds.
  double get end => (json['end'] as num? ?? 0).toDouble();
}

/// Where somebody speaks, in samples of 16,000 a second.
typedef SpeechSpan = ({int start, int end});

/// A model that hears, or one that finds speech.
///
/// One recording at a time; others wait.
abstract class Transcriber {
  /// For the package alone.
  const Transcriber();

  /// Loads the bundle in a folder.
  static Future<Transcriber> load(String bundle) => backend.loadTranscriber(bundle);

  /// Writes down what is said. [options] are `language`, `translate`,
  /// `temperature`, `custom_vocabulary` and `hallucination_silence`; [prompt] is
  /// text as if said before. [onSegment] hears each piece when it is written.
  /// When [abortTrigger] completes, this recording is stopped alone, also while
  /// it waits for another, and fails with the kind `cancelled`.
  Future<Transcript> transcribe(
    Sound sound, {
    Json options = const {},
    String? prompt,
    void Function(String text)? onSegment,
    Future<void>? abortTrigger,
  });

  /// Which language is spoken: `language`, `confidence`, `entropy`.
  Future<Json> detectLanguage(Sound sound);

  /// Where somebody speaks, with a model that finds speech.
  Future<List<SpeechSpan>> speech(Sound sound, {Json options = const {}});

  /// As [speech], with all that the library says.
  Future<Json> speechJson(Sound sound, {Json options = const {}});

  /// Says who else may hear what is doubtful, as for a model that writes.
  Future<void> setPolicy({String? policy, Json? options});

  /// Begins to listen. [options] are those of [transcribe], and `vad` (the
  /// folder of a bundle that finds speech), `min_chunk_sec`, `silence_sec` and
  /// so on.
  Future<LiveTranscription> live({Json options = const {}});

  /// Stops all that is under way with this model, which fails with the kind
  /// `cancelled`.
  void stop();

  /// Cancels what is under way, waits for it, and frees the model. May be called
  /// again.
  Future<void> close();
}

/// What has become of live speech since the last call.
final class LiveText {
  /// A result as the library has it.
  const LiveText(this.json);

  /// Everything that is known of it.
  final Json json;

  /// Text that has become certain. It is never taken back.
  String get confirmed => json['confirmed'] as String? ?? '';

  /// The text behind it, which may still change.
  String get pending => json['pending'] as String? ?? '';

  /// The language of the last phrase.
  String? get language => json['language'] as String?;

  /// What happened.
  List<Json> get events => [for (final event in json['events'] as List<Object?>? ?? const []) event as Json];
}

/// Live speech.
abstract class LiveTranscription {
  /// For the package alone.
  const LiveTranscription();

  /// Takes the next samples: mono, 16,000 a second, as many as there are. Calls
  /// are taken in their order, also without waiting.
  Future<LiveText> push(Int16List samples);

  /// Makes the last phrase final, and closes it.
  Future<LiveText> finish();

  /// Closes it, and throws away what is not final. May be called again.
  Future<void> close();

  /// The texts of a whole stream of samples, as from a microphone.
  Stream<LiveText> listen(Stream<Int16List> samples) async* {
    try {
      await for (final piece in samples) {
        yield await push(piece);
      }
      yield await finish();
    } finally {
      await close();
    }
  }
}
