package dev.cactusengine

import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.withContext

/**
 * A request under way. [Responder.stream] is the usual way; this is for a request that is cancelled from elsewhere, or read piece by
 * piece. Close it in any case.
 */
public class ActiveRequest internal constructor(private val asked: Closeable, number: Long) :
    Closeable("the request", number, { library.requestClose(it) }) {

    internal var isOver = false
        private set

    /** What came for a reader that was cancelled meanwhile. */
    private var kept: Event? = null

    /**
     * The next event, or `null` after the last. One coroutine at a time asks. If it is cancelled while it waits, the request is cancelled,
     * and what it waited for is there for whoever asks next.
     */
    public suspend fun next(): Event? {
        // Most often it is there already, or the model is slow enough for another thread.
        val next = take(0)
        if (next != null || isOver) return next
        return away(stop = ::cancelQuietly, discard = { kept = it.also { cancelQuietly() } }) { take(-1) }
    }

    /** As [next], on this thread. */
    public fun nextBlocking(): Event? = take(-1)

    private fun take(timeoutMs: Long): Event? {
        val first = kept
        kept = null
        if (first != null && !isClosed) return first
        return with { number ->
            val next = library.requestNext(number, timeoutMs)
            isOver = next.isOver
            next.json?.let { Event.of(it, this) }
        }
    }

    /** What is left of the events, to the last. Who leaves early cancels the request. */
    public val events: Flow<Event>
        get() = flow {
            var isWhole = false
            try {
                while (true) emit(next() ?: break)
                isWhole = true
            } finally {
                if (!isWhole) cancelQuietly()
            }
        }

    /** Stops it within a token, from any thread. */
    public fun cancel(): Unit = with { library.requestCancel(it) }

    /** Says whether what [Event.Consent] lists may leave. */
    public fun consent(yes: Boolean): Unit = with { library.requestConsent(it, yes) }

    /** Waits for the end. A request that failed throws; one that was cancelled gives what came of it. */
    public suspend fun answer(): Answer = away(stop = ::cancelQuietly) { answerBlocking() }

    /** As [answer], on this thread. */
    public fun answerBlocking(): Answer {
        val json = with { library.requestWait(it) }
        platform.keep(asked)
        return Answer(JsonObject.parse(json))
    }

    /** Closed is as good as cancelled. */
    private fun cancelQuietly() {
        try {
            cancel()
        } catch (e: CactusException) {
            if (e.code != CactusCode.HANDLE) throw e
        }
    }
}

/** Starts a request with [start], gives it to [block], and closes it, whatever happens. */
internal suspend inline fun <T> closing(start: () -> ActiveRequest, block: (ActiveRequest) -> T): T {
    val active = start()
    try {
        return block(active)
    } finally {
        // After the last event nothing is waited for.
        if (active.isOver) active.close() else withContext(NonCancellable) { active.closeAndWait() }
    }
}
