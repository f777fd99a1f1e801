package dev.cactusengine

import kotlin.coroutines.cancellation.CancellationException

/**
 * Something that a model may call. Implement it, or make one with [tool].
 */
public interface Tool {
    public val name: String

    /** What it does, for the model. */
    public val description: String

    /** JSON schema of the arguments. */
    public val parameters: JsonObject

    /**
     * Does it. The model reads what this returns, and the message of what it throws. Only a `CancellationException` ends the answer.
     */
    public suspend fun call(arguments: JsonObject): String
}

/** The tool as a request has it. */
internal fun Tool.definition(): JsonObject = schemaOf(
    "type" to "function",
    "function" to schemaOf("name" to name, "description" to description, "parameters" to parameters),
)

/**
 * Makes a tool.
 *
 * ```kotlin
 * val weather = tool("weather", "The weather of a city") {
 *     val city = text("city", "Name of the city")
 *     runs { "sunny in ${it[city]}" }
 * }
 * ```
 */
public fun tool(name: String, description: String, block: ToolBuilder.() -> Unit): Tool = ToolBuilder().apply(block).build(name, description)

/** Says which arguments a tool has, and what it does. */
public class ToolBuilder internal constructor() : ObjectBuilder() {
    private var run: (suspend (Fields) -> Any?)? = null

    /** Does it. What it gives is a text, or becomes JSON. */
    public fun runs(run: suspend (Fields) -> Any?) {
        this.run = run
    }

    internal fun build(name: String, description: String): Tool {
        val run = run ?: throw refused("the tool `$name` needs `runs`, which says what it does")
        return FunctionTool(name, description, schema()) { run(Fields(it)) }
    }
}

/** A tool by a schema of your own. */
public fun tool(name: String, description: String, parameters: JsonObject, run: suspend (JsonObject) -> Any?): Tool =
    FunctionTool(name, description, parameters, run)

private class FunctionTool(
    override val name: String,
    override val description: String,
    override val parameters: JsonObject,
    private val run: suspend (JsonObject) -> Any?,
) : Tool {
    override suspend fun call(arguments: JsonObject): String = when (val result = run(arguments)) {
        is String -> result
        is Unit -> "done"
        else -> Json.of(result).toString()
    }
}

/** Says before each call of a tool whether it may be made. */
public fun interface ConfirmCall {
    public suspend fun mayCall(call: ToolCall): Boolean
}

/** Calls what [answer] wants, and gives the messages with the results. */
internal suspend fun results(answer: Answer, tools: List<Tool>, confirm: ConfirmCall?): List<Json> = answer.toolCalls.map { call ->
    schemaOf("role" to "tool", "tool_call_id" to call.id, "content" to result(call, tools, confirm))
}

/** What a tool gave, or what went wrong: in the words of all SDKs. */
private suspend fun result(call: ToolCall, tools: List<Tool>, confirm: ConfirmCall?): String {
    val tool = tools.firstOrNull { it.name == call.name } ?: return "error: there is no tool `${call.name}`"
    val arguments = try {
        call.json()
    } catch (_: CactusException) {
        return "error: the arguments are no JSON object"
    }
    if (confirm != null && !confirm.mayCall(call)) return "error: the call was refused"
    return try {
        tool.call(arguments)
    } catch (e: CancellationException) {
        throw e
    } catch (e: Throwable) {
        "error: ${e.message ?: e}"
    }
}
