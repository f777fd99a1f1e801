package dev.cactusengine

import kotlin.jvm.JvmField
import kotlin.jvm.JvmOverloads
import kotlin.jvm.JvmStatic

/** What is known of a model, and what it has done. */
public class ModelInfo internal constructor(@JvmField public val json: JsonObject) {
    override fun toString(): String = json.toString()
}

/** How likely tokens are. */
public class Score internal constructor(@JvmField public val json: JsonObject) {
    /** The sum of the natural logarithms. */
    public val logprob: Double get() = json["logprob"].double ?: Double.NaN

    /** The natural logarithm of each. */
    public val logprobs: List<Double> get() = json["logprobs"].items.mapNotNull { it.double }
}

/**
 * A model that writes. Any number of coroutines and threads may use it at once; their answers are computed together.
 *
 * ```kotlin
 * Model.load("smollm2").use { model ->
 *     model.stream("Why is the sky blue?").texts().collect { print(it) }
 * }
 * ```
 */
public class Model internal constructor(number: Long) : Closeable("the model", number, { library.modelClose(it) }), Responder {
    /** Name, sizes, threads, memory and requests. */
    public val info: ModelInfo get() = ModelInfo(JsonObject.parse(with { library.modelInfo(it) }))

    override suspend fun start(request: Request): ActiveRequest =
        away(discard = { it.close() }) { startBlocking(request) }

    override fun startBlocking(request: Request): ActiveRequest =
        ActiveRequest(this, with { library.requestStart(it, request.toString()) })

    override suspend fun respondWithTools(request: Request, tools: List<Tool>, most: Int, confirm: ConfirmCall?): Answer =
        withTools(request, tools, most, confirm) { asked, answer, results -> asked.change { add(answer.messageJson).addAll(results) } }

    /** Opens a conversation. [defaults] has messages to begin with, and what holds for every request of it. */
    public suspend fun session(defaults: Request? = null): Session = away(discard = { it.close() }) { sessionBlocking(defaults) }

    /** Opens a conversation. */
    public suspend fun session(defaults: RequestBuilder.() -> Unit): Session = session(request(defaults))

    /** As [session], on this thread. */
    @JvmOverloads
    public fun sessionBlocking(defaults: Request? = null): Session =
        Session(this, with { library.sessionOpen(it, defaults?.toString()) })

    /** Token ids of a text, with those that the model puts around texts where [special]. */
    public suspend fun tokenize(text: String, special: Boolean = false): IntArray = away { tokenizeBlocking(text, special) }

    /** As [tokenize], on this thread. */
    @JvmOverloads
    public fun tokenizeBlocking(text: String, special: Boolean = false): IntArray = with { library.modelTokenize(it, text, special) }

    /** The text of token ids. Special tokens are spelled out where [special]. */
    public suspend fun detokenize(tokens: IntArray, special: Boolean = false): String = away { detokenizeBlocking(tokens, special) }

    /** As [detokenize], on this thread. */
    @JvmOverloads
    public fun detokenizeBlocking(tokens: IntArray, special: Boolean = false): String =
        with { library.modelDetokenize(it, tokens, special) }

    /** How likely the tokens from [first] on are, each given all before it. */
    public suspend fun score(tokens: IntArray, first: Int = 1): Score = away { scoreBlocking(tokens, first) }

    /** As [score], on this thread. */
    @JvmOverloads
    public fun scoreBlocking(tokens: IntArray, first: Int = 1): Score =
        Score(JsonObject.parse(with { library.modelScore(it, tokens, first) }))

    /** Uses at most so many threads from now on; 0 leaves one as it is. For a device that gets hot. Answers stay the same. */
    public fun setThreads(threads: Int, decodeThreads: Int): Unit = with { library.modelSetThreads(it, threads, decodeThreads) }

    /**
     * Gives the model a policy: [policy] is the text of a policy file, and [options] come after it. Without both the model answers alone
     * again.
     */
    public suspend fun setPolicy(policy: String? = null, options: PolicyOptions? = null): Unit = away { setPolicyBlocking(policy, options) }

    /** As [setPolicy], on this thread. */
    @JvmOverloads
    public fun setPolicyBlocking(policy: String? = null, options: PolicyOptions? = null): Unit =
        with { library.modelSetPolicy(it, policy, options?.json()) }

    public companion object {
        /**
         * Loads a model: the folder of a bundle, a GGUF file, an address (`https://`) of either, a Hugging Face folder or id
         * (`org/name`), or a known name. What is not on this machine is downloaded, unless
         * [LoadOptions.offline] is set. A coroutine that is cancelled stops it within seconds.
         */
        public suspend fun load(source: String, options: LoadOptions? = null, onProgress: ProgressListener? = null): Model {
            val stopping = Stopping(onProgress)
            return away(stop = stopping::stop, discard = { it.close() }) { loadBlocking(source, options, stopping) }
        }

        /** Loads a model. */
        public suspend fun load(source: String, onProgress: ProgressListener? = null, options: LoadOptions.() -> Unit): Model =
            load(source, LoadOptions().apply(options), onProgress)

        /** As [load], on this thread. */
        @JvmStatic
        @JvmOverloads
        public fun loadBlocking(source: String, options: LoadOptions? = null, onProgress: ProgressListener? = null): Model =
            Model(library.modelLoad(source, options?.json(), onProgress))

        /** Downloads and converts a model without loading it, and gives the folder of its bundle. */
        public suspend fun prepare(source: String, options: LoadOptions? = null, onProgress: ProgressListener? = null): String {
            val stopping = Stopping(onProgress)
            return away(stop = stopping::stop) { prepareBlocking(source, options, stopping) }
        }

        /** As [prepare], on this thread. */
        @JvmStatic
        @JvmOverloads
        public fun prepareBlocking(source: String, options: LoadOptions? = null, onProgress: ProgressListener? = null): String =
            library.modelPrepare(source, options?.json(), onProgress)
    }
}

/** Stops a loading whose coroutine was cancelled. */
internal class Stopping(private val listener: ProgressListener?) : ProgressListener {
    @kotlin.concurrent.Volatile
    private var isStopped = false

    fun stop() {
        isStopped = true
    }

    override fun on(progress: Progress) {
        if (isStopped) throw CactusException(CactusCode.CANCELLED, "cancelled", "the coroutine that loads was cancelled")
        listener?.on(progress)
    }
}

/** A conversation with a model. One request at a time. */
public class Session internal constructor(private val model: Model, number: Long) :
    Closeable("the session", number, { library.sessionClose(it) }), Responder {

    /** The messages so far, as the OpenAI API has them. [Model.session] takes them back with [RequestBuilder.addAll]. */
    public val messages: List<Json> get() = Json.parse(with { library.sessionMessages(it) }).items

    override suspend fun start(request: Request): ActiveRequest =
        away(discard = { it.close() }) { startBlocking(request) }

    override fun startBlocking(request: Request): ActiveRequest {
        val number = with { library.sessionSend(it, request.toString()) }
        platform.keep(model)
        return ActiveRequest(this, number)
    }

    override suspend fun respondWithTools(request: Request, tools: List<Tool>, most: Int, confirm: ConfirmCall?): Answer =
        withTools(request, tools, most, confirm) { asked, _, results -> asked.change().only(results) }
}
