package dev.cactusengine

import dev.cactusengine.raw.JniLibrary
import java.lang.ref.PhantomReference
import java.lang.ref.ReferenceQueue
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.SynchronousQueue
import java.util.concurrent.ThreadPoolExecutor
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.locks.ReentrantLock
import java.util.concurrent.locks.ReentrantReadWriteLock
import kotlin.concurrent.withLock

internal actual val platform: Platform get() = JvmPlatform

internal object JvmPlatform : Platform {
    override val library: Library by lazy { JniLibrary.open() }

    private val count = AtomicInteger()

    /** Threads come when they are needed and go when they are not. A bound would let one who waits keep out who would wake him. */
    private val threads = ThreadPoolExecutor(0, Int.MAX_VALUE, 10, TimeUnit.SECONDS, SynchronousQueue()) { task ->
        Thread(null, task, "cactus-${count.incrementAndGet()}", 1 shl 20).apply { isDaemon = true }
    }

    override fun execute(block: () -> Unit): Unit = threads.execute(block)

    override fun own(owner: Any, what: String, number: Long, waits: Boolean, close: (Long) -> Unit): Owned =
        Handle(what, number, waits, close).also { Reaper.watch(owner, it) }

    @Volatile
    private var kept: Any? = null

    override fun keep(owner: Any) {
        // What is written where others could read it has to be there: Reference.reachabilityFence for old Androids.
        kept = owner
        kept = null
    }
}

/** A handle of the library, closed once. It does not know who owns it. */
internal class Handle(private val what: String, override val number: Long, waits: Boolean, private val closer: (Long) -> Unit) : Owned {
    private val lock = ReentrantLock()

    /** Each call reads, and closing writes. */
    private val calls = if (waits) ReentrantReadWriteLock() else null

    @Volatile
    override var isClosed: Boolean = false
        private set

    @Volatile
    private var isDone = false

    init {
        OPEN.incrementAndGet()
    }

    override fun enter() {
        val call = calls?.readLock() ?: return
        call.lock()
        if (isClosed) {
            call.unlock()
            throw closed(what)
        }
    }

    override fun leave() {
        calls?.readLock()?.unlock()
    }

    override fun close() {
        if (isDone) return
        isClosed = true
        lock.withLock {
            if (isDone) return
            val calls = calls?.writeLock()
            calls?.lock()
            try {
                closer(number)
            } catch (e: CactusException) {
                // The library has closed it itself.
                if (e.code != CactusCode.HANDLE) throw e
            } finally {
                calls?.unlock()
                isDone = true
                OPEN.decrementAndGet()
                Reaper.forget(this)
            }
        }
    }

    override fun toString(): String = "$what ${number.toString(16)}"

    companion object {
        /** How many handles are open. Tests look for leaks with it. */
        val OPEN: AtomicInteger = AtomicInteger()
    }
}

/** Closes what was forgotten. Android has no `Cleaner` before API 33. */
private object Reaper {
    private class Watch(owner: Any, val handle: Handle, queue: ReferenceQueue<Any>) : PhantomReference<Any>(owner, queue)

    private val queue = ReferenceQueue<Any>()
    private val watches = ConcurrentHashMap<Handle, Watch>()

    init {
        Thread(null, ::run, "cactus-reaper", 1 shl 20).apply { isDaemon = true }.start()
    }

    fun watch(owner: Any, handle: Handle) {
        watches[handle] = Watch(owner, handle, queue)
    }

    fun forget(handle: Handle) {
        watches.remove(handle)?.clear()
    }

    private fun run() {
        while (true) {
            val watch = queue.remove() as Watch
            // A close may wait for an answer: not on this thread.
            JvmPlatform.execute { runCatching { watch.handle.close() } }
        }
    }
}
