import 'dart:async';
import 'dart:convert';

import 'answer.dart';
import 'backend.dart';
import 'error.dart';
import 'event.dart';
import 'request.dart';
import 'schema.dart';
import 'tool.dart';

/// How a model is got and run. What is not given is the library's own.
final class ModelOptions {
  /// Options. [more] has those that have no name here.
  const ModelOptions({
    this.contextTokens,
    this.threads,
    this.decodeThreads,
    this.bits,
    this.offline,
    this.cache,
    this.token,
    this.more = const {},
  });

  /// Tokens of prompt and answer together.
  final int? contextTokens;

  /// Threads for prompts.
  final int? threads;

  /// Threads for generating.
  final int? decodeThreads;

  /// Bits for each weight of a model that is converted.
  final int? bits;

  /// Use what is on this device alone.
  final bool? offline;

  /// The folder where models that were downloaded are kept.
  final String? cache;

  /// A token of the Hugging Face hub.
  final String? token;

  /// Other options, by the names of the C library.
  final Json more;

  /// The options as JSON.
  Json toJson() => {
    'context_tokens': ?contextTokens,
    'threads': ?threads,
    'decode_threads': ?decodeThreads,
    'bits': ?bits,
    'offline': ?offline,
    'cache': ?cache,
    'token': ?token,
    ...more,
  };
}

/// A step on the way to a model.
final class Progress {
  /// A step; the function is what [stop] does.
  const Progress(this.stage, this.what, this.done, this.total, this._onStop);

  /// What is being done: `downloading`, `converting`, `loading` and so on, or
  /// `note`, which a person should read.
  final String stage;

  /// What it is about: a model, a file, a text.
  final String what;

  /// How much of it is done.
  final int done;

  /// Of how much; 0 where that is not known.
  final int total;

  final void Function() _onStop;

  /// [done] of [total], from 0 to 1, where it is known.
  double? get fraction => total > 0 ? done / total : null;

  /// Stops it, within seconds: the call fails with the kind `cancelled`. What
  /// was downloaded is kept. Behind the end of the call it does nothing.
  void stop() => _onStop();
}

/// Hears of each step.
typedef OnProgress = void Function(Progress progress);

/// Asks a person whether something may leave the device.
typedef OnConsent = FutureOr<bool> Function(ConsentEvent question);

/// What answers: a [Model], or a [Session] of it.
abstract class Answering {
  /// For the package alone.
  const Answering();

  /// Asks, and gives what happens until the end.
  ///
  /// It begins when somebody listens. Leaving the stream cancels the answer. A
  /// paused stream is not read on; the model goes on meanwhile.
  ///
  /// Texts that come in one turn of the event loop are joined, unless
  /// [joinText] is false. [onConsent] answers a [ConsentEvent] when it has
  /// time; without it, the listener answers with [AnswerStream.consent] before
  /// it returns, and else nothing leaves.
  AnswerStream stream(Object request, {bool joinText = true, OnConsent? onConsent});

  /// Asks, and waits for the whole answer.
  ///
  /// Throws a [CactusError] where it failed. To cancel it, use [stream] and its
  /// [AnswerStream.answer].
  Future<Answer> respond(Object request, {OnConsent? onConsent}) => stream(request, onConsent: onConsent).answer;

  /// Asks for a value of the form [form].
  ///
  /// The model cannot but keep to the schema. Where the answer ended before it
  /// was whole, this throws a [CactusError] of the kind `cancelled`.
  Future<T> respondAs<T>(Object request, Form<T> form, {OnConsent? onConsent}) async {
    final json = {...Request.jsonOf(request), 'schema': form.schema.toJson()};
    final answer = await respond(json, onConsent: onConsent);
    return form.read(_valueOf(answer));
  }

  static Object? _valueOf(Answer answer) {
    final cut = 'the answer ended (${answer.finishReason}) before it was whole';
    if (!answer.isWhole) throw CactusError(-11, 'cancelled', cut);
    try {
      return jsonDecode(answer.text);
    } on FormatException catch (error) {
      throw CactusError(-11, 'cancelled', '$cut: ${error.message}');
    }
  }

  /// Asks, calls the [tools] that the model wants, and asks again with what
  /// they gave, until it wants none.
  ///
  /// After [mostRounds] rounds of calls the next answer is the last, even if it
  /// wants more. [confirm] is asked before each call; the model learns of a no,
  /// and of what a tool throws. No tool is called for an answer that was
  /// cancelled.
  Future<Answer> respondWithTools(
    Object request,
    List<Tool> tools, {
    int mostRounds = 8,
    ConfirmCall? confirm,
    OnConsent? onConsent,
  }) async {
    final byName = {for (final tool in tools) tool.name: tool};
    var json = {
      ...Request.jsonOf(request),
      'tools': [for (final tool in tools) tool.toJson()],
    };
    for (var round = 0; ; round++) {
      final answer = await respond(json, onConsent: onConsent);
      final calls = answer.toolCalls;
      if (calls.isEmpty || answer.isCancelled || round >= mostRounds) return answer;
      final results = <Json>[];
      for (final call in calls) {
        results.add(Message.toolResult(call.id, await _called(call, byName[call.name], confirm)).json);
      }
      json = followUp(json, answer, results);
    }
  }

  /// What the model reads of a call.
  static Future<String> _called(ToolCall call, Tool? tool, ConfirmCall? confirm) async {
    if (tool == null) return 'error: there is no tool `${call.name}`';
    try {
      call.arguments;
    } on CactusError catch (error) {
      return 'error: ${error.message}';
    }
    if (confirm != null && !await confirm(call)) return 'error: the call was refused';
    return tool.call(call);
  }

  /// The request that comes after [answer], with what its calls gave.
  Json followUp(Json request, Answer answer, List<Json> results);
}

/// What happens to a request, until its end.
///
/// A stream has one listener. It ends with exactly one [LastEvent]; an error
/// comes in its place where the request was refused, or was closed.
abstract class AnswerStream extends Stream<Event> {
  /// For the package alone.
  AnswerStream();

  /// The whole answer. Where nobody listens, this does.
  ///
  /// Throws a [CactusError] where the request failed, or was left before its
  /// end. One that was cancelled gives an answer as far as it came.
  Future<Answer> get answer;

  /// Begins now, before somebody listens. Ends when the library has taken the
  /// request, and throws where it refuses it.
  Future<void> begin();

  /// Asks it to stop. It ends within a token, with a [CancelledEvent]. May be
  /// called at any time, and again.
  void cancel();

  /// Answers a [ConsentEvent]: whether what it lists may leave.
  void consent(bool yes);

  /// Cancels it, and waits until nothing of it runs. May be called again.
  Future<void> close();

  /// The texts alone, without reasoning. Throws where the request failed.
  Stream<String> get texts => transform(
    StreamTransformer.fromHandlers(
      handleData: (event, sink) {
        switch (event) {
          case TextEvent(:final text):
            sink.add(text);
          case FailedEvent(:final error):
            sink.addError(error);
          default:
        }
      },
    ),
  );
}

/// A loaded model.
///
/// Any number of requests may be under way at once; they are computed together.
/// Nothing here blocks the isolate that calls. [close] it in the end.
abstract class Model extends Answering {
  /// For the package alone.
  const Model();

  /// Loads a model: the folder of a bundle, a GGUF file, an address
  /// (`https://`) of either, a Hugging Face folder or id, or a known name.
  /// What is not on this device is downloaded and converted, unless `offline`.
  ///
  /// With a folder of [documents] the model answers from these; [options] that
  /// say how a model is run cannot be given then.
  static Future<Model> load(
    String source, {
    ModelOptions options = const ModelOptions(),
    OnProgress? onProgress,
    String? documents,
  }) => backend.loadModel(source, options.toJson(), onProgress, documents);

  /// As [load], without loading: gives the folder of the bundle.
  static Future<String> prepare(String source, {ModelOptions options = const ModelOptions(), OnProgress? onProgress}) =>
      backend.prepareModel(source, options.toJson(), onProgress);

  /// What is known of the model, and what it has done.
  Json get info;

  /// Its documents, where it was loaded with some.
  Documents? get documents;

  /// Token ids of a text; with [special], with those that the model puts around.
  Future<List<int>> tokenize(String text, {bool special = false});

  /// The text of token ids; with [special], special ones are spelled out.
  Future<String> detokenize(List<int> tokens, {bool special = false});

  /// How likely the tokens from [first] on are: `logprob`, `tokens`,
  /// `logprobs`.
  Future<Json> score(List<int> tokens, {int first = 1});

  /// Uses at most so many threads from now on; 0 leaves them as they are. For a
  /// device that gets hot.
  void setThreads({int threads = 0, int decodeThreads = 0});

  /// Says who else may answer, what may leave for it, and for how much: the
  /// text of a policy file, [options] as JSON (`target`, `key`, `keys`,
  /// `handoff`, `budget`, `consent`, `state`), or both. With neither, the model
  /// answers alone again.
  Future<void> setPolicy({String? policy, Json? options});

  /// Opens a conversation. [defaults] are messages to begin with, and fields of
  /// every request: a [Request], or JSON.
  Future<Session> session([Object? defaults]);

  /// Cancels what is under way, waits for it, and frees the model. May be called
  /// again.
  Future<void> close();

  @override
  Json followUp(Json request, Answer answer, List<Json> results) => {
    ...request,
    'messages': [...request['messages'] as List<Object?>? ?? const [], answer.message, ...results],
  };
}

/// A conversation, which remembers its messages. One request at a time.
///
/// A request is what is added: a `String` that the user says, or messages and
/// other fields.
abstract class Session extends Answering {
  /// For the package alone.
  const Session();

  /// The messages so far. [Model.session] takes them back, as `messages`.
  List<Json> get messages;

  /// Cancels what is under way, waits for it, and closes the conversation. May
  /// be called again.
  Future<void> close();

  @override
  Json followUp(Json request, Answer answer, List<Json> results) => {...request, 'messages': results};
}

/// A folder of documents.
abstract class Documents {
  /// For the package alone.
  const Documents();

  /// The [count] pieces nearest to a question, the best first: `source`,
  /// `content`, `score` and so on.
  Future<List<Json>> query(String text, {int count = 5});
}
