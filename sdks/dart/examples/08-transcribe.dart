// What is said in a recording; with a second bundle, while it is said.
//
//     dart run examples/08-transcribe.dart BUNDLE FILE [VAD]
import 'dart:io';
import 'dart:typed_data';

import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  final transcriber = await Transcriber.load(arguments[0]);
  final file = arguments[1];
  final transcript = await transcriber.transcribe(Sound.file(file), options: {'language': 'en'});
  for (final segment in transcript.segments) {
    print('${segment.start.toStringAsFixed(1)} to ${segment.end.toStringAsFixed(1)} s: ${segment.text}');
  }

  if (arguments.length > 2) {
    // A microphone gives such a stream: 16,000 samples a second, in pieces of any size.
    final live = await transcriber.live(options: {'vad': arguments[2], 'language': 'en', 'max_segment_sec': 1.0});
    await for (final text in live.listen(_tenths(file))) {
      if (text.confirmed.isNotEmpty) print('said: ${text.confirmed} (and perhaps: ${text.pending})');
    }
  }
  await transcriber.close();
}

/// A WAV file of 16 bits in pieces of a tenth of a second.
Stream<Int16List> _tenths(String path) async* {
  final samples = Int16List.sublistView(await File(path).readAsBytes(), 44);
  for (var i = 0; i < samples.length; i += 1600) {
    yield Int16List.sublistView(samples, i, i + 1600 > samples.length ? samples.length : i + 1600);
  }
}
