package dev.cactusengine

import kotlin.io.encoding.Base64
import kotlin.jvm.JvmStatic

/**
 * What is asked of a model: messages, options, tools, and the form of the answer. It does not change, and may be asked again.
 *
 * ```kotlin
 * val asked = request {
 *     system("Be brief.")
 *     user("Why is the sky blue?")
 *     maxTokens = 100
 * }
 * ```
 */
public class Request internal constructor(
    /** The request as the C library reads it. */
    public val json: JsonObject,
) {
    override fun toString(): String = json.toString()

    /** A builder that begins with what is here. */
    public fun change(): RequestBuilder = RequestBuilder(this)

    /** This request with what [block] changes. */
    public fun change(block: RequestBuilder.() -> Unit): Request = change().apply(block).build()

    public companion object {
        /** A question of a user. */
        @JvmStatic
        public fun of(text: String): Request = RequestBuilder().user(text).build()

        /** A request as the C library reads it. */
        @JvmStatic
        public fun json(json: String): Request = Request(JsonObject.parse(json))

        /** Nothing yet: for a session without defaults. */
        internal val empty: Request = Request(JsonObject(emptyMap()))
    }
}

/** Makes a request. */
public fun request(block: RequestBuilder.() -> Unit): Request = RequestBuilder().apply(block).build()

/** Makes a [Request]. Functions add messages; properties are options. All of them are those of `docs/reference/c-abi.md`. */
public class RequestBuilder(from: Request? = null) : Options() {
    private val request = LinkedHashMap<String, Json>(from?.json ?: emptyMap())
    private val messages = request["messages"].items.toMutableList()

    init {
        // What has another type stays, for the library to refuse.
        if (request["messages"] is JsonArray) request.remove("messages")
        (request["options"] as? JsonObject)?.let {
            fields.putAll(it)
            request.remove("options")
        }
    }

    /** The most tokens of the answer. */
    public var maxTokens: Int? by int("max_tokens")

    /** Randomness. 0 takes the most likely token. */
    public var temperature: Double? by double("temperature")

    /** Only the most likely tokens, which have so much of the probability together. */
    public var topP: Double? by double("top_p")

    /** Only so many of the most likely tokens. */
    public var topK: Int? by int("top_k")

    /** Only tokens with so much of the probability of the most likely one. */
    public var minP: Double? by double("min_p")

    /** The same seed gives the same answer, everywhere. */
    public var seed: Long? by long("seed")

    /** Texts that end the answer. */
    public var stop: List<String>? by texts("stop")

    /** Tell so many log-probabilities for each token. */
    public var logprobs: Int? by int("logprobs")

    /** How the model should behave. */
    public fun system(text: String): RequestBuilder = message("system", JsonText(text))

    /** What a user says. */
    public fun user(text: String): RequestBuilder = message("user", JsonText(text))

    /** What a user says and shows. */
    public fun user(block: ContentBuilder.() -> Unit): RequestBuilder =
        message("user", JsonArray(ContentBuilder().apply(block).parts))

    /** What the model said. */
    public fun assistant(text: String): RequestBuilder = message("assistant", JsonText(text))

    /** What [call] gave. */
    public fun toolResult(call: ToolCall, result: String): RequestBuilder = add(
        JsonObject(mapOf("role" to JsonText("tool"), "tool_call_id" to JsonText(call.id), "content" to JsonText(result))),
    )

    /** A message as the OpenAI API has it. */
    public fun add(message: JsonObject): RequestBuilder = apply { messages.add(message) }

    /** Messages as the OpenAI API has them. */
    public fun addAll(more: Iterable<Json>): RequestBuilder = apply { messages.addAll(more) }

    /** These messages in place of all others. */
    internal fun only(these: List<Json>): Request {
        messages.clear()
        messages.addAll(these)
        return build()
    }

    /** A text that is continued without a template, in place of messages. */
    public fun prompt(text: String): RequestBuilder = field("prompt", text)

    /** Tools that the model may call. [Responder.respondWithTools] adds its own. */
    public fun tools(tools: Iterable<Tool>): RequestBuilder = field("tools", tools.map { it.definition() })

    /** `auto`, `none`, `required`, or the name of the tool that has to be called. */
    public fun toolChoice(choice: String): RequestBuilder = field(
        "tool_choice",
        if (choice in setOf("auto", "none", "required")) choice
        else mapOf("type" to "function", "function" to mapOf("name" to choice)),
    )

    /** The answer has to be JSON that follows a schema. */
    public fun schema(schema: Json): RequestBuilder = field("schema", schema)

    /** The answer has to match a regular expression. */
    public fun regex(regex: String): RequestBuilder = field("regex", regex)

    /** The answer has to follow a grammar. */
    public fun grammar(grammar: String): RequestBuilder = field("grammar", grammar)

    /** Whether the model reasons before it answers. */
    public fun reasoning(on: Boolean): RequestBuilder = field("reasoning", on)

    /** `low`, `normal` or `high`. */
    public fun priority(priority: String): RequestBuilder = field("priority", priority)

    /** `auto`, `never` or `always`, in place of the policy's. */
    public fun handoff(handoff: String): RequestBuilder = field("handoff", handoff)

    /** Any field of a request by its name; `null` removes it. */
    public fun field(name: String, value: Any?): RequestBuilder = apply {
        if (value == null) request.remove(name) else request[name] = Json.of(value)
    }

    /** The request as it is now. */
    public fun build(): Request {
        val whole = LinkedHashMap(request)
        if (messages.isNotEmpty()) whole["messages"] = JsonArray(messages.toList())
        if (fields.isNotEmpty()) whole["options"] = JsonObject(LinkedHashMap(fields))
        return Request(JsonObject(whole))
    }

    private fun message(role: String, content: Json): RequestBuilder =
        add(JsonObject(mapOf("role" to JsonText(role), "content" to content)))
}

/** Makes the content of a message that is more than text. */
public class ContentBuilder internal constructor() {
    internal val parts = ArrayList<Json>()

    /** A text. */
    public fun text(text: String): ContentBuilder = part(mapOf("type" to "text", "text" to text))

    /** A picture: the bytes of a PNG, JPEG or WebP file. */
    public fun image(file: ByteArray): ContentBuilder = part(mapOf("type" to "image", "data" to Base64.encode(file)))

    /** Sound: the bytes of a file of any format that is read here, as WAV. */
    public fun audio(file: ByteArray): ContentBuilder = part(mapOf("type" to "audio", "data" to Base64.encode(file)))

    /** A part as the OpenAI API has it. */
    public fun part(part: Map<String, Any?>): ContentBuilder = apply { parts.add(Json.of(part)) }
}
