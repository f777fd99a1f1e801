// Made of crates/ffi/abi.json by `cargo xtask sdks`; do not edit.

package dev.cactusengine.raw

import java.nio.ByteBuffer

/**
 * Takes the progress of loading: `stage` is what is being done (`waiting`, `downloading`, `checking`, `converting`,
 * `reading source`, `choosing bits`, `calibrating`, `measuring quality`, `loading`, or `note`, which the user should
 * read); `what` is what it is about (a model, a file, a text), or empty; then how much of it is done and of how much,
 * in bytes or in the stage's own parts, 0 of 0 where that is not known. A result other than 0 stops within seconds,
 * with `CACTUS_CODE_CANCELLED`; what was downloaded is kept for the next time. It is called on the thread that loads,
 * at most some ten times a second while it downloads, and must not throw. Texts are valid until it returns.
 */
internal fun interface ProgressCallback {
    fun call(stage: ByteArray, what: ByteArray, done: Long, total: Long): Int
}

/**
 * Takes an answer as it is made: the text of a token (whole characters, so it may be empty), the token, and what was
 * given with the function. The text is valid until it returns. It is called on the thread that waits for the answer,
 * may call the library, and must not throw.
 */
internal fun interface TokenCallback {
    fun call(token: ByteArray, tokenId: Int)
}

/**
 * Takes what the library has to say: level (0 debug, 1 information, 2 warning, 3 error), part of the library, message,
 * and what was given with the function. It is called on the thread whose call it is about. Texts are valid until it
 * returns.
 */
internal fun interface LogCallback {
    fun call(level: Int, component: ByteArray, message: ByteArray)
}

/** Each function of the C library, as `cactus_jni.c` gives it. [open] comes first. */
internal object Raw {
    const val ABI_VERSION: Int = 1

    /** Opens the library at [path], or without one where the system looks. Gives what is wrong, or null. */
    @JvmStatic
    external fun open(path: ByteArray?, abiVersion: Int): ByteArray?

    /**
     * The version of the library, as in `0.1.0`. Valid for ever. Returns at once.
     */
    @JvmStatic
    external fun version(): ByteArray?

    /**
     * The ABI of the library, to compare with the `CACTUS_ABI_VERSION` that a program was compiled with. A program
     * needs this one or, once there are several, a later one that says it is compatible. Returns at once.
     */
    @JvmStatic
    external fun abiVersion(): Int

    /**
     * Writes the last error of this thread to `error`. A call that succeeds leaves it as it is. Returns at once.
     */
    @JvmStatic
    external fun lastError(
        errorNumbers: IntArray?,
        errorTexts: Array<ByteArray?>?,
    ): Int

    /**
     * Forgets the last error of this thread. Returns at once.
     */
    @JvmStatic
    external fun clearError()

    /**
     * The name of a code, as in `argument`; `unknown` for a number that is none. Valid for ever. Returns at once.
     */
    @JvmStatic
    external fun errorKind(
        code: Int,
    ): ByteArray?

    /**
     * Loads the model `name`: the folder of a bundle, a GGUF file, a Hugging Face folder, a Hugging Face id
     * (`org/name`, with `@revision` and `:file` where wanted), a known name such as `smollm2`, or the address
     * (`https://`, or `http://` of this machine) of a GGUF file or of the folder of a bundle. What is not on this
     * machine is downloaded, and what is no bundle converted, into the cache of this user first, where it is found the
     * next time, by the command line and by Python too. `options_json` (NULL, or an object) says how that is done
     * (`bits` for each weight, `calibrate`, `reconvert`, `offline`, `token`, and the folder of the `cache`) and how
     * the model is run (`context_tokens`, `threads`, `decode_threads`, `pin`, `kv_dtype`, `chunk_tokens`, `sequences`,
     * `queue`, `kv_tokens`). `progress` may be NULL. A library that was built without the store loads bundles alone,
     * and gives `CACTUS_CODE_NOT_IN_BUILD` for everything else.
     */
    @JvmStatic
    external fun modelLoad(
        name: ByteArray?,
        optionsJson: ByteArray?,
        progress: ProgressCallback?,
        model: LongArray?,
    ): Int

    /**
     * As `cactus_model_load`, without loading: writes the folder of the bundle to `*path`, as an owned string. To
     * download a model before it is needed, or for `cactus_init`. `options_json` has `bits`, `calibrate`, `reconvert`,
     * `offline`, `token` and `cache`.
     */
    @JvmStatic
    external fun modelPrepare(
        name: ByteArray?,
        optionsJson: ByteArray?,
        progress: ProgressCallback?,
        path: Array<ByteArray?>?,
    ): Int

    /**
     * Closes a model: cancels its requests, waits until nothing of them runs, and frees it. Requests and sessions of
     * it still have to be closed. From inside a callback it does not wait.
     */
    @JvmStatic
    external fun modelClose(
        model: Long,
    ): Int

    /**
     * What is known of a model and what it has done, as an owned JSON object. Returns at once.
     */
    @JvmStatic
    external fun modelInfo(
        model: Long,
        infoJson: Array<ByteArray?>?,
    ): Int

    /**
     * Token ids of a text, with the tokens that the model puts around texts where `special`. `*tokens` is an owned
     * array of `*count` ids, for `cactus_tokens_free`.
     */
    @JvmStatic
    external fun modelTokenize(
        model: Long,
        text: ByteArray?,
        special: Boolean,
        tokens: Array<IntArray?>?,
    ): Int

    /**
     * The text of `count` token ids, as an owned string. Special tokens are spelled out where `special`, else left
     * out.
     */
    @JvmStatic
    external fun modelDetokenize(
        model: Long,
        tokens: IntArray?,
        count: Long,
        special: Boolean,
        text: Array<ByteArray?>?,
    ): Int

    /**
     * How likely the tokens from `first` (at least 1) on are, each given all before it. `*score_json` is an owned JSON
     * object with `logprob` (the sum of natural logarithms), `tokens` (how many were scored) and `logprobs` (of each).
     */
    @JvmStatic
    external fun modelScore(
        model: Long,
        tokens: IntArray?,
        count: Long,
        first: Long,
        scoreJson: Array<ByteArray?>?,
    ): Int

    /**
     * Uses at most so many threads from now on, at most as many as the model was loaded with: `threads` for prompts,
     * `decode_threads` for generating; 0 leaves one as it is. For a device that gets hot, or an application that goes
     * to the background. Answers are the same with any number. Returns at once.
     */
    @JvmStatic
    external fun modelSetThreads(
        model: Long,
        threads: Long,
        decodeThreads: Long,
    ): Int

    /**
     * Tells the library that memory is short. Every open model forgets what it keeps of earlier prompts, so that their
     * memory can be used for those under way. Answers stay the same; later ones that begin like earlier ones come less
     * soon. Returns at once.
     */
    @JvmStatic
    external fun memoryPressure()

    /**
     * Whether the bundle in the folder `path` can be used with this build. Returns 0 where it can, else a code.
     * `*report_json`, which may be NULL, gets an owned JSON object in either case, with `usable` and, where not,
     * `code`, `kind` and `message`; with what is known of the bundle where it can be opened. With `verify`, all of it
     * is read and compared with its checksums.
     */
    @JvmStatic
    external fun checkBundle(
        path: ByteArray?,
        verify: Boolean,
        reportJson: Array<ByteArray?>?,
    ): Int

    /**
     * Begins a request: a JSON object with `messages`, `prompt` or `tokens`, and what else docs/reference/c-abi.md
     * lists. With a callback, events go there; with NULL, `cactus_request_next` gives them. `*request` has to be
     * closed in any case.
     */
    @JvmStatic
    external fun requestStart(
        model: Long,
        requestJson: ByteArray?,
        request: LongArray?,
    ): Int

    /**
     * Waits up to `timeout_ms` milliseconds (negative: for ever, 0: not at all) for the next event of a request
     * without a callback. Writes it to `*event_json` as an owned JSON object with `event`, one of `started`, `text`,
     * `reasoning`, `tool_call`, `done`, `cancelled` and `failed`; or NULL where none came in time. `*over`, which may
     * be NULL, tells whether none will come any more.
     */
    @JvmStatic
    external fun requestNext(
        request: Long,
        timeoutMs: Long,
        eventJson: Array<ByteArray?>?,
        over: BooleanArray?,
    ): Int

    /**
     * Waits for the end of a request, and writes its whole result to `*result_json` as an owned JSON object. A request
     * that failed gives its code; one that was cancelled gives a result as far as it came.
     */
    @JvmStatic
    external fun requestWait(
        request: Long,
        resultJson: Array<ByteArray?>?,
    ): Int

    /**
     * Asks a request to stop, from any thread; it ends within a token. May be called again. Returns at once.
     */
    @JvmStatic
    external fun requestCancel(
        request: Long,
    ): Int

    /**
     * Answers the event `CONSENT` of a request: whether what it lists may leave this machine. With a callback, before
     * that returns, from any thread. Without one, before `cactus_request_next` is called with a time to wait, or
     * `cactus_request_wait`. Where somebody goes on without an answer, nothing leaves, as nobody was there to be
     * asked. Fails where nothing is asked. Returns at once.
     */
    @JvmStatic
    external fun requestConsent(
        request: Long,
        yes: Boolean,
    ): Int

    /**
     * Closes a request: cancels what is left of it, and waits until its callback has returned for the last time.
     * Inside its own callback it does not wait; no further call begins then. Where callbacks of two requests close
     * each other's request, one of them does not wait either: keep what `user_data` points to until both have
     * returned.
     */
    @JvmStatic
    external fun requestClose(
        request: Long,
    ): Int

    /**
     * Opens a conversation. `defaults_json` (NULL, or an object) has `messages` to begin with, and any other fields of
     * a request, which hold for every request of the session where it does not say otherwise. What a request could not
     * have is refused here.
     */
    @JvmStatic
    external fun sessionOpen(
        model: Long,
        defaultsJson: ByteArray?,
        session: LongArray?,
    ): Int

    /**
     * Adds to a conversation and answers it: `request_json` is a JSON string (what the user says), or an object with
     * the `messages` to add and other fields of a request. Events come as with `cactus_request_start`. At the end of
     * the request, before its last event, the answer is part of the conversation; a request that failed leaves the
     * conversation as it was. One request at a time.
     */
    @JvmStatic
    external fun sessionSend(
        session: Long,
        requestJson: ByteArray?,
        request: LongArray?,
    ): Int

    /**
     * Writes the messages of a conversation to `*messages_json`, as an owned JSON array. `cactus_session_open` takes
     * it back, as `messages`. Returns at once.
     */
    @JvmStatic
    external fun sessionMessages(
        session: Long,
        messagesJson: Array<ByteArray?>?,
    ): Int

    /**
     * Closes a conversation: cancels its request, which still has to be closed.
     */
    @JvmStatic
    external fun sessionClose(
        session: Long,
    ): Int

    /**
     * Writes the vector of a text to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has to
     * `embedding_dim` (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors.
     * `normalize` gives the vector the length 1; most models give no other. No prompt stands before the text but the
     * model's default one. A text that is too long is an error. Returns how many floats the vector has, -2 where they
     * do not fit, or -1.
     */
    @JvmStatic
    external fun embed(
        model: Long,
        text: ByteArray?,
        embeddingsBuffer: ByteBuffer?,
        bufferSize: Long,
        embeddingDim: LongArray?,
        normalize: Boolean,
    ): Int

    /**
     * Writes the vector of a picture to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has
     * to `embedding_dim` (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors of
     * texts and pictures (CLIP, SigLIP); `image_path` is a PNG, JPEG or WebP file. The vector is compared with those
     * that `cactus_embed` makes of texts, and has the length 1 if theirs have. Returns how many floats the vector has,
     * -2 where they do not fit, or -1.
     */
    @JvmStatic
    external fun imageEmbed(
        model: Long,
        imagePath: ByteArray?,
        embeddingsBuffer: ByteBuffer?,
        bufferSize: Long,
        embeddingDim: LongArray?,
    ): Int

    /**
     * Writes down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits,
     * little-endian, 16,000 samples a second): one of the two. The result, a JSON object with `response`, `segments`
     * and `language`, goes to `response_buffer`, and the function returns its bytes; a negative number where it
     * failed, with the reason in the buffer, too. `prompt` is text as if said before, after special tokens of
     * Whisper's, of which language and task count. `callback` gets the text of each segment. `prompt`, `options_json`
     * (`language`, `translate`, `temperature`, `custom_vocabulary`, and `hallucination_silence`: seconds of silence
     * beside which text is left out that nobody may have said) and `callback` may be NULL. Under a policy
     * (`cactus_model_set_policy`) the result has `cloud_handoff`, who answered, why and for how much, and
     * `answered_by` of each segment; `callback` gets the text when it is final.
     */
    @JvmStatic
    external fun transcribe(
        model: Long,
        audioFilePath: ByteArray?,
        prompt: ByteArray?,
        responseBuffer: ByteBuffer?,
        bufferSize: Long,
        optionsJson: ByteArray?,
        callback: TokenCallback?,
        pcmBuffer: ByteBuffer?,
        pcmBufferSize: Long,
    ): Int

    /**
     * Finds out which language is spoken at the beginning of the file `audio_file_path`, of any format, or of
     * `pcm_buffer` (mono, 16 bits, little-endian, 16,000 samples a second): one of the two. The result, a JSON object
     * with `language` (`unknown` where nobody speaks), `confidence` and `entropy`, goes to `response_buffer`, and the
     * function returns its bytes; a negative number where it failed, with the reason in the buffer, too.
     * `options_json` is not read, and may be NULL.
     */
    @JvmStatic
    external fun detectLanguage(
        model: Long,
        audioFilePath: ByteArray?,
        responseBuffer: ByteBuffer?,
        bufferSize: Long,
        optionsJson: ByteArray?,
        pcmBuffer: ByteBuffer?,
        pcmBufferSize: Long,
    ): Int

    /**
     * Finds where somebody speaks in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits,
     * little-endian, 16,000 samples a second): one of the two. The result, a JSON object whose `segments` have `start`
     * and `end` in samples of the model's rate, goes to `response_buffer`, and the function returns its bytes; a
     * negative number where it failed, with the reason in the buffer, too. `options_json` has the names and defaults
     * of Silero's `get_speech_timestamps`, and may be NULL.
     */
    @JvmStatic
    external fun vad(
        model: Long,
        audioFilePath: ByteArray?,
        responseBuffer: ByteBuffer?,
        bufferSize: Long,
        optionsJson: ByteArray?,
        pcmBuffer: ByteBuffer?,
        pcmBufferSize: Long,
    ): Int

    /**
     * Opens the index in the folder `index_dir`, or makes one there, for vectors of `embedding_dim` numbers. NULL
     * where that fails, also where the index that is there has vectors of another length. It is closed with
     * `cactus_index_destroy`.
     */
    @JvmStatic
    external fun indexInit(
        indexDir: ByteArray?,
        embeddingDim: Long,
    ): Long

    /**
     * Adds documents: for each an id that the index does not have yet, a text, a text that belongs to it (`metadatas`
     * or one of its pointers may be NULL) and a vector. `embedding_dim` is that of the index. Returns 0, or -1 where
     * nothing was added.
     */
    @JvmStatic
    external fun indexAdd(
        index: Long,
        ids: IntArray?,
        documents: Array<ByteArray?>?,
        metadatas: Array<ByteArray?>?,
        embeddings: Array<ByteBuffer?>?,
        count: Long,
        embeddingDim: Long,
    ): Int

    /**
     * Deletes documents; ids that the index does not have are left out. Returns 0, or -1 where nothing was deleted.
     */
    @JvmStatic
    external fun indexDelete(
        index: Long,
        ids: IntArray?,
        idsCount: Long,
    ): Int

    /**
     * Writes text, metadata and vector of each document to the caller's buffers. Any of the three arrays of buffers
     * may be NULL, and any buffer. The size beside a buffer says what it has room for, bytes or floats, and then what
     * the result needed, zero byte included. An id that the index does not have is an error. Returns 0, -2 where
     * something does not fit, or -1.
     */
    @JvmStatic
    external fun indexGet(
        index: Long,
        ids: IntArray?,
        idsCount: Long,
        documentBuffers: Array<ByteBuffer?>?,
        documentBufferSizes: LongArray?,
        metadataBuffers: Array<ByteBuffer?>?,
        metadataBufferSizes: LongArray?,
        embeddingBuffers: Array<ByteBuffer?>?,
        embeddingBufferSizes: LongArray?,
    ): Int

    /**
     * The nearest documents to each of `embeddings_count` vectors, by the cosine, the best first: ids and scores go to
     * the caller's buffers, one of each for each vector. The size beside a buffer says how many it has room for, and
     * then how many were found. `options_json` may have `top_k` (10), `score_threshold` (-1: none) and `filter`, which
     * is ours. Returns 0, or -1.
     */
    @JvmStatic
    external fun indexQuery(
        index: Long,
        embeddings: Array<ByteBuffer?>?,
        embeddingsCount: Long,
        embeddingDim: Long,
        optionsJson: ByteArray?,
        idBuffers: Array<ByteBuffer?>?,
        idBufferSizes: LongArray?,
        scoreBuffers: Array<ByteBuffer?>?,
        scoreBufferSizes: LongArray?,
    ): Int

    /**
     * Writes the file of an index anew, without what was deleted. Returns 0, or -1.
     */
    @JvmStatic
    external fun indexCompact(
        index: Long,
    ): Int

    /**
     * Closes an index. What was added is in its file.
     */
    @JvmStatic
    external fun indexDestroy(
        index: Long,
    )

    /**
     * Begins to listen to live speech with a model that hears. A second model finds speech: the bundle that the option
     * `vad` names, or the folder `vad` inside the model's own. Beside `vad` and the options of `cactus_transcribe`,
     * `options_json` (which may be NULL) has `min_chunk_sec` (1.0; sound after which a phrase is written again, 0 for
     * never), `silence_sec` (0.5; silence that ends a phrase), `sentence_sec` (0.2; silence that ends one whose text
     * ends a sentence), `margin_sec` (silence behind a phrase that the model hears, where it is not to hear its whole
     * window), `commit` (`agreement`, or `attention` with Whisper: which text stays), `max_segment_sec` (25; longer
     * phrases are cut) and `threshold` (0.5; at which speech begins). NULL where that fails. Several streams may share
     * a model.
     */
    @JvmStatic
    external fun streamTranscribeStart(
        model: Long,
        optionsJson: ByteArray?,
    ): Long

    /**
     * Takes the next sound, in pieces of any size: mono, 16 bits, little-endian, 16,000 samples a second. The result,
     * a JSON object, goes to `response_buffer`, and the function returns its bytes; a negative number where it failed,
     * with the reason in the buffer, too. `confirmed` is the text that has become certain since the last call,
     * `pending` is the text behind it that may still change, and `events` says what happened since then. Where the
     * result did not fit, -2 is returned, the sound is taken all the same, and the next call gives what this one did
     * not; it may come without sound (`pcm_buffer` NULL).
     */
    @JvmStatic
    external fun streamTranscribeProcess(
        stream: Long,
        pcmBuffer: ByteBuffer?,
        pcmBufferSize: Long,
        responseBuffer: ByteBuffer?,
        bufferSize: Long,
    ): Int

    /**
     * Ends live speech: what was said last becomes final and goes to `response_buffer`, as with
     * `cactus_stream_transcribe_process`. `response_buffer` may be NULL; then nothing is written or waited for, and
     * the function returns 0. The handle is closed whatever is returned.
     */
    @JvmStatic
    external fun streamTranscribeStop(
        stream: Long,
        responseBuffer: ByteBuffer?,
        bufferSize: Long,
    ): Int

    /**
     * Loads the bundle in the folder `model_path`. NULL where that fails. `corpus_dir` may name a folder of documents,
     * which the model answers from: its index, `.cactus-index`, is brought in step with it, so `cache_index` makes no
     * difference. Vectors come from the model itself, if it makes some, or from the model that the environment
     * variable CACTUS_EMBEDDER names. The handle is a `cactus_model *` of our own functions, too, unless the bundle
     * hears, and is for `cactus_transcribe` or `cactus_vad` alone, or makes vectors, and is for `cactus_embed` and
     * `cactus_image_embed` alone.
     */
    @JvmStatic
    external fun init(
        modelPath: ByteArray?,
        corpusDir: ByteArray?,
        cacheIndex: Boolean,
    ): Long

    /**
     * Closes a model: cancels what is under way with it, waits for that, and frees it. From inside a callback it does
     * not wait.
     */
    @JvmStatic
    external fun destroy(
        model: Long,
    )

    /**
     * Stops what is under way with a model, from any thread, within a token. What comes later is not stopped. Returns
     * at once.
     */
    @JvmStatic
    external fun stop(
        model: Long,
    )

    /**
     * Sets the least level that is logged: 0 debug, 1 information, 2 warning (default), 3 error, 4 nothing. Returns at
     * once.
     */
    @JvmStatic
    external fun logSetLevel(
        level: Int,
    )

    /**
     * Sets the function that gets what is logged, from any thread that calls the library; without one, or with NULL,
     * nothing is said. It must not throw. `user_data` has to live until another function is set. Returns at once.
     */
    @JvmStatic
    external fun logSetCallback(
        callback: LogCallback?,
    )

    /**
     * Writes the `top_k` pieces of the model's documents that are nearest to a question to `response_buffer`, as a
     * JSON object with `chunks`, the best first, and returns its bytes; a negative number where it failed, with the
     * reason in the buffer, too. The model comes from `cactus_init` with a folder of documents.
     */
    @JvmStatic
    external fun ragQuery(
        model: Long,
        query: ByteArray?,
        responseBuffer: ByteBuffer?,
        bufferSize: Long,
        topK: Long,
    ): Int

    /**
     * The prompt that a conversation becomes, as text. Returns its bytes; -1 where it fails, -2 where the buffer is
     * too small, and the text in it is empty then.
     */
    @JvmStatic
    external fun renderPrompt(
        model: Long,
        messagesJson: ByteArray?,
        optionsJson: ByteArray?,
        toolsJson: ByteArray?,
        buffer: ByteBuffer?,
        bufferSize: Long,
    ): Int

    /**
     * Begins to write down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16
     * bits, little-endian, 16,000 samples a second), which is copied: one of the two. It is a request as
     * `cactus_request_start` begins one, and `cactus_request_cancel` stops it alone, also while it waits for another
     * recording. Each event `TEXT` has the text of a segment, and in `json` its `start` and `end` in seconds. The
     * result is that of `cactus_transcribe`; of one that was cancelled it has `response` and `segments` as far as they
     * came. `options_json` (NULL, or an object) has the options of `cactus_transcribe`, and `prompt`. `*request` has
     * to be closed in any case.
     */
    @JvmStatic
    external fun transcriptionStart(
        model: Long,
        audioFilePath: ByteArray?,
        pcmBuffer: ByteBuffer?,
        pcmBufferSize: Long,
        optionsJson: ByteArray?,
        request: LongArray?,
    ): Int

    /**
     * Gives a model a policy for its requests from now on: what the model should not answer may be handed to a target.
     * `model` may be one that writes down what is said, too: then targets that do hear again what is doubtful of
     * recordings (`cactus_transcribe`), and `target` may be the address of such a one. `policy_toml` is the text of a
     * policy file (docs/reference/policy.md), or NULL. `options_json` is NULL or an object, which comes after the
     * text: `target` (a name of the policy or of the table of targets, or an address with a model, as
     * `http://127.0.0.1:8081/v1#name`), `key` (that target's key) and `keys` (an object of keys by names of targets),
     * which come before what the policy says of keys, are sent to no other host, and are kept in memory alone until no
     * request has the policy any more, `handoff` (`auto`, `never`, `always`), `budget` (the most that a session may
     * cost, in dollars as text), `consent` (an array of what may leave without a question: `text`, `tool_result`,
     * `image`, `audio`, `document`) and `state` (the folder of budget, record and keys; that of the command line where
     * it is not given). With both NULL the model answers alone again. Requests under way stay as they are. What is
     * wrong changes nothing. A library that was built without the cloud gives `CACTUS_CODE_NOT_IN_BUILD`.
     */
    @JvmStatic
    external fun modelSetPolicy(
        model: Long,
        policyToml: ByteArray?,
        optionsJson: ByteArray?,
    ): Int
}
