/// Vectors, indexes, documents, recordings, pictures.
library;

import 'dart:async';
import 'dart:io';
import 'dart:math';
import 'dart:typed_data';

import 'package:cactus_engine/cactus_engine.dart';

import 'harness.dart';
import 'support.dart';

double _length(Float32List vector) => sqrt(vector.fold(0.0, (sum, x) => sum + x * x));

void main() {
  group('vectors', () {
    test('of texts are the same alone and together', () async {
      final embedder = await Embedder.load(bundle('embeds'));
      addTearDown(embedder.close);
      final texts = ['the river is quick', 'bread', 'the word'];
      final all = await embedder.embedAll(texts);
      for (final (i, text) in texts.indexed) {
        expect(await embedder.embed(text), all[i]);
        expect(_length(all[i]), closeTo(1, 1e-4));
      }
      expect(await embedder.embedAll([]), isEmpty);
      await embedder.close();
      expect((await thrown<CactusError>(() => embedder.embed('x'))).kind, 'handle');
    });

    test('of pictures lie beside those of texts', () async {
      final embedder = await Embedder.load(bundle('pictures'));
      addTearDown(embedder.close);
      final picture = await embedder.embedImage('$golden/pictures/files/rgba.png');
      expect(picture.length, (await embedder.embed('a picture')).length);
      await thrown<CactusError>(() => embedder.embedImage('$golden/README.md'));
    });

    test('an index keeps documents, and finds the nearest', () async {
      final path = '${folder().path}/index';
      final index = await Index.open(path, 2);
      addTearDown(index.close);
      Float32List at(double x, double y) => Float32List.fromList([x, y]);
      final long = 'grüße ' * 3000;
      await index.add([
        Document(1, 'one', at(1, 0), metadata: '{"year": 1}'),
        Document(-2, long, at(0.6, 0.8)),
        Document(3, '', at(-1, 0)),
      ]);
      final hits = await index.query(at(1, 0), count: 2);
      expect([for (final hit in hits) hit.id], [1, -2]);
      expect(hits.first.score, closeTo(1, 0.01));
      final both = await index.queryAll([at(1, 0), at(0, 1)], options: {'score_threshold': 0.5});
      expect([for (final hits in both) hits.length], [2, 1]);
      final [second, first] = await index.get([-2, 1]);
      expect((second.text, second.metadata), (long, null));
      expect((first.text, first.metadata, first.vector.length), ('one', '{"year": 1}', 2));
      final again = await thrown<CactusError>(() => index.add([Document(1, 'again', at(0, 1))]));
      expect(again.kind, 'argument');
      await thrown<CactusError>(() => index.get([77]));
      await thrown<CactusError>(() => index.add([Document(1 << 40, 'far', at(0, 1))]));
      await thrown<CactusError>(() => index.query(at(1, 0), count: 0));
      await index.delete([1, 77]);
      await index.compact();
      expect((await index.query(at(1, 0))).first.id, -2);
      expect(await index.get([]), isEmpty);
      await index.close();
      expect((await thrown<CactusError>(() => index.query(at(1, 0)))).kind, 'handle');
      expect((await thrown<CactusError>(() => Index.open(path, 3))).kind, isNot('handle'));
    });

    test('documents are found by their words and meaning', () async {
      final texts = folder();
      File('${texts.path}/river.md').writeAsStringSync('# Rivers\n\nThe river is quick.\n');
      File('${texts.path}/bread.md').writeAsStringSync('# Bread\n\nBread is baked.\n');
      final embedder = await Embedder.load(bundle('embeds'), documents: texts.path);
      addTearDown(embedder.close);
      final found = await embedder.documents!.query('river', count: 1);
      expect(found.single['content'], contains('river'));
      await thrown<CactusError>(() => embedder.documents!.query('river', count: 0));
    });
  });

  group('recordings', () {
    test('are written down, by file and by samples', () async {
      final transcriber = await Transcriber.load(bundle('hears'));
      addTearDown(transcriber.close);
      final (sound, heard) = (rising(), <String>[]);
      final transcript = await transcriber.transcribe(
        Sound.pcm(sound),
        options: {'language': 'de'},
        onSegment: heard.add,
      );
      expect(transcript.text, isNotEmpty);
      expect(heard.join(), transcript.segments.map((segment) => segment.text).join());
      expect(transcript.segments.last.end, greaterThan(transcript.segments.first.start));
      expect(transcript.language, 'de');
      final file = File('${folder().path}/a.wav')..writeAsBytesSync(_wav(sound));
      final again = await transcriber.transcribe(Sound.file(file.path), options: {'language': 'de'});
      expect(again.text, transcript.text);
      expect((await transcriber.detectLanguage(Sound.pcm(sound)))['language'], isA<String>());
      final wrong = await thrown<CactusError>(
        () => transcriber.transcribe(Sound.pcm(sound), options: {'language': 'xx'}),
      );
      expect(wrong.message, contains('xx'));
      final abort = Completer<void>();
      final long = transcriber.transcribe(
        Sound.pcm(Int16List.fromList([for (var i = 0; i < 150; i++) ...sound])),
        options: {'language': 'de'},
        onSegment: (_) => abort.isCompleted ? null : abort.complete(),
        abortTrigger: abort.future,
      );
      final beside = transcriber.transcribe(Sound.pcm(sound), options: {'language': 'de'});
      expect((await thrown<CactusError>(() => long)).kind, 'cancelled');
      expect((await beside).text, transcript.text);
      await transcriber.close();
      expect((await thrown<CactusError>(() => transcriber.transcribe(Sound.pcm(sound)))).kind, 'handle');
    });

    if (!has('vad')) return;
    test('speech is found, and written down while somebody speaks', () async {
      final finder = await Transcriber.load(bundle('vad'));
      addTearDown(finder.close);
      final sound = _phrases();
      final spans = await finder.speech(Sound.pcm(sound));
      expect(spans, isNotEmpty);
      expect(spans.first.end, greaterThan(spans.first.start));

      final transcriber = await Transcriber.load(bundle('hears'));
      addTearDown(transcriber.close);
      final options = {
        'vad': bundle('vad'),
        'language': 'zh',
        'min_chunk_sec': 0.1,
        'silence_sec': 0.2,
        'max_segment_sec': 1.0,
      };
      Future<(String, List<Json>)> hear(int size) async {
        final live = await transcriber.live(options: options);
        final (text, events) = (StringBuffer(), <Json>[]);
        // Without waiting: they are taken in their order.
        final results = [
          for (var i = 0; i < sound.length; i += size)
            live.push(Int16List.sublistView(sound, i, min(i + size, sound.length))),
          live.finish(),
        ];
        for (final result in await Future.wait(results)) {
          text.write(result.confirmed);
          events.addAll(result.events);
        }
        expect((await thrown<CactusError>(() => live.push(sound))).kind, 'handle');
        await live.close();
        await live.close();
        return ('$text', events);
      }

      final (text, events) = await hear(16000);
      expect(text, isNotEmpty);
      final (again, others) = await hear(4000);
      expect((again, others.length), (text, events.length));

      final live = await transcriber.live(options: options);
      final pieces = Stream.fromIterable([
        for (var i = 0; i < sound.length; i += 8000) Int16List.sublistView(sound, i, min(i + 8000, sound.length)),
      ]);
      expect((await live.listen(pieces).map((result) => result.confirmed).join()), text);
      final left = await transcriber.live(options: options);
      await left.push(Int16List.sublistView(sound, 0, 12000));
      await left.close();
      expect((await thrown<CactusError>(left.finish)).kind, 'handle');
    });
  });

  group('pictures', () {
    test('are answered about', () async {
      final model = await open('sees', const ModelOptions(contextTokens: 1024, threads: 1));
      final picture = File('$golden/pictures/files/rgb.png').readAsBytesSync();
      final answer = await model.respond(
        Request(
          messages: [
            Message.user([Part.image(picture), Part.text('What is it?')]),
          ],
          options: const GenerateOptions(maxTokens: 8, temperature: 0, seed: 1),
        ),
      );
      expect(answer.usage.promptTokens, greaterThan(10));
      expect(answer.tokens, isNotEmpty);
    });
  });
}

/// Silence and a tone by turns, which the detector of the tests hears.
Int16List _phrases() {
  final samples = <int>[];
  for (final (silence, tone) in [(0.5, 0.3), (0.6, 2.2), (0.6, 0.05), (0.6, 0.5)]) {
    samples.addAll(List.filled((silence * 16000).toInt(), 0));
    for (var i = 0; i < (tone * 16000).toInt(); i++) {
      samples.add((0.3 * sin(2 * pi * i * 4 / 256) * 32768).truncate());
    }
  }
  return Int16List.fromList(samples);
}

List<int> _wav(Int16List samples) {
  final data = Uint8List.sublistView(samples);
  final head = ByteData(44)
    ..setUint32(0, 0x52494646)
    ..setUint32(4, 36 + data.length, Endian.little)
    ..setUint32(8, 0x57415645)
    ..setUint32(12, 0x666d7420)
    ..setUint32(16, 16, Endian.little)
    ..setUint16(20, 1, Endian.little)
    ..setUint16(22, 1, Endian.little)
    ..setUint32(24, 16000, Endian.little)
    ..setUint32(28, 32000, Endian.little)
    ..setUint16(32, 2, Endian.little)
    ..setUint16(34, 16, Endian.little)
    ..setUint32(36, 0x64617461)
    ..setUint32(40, data.length, Endian.little);
  return [...head.buffer.asUint8List(), ...data];
}
