// All examples in one program, so that test.sh compiles once. The first argument is the name of one.
import '../examples/01-install.dart' as install;
import '../examples/02-chat.dart' as chat;
import '../examples/03-stream.dart' as stream;
import '../examples/04-cancel.dart' as cancel;
import '../examples/05-tools.dart' as tools;
import '../examples/06-structured.dart' as structured;
import '../examples/07-picture-or-sound.dart' as picture_or_sound;
import '../examples/08-transcribe.dart' as transcribe;
import '../examples/09-embed-and-search.dart' as embed_and_search;
import '../examples/10-offline-and-lifecycle.dart' as offline_and_lifecycle;
import '../examples/11-hybrid.dart' as hybrid;

Future<void> main(List<String> arguments) {
  final rest = arguments.sublist(1);
  return switch (arguments.first) {
    '01-install' => install.main(rest),
    '02-chat' => chat.main(rest),
    '03-stream' => stream.main(rest),
    '04-cancel' => cancel.main(rest),
    '05-tools' => tools.main(rest),
    '06-structured' => structured.main(rest),
    '07-picture-or-sound' => picture_or_sound.main(rest),
    '08-transcribe' => transcribe.main(rest),
    '09-embed-and-search' => embed_and_search.main(rest),
    '10-offline-and-lifecycle' => offline_and_lifecycle.main(rest),
    '11-hybrid' => hybrid.main(rest),
    final other => throw ArgumentError('there is no example $other'),
  };
}
