// Made by `cargo xtask sdks` of crates/ffi/abi.json; do not edit.
// dart format off

/// The functions of `cactus.h` where a build hook has brought the library.
@DefaultAsset('package:cactus_engine/cactus')
library;

import 'dart:ffi';

import 'raw.g.dart';

@Native<Pointer<Char> Function()>(symbol: 'cactus_version')
external Pointer<Char> _version();

@Native<Uint32 Function()>(symbol: 'cactus_abi_version')
external int _abiVersion();

@Native<Int Function(Pointer<CactusError> error)>(symbol: 'cactus_last_error')
external int _lastError(Pointer<CactusError> error);

@Native<Void Function()>(symbol: 'cactus_clear_error')
external void _clearError();

@Native<Void Function(Pointer<Char> string)>(symbol: 'cactus_string_free')
external void _stringFree(Pointer<Char> string);

@Native<Pointer<Char> Function(Int32 code)>(symbol: 'cactus_error_kind')
external Pointer<Char> _errorKind(int code);

@Native<Int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<CactusModel>> model)>(symbol: 'cactus_model_load')
external int _modelLoad(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<CactusModel>> model);

@Native<Int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<Char>> path)>(symbol: 'cactus_model_prepare')
external int _modelPrepare(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<Char>> path);

@Native<Int Function(Pointer<CactusModel> model)>(symbol: 'cactus_model_close')
external int _modelClose(Pointer<CactusModel> model);

@Native<Int Function(Pointer<CactusModel> model, Pointer<Pointer<Char>> infoJson)>(symbol: 'cactus_model_info')
external int _modelInfo(Pointer<CactusModel> model, Pointer<Pointer<Char>> infoJson);

@Native<Int Function(Pointer<CactusModel> model, Pointer<Char> text, Bool special, Pointer<Pointer<Uint32>> tokens, Pointer<Size> count)>(symbol: 'cactus_model_tokenize')
external int _modelTokenize(Pointer<CactusModel> model, Pointer<Char> text, bool special, Pointer<Pointer<Uint32>> tokens, Pointer<Size> count);

@Native<Void Function(Pointer<Uint32> tokens, Size count)>(symbol: 'cactus_tokens_free')
external void _tokensFree(Pointer<Uint32> tokens, int count);

@Native<Int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, Size count, Bool special, Pointer<Pointer<Char>> text)>(symbol: 'cactus_model_detokenize')
external int _modelDetokenize(Pointer<CactusModel> model, Pointer<Uint32> tokens, int count, bool special, Pointer<Pointer<Char>> text);

@Native<Int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, Size count, Size first, Pointer<Pointer<Char>> scoreJson)>(symbol: 'cactus_model_score')
external int _modelScore(Pointer<CactusModel> model, Pointer<Uint32> tokens, int count, int first, Pointer<Pointer<Char>> scoreJson);

@Native<Int Function(Pointer<CactusModel> model, Size threads, Size decodeThreads)>(symbol: 'cactus_model_set_threads')
external int _modelSetThreads(Pointer<CactusModel> model, int threads, int decodeThreads);

@Native<Void Function()>(symbol: 'cactus_memory_pressure')
external void _memoryPressure();

@Native<Int Function(Pointer<Char> path, Bool verify, Pointer<Pointer<Char>> reportJson)>(symbol: 'cactus_check_bundle')
external int _checkBundle(Pointer<Char> path, bool verify, Pointer<Pointer<Char>> reportJson);

@Native<Int Function(Pointer<CactusModel> model, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>(symbol: 'cactus_request_start')
external int _requestStart(Pointer<CactusModel> model, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request);

@Native<Int Function(Pointer<CactusRequest> request, Int64 timeoutMs, Pointer<Pointer<Char>> eventJson, Pointer<Bool> over)>(symbol: 'cactus_request_next')
external int _requestNext(Pointer<CactusRequest> request, int timeoutMs, Pointer<Pointer<Char>> eventJson, Pointer<Bool> over);

@Native<Int Function(Pointer<CactusRequest> request, Pointer<Pointer<Char>> resultJson)>(symbol: 'cactus_request_wait')
external int _requestWait(Pointer<CactusRequest> request, Pointer<Pointer<Char>> resultJson);

@Native<Int Function(Pointer<CactusRequest> request)>(symbol: 'cactus_request_cancel')
external int _requestCancel(Pointer<CactusRequest> request);

@Native<Int Function(Pointer<CactusRequest> request, Bool yes)>(symbol: 'cactus_request_consent')
external int _requestConsent(Pointer<CactusRequest> request, bool yes);

@Native<Int Function(Pointer<CactusRequest> request)>(symbol: 'cactus_request_close')
external int _requestClose(Pointer<CactusRequest> request);

@Native<Int Function(Pointer<CactusModel> model, Pointer<Char> defaultsJson, Pointer<Pointer<CactusSession>> session)>(symbol: 'cactus_session_open')
external int _sessionOpen(Pointer<CactusModel> model, Pointer<Char> defaultsJson, Pointer<Pointer<CactusSession>> session);

@Native<Int Function(Pointer<CactusSession> session, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>(symbol: 'cactus_session_send')
external int _sessionSend(Pointer<CactusSession> session, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request);

@Native<Int Function(Pointer<CactusSession> session, Pointer<Pointer<Char>> messagesJson)>(symbol: 'cactus_session_messages')
external int _sessionMessages(Pointer<CactusSession> session, Pointer<Pointer<Char>> messagesJson);

@Native<Int Function(Pointer<CactusSession> session)>(symbol: 'cactus_session_close')
external int _sessionClose(Pointer<CactusSession> session);

@Native<Int Function(Pointer<Void> model, Pointer<Char> text, Pointer<Float> embeddingsBuffer, Size bufferSize, Pointer<Size> embeddingDim, Bool normalize)>(symbol: 'cactus_embed')
external int _embed(Pointer<Void> model, Pointer<Char> text, Pointer<Float> embeddingsBuffer, int bufferSize, Pointer<Size> embeddingDim, bool normalize);

@Native<Int Function(Pointer<Void> model, Pointer<Char> imagePath, Pointer<Float> embeddingsBuffer, Size bufferSize, Pointer<Size> embeddingDim)>(symbol: 'cactus_image_embed')
external int _imageEmbed(Pointer<Void> model, Pointer<Char> imagePath, Pointer<Float> embeddingsBuffer, int bufferSize, Pointer<Size> embeddingDim);

@Native<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> prompt, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusTokenCallback>> callback, Pointer<Void> userData, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>(symbol: 'cactus_transcribe')
external int _transcribe(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> prompt, Pointer<Char> responseBuffer, int bufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusTokenCallback>> callback, Pointer<Void> userData, Pointer<Uint8> pcmBuffer, int pcmBufferSize);

@Native<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>(symbol: 'cactus_detect_language')
external int _detectLanguage(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, int bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, int pcmBufferSize);

@Native<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>(symbol: 'cactus_vad')
external int _vad(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, int bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, int pcmBufferSize);

@Native<Pointer<Void> Function(Pointer<Char> indexDir, Size embeddingDim)>(symbol: 'cactus_index_init')
external Pointer<Void> _indexInit(Pointer<Char> indexDir, int embeddingDim);

@Native<Int Function(Pointer<Void> index, Pointer<Int> ids, Pointer<Pointer<Char>> documents, Pointer<Pointer<Char>> metadatas, Pointer<Pointer<Float>> embeddings, Size count, Size embeddingDim)>(symbol: 'cactus_index_add')
external int _indexAdd(Pointer<Void> index, Pointer<Int> ids, Pointer<Pointer<Char>> documents, Pointer<Pointer<Char>> metadatas, Pointer<Pointer<Float>> embeddings, int count, int embeddingDim);

@Native<Int Function(Pointer<Void> index, Pointer<Int> ids, Size idsCount)>(symbol: 'cactus_index_delete')
external int _indexDelete(Pointer<Void> index, Pointer<Int> ids, int idsCount);

@Native<Int Function(Pointer<Void> index, Pointer<Int> ids, Size idsCount, Pointer<Pointer<Char>> documentBuffers, Pointer<Size> documentBufferSizes, Pointer<Pointer<Char>> metadataBuffers, Pointer<Size> metadataBufferSizes, Pointer<Pointer<Float>> embeddingBuffers, Pointer<Size> embeddingBufferSizes)>(symbol: 'cactus_index_get')
external int _indexGet(Pointer<Void> index, Pointer<Int> ids, int idsCount, Pointer<Pointer<Char>> documentBuffers, Pointer<Size> documentBufferSizes, Pointer<Pointer<Char>> metadataBuffers, Pointer<Size> metadataBufferSizes, Pointer<Pointer<Float>> embeddingBuffers, Pointer<Size> embeddingBufferSizes);

@Native<Int Function(Pointer<Void> index, Pointer<Pointer<Float>> embeddings, Size embeddingsCount, Size embeddingDim, Pointer<Char> optionsJson, Pointer<Pointer<Int>> idBuffers, Pointer<Size> idBufferSizes, Pointer<Pointer<Float>> scoreBuffers, Pointer<Size> scoreBufferSizes)>(symbol: 'cactus_index_query')
external int _indexQuery(Pointer<Void> index, Pointer<Pointer<Float>> embeddings, int embeddingsCount, int embeddingDim, Pointer<Char> optionsJson, Pointer<Pointer<Int>> idBuffers, Pointer<Size> idBufferSizes, Pointer<Pointer<Float>> scoreBuffers, Pointer<Size> scoreBufferSizes);

@Native<Int Function(Pointer<Void> index)>(symbol: 'cactus_index_compact')
external int _indexCompact(Pointer<Void> index);

@Native<Void Function(Pointer<Void> index)>(symbol: 'cactus_index_destroy')
external void _indexDestroy(Pointer<Void> index);

@Native<Pointer<Void> Function(Pointer<Void> model, Pointer<Char> optionsJson)>(symbol: 'cactus_stream_transcribe_start')
external Pointer<Void> _streamTranscribeStart(Pointer<Void> model, Pointer<Char> optionsJson);

@Native<Int Function(Pointer<Void> stream, Pointer<Uint8> pcmBuffer, Size pcmBufferSize, Pointer<Char> responseBuffer, Size bufferSize)>(symbol: 'cactus_stream_transcribe_process')
external int _streamTranscribeProcess(Pointer<Void> stream, Pointer<Uint8> pcmBuffer, int pcmBufferSize, Pointer<Char> responseBuffer, int bufferSize);

@Native<Int Function(Pointer<Void> stream, Pointer<Char> responseBuffer, Size bufferSize)>(symbol: 'cactus_stream_transcribe_stop')
external int _streamTranscribeStop(Pointer<Void> stream, Pointer<Char> responseBuffer, int bufferSize);

@Native<Pointer<Void> Function(Pointer<Char> modelPath, Pointer<Char> corpusDir, Bool cacheIndex)>(symbol: 'cactus_init')
external Pointer<Void> _init(Pointer<Char> modelPath, Pointer<Char> corpusDir, bool cacheIndex);

@Native<Void Function(Pointer<Void> model)>(symbol: 'cactus_destroy')
external void _destroy(Pointer<Void> model);

@Native<Void Function(Pointer<Void> model)>(symbol: 'cactus_stop')
external void _stop(Pointer<Void> model);

@Native<Void Function(Int level)>(symbol: 'cactus_log_set_level')
external void _logSetLevel(int level);

@Native<Void Function(Pointer<NativeFunction<CactusLogCallback>> callback, Pointer<Void> userData)>(symbol: 'cactus_log_set_callback')
external void _logSetCallback(Pointer<NativeFunction<CactusLogCallback>> callback, Pointer<Void> userData);

@Native<Int Function(Pointer<Void> model, Pointer<Char> query, Pointer<Char> responseBuffer, Size bufferSize, Size topK)>(symbol: 'cactus_rag_query')
external int _ragQuery(Pointer<Void> model, Pointer<Char> query, Pointer<Char> responseBuffer, int bufferSize, int topK);

@Native<Int Function(Pointer<Void> model, Pointer<Char> messagesJson, Pointer<Char> optionsJson, Pointer<Char> toolsJson, Pointer<Char> buffer, Size bufferSize)>(symbol: 'cactus_render_prompt')
external int _renderPrompt(Pointer<Void> model, Pointer<Char> messagesJson, Pointer<Char> optionsJson, Pointer<Char> toolsJson, Pointer<Char> buffer, int bufferSize);

@Native<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Uint8> pcmBuffer, Size pcmBufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>(symbol: 'cactus_transcription_start')
external int _transcriptionStart(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Uint8> pcmBuffer, int pcmBufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request);

@Native<Int Function(Pointer<CactusModel> model, Pointer<Char> policyToml, Pointer<Char> optionsJson)>(symbol: 'cactus_model_set_policy')
external int _modelSetPolicy(Pointer<CactusModel> model, Pointer<Char> policyToml, Pointer<Char> optionsJson);

/// Finds a function in the asset.
///
/// Throws an [ArgumentError] where the application has none, or the asset lacks it.
Pointer<T> bundled<T extends NativeType>(String name) {
  final Pointer<NativeType> found = switch (name) {
    'cactus_version' =>
      Native.addressOf<NativeFunction<Pointer<Char> Function()>>(_version),
    'cactus_abi_version' =>
      Native.addressOf<NativeFunction<Uint32 Function()>>(_abiVersion),
    'cactus_last_error' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusError> error)>>(_lastError),
    'cactus_clear_error' =>
      Native.addressOf<NativeFunction<Void Function()>>(_clearError),
    'cactus_string_free' =>
      Native.addressOf<NativeFunction<Void Function(Pointer<Char> string)>>(_stringFree),
    'cactus_error_kind' =>
      Native.addressOf<NativeFunction<Pointer<Char> Function(Int32 code)>>(_errorKind),
    'cactus_model_load' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<CactusModel>> model)>>(_modelLoad),
    'cactus_model_prepare' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<Char>> path)>>(_modelPrepare),
    'cactus_model_close' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model)>>(_modelClose),
    'cactus_model_info' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Pointer<Char>> infoJson)>>(_modelInfo),
    'cactus_model_tokenize' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> text, Bool special, Pointer<Pointer<Uint32>> tokens, Pointer<Size> count)>>(_modelTokenize),
    'cactus_tokens_free' =>
      Native.addressOf<NativeFunction<Void Function(Pointer<Uint32> tokens, Size count)>>(_tokensFree),
    'cactus_model_detokenize' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, Size count, Bool special, Pointer<Pointer<Char>> text)>>(_modelDetokenize),
    'cactus_model_score' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, Size count, Size first, Pointer<Pointer<Char>> scoreJson)>>(_modelScore),
    'cactus_model_set_threads' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Size threads, Size decodeThreads)>>(_modelSetThreads),
    'cactus_memory_pressure' =>
      Native.addressOf<NativeFunction<Void Function()>>(_memoryPressure),
    'cactus_check_bundle' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Char> path, Bool verify, Pointer<Pointer<Char>> reportJson)>>(_checkBundle),
    'cactus_request_start' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>>(_requestStart),
    'cactus_request_next' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusRequest> request, Int64 timeoutMs, Pointer<Pointer<Char>> eventJson, Pointer<Bool> over)>>(_requestNext),
    'cactus_request_wait' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusRequest> request, Pointer<Pointer<Char>> resultJson)>>(_requestWait),
    'cactus_request_cancel' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusRequest> request)>>(_requestCancel),
    'cactus_request_consent' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusRequest> request, Bool yes)>>(_requestConsent),
    'cactus_request_close' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusRequest> request)>>(_requestClose),
    'cactus_session_open' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> defaultsJson, Pointer<Pointer<CactusSession>> session)>>(_sessionOpen),
    'cactus_session_send' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusSession> session, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>>(_sessionSend),
    'cactus_session_messages' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusSession> session, Pointer<Pointer<Char>> messagesJson)>>(_sessionMessages),
    'cactus_session_close' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusSession> session)>>(_sessionClose),
    'cactus_embed' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> text, Pointer<Float> embeddingsBuffer, Size bufferSize, Pointer<Size> embeddingDim, Bool normalize)>>(_embed),
    'cactus_image_embed' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> imagePath, Pointer<Float> embeddingsBuffer, Size bufferSize, Pointer<Size> embeddingDim)>>(_imageEmbed),
    'cactus_transcribe' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> prompt, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusTokenCallback>> callback, Pointer<Void> userData, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>>(_transcribe),
    'cactus_detect_language' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>>(_detectLanguage),
    'cactus_vad' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>>(_vad),
    'cactus_index_init' =>
      Native.addressOf<NativeFunction<Pointer<Void> Function(Pointer<Char> indexDir, Size embeddingDim)>>(_indexInit),
    'cactus_index_add' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> index, Pointer<Int> ids, Pointer<Pointer<Char>> documents, Pointer<Pointer<Char>> metadatas, Pointer<Pointer<Float>> embeddings, Size count, Size embeddingDim)>>(_indexAdd),
    'cactus_index_delete' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> index, Pointer<Int> ids, Size idsCount)>>(_indexDelete),
    'cactus_index_get' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> index, Pointer<Int> ids, Size idsCount, Pointer<Pointer<Char>> documentBuffers, Pointer<Size> documentBufferSizes, Pointer<Pointer<Char>> metadataBuffers, Pointer<Size> metadataBufferSizes, Pointer<Pointer<Float>> embeddingBuffers, Pointer<Size> embeddingBufferSizes)>>(_indexGet),
    'cactus_index_query' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> index, Pointer<Pointer<Float>> embeddings, Size embeddingsCount, Size embeddingDim, Pointer<Char> optionsJson, Pointer<Pointer<Int>> idBuffers, Pointer<Size> idBufferSizes, Pointer<Pointer<Float>> scoreBuffers, Pointer<Size> scoreBufferSizes)>>(_indexQuery),
    'cactus_index_compact' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> index)>>(_indexCompact),
    'cactus_index_destroy' =>
      Native.addressOf<NativeFunction<Void Function(Pointer<Void> index)>>(_indexDestroy),
    'cactus_stream_transcribe_start' =>
      Native.addressOf<NativeFunction<Pointer<Void> Function(Pointer<Void> model, Pointer<Char> optionsJson)>>(_streamTranscribeStart),
    'cactus_stream_transcribe_process' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> stream, Pointer<Uint8> pcmBuffer, Size pcmBufferSize, Pointer<Char> responseBuffer, Size bufferSize)>>(_streamTranscribeProcess),
    'cactus_stream_transcribe_stop' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> stream, Pointer<Char> responseBuffer, Size bufferSize)>>(_streamTranscribeStop),
    'cactus_init' =>
      Native.addressOf<NativeFunction<Pointer<Void> Function(Pointer<Char> modelPath, Pointer<Char> corpusDir, Bool cacheIndex)>>(_init),
    'cactus_destroy' =>
      Native.addressOf<NativeFunction<Void Function(Pointer<Void> model)>>(_destroy),
    'cactus_stop' =>
      Native.addressOf<NativeFunction<Void Function(Pointer<Void> model)>>(_stop),
    'cactus_log_set_level' =>
      Native.addressOf<NativeFunction<Void Function(Int level)>>(_logSetLevel),
    'cactus_log_set_callback' =>
      Native.addressOf<NativeFunction<Void Function(Pointer<NativeFunction<CactusLogCallback>> callback, Pointer<Void> userData)>>(_logSetCallback),
    'cactus_rag_query' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> query, Pointer<Char> responseBuffer, Size bufferSize, Size topK)>>(_ragQuery),
    'cactus_render_prompt' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> messagesJson, Pointer<Char> optionsJson, Pointer<Char> toolsJson, Pointer<Char> buffer, Size bufferSize)>>(_renderPrompt),
    'cactus_transcription_start' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Uint8> pcmBuffer, Size pcmBufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>>(_transcriptionStart),
    'cactus_model_set_policy' =>
      Native.addressOf<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> policyToml, Pointer<Char> optionsJson)>>(_modelSetPolicy),
    _ => throw ArgumentError.value(name, 'name', 'is no function of the library'),
  };
  return found.cast<T>();
}
