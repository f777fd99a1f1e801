package dev.cactusengine

import kotlin.reflect.KProperty

/** Options by the names that the C library has for them. [set] takes one that has no property here. */
public open class Options internal constructor() {
    internal val fields: LinkedHashMap<String, Json> = LinkedHashMap()

    /** Sets an option by its name; `null` removes it. */
    public operator fun set(name: String, value: Any?) {
        if (value == null) fields.remove(name) else fields[name] = Json.of(value)
    }

    /** The options as JSON, or `null` where none is set. */
    internal fun json(): String? = if (fields.isEmpty()) null else JsonObject(fields).toString()

    override fun toString(): String = JsonObject(fields).toString()
}

/** A property that is a field of [Options]. */
internal class Field<T>(private val name: String, private val read: (Json?) -> T?) {
    operator fun getValue(options: Options, property: KProperty<*>): T? = read(options.fields[name])
    operator fun setValue(options: Options, property: KProperty<*>, value: T?) = options.set(name, value)
}

internal fun text(name: String): Field<String> = Field(name) { it.text }
internal fun int(name: String): Field<Int> = Field(name) { it.int }
internal fun long(name: String): Field<Long> = Field(name) { it.long }
internal fun double(name: String): Field<Double> = Field(name) { it.double }
internal fun flag(name: String): Field<Boolean> = Field(name) { it.boolean }
internal fun texts(name: String): Field<List<String>> = Field(name) { json -> json?.items?.mapNotNull { it.text } }

/** How a model is got, and how it is run. What is not set is as the library has it. */
public class LoadOptions : Options() {
    /** Bits for each weight: 1, 2, 3, 4, 5, 6, 8, 16 or 32. Without it 8. */
    public var bits: Int? by int("bits")

    /** Use what is on this machine alone. */
    public var offline: Boolean? by flag("offline")

    /** A token of the Hugging Face hub. */
    public var token: String? by text("token")

    /** Folder of the cache. On Android, one that is not backed up: see `CactusAndroid.modelsFolder`. */
    public var cache: String? by text("cache")

    /** Calibrate below 8 bits. Without it `true`. */
    public var calibrate: Boolean? by flag("calibrate")

    /** Convert again what the cache has. */
    public var reconvert: Boolean? by flag("reconvert")

    /** Tokens of prompt and answer together. Without it 2048. */
    public var contextTokens: Int? by int("context_tokens")

    /** Threads for prompts. Without it one for each fast core. */
    public var threads: Int? by int("threads")

    /** Threads for generating. */
    public var decodeThreads: Int? by int("decode_threads")

    /** Keep the threads on their cores. */
    public var pin: Boolean? by flag("pin")

    /** `int8` or `f16`. */
    public var kvDtype: String? by text("kv_dtype")

    /** Tokens of a prompt that are computed together. */
    public var chunkTokens: Int? by int("chunk_tokens")

    /** Answers that are computed together. */
    public var sequences: Int? by int("sequences")

    /** Requests that may wait. */
    public var queue: Int? by int("queue")

    /** Tokens of memory for all answers together. */
    public var kvTokens: Int? by int("kv_tokens")
}

/** Who else may answer, what may leave, and for how much. Nothing leaves without a yes. */
public class PolicyOptions : Options() {
    /** A name of the policy or of the table of targets, or an address with a model, as `http://127.0.0.1:8081/v1#name`. */
    public var target: String? by text("target")

    /** The key of [target]. It stays in memory. */
    public var key: String? by text("key")

    /** `auto`, `never` or `always`. */
    public var handoff: String? by text("handoff")

    /** The most that a session may cost, in dollars. */
    public var budget: String? by text("budget")

    /** What may leave without a question: `text`, `tool_result`, `image`, `audio`, `document`. */
    public var consent: List<String>? by texts("consent")

    /** Folder of budget, record and keys. */
    public var state: String? by text("state")

    /** Keys by names of targets. */
    public fun keys(keys: Map<String, String>): PolicyOptions = apply { set("keys", keys) }
}

/** How a recording is written down. */
public open class TranscribeOptions : Options() {
    /** The language that is spoken, as in `de`. Without it the model finds out. */
    public var language: String? by text("language")

    /** Translate into English. */
    public var translate: Boolean? by flag("translate")

    /** Randomness. */
    public var temperature: Double? by double("temperature")

    /** Words that may be said. */
    public var customVocabulary: List<String>? by texts("custom_vocabulary")

    /** Seconds of silence beside which text is left out that nobody may have said. */
    public var hallucinationSilence: Double? by double("hallucination_silence")
}

/** How live speech is written down. */
public class LiveOptions : TranscribeOptions() {
    /** The folder of a bundle that finds speech. Without it, the folder `vad` inside of the model's bundle. */
    public var vad: String? by text("vad")

    /** Seconds of sound after which a phrase is written again. Without it 1. */
    public var minChunkSeconds: Double? by double("min_chunk_sec")

    /** Seconds of silence that end a phrase. Without it 0.5. */
    public var silenceSeconds: Double? by double("silence_sec")

    /** Seconds of silence that end a phrase whose text ends a sentence. Without it 0.2. */
    public var sentenceSeconds: Double? by double("sentence_sec")

    /** Seconds of silence behind a phrase that Whisper hears. */
    public var marginSeconds: Double? by double("margin_sec")

    /** `agreement` or `attention`: which text stays. */
    public var commit: String? by text("commit")

    /** Phrases that are longer than so many seconds are cut. Without it 25. */
    public var maxSegmentSeconds: Double? by double("max_segment_sec")

    /** At which speech begins. Without it 0.5. */
    public var threshold: Double? by double("threshold")
}

/** What is looked for in an [Index]. */
public class QueryOptions : Options() {
    /** How many documents for each vector. Without it 10. */
    public var count: Int? by int("top_k")

    /** The least cosine. */
    public var scoreThreshold: Double? by double("score_threshold")
}

/** How speech is found, by the names and defaults of Silero's `get_speech_timestamps`. */
public class SpeechOptions : Options() {
    /** At which speech begins. Without it 0.5. */
    public var threshold: Double? by double("threshold")

    /** Shorter speech is left out. */
    public var minSpeechMs: Int? by int("min_speech_duration_ms")

    /** Shorter silence does not end speech. */
    public var minSilenceMs: Int? by int("min_silence_duration_ms")

    /** What is added before and behind. */
    public var padMs: Int? by int("speech_pad_ms")
}
