// Says whether the library is there, and what it thinks of a bundle.
//
//     dart run examples/01-install.dart BUNDLE
import 'package:cactus_engine/cactus_engine.dart';

Future<void> main(List<String> arguments) async {
  print('Cactus ${Cactus.version}, ABI ${Cactus.abiVersion}');
  final report = await Cactus.checkBundle(arguments.single, verify: true);
  print(report['usable'] == true ? 'The bundle can be used.' : 'It cannot be used: ${report['message']}');
}
