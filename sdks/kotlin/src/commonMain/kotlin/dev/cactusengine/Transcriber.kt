package dev.cactusengine

import kotlin.jvm.JvmField
import kotlin.jvm.JvmOverloads
import kotlin.jvm.JvmStatic
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/** Something that was said, and when, in seconds. */
public class Segment internal constructor(@JvmField public val json: Json) {
    public val start: Double get() = json["start"].double ?: 0.0
    public val end: Double get() = json["end"].double ?: 0.0
    public val text: String get() = json["text"].text.orEmpty()
}

/** What was said in a recording. */
public class Transcript internal constructor(@JvmField public val json: JsonObject) {
    public val text: String get() = json["response"].text.orEmpty()
    public val segments: List<Segment> get() = json["segments"].items.map { Segment(it) }
    public val language: String? get() = json["language"].text
}

/** Which language is spoken. */
public class Language internal constructor(@JvmField public val json: JsonObject) {
    /** As in `de`; `unknown` where nobody speaks. */
    public val language: String get() = json["language"].text.orEmpty()
    public val confidence: Double get() = json["confidence"].double ?: 0.0
}

/** Where somebody speaks, in samples. */
public class Span internal constructor(@JvmField public val start: Long, @JvmField public val end: Long)

/** Where somebody speaks. */
public class Speech internal constructor(@JvmField public val json: JsonObject) {
    public val spans: List<Span> get() = json["segments"].items.map { Span(it["start"].long ?: 0, it["end"].long ?: 0) }
}

/** Hears the text of each segment, where [Transcriber.transcribe] was called. What it throws ends the transcription. */
public fun interface TextListener {
    public fun on(text: String)
}

/**
 * A model that hears: Whisper, Parakeet, Moonshine, or Silero VAD, which finds speech. A recording is a file of any format that is read,
 * or samples: mono, 16 bits, 16,000 a second. One recording at a time; others wait.
 *
 * Functions that end in `Blocking` do not wait for their turn. A coroutine that is cancelled in [transcribe] stops that recording alone; one
 * that is cancelled in [detectLanguage] or [speech] stops whatever the transcriber does, so these, too.
 */
public class Transcriber internal constructor(number: Long) : Closeable("the transcriber", number, { library.destroy(it) }) {
    /** Writes down what is said in a file. */
    public suspend fun transcribe(file: String, options: TranscribeOptions? = null, onText: TextListener? = null): Transcript =
        transcribed(Recording(file, null), options, onText)

    /** Writes down what is said in samples. */
    public suspend fun transcribe(samples: ShortArray, options: TranscribeOptions? = null, onText: TextListener? = null): Transcript =
        transcribed(Recording(null, samples), options, onText)

    /** As [transcribe], on this thread, and without waiting for other coroutines. */
    @JvmOverloads
    public fun transcribeBlocking(file: String, options: TranscribeOptions? = null, onText: TextListener? = null): Transcript =
        transcribe(Recording(file, null), options, onText)

    /** As [transcribe], on this thread, and without waiting for other coroutines. */
    @JvmOverloads
    public fun transcribeBlocking(samples: ShortArray, options: TranscribeOptions? = null, onText: TextListener? = null): Transcript =
        transcribe(Recording(null, samples), options, onText)

    /** Which language is spoken in a file. */
    public suspend fun detectLanguage(file: String): Language = listening { language(Recording(file, null)) }

    /** Which language is spoken in samples. */
    public suspend fun detectLanguage(samples: ShortArray): Language = listening { language(Recording(null, samples)) }

    /** Where somebody speaks in a file, by a bundle that finds speech. */
    public suspend fun speech(file: String, options: SpeechOptions? = null): Speech = listening { speech(Recording(file, null), options) }

    /** Where somebody speaks in samples. */
    public suspend fun speech(samples: ShortArray, options: SpeechOptions? = null): Speech =
        listening { speech(Recording(null, samples), options) }

    /** Begins to listen to live speech. */
    public suspend fun live(options: LiveOptions? = null): LiveTranscription =
        turn.withLock { away(discard = { it.close() }) { liveBlocking(options) } }

    /** As [live], on this thread, and without waiting for recordings. */
    @JvmOverloads
    public fun liveBlocking(options: LiveOptions? = null): LiveTranscription =
        LiveTranscription(this, with { library.liveStart(it, options?.json()) })

    /** Gives the policy of [Model.setPolicy] for recordings. */
    public suspend fun setPolicy(policy: String? = null, options: PolicyOptions? = null): Unit =
        away { with { library.modelSetPolicy(it, policy, options?.json()) } }

    /** Stops what is under way, from any thread. */
    public fun stop(): Unit = with { library.stop(it) }

    /** The library stops whatever a model does, but for transcriptions, so one coroutine at a time has it, and stops nothing but its own. */
    internal val turn = Mutex()

    private suspend fun <T> listening(block: () -> T): T = turn.withLock { away(stop = ::stop, block = block) }

    private fun begin(recording: Recording, options: TranscribeOptions?): ActiveRequest =
        ActiveRequest(this, with { library.transcriptionStart(it, recording, options?.json()) })

    private suspend fun transcribed(recording: Recording, options: TranscribeOptions?, onText: TextListener?): Transcript = turn.withLock {
        val request = away(discard = { it.close() }) { begin(recording, options) }
        try {
            written(onText) { request.next() }
        } finally {
            withContext(NonCancellable) { request.closeAndWait() }
        }
    }

    private fun transcribe(recording: Recording, options: TranscribeOptions?, onText: TextListener?): Transcript =
        begin(recording, options).use { request -> written(onText) { request.nextBlocking() } }

    private inline fun written(onText: TextListener?, next: () -> Event?): Transcript {
        while (true) {
            when (val event = next()) {
                is Event.Text -> onText?.on(event.text)
                is Event.Done -> return Transcript(event.answer.json)
                is Event.Cancelled -> throw CactusException(CactusCode.CANCELLED, "cancelled", "the transcription was stopped")
                is Event.Failed -> throw event.error
                null -> throw CactusException(CactusCode.INTERNAL, "internal", "a transcription ended without a last event")
                else -> {}
            }
        }
    }

    private fun language(recording: Recording) = Language(JsonObject.parse(with { library.detectLanguage(it, recording, null) }))

    private fun speech(recording: Recording, options: SpeechOptions?) =
        Speech(JsonObject.parse(with { library.speech(it, recording, options?.json()) }))

    public companion object {
        /** Loads the bundle in a folder. */
        public suspend fun load(bundle: String): Transcriber = away(discard = { it.close() }) { loadBlocking(bundle) }

        /** As [load], on this thread. */
        @JvmStatic
        public fun loadBlocking(bundle: String): Transcriber = Transcriber(library.transcriberLoad(bundle))
    }
}

/** What has become of live speech. */
public class Heard internal constructor(@JvmField public val json: JsonObject) {
    /** Text that has become certain since the last call. It is never taken back. */
    public val confirmed: String get() = json["confirmed"].text.orEmpty()

    /** Text behind it that may still change. */
    public val pending: String get() = json["pending"].text.orEmpty()

    /** What happened since the last call. */
    public val events: List<Json> get() = json["events"].items
}

/** Live speech. One coroutine at a time pushes. */
public class LiveTranscription internal constructor(private val transcriber: Transcriber, number: Long) :
    Closeable("the live transcription", number, waits = true, { library.liveClose(it) }) {

    /** Takes the next samples: mono, 16 bits, 16,000 a second, as many as there are. */
    public suspend fun push(samples: ShortArray, from: Int = 0, to: Int = samples.size): Heard =
        transcriber.turn.withLock { away { pushBlocking(samples, from, to) } }

    /** As [push], on this thread, and without waiting for recordings: a coroutine that is cancelled stops it, too. */
    @JvmOverloads
    public fun pushBlocking(samples: ShortArray, from: Int = 0, to: Int = samples.size): Heard {
        if (from < 0 || to < from || to > samples.size) throw refused("samples from $from to $to of ${samples.size}")
        return heard { library.livePush(it, samples, from, to) }
    }

    /** Makes what was said last final, and closes. */
    public suspend fun finish(): Heard = transcriber.turn.withLock { away { finishBlocking() } }

    /** As [finish], on this thread, and without waiting for recordings: a coroutine that is cancelled stops it, too. */
    public fun finishBlocking(): Heard = try {
        heard { library.liveFinish(it) }
    } finally {
        close()
    }

    internal fun heard(take: (Long) -> String): Heard {
        val heard = Heard(JsonObject.parse(with(take)))
        platform.keep(transcriber)
        return heard
    }
}
