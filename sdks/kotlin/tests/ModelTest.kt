package dev.cactusengine

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.asCoroutineDispatcher
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import kotlinx.coroutines.yield
import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertIs
import kotlin.test.assertNull
import kotlin.test.assertTrue

class ModelTest {
    @Test
    fun a_stream_says_what_the_answer_says() = inTime {
        chat().use { model ->
            val answer = model.respond(brief("hello"))
            assertEquals("length", answer.finishReason)
            assertEquals(12, answer.usage.completionTokens)
            assertEquals(12, answer.tokens.size)
            val events = checked(model.stream(brief("hello")).toList())
            assertIs<Event.Started>(events.first())
            val done = assertIs<Event.Done>(events.last())
            assertEquals(answer.text, done.answer.text)
            assertEquals(answer.text, events.filterIsInstance<Event.Text>().joinToString("") { it.text })
            assertEquals(answer.text, model.stream(brief("hello")).texts().toList().joinToString(""))
            assertEquals(answer.text, model.stream(brief("hello")).snapshots().toList().last())
            assertEquals(answer.text, model.respondBlocking(brief("hello")).text)
        }
    }

    @Test
    fun a_stream_is_cold_and_may_be_collected_again() = inTime {
        chat().use { model ->
            val stream = model.stream(brief("again"))
            assertEquals(0L, model.info.json["requests"]["running"].long ?: 0L)
            assertEquals(stream.texts().toList(), stream.texts().toList())
        }
    }

    @Test
    fun who_leaves_a_stream_early_stops_it() = inTime {
        chat().use { model ->
            val open = Handle.OPEN.get()
            assertEquals(3, model.stream(endless()).take(3).toList().size)
            model.stream(endless()).first()
            assertEquals(open, Handle.OPEN.get())
        }
    }

    @Test
    fun a_coroutine_that_is_cancelled_has_stopped_its_answer_when_it_ends() = inTime {
        Model.load(bundle("chat")) { contextTokens = 60_000 }.use { model ->
            val open = Handle.OPEN.get()
            for (pieces in 0..4) {
                var seen = 0
                val job = launch(Dispatchers.Default) { model.stream(endless()).collect { seen++ } }
                while (seen < pieces) delay(1)
                job.cancelAndJoin()
                assertTrue(seen < 3000, "it went on to the end")
                assertEquals(open, Handle.OPEN.get(), "the request is closed")
                assertFailsWith<kotlinx.coroutines.TimeoutCancellationException> {
                    kotlinx.coroutines.withTimeout(10) { model.respond(endless()) }
                }
                assertEquals(open, Handle.OPEN.get(), "the request is closed")
            }
        }
    }

    @Test
    fun cancel_ends_an_answer_once_and_may_be_called_again() = inTime {
        chat().use { model ->
            val active = model.start(endless())
            val events = ArrayList<Event>()
            while (true) {
                val event = active.next() ?: break
                events += event
                if (events.count { it is Event.Text } == 2) repeat(2) { active.cancel() }
            }
            val last = assertIs<Event.Cancelled>(checked(events).last())
            assertEquals("cancelled", last.answer.finishReason)
            assertTrue(last.answer.usage.completionTokens < ENDLESS)
            active.cancel()
            assertNull(active.next())
            assertNull(active.nextBlocking())
            assertEquals("cancelled", active.answer().finishReason)
            active.close()
            active.close()
            refuses("handle") { active.next() }
            refuses("handle") { active.nextBlocking() }
            refuses("handle") { active.cancel() }
            refuses("handle") { active.answer() }
        }
    }

    @Test
    fun a_request_that_is_closed_lets_go_who_waits_for_it() = inTime {
        chat().use { model ->
            val active = model.start(endless())
            val waits = async(Dispatchers.Default) { runCatching { while (active.next() != null) { } }.exceptionOrNull() }
            delay(30)
            active.closeAndWait()
            val error = waits.await()
            assertTrue(error == null || (error as CactusException).kind == "handle", "$error")
        }
    }

    @Test
    fun a_model_that_is_closed_ends_its_streams_as_cancelled() = inTime {
        val model = chat()
        val session = model.session()
        val active = model.start(endless())
        active.next()
        model.closeAndWait()
        val events = active.events.toList()
        assertIs<Event.Cancelled>(checked(events).last())
        active.close()
        model.close()
        for (attempt in 0..1) {
            refuses("handle") { model.respond("hello") }
            refuses("handle") { model.stream("hello").collect() }
            refuses("handle") { model.info }
            refuses("handle") { model.tokenize("x") }
            refuses("handle") { model.detokenize(intArrayOf(1)) }
            refuses("handle") { model.score(intArrayOf(1, 2)) }
            refuses("handle") { model.setThreads(1, 1) }
            refuses("handle") { model.setPolicy() }
            refuses("handle") { model.session() }
            refuses("handle") { session.respond("hello") }
        }
        assertTrue(model.isClosed)
        session.close()
        refuses("handle") { session.messages }
    }

    @Test
    fun nothing_runs_on_the_thread_that_asks() = inTime {
        // One thread, as the one that draws: it goes on while the model answers.
        java.util.concurrent.Executors.newSingleThreadExecutor().asCoroutineDispatcher().use { draws ->
            withContext(draws) {
                Model.load(bundle("chat")) { contextTokens = 60_000; threads = 1 }.use { model ->
                    val answers = listOf(async { model.respond(endless()) }, async { model.stream(endless()).collect() })
                    repeat(3) { yield() }
                    delay(1)
                    answers.forEach { assertTrue(it.isActive, "the thread was free while the model answered") }
                    answers.forEach { it.cancelAndJoin() }
                }
            }
        }
    }

    @Test
    fun answers_are_made_together() = inTime {
        chat().use { model ->
            val texts = List(4) { async { model.respond(brief("question $it")).text } }.map { it.await() }
            assertEquals(texts, List(4) { model.respond(brief("question $it")).text })
        }
    }

    @Test
    fun wrong_requests_are_refused_by_name() = inTime {
        chat().use { model ->
            val error = assertFailsWith<CactusException> { model.respond(brief("x").change { field("temprature", 1) }) }
            assertEquals("argument", error.kind)
            assertTrue("temprature" in error.message!!)
            refuses("argument") { model.stream(request { maxTokens = 3 }).collect() }
            refuses("argument") { model.tokenize("a\u0000b") }
            refuses("argument") { model.setThreads(-1, 0) }
            refuses("argument") { Model.load(bundle("chat")) { set("context_token", 5) } }
        }
        Model.load(bundle("chat")) { contextTokens = 256; threads = 1 }.use { model ->
            refuses("context_full") { model.respond("long ".repeat(400)) }
        }
    }

    @Test
    fun models_that_are_not_there_are_refused() = inTime {
        val missing = "/nowhere/at/all"
        assertFailsWith<CactusException> { Model.load(missing) { offline = true } }
        assertFailsWith<CactusException> { Embedder.load(missing) }
        assertFailsWith<CactusException> { Transcriber.load(missing) }
        val report = Cactus.checkBundle(missing)
        assertFalse(report.isUsable)
        assertTrue(report.error!!.message!!.isNotEmpty())
        assertTrue(Cactus.checkBundle(bundle("chat"), verify = true).isUsable)
        refuses("unsupported") { Embedder.load(bundle("chat")) }
        refuses("unsupported") { Transcriber.load(bundle("chat")) }
    }

    @Test
    fun text_becomes_tokens_and_text_again() = inTime {
        chat().use { model ->
            val tokens = model.tokenize("the word")
            assertEquals("the word", model.detokenize(tokens))
            assertContentEquals(tokens, model.tokenizeBlocking("the word"))
            val score = model.score(tokens)
            assertEquals(tokens.size - 1, score.logprobs.size)
            assertEquals(score.logprobs.sum(), score.logprob, 1e-4)
            assertTrue(model.info.json.isNotEmpty())
        }
    }

    @Test
    fun a_reader_that_is_cancelled_while_its_event_is_on_the_way_cancels_the_request() = inTime {
        Model.load(bundle("chat")) { contextTokens = 4096; threads = 1 }.use { model ->
            var waited = 0
            repeat(20) { round ->
                // The first event comes behind the whole prompt, which begins anew in each round: nobody has read a part of it before.
                val asked = request {
                    prompt("$round" + " Count the words of this.".repeat(40))
                    maxTokens = 3000
                    temperature = 0.0
                    seed = 1
                    set("ignore_eos", true)
                }
                model.start(asked).use { active ->
                    val reading = launch { active.next() }
                    yield()
                    // The event comes while nobody may run on this thread, or, in some rounds, not even then.
                    Thread.sleep(round.toLong())
                    reading.cancel()
                    reading.join()
                    // An event that is there already is given out without waiting: such a round says nothing.
                    if (!reading.isCancelled) return@use
                    waited++
                    val events = active.events.toList()
                    assertTrue(events.first() is Event.Started || events.size == 1, "nothing is lost")
                    assertIs<Event.Cancelled>(events.last())
                    assertEquals(1, events.count { it.isLast })
                }
            }
            assertTrue(waited > 0, "no reader waited")
        }
    }

    @Test
    fun text_comes_in_whole_characters() = inTime {
        chat().use { model ->
            // Random weights write torn characters, if anything does.
            for (seed in 1L..5L) {
                val asked = request { prompt("The"); maxTokens = 60; temperature = 2.0; this.seed = seed; set("ignore_eos", true) }
                val texts = model.stream(asked).toList().filterIsInstance<Event.Text>()
                assertTrue(texts.all { it.text.isNotEmpty() && '\uFFFD' !in it.text && !it.text.last().isHighSurrogate() })
                assertEquals(model.respond(asked).text, texts.joinToString("") { it.text })
            }
        }
    }

    @Test
    fun progress_is_told_and_what_it_throws_stops_the_loading() = inTime {
        val stages = ArrayList<String>()
        Model.load(bundle("chat"), onProgress = { stages += it.stage }) { threads = 1 }.close()
        assertTrue(stages.isNotEmpty())
        class Enough : RuntimeException()
        assertFailsWith<Enough> { Model.load(bundle("chat"), onProgress = { throw Enough() }) {} }
    }

    @Test
    fun hints_change_no_answer() = inTime {
        chat().use { model ->
            val text = model.respond(brief("sky")).text
            model.setThreads(1, 1)
            Cactus.memoryPressure()
            assertEquals(text, model.respond(brief("sky")).text)
        }
    }

    @Test
    fun the_log_is_heard_and_what_it_throws_harms_nothing() = inTime {
        val said = java.util.Collections.synchronizedList(ArrayList<String>())
        Cactus.setLog(0) { _, component, message ->
            said += "$component: $message"
            error("a listener that throws")
        }
        try {
            Embedder.load(bundle("embeds")).close()
            chat().use { it.respond(brief("x")) }
        } finally {
            Cactus.setLog(2, null)
        }
        assertTrue(said.isNotEmpty())
        val count = said.size
        chat().use { it.respond(brief("x")) }
        assertEquals(count, said.size)
    }
}
