import 'dart:async';
import 'dart:ui';

import 'package:cactus_engine/cactus_engine.dart';
import 'package:flutter/foundation.dart';
import 'package:flutter/services.dart';
import 'package:flutter/widgets.dart';

/// How hot the device is, as iOS tells it.
enum Heat {
  /// As always.
  nominal,

  /// A little.
  fair,

  /// So that the system slows down.
  serious,

  /// So that the application should do nothing.
  critical,
}

/// Tells the library what the system says.
///
/// - Memory is short: what is kept of earlier prompts is forgotten.
/// - The application goes to the background, or the device is hot: models use
///   [quietThreads] threads. Answers stay the same.
/// - The application ends: models are closed.
///
/// iOS suspends an application in the background after some seconds; an answer
/// goes on where it was when the application comes back.
///
/// ```dart
/// final lifecycle = CactusLifecycle()..attach();
/// lifecycle.watch(await Model.load('smollm2'));
/// ```
class CactusLifecycle with WidgetsBindingObserver {
  /// Hints for the models that are watched. [quietThreads] is at least 1.
  CactusLifecycle({this.quietThreads = 1}) : assert(quietThreads >= 1, 'a model needs a thread');

  /// Threads while the application is not seen, or the device is hot.
  final int quietThreads;

  /// The threads of each while nothing is wrong: for prompts, and for generating.
  final _models = <Model, (int, int)>{};
  StreamSubscription<Object?>? _heat;
  var _isHidden = false;
  var _isHot = false;

  /// Whether models use [quietThreads] threads now.
  bool get isQuiet => _isHidden || _isHot;

  /// Begins to listen to the system.
  void attach() {
    WidgetsBinding.instance.addObserver(this);
    if (!kIsWeb && defaultTargetPlatform == TargetPlatform.iOS) {
      const channel = EventChannel('cactus_flutter/heat');
      _heat = channel.receiveBroadcastStream().listen((value) {
        if (value is int && value >= 0 && value < Heat.values.length) didChangeHeat(Heat.values[value]);
      });
    }
  }

  /// Ends that.
  void detach() {
    WidgetsBinding.instance.removeObserver(this);
    unawaited(_heat?.cancel());
  }

  /// Watches a model, until it is closed or [forget] is called.
  void watch(Model model) {
    final info = model.info;
    _models[model] = (info['threads'] as int? ?? 0, info['decode_threads'] as int? ?? 0);
    if (isQuiet) _hint(model);
  }

  /// Watches a model no more.
  void forget(Model model) => _models.remove(model);

  @override
  void didHaveMemoryPressure() => Cactus.memoryPressure();

  @override
  void didChangeAppLifecycleState(AppLifecycleState state) {
    _isHidden = state == AppLifecycleState.hidden || state == AppLifecycleState.paused;
    _hintAll();
  }

  /// Called where the heat of the device changes. On Android, call it from what
  /// your application knows of `PowerManager`'s thermal status.
  void didChangeHeat(Heat heat) {
    _isHot = heat.index >= Heat.serious.index;
    _hintAll();
  }

  @override
  Future<AppExitResponse> didRequestAppExit() async {
    await Future.wait([for (final model in _models.keys) model.close()]);
    _models.clear();
    return AppExitResponse.exit;
  }

  void _hintAll() => _models.keys.toList().forEach(_hint);

  void _hint(Model model) {
    final (threads, decodeThreads) = isQuiet ? (quietThreads, quietThreads) : _models[model]!;
    try {
      model.setThreads(threads: threads, decodeThreads: decodeThreads);
    } on CactusError catch (error) {
      // It was closed meanwhile.
      if (!error.isHandle) rethrow;
      _models.remove(model);
    }
  }
}
