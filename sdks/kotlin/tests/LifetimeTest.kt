package dev.cactusengine

import java.util.concurrent.ThreadLocalRandom
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import kotlinx.coroutines.yield
import kotlin.random.Random
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFalse
import kotlin.test.assertNotEquals
import kotlin.test.assertNotNull
import kotlin.test.assertTrue

class LifetimeTest {
    /** Lets everything forgotten be closed, and gives how many handles are open. */
    private suspend fun left(want: Int): Int {
        repeat(200) {
            System.gc()
            if (Handle.OPEN.get() <= want) return Handle.OPEN.get()
            delay(20)
        }
        return Handle.OPEN.get()
    }

    @Test
    fun what_is_forgotten_is_closed() = inTime {
        val before = left(0)
        withContext(Dispatchers.Default) {
            val model = chat()
            model.session()
            model.start(endless()).next()
            Embedder.load(bundle("embeds"))
        }
        assertTrue(Handle.OPEN.get() > before)
        assertEquals(before, left(before))
    }

    @Test
    fun closing_waits_for_another_thread_that_closes() = inTime {
        repeat(20) {
            val model = chat()
            val active = model.start(endless())
            active.next()
            List(4) { async(Dispatchers.IO) { model.close(); model.isClosed } }.awaitAll().forEach { assertTrue(it) }
            active.close()
        }
    }

    @Test
    fun closing_waits_for_a_call_where_the_library_does_not() = inTime {
        var isFreed = false
        val handle = Handle("it", 1, waits = true) { isFreed = true }
        handle.enter()
        val closing = launch(Dispatchers.IO) { handle.close() }
        while (!handle.isClosed) delay(1)
        delay(50)
        assertFalse(isFreed)
        handle.leave()
        closing.join()
        assertTrue(isFreed)
        refuses("handle") { handle.enter() }
    }

    @Test
    fun what_nobody_waits_for_any_more_is_discarded_on_another_thread() = inTime {
        val caller = Thread.currentThread()
        var thread: Thread? = null
        val job = launch { away(discard = { _: Int -> thread = Thread.currentThread() }) { Thread.sleep(50).let { 1 } } }
        yield()
        job.cancelAndJoin()
        assertNotNull(thread)
        assertNotEquals(caller, thread)
    }

    /** 1,000 with CACTUS_SOAK=1000. */
    @Test
    fun random_interleavings_of_open_answer_cancel_and_close_leave_nothing_behind() = inTime(1200) {
        val rounds = System.getenv("CACTUS_SOAK")?.toInt() ?: 100
        val before = left(0)
        val seed = System.getenv("CACTUS_SEED")?.toLong() ?: ThreadLocalRandom.current().nextLong()
        println("interleavings: $rounds, CACTUS_SEED=$seed")
        val random = Random(seed)
        repeat(rounds) { round ->
            val seeds = LongArray(3) { random.nextLong() }
            val model = chat()
            val session = model.session()
            val workers = seeds.map { mine ->
                launch(Dispatchers.Default) {
                    try {
                        work(model, session, Random(mine))
                    } catch (e: CactusException) {
                        assertTrue(e.kind in setOf("handle", "busy", "argument"), "round $round: ${e.kind}: ${e.message}")
                    }
                }
            }
            if (random.nextBoolean()) delay(random.nextLong(8))
            when (random.nextInt(4)) {
                0 -> model.closeAndWait()
                1 -> session.closeAndWait()
                2 -> workers.forEach { it.cancel() }
                else -> {}
            }
            workers.forEach { it.join() }
            session.close()
            model.close()
            assertEquals(before, Handle.OPEN.get(), "round $round of CACTUS_SEED=$seed")
        }
    }

    private suspend fun work(model: Model, session: Session, random: Random) = repeat(3) {
        val who: Responder = if (random.nextInt(3) == 0) session else model
        val asked = if (who is Session) brief("x") else endless(random.nextInt(1, 40))
        when (random.nextInt(5)) {
            0 -> who.respond(asked)
            1 -> {
                var last: Event? = null
                who.stream(asked).collect {
                    assertTrue(last?.isLast != true, "an event after the last")
                    last = it
                }
                assertTrue(last?.isLast == true, "no last event")
            }
            2 -> who.start(asked).use { active ->
                repeat(random.nextInt(4)) { active.next() }
                active.cancel()
                while (active.next() != null) { }
            }
            3 -> withContext(Dispatchers.IO) { who.startBlocking(asked).use { it.nextBlocking() } }
            else -> {
                val active = who.start(asked)
                val other = reading(active)
                try {
                    if (random.nextBoolean()) delay(random.nextLong(3))
                    active.closeAndWait()
                } finally {
                    active.close()
                    withContext(NonCancellable) { other.join() }
                }
            }
        }
    }

    private fun reading(active: ActiveRequest) = kotlinx.coroutines.CoroutineScope(Dispatchers.Default).launch {
        try {
            while (active.next() != null) { }
        } catch (e: CactusException) {
            assertEquals("handle", e.kind)
        }
    }
}
