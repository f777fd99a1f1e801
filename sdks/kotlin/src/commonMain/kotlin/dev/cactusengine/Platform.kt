package dev.cactusengine

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeoutOrNull

/** What this SDK needs of the system that it runs on. */
internal interface Platform {
    /** The C library, opened. */
    val library: Library

    /** Runs [block] on a thread of this SDK, which may block. */
    fun execute(block: () -> Unit)

    /**
     * Owns a handle of the library: closes it once, and when [owner] is forgotten. With [waits] no call is under way by then; else the
     * library sees to that.
     */
    fun own(owner: Any, what: String, number: Long, waits: Boolean, close: (Long) -> Unit): Owned

    /** Keeps [owner] from being forgotten up to here. */
    fun keep(owner: Any)
}

/** See [Platform.own]. */
internal interface Owned {
    /** The handle. The library knows when it was closed. */
    val number: Long
    val isClosed: Boolean

    /** Before and after a call with the handle. Where it waits for calls, one that comes behind [close] is refused. */
    fun enter()
    fun leave()

    /** Waits, also for another thread that closes. */
    fun close()
}

internal expect val platform: Platform

internal val library: Library get() = platform.library

private const val STOP_AGAIN_MS = 25L

/**
 * Runs [block] on a thread of this SDK and waits without blocking. A caller that is cancelled has [stop] called, and waits until [block]
 * has returned; what it made is then given to [discard], on a thread of this SDK, too.
 */
internal suspend fun <T> away(stop: () -> Unit = {}, discard: ((T) -> Unit)? = null, block: () -> T): T {
    val done = CompletableDeferred<Result<T>>()
    platform.execute { done.complete(runCatching(block)) }
    try {
        return done.await().getOrThrow()
    } catch (e: CancellationException) {
        withContext(NonCancellable) {
            // What is not under way yet cannot be stopped: again, until it has ended.
            while (!done.isCompleted) {
                stop()
                withTimeoutOrNull(STOP_AGAIN_MS) { done.join() }
            }
            if (discard != null) {
                done.await().onSuccess { made ->
                    val discarded = CompletableDeferred<Result<Unit>>()
                    platform.execute { discarded.complete(runCatching { discard(made) }) }
                    discarded.await().onFailure { e.addSuppressed(it) }
                }
            }
        }
        throw e
    }
}

/** What holds a handle of the library. [close] may be called at any time, from any thread, any number of times. */
public abstract class Closeable internal constructor(what: String, number: Long, waits: Boolean, close: (Long) -> Unit) : AutoCloseable {
    /** Of what the library itself waits for. */
    internal constructor(what: String, number: Long, close: (Long) -> Unit) : this(what, number, false, close)

    private val owned: Owned = platform.own(this, what, number, waits, close)

    /** Whether it was closed. */
    public val isClosed: Boolean get() = owned.isClosed

    /**
     * Cancels what is under way, or where it cannot be cancelled (an [Index], a [LiveTranscription]) lets it end; waits for it, and frees
     * it. On a thread that draws, call [closeAndWait] from a coroutine.
     */
    override fun close(): Unit = owned.close()

    /** As [close], without blocking this thread. */
    public suspend fun closeAndWait(): Unit = away { close() }

    /** Calls [block] with the handle. */
    internal inline fun <T> with(block: (Long) -> T): T {
        owned.enter()
        try {
            return block(owned.number)
        } finally {
            owned.leave()
            platform.keep(this)
        }
    }
}

/** Refuses a text that C would cut. */
internal fun String.noZero(): String = if (indexOf('\u0000') < 0) this else throw refused("a text has a zero byte")
