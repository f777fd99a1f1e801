package dev.cactusengine

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow

/** What answers: a [Model], which forgets, or a [Session], which remembers. An application can put one of its own into its tests. */
public interface Responder {
    /** Begins a request. It has to be closed. */
    public suspend fun start(request: Request): ActiveRequest

    /** As [start], on this thread. */
    public fun startBlocking(request: Request): ActiveRequest

    /** Answers a request. A coroutine that is cancelled stops it and waits until it has ended. */
    public suspend fun respond(request: Request): Answer = closing({ start(request) }) { it.answer() }

    /** Answers a question. */
    public suspend fun respond(text: String): Answer = respond(Request.of(text))

    /** As [respond], on this thread. */
    public fun respondBlocking(request: Request): Answer = startBlocking(request).use { it.answerBlocking() }

    /** As [respond], on this thread. */
    public fun respondBlocking(text: String): Answer = respondBlocking(Request.of(text))

    /**
     * The events of an answer. Each collector asks anew. It ends after exactly one of [Event.Done], [Event.Cancelled] and
     * [Event.Failed]; a request that cannot begin throws. Leaving it early, or cancelling the coroutine, stops the answer within a token
     * and waits for that.
     */
    public fun stream(request: Request): Flow<Event> = flow {
        closing({ start(request) }) { active ->
            while (true) emit(active.next() ?: break)
        }
    }

    /** The events of the answer to a question. */
    public fun stream(text: String): Flow<Event> = stream(Request.of(text))

    /**
     * Answers with a value of [shape]: the model cannot write anything else. An answer that ended before it was whole, as by
     * [RequestBuilder.maxTokens], is an error of the kind `cancelled`.
     */
    public suspend fun <T> respond(request: Request, shape: Shape<T>): T = valueOf(respond(request.change { schema(shape.schema) }), shape)

    /** As [respond], on this thread. */
    public fun <T> respondBlocking(request: Request, shape: Shape<T>): T =
        valueOf(respondBlocking(request.change { schema(shape.schema) }), shape)

    /**
     * Answers, and calls [tools] where the model wants them, at most [most] rounds. [confirm] is asked before each call; a call that is
     * not allowed is told to the model. An answer with [Answer.toolCalls] means that the rounds were used up, or that it was cancelled.
     */
    public suspend fun respondWithTools(request: Request, tools: List<Tool>, most: Int = 8, confirm: ConfirmCall? = null): Answer
}

/** Answers until no tool is wanted. [next] makes the request behind an answer and the messages with what its tools gave. */
internal suspend fun Responder.withTools(
    request: Request,
    tools: List<Tool>,
    most: Int,
    confirm: ConfirmCall?,
    next: (asked: Request, answer: Answer, results: List<Json>) -> Request,
): Answer {
    var asked = request.with(tools)
    var rounds = 0
    while (true) {
        val answer = respond(asked)
        if (answer.toolCalls.isEmpty() || answer.finishReason == "cancelled" || rounds == most) return answer
        rounds++
        asked = next(asked, answer, results(answer, tools, confirm))
    }
}

/** The request with the tools that it does not have yet. */
internal fun Request.with(tools: List<Tool>): Request {
    val there = json["tools"].items
    val names = there.mapNotNull { it["function"]["name"].text }
    return change().field("tools", there + tools.filter { it.name !in names }.map { it.definition() }).build()
}

private fun <T> valueOf(answer: Answer, shape: Shape<T>): T {
    if (answer.json["whole"].boolean == false) {
        val message = "the answer ended before it was whole (${answer.finishReason}), after ${answer.usage.completionTokens} tokens"
        throw CactusException(CactusCode.CANCELLED, "cancelled", message)
    }
    return shape.parse(answer.text)
}
