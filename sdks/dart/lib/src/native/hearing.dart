import 'dart:convert';
import 'dart:ffi';
import 'dart:isolate';
import 'dart:typed_data';

import 'package:ffi/ffi.dart';

import '../error.dart';
import '../hearing.dart';
import '../raw.g.dart' show CactusRequest;
import 'calls.dart' as calls;
import 'lane.dart';
import 'library.dart';
import 'owned.dart';

/// A recording for a helper isolate, which frees its samples.
calls.Recording _lent(Sound sound) {
  switch (sound) {
    case SoundFile(:final path):
      return (path: path, address: 0, bytes: 0);
    case SoundPcm(:final samples):
      final place = malloc<Int16>(samples.length + 1);
      place.asTypedList(samples.length).setAll(0, samples);
      return (path: null, address: place.address, bytes: samples.length * 2);
  }
}

/// A model that hears.
final class NativeTranscriber extends Transcriber implements Finalizable {
  NativeTranscriber._(Made made) {
    _owned = Owned(made, this);
  }

  late final Owned _owned;

  /// As `Transcriber.load`.
  static Future<NativeTranscriber> load(String bundle) async =>
      NativeTranscriber._(await jobs.run(calls.initModel, (bundle, null)));

  @override
  Future<Transcript> transcribe(
    Sound sound, {
    Json options = const {},
    String? prompt,
    void Function(String text)? onSegment,
    Future<void>? abortTrigger,
  }) async {
    final json = jsonEncode({...options, 'prompt': ?prompt});
    var isAborted = false;
    // A handle that was closed is none of any other request.
    Pointer<CactusRequest>? request;
    final port = RawReceivePort((Object? message) {
      if (message case final int address) {
        final begun = request = Pointer.fromAddress(address);
        if (isAborted) raw.requestCancel(begun);
      } else {
        onSegment?.call(message! as String);
      }
    });
    abortTrigger?.whenComplete(() {
      isAborted = true;
      if (request case final begun?) raw.requestCancel(begun);
    }).ignore();
    try {
      final text = await jobs.run(calls.transcribe, (_owned.handle, _lent(sound), json, port.sendPort));
      return Transcript(decodeObject(text));
    } finally {
      port.close();
    }
  }

  @override
  Future<Json> detectLanguage(Sound sound) async =>
      decodeObject(await jobs.run(calls.detectLanguage, (_owned.handle, _lent(sound))));

  @override
  Future<List<SpeechSpan>> speech(Sound sound, {Json options = const {}}) async {
    final json = await speechJson(sound, options: options);
    return [
      for (final span in json['segments'] as List<Object?>)
        if (span case {'start': final num start, 'end': final num end}) (start: start.toInt(), end: end.toInt()),
    ];
  }

  @override
  Future<Json> speechJson(Sound sound, {Json options = const {}}) async {
    final json = jsonEncode(options);
    return decodeObject(await jobs.run(calls.speech, (_owned.handle, _lent(sound), json)));
  }

  @override
  Future<void> setPolicy({String? policy, Json? options}) async =>
      jobs.run(calls.setPolicy, (_owned.handle, policy, options == null ? null : jsonEncode(options)));

  @override
  Future<LiveTranscription> live({Json options = const {}}) async =>
      NativeLive(await jobs.run(calls.startLive, (_owned.handle, jsonEncode(options))), this);

  @override
  void stop() => raw.stop(_owned.pointer);

  @override
  Future<void> close() => _owned.close();
}

/// Live speech that the library holds.
final class NativeLive extends LiveTranscription implements Finalizable {
  /// What [made] is; [owner] is the model.
  NativeLive(Made made, this.owner) {
    _owned = Owned(made, this);
  }

  /// The model, which lives as long as this.
  final Object owner;
  late final Owned _owned;

  /// The end of the call before, so that samples are taken in their order.
  Future<void> _before = Future.value();

  Future<LiveText> _inTurn(Future<String> Function() call) {
    final result = _before.then((_) async => LiveText(decodeObject(await call())));
    _before = result.then((_) {}, onError: (Object _) {});
    return result;
  }

  @override
  Future<LiveText> push(Int16List samples) {
    // What the caller does with its list afterward makes no difference.
    final taken = Int16List.fromList(samples);
    return _inTurn(() => jobs.run(calls.pushLive, (_owned.handle, _lent(SoundPcm(taken)))));
  }

  @override
  Future<LiveText> finish() => _inTurn(() async {
    if (_owned.isClosed) throw const CactusError.handle('a live transcription');
    try {
      return await jobs.run(calls.finishLive, _owned.handle);
    } finally {
      _owned.released();
    }
  });

  @override
  Future<void> close() async {
    await _owned.close();
    await _before;
  }
}
