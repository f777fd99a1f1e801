package dev.cactusengine

/** A call of a tool that the model wants. */
public class ToolCall(
    public val id: String,
    public val name: String,
    /** A JSON object, as the model wrote it. */
    public val arguments: String,
) {
    /** The arguments, read. None are an empty object. */
    public fun json(): JsonObject = JsonObject.parse(arguments.ifEmpty { "{}" })

    override fun toString(): String = "$name($arguments)"
}

/** How many tokens an answer took. */
public class Usage internal constructor(json: Json?) {
    public val promptTokens: Int = json["prompt_tokens"].int ?: 0
    public val cachedTokens: Int = json["cached_tokens"].int ?: 0
    public val completionTokens: Int = json["completion_tokens"].int ?: 0
    public val totalTokens: Int = json["total_tokens"].int ?: 0
}

/** A whole answer, or what came of one that was cancelled. */
public class Answer internal constructor(
    /** Everything that is known of it. */
    public val json: JsonObject,
) {
    private val message = json["message"]

    /** What the model says. */
    public val text: String get() = message["content"].text.orEmpty()

    /** What it thought before it said so. */
    public val reasoning: String get() = message["reasoning_content"].text.orEmpty()

    /** Tools that it wants to be called. */
    public val toolCalls: List<ToolCall> = message["tool_calls"].items.map {
        ToolCall(it["id"].text.orEmpty(), it["function"]["name"].text.orEmpty(), it["function"]["arguments"].text.orEmpty())
    }

    /** Why it ended: `stop`, `length`, `tool_calls`, `cancelled`. */
    public val finishReason: String get() = json["finish_reason"].text.orEmpty()
    public val usage: Usage get() = Usage(json["usage"])

    /** Token ids of the answer. */
    public val tokens: List<Int> get() = json["tokens"].items.mapNotNull { it.int }
    public val seed: Long? get() = json["seed"].long

    /** The message, to be put into the messages of a later request. */
    public val messageJson: JsonObject get() = message as? JsonObject ?: JsonObject(emptyMap())

    /** Under a policy: `local` or `cloud`. */
    public val route: String? get() = json["route"].text

    /** Under a policy: who answered. */
    public val answeredBy: String? get() = json["answered_by"].text

    /** Under a policy: why. */
    public val reason: String? get() = json["reason"].text

    /** Under a policy: how sure the model is, from 0 to 1. */
    public val confidence: Double? get() = json["confidence"].double

    /** Under a policy: what it cost. */
    public val costUsd: Double? get() = json["cost_usd"].double

    override fun toString(): String = text
}
