package dev.cactusengine

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow

/**
 * What happens to a request. Each ends with exactly one of [Done], [Cancelled] and [Failed], and nothing comes after it.
 */
public sealed class Event(
    /** The event as the C library gives it. */
    public val json: JsonObject,
) {
    /** Whether it is the last. */
    public val isLast: Boolean get() = this is Done || this is Cancelled || this is Failed

    override fun toString(): String = json.toString()

    /** The prompt is computed. */
    public class Started internal constructor(json: JsonObject) : Event(json) {
        public val promptTokens: Int get() = json["prompt_tokens"].int ?: 0
        public val cachedTokens: Int get() = json["cached_tokens"].int ?: 0
    }

    /** Text of the answer, in whole characters. */
    public class Text internal constructor(json: JsonObject) : Event(json) {
        public val text: String = json["text"].text.orEmpty()
    }

    /** Reasoning before the answer. */
    public class Reasoning internal constructor(json: JsonObject) : Event(json) {
        public val text: String = json["text"].text.orEmpty()
    }

    /** A call of a tool, or part of one. The whole calls are in the [Answer]. */
    public class Call internal constructor(json: JsonObject) : Event(json) {
        public val index: Int get() = json["index"].int ?: 0

        /** With the first event of the call. */
        public val id: String? get() = json["id"].text

        /** With the first event of the call. */
        public val name: String? get() = json["name"].text

        /** A piece of a JSON object. */
        public val arguments: String? get() = json["arguments"].text

        /** The call is whole. */
        public val isEnd: Boolean get() = json["end"].boolean == true

        /** It came to nothing, and was given out as text. */
        public val isFailed: Boolean get() = json["failed"].boolean == true
    }

    /** Under a policy: who answers. */
    public class Source internal constructor(json: JsonObject) : Event(json) {
        /** `local` or `cloud`. */
        public val side: String get() = json["side"].text.orEmpty()
        public val target: String? get() = json["target"].text
        public val reason: String? get() = json["reason"].text
    }

    /** Under a policy: what was said so far is void, and another answers from the beginning. */
    public class Replaced internal constructor(json: JsonObject) : Event(json) {
        public val reason: String? get() = json["reason"].text
    }

    /**
     * Under a policy: a person has to say whether this may leave. Call [answer] before the next event is asked for, which is before the
     * block of `collect` returns. Whoever goes on without an answer has said no.
     */
    public class Consent internal constructor(json: JsonObject, private val request: ActiveRequest) : Event(json) {
        /** What would leave: `text`, `tool_result`, `image`, `audio`, `document`. */
        public val classes: List<String> get() = json["classes"].items.mapNotNull { it.text }
        public val target: String? get() = json["target"].text
        public val host: String? get() = json["host"].text

        /** What it may cost at most, in dollars. */
        public val most: String? get() = json["most"].text
        public val reason: String? get() = json["reason"].text
        public val confidence: Double? get() = json["confidence"].double

        /** Says whether it may leave. */
        public fun answer(yes: Boolean): Unit = request.consent(yes)
    }

    /** The end. */
    public class Done internal constructor(json: JsonObject) : Event(json) {
        public val answer: Answer = Answer(json["result"] as? JsonObject ?: JsonObject(emptyMap()))
    }

    /** The end of a request that was cancelled. */
    public class Cancelled internal constructor(json: JsonObject) : Event(json) {
        /** The answer as far as it came. */
        public val answer: Answer = Answer(json["result"] as? JsonObject ?: JsonObject(emptyMap()))
    }

    /** The end of a request that failed. */
    public class Failed internal constructor(json: JsonObject) : Event(json) {
        public val error: CactusException =
            CactusException(json["code"].int ?: CactusCode.INTERNAL, json["kind"].text ?: "internal", json["text"].text.orEmpty())
    }

    /** Of a library that is newer than this SDK. */
    public class Other internal constructor(json: JsonObject) : Event(json)

    internal companion object {
        fun of(text: String, request: ActiveRequest): Event {
            val json = JsonObject.parse(text)
            return when (json["event"].text) {
                "text" -> Text(json)
                "started" -> Started(json)
                "reasoning" -> Reasoning(json)
                "tool_call" -> Call(json)
                "source" -> Source(json)
                "replaced" -> Replaced(json)
                "consent" -> Consent(json, request)
                "done" -> Done(json)
                "cancelled" -> Cancelled(json)
                "failed" -> Failed(json)
                else -> Other(json)
            }
        }
    }
}

/**
 * The pieces of the answer's text. A request that failed throws; one that was cancelled by [ActiveRequest.cancel] ends. Under a policy use
 * [snapshots]: where another answers from the beginning, its pieces come behind those that are void, and nothing here says so.
 */
public fun Flow<Event>.texts(): Flow<String> = flow {
    collect { event ->
        when (event) {
            is Event.Text -> emit(event.text)
            is Event.Failed -> throw event.error
            else -> {}
        }
    }
}

/** The whole text of the answer so far, each time that it changes: what a screen shows. A request that failed throws. */
public fun Flow<Event>.snapshots(): Flow<String> = flow {
    val text = StringBuilder()
    collect { event ->
        when (event) {
            is Event.Text -> emit(text.append(event.text).toString())
            is Event.Replaced -> {
                text.clear()
                emit("")
            }
            is Event.Failed -> throw event.error
            else -> {}
        }
    }
}
