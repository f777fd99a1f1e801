package dev.cactusengine

import com.sun.net.httpserver.HttpServer
import java.io.File
import java.net.InetSocketAddress
import java.nio.file.Files
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicInteger
import kotlinx.coroutines.flow.onEach
import kotlinx.coroutines.flow.toList
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertIs
import kotlin.test.assertTrue

class SessionTest {
    private val options: RequestBuilder.() -> Unit = {
        maxTokens = 8
        temperature = 0.0
        seed = 7
    }

    @Test
    fun a_session_remembers() = inTime {
        chat().use { model ->
            val session = model.session {
                system("Be brief.")
                options()
            }
            session.use {
                val first = session.respond("hello")
                checked(session.stream("and then?").toList())
                val messages = session.messages
                assertEquals(listOf("system", "user", "assistant", "user", "assistant"), messages.map { it["role"].text })
                assertEquals(first.text, messages[2]["content"].text)
                // Its messages go on elsewhere.
                model.session { addAll(messages); options() }.use { again ->
                    assertEquals(messages, again.messages)
                    assertEquals(session.respond("more").text, again.respond("more").text)
                }
            }
            session.close()
            refuses("handle") { session.respond("hello") }
            refuses("handle") { session.messages }
        }
    }

    @Test
    fun two_sessions_do_not_mix() = inTime {
        chat().use { model ->
            val sessions = List(2) { model.session(options) }
            val alone = model.session(options).use { it.respond("zero").text }
            val active = sessions.map { it.start(Request.of("zero")) }
            val texts = active.map { it.answer().text }
            assertEquals(listOf(alone, alone), texts)
            active.forEach { it.close() }
            sessions.forEach { it.close() }
        }
    }

    private val weather = tool("weather", "Weather of a city") {
        val city = oneOf("city", "Paris", "Rome")
        val days = integer("days", least = 1, most = 9)
        runs { "sunny in ${it[city]} for ${it[days]} days" }
    }

    private fun calling() = request {
        user("What is the weather?")
        toolChoice("required")
        field("parallel_tool_calls", false)
        maxTokens = 120
        temperature = 0.0
        seed = 7
    }

    @Test
    fun tools_are_called_so_many_rounds_and_no_call_without_a_yes() = inTime {
        Model.load(bundle("chat")) { contextTokens = 4096; threads = 1 }.use { model ->
            val calls = ArrayList<String>()
            val counted = object : Tool by weather {
                override suspend fun call(arguments: JsonObject): String = weather.call(arguments).also { calls += it }
            }
            val answer = model.respondWithTools(calling(), listOf(counted), most = 2)
            assertEquals(2, calls.size)
            assertEquals("tool_calls", answer.finishReason)
            val asked = ArrayList<ToolCall>()
            model.session().use { session ->
                session.respondWithTools(calling(), listOf(counted), most = 1, confirm = { asked += it; false })
                assertEquals(listOf("user", "assistant", "tool", "assistant"), session.messages.map { it["role"].text })
                assertEquals("error: the call was refused", session.messages[2]["content"].text)
            }
            assertEquals(2, calls.size)
            assertEquals("weather", asked.single().name)
            val events = model.stream(calling().change { tools(listOf(weather)) }).toList()
            val pieces = events.filterIsInstance<Event.Call>()
            assertEquals("weather", pieces.first().name)
            assertTrue(pieces.last().isEnd)
            val whole = assertIs<Event.Done>(checked(events).last()).answer.toolCalls.single()
            assertEquals(whole.arguments, pieces.joinToString("") { it.arguments.orEmpty() })
        }
    }

    data class Guess(val mood: String, val sure: Boolean, val numbers: List<Int>)

    @Test
    fun an_answer_becomes_a_value() = inTime {
        val shape = shape {
            val mood = oneOf("mood", "good", "bad")
            val sure = flag("sure")
            val numbers = list("numbers", Shape.integer(0, 9))
            makes { Guess(it[mood], it[sure], it[numbers]) }
        }
        chat().use { model ->
            val asked = request { user("Guess."); maxTokens = 150; temperature = 0.0; seed = 7 }
            val small = shape { val mood = oneOf("mood", "good", "bad"); val sure = flag("sure"); makes { it[mood] to it[sure] } }
            val (mood, _) = model.respond(asked, small)
            assertTrue(mood in listOf("good", "bad"))
            refuses("cancelled") { model.respond(asked.change { maxTokens = 2 }, shape) }
        }
    }

    /** A target on this machine that says "from afar". */
    private fun <T> afar(block: (Int, AtomicInteger) -> T): T {
        val asked = AtomicInteger()
        val server = HttpServer.create(InetSocketAddress("127.0.0.1", 0), 0)
        server.executor = Executors.newCachedThreadPool()
        server.createContext("/v1/chat/completions") { exchange ->
            asked.incrementAndGet()
            exchange.requestBody.readBytes()
            fun chunk(choices: String, usage: String) =
                """data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":$choices,"usage":$usage}""" + "\n\n"
            val text = chunk("""[{"index":0,"delta":{"content":"from afar"},"finish_reason":null}]""", "null") +
                chunk("""[{"index":0,"delta":{},"finish_reason":"stop"}]""", "null") +
                chunk("[]", """{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29}""") + "data: [DONE]\n\n"
            exchange.responseHeaders.add("content-type", "text/event-stream")
            exchange.sendResponseHeaders(200, 0)
            exchange.responseBody.use { it.write(text.toByteArray()) }
        }
        server.start()
        try {
            return block(server.address.port, asked)
        } finally {
            server.stop(0)
        }
    }

    @Test
    fun nothing_leaves_without_a_yes(): Unit = afar { port, asked ->
        val state: File = Files.createTempDirectory("state").toFile()
        val policy = "version = 1\nhandoff = \"always\"\n[routing]\nretries = 0\n[consent]\ntext = \"ask\"\n[targets.far]\n" +
            "protocol = \"openai_chat\"\nbase_url = \"http://127.0.0.1:$port/v1\"\nmodel = \"m\"\nmax_output_tokens = 100\n" +
            "input_usd_per_million = 1\noutput_usd_per_million = 1\n"
        inTime {
            chat().use { model ->
                model.setPolicy(policy, PolicyOptions().apply { this.state = state.path })
                suspend fun answered(yes: Boolean?): Event.Done {
                    val events = model.stream(brief("hello")).onEach { event ->
                        if (event is Event.Consent) {
                            assertEquals(listOf("text"), event.classes)
                            assertEquals("far", event.target)
                            if (yes != null) event.answer(yes)
                        }
                    }.toList()
                    assertEquals(1, events.count { it is Event.Consent })
                    return assertIs<Event.Done>(checked(events).last())
                }
                for (yes in listOf(null, false)) assertEquals("local", answered(yes).answer.answeredBy)
                model.respond(brief("hello"))
                assertEquals(0, asked.get())
                val answer = answered(true).answer
                assertEquals("from afar", answer.text)
                assertEquals("far", answer.answeredBy)
                assertEquals("cloud", answer.route)
                assertEquals(1, asked.get())
                model.setPolicy()
                assertEquals(0, checked(model.stream(brief("hello")).toList()).count { it is Event.Source })
            }
        }
        state.deleteRecursively()
    }
}
