// Says whether the library was found as a code asset. test.sh compiles it with one.
import 'package:cactus_engine/cactus_engine.dart';
import 'package:cactus_engine/src/raw_bundled.g.dart';

void main() {
  bundled('cactus_abi_version');
  print('bundled: ABI ${Cactus.abiVersion}');
}
