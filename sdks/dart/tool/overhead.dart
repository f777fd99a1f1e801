// What streaming costs: microseconds of CPU for an event, over a request that nobody reads before its end.
//
//     python3 tool/target.py 400 5 &      prints TARGET: 400 pieces of text, one every 5 ms, as from a model with 200 tokens a second
//     dart compile exe tool/overhead.dart -o overhead && ./overhead MODEL TARGET
//
// The target is another process, so that its work is not counted. Events that come one by one are the worst case: those of a
// faster model come several at a time.
import 'dart:ffi';
import 'dart:io';

import 'package:cactus_engine/cactus_engine.dart';

final int Function() _cpuMicroseconds = DynamicLibrary.process().lookupFunction<Long Function(), int Function()>(
  'clock',
);

Future<void> main(List<String> arguments) async {
  final [source, target] = arguments;
  final model = await Model.load(source, options: const ModelOptions(threads: 1));
  final state = await Directory.systemTemp.createTemp('cactus');
  final request = {
    'messages': [Message.user('hello').json],
    'options': {'max_tokens': 800},
  };
  await model.setPolicy(
    options: {
      'target': target,
      'handoff': 'always',
      'budget': '1000',
      'consent': ['text'],
      'state': state.path,
    },
  );

  Future<(int, int)> read(bool isWhole) async {
    final stream = model.stream(request, joinText: false);
    final before = _cpuMicroseconds();
    var events = 0;
    if (isWhole) {
      // It goes on while the stream is paused, and all events are there at its end.
      final subscription = stream.listen((_) => events++)..pause();
      await stream.begin();
      await Future<void>.delayed(const Duration(milliseconds: 3000));
      subscription.resume();
      await stream.answer;
      await subscription.cancel();
    } else {
      await for (final _ in stream) {
        events++;
      }
    }
    return (_cpuMicroseconds() - before, events);
  }

  await read(false);
  for (var i = 0; i < 3; i++) {
    final (whole, count) = await read(true);
    final (single, events) = await read(false);
    final each = (single - whole) / events;
    print(
      '$events events: ${(single / 1000).toStringAsFixed(1)} ms of CPU one by one, '
      '${(whole / 1000).toStringAsFixed(1)} ms read at the end ($count); '
      '${each.toStringAsFixed(1)} µs for each event',
    );
  }
  await model.close();
  await state.delete(recursive: true);
}
