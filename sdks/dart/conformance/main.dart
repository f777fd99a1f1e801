import 'runner.dart';

Future<void> main(List<String> arguments) => runPlan(arguments[0], arguments[1]);
