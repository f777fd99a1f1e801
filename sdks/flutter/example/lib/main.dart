// A chat of one screen. Its models come from `Model.load`; the build hook of cactus_engine brings the library.
import 'package:cactus_flutter/cactus_flutter.dart';
import 'package:flutter/material.dart';

void main() => runApp(const MaterialApp(home: Chat(model: 'smollm2')));

/// One conversation.
class Chat extends StatefulWidget {
  /// A chat with a model by its name or path.
  const Chat({required this.model, super.key});

  /// The model's name or path.
  final String model;

  @override
  State<Chat> createState() => _ChatState();
}

class _ChatState extends State<Chat> {
  final _lifecycle = CactusLifecycle();
  final _input = TextEditingController();
  final _said = <String>[];
  late final Future<Model> _loading = Model.load(widget.model, onProgress: _onProgress);
  Session? _session;
  String _state = 'Loading';
  String? _question;

  @override
  void initState() {
    super.initState();
    _lifecycle.attach();
    _open();
  }

  Future<void> _open() async {
    try {
      final model = await _loading;
      _lifecycle.watch(model);
      final session = await model.session();
      if (mounted) setState(() => _session = session);
    } on CactusError catch (error) {
      if (mounted) setState(() => _state = error.message);
    }
  }

  void _onProgress(Progress progress) {
    if (!mounted) return progress.stop();
    setState(() => _state = '${progress.stage} ${progress.what}');
  }

  @override
  void dispose() {
    _lifecycle.detach();
    _input.dispose();
    // Whatever is under way is cancelled, on a helper isolate.
    _loading.then((model) => model.close()).ignore();
    super.dispose();
  }

  void _ask(String text) {
    if (text.isEmpty || _question != null) return;
    _input.clear();
    setState(() {
      _said.add(text);
      _question = text;
    });
  }

  @override
  Widget build(BuildContext context) {
    final session = _session;
    if (session == null) return Scaffold(body: Center(child: Text(_state)));
    return Scaffold(
      body: SafeArea(
        child: Column(
          children: [
            Expanded(
              child: ListView(
                padding: const EdgeInsets.all(16),
                children: [
                  for (final text in _said) Text(text),
                  if (_question case final question?)
                    AnswerBuilder(
                      request: question,
                      start: () => session.stream(question),
                      builder: (context, answer) => Text(answer.error?.message ?? answer.text),
                      onEnd: (answer) => setState(() {
                        _said.add(answer.error?.message ?? answer.text);
                        _question = null;
                      }),
                    ),
                ],
              ),
            ),
            TextField(controller: _input, onSubmitted: _ask),
          ],
        ),
      ),
    );
  }
}
