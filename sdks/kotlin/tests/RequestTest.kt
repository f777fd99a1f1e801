package dev.cactusengine

import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlinx.coroutines.runBlocking

class RequestTest {
    @Test
    fun a_request_has_the_names_of_the_c_library() {
        val asked = request {
            system("Be brief.")
            user {
                text("What is it?")
                image(byteArrayOf(1, 2, 3))
            }
            maxTokens = 5
            topP = 0.5
            stop = listOf("\n")
            toolChoice("weather")
            reasoning(false)
        }
        assertEquals(
            """{"tool_choice":{"type":"function","function":{"name":"weather"}},"reasoning":false,"messages":[{"role":"system",""" +
                """"content":"Be brief."},{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image","data":"AQID"}]}],""" +
                """"options":{"max_tokens":5,"top_p":0.5,"stop":["\n"]}}""",
            asked.toString(),
        )
    }

    @Test
    fun a_request_can_be_changed_into_another() {
        val first = request {
            user("a")
            maxTokens = 3
        }
        val second = first.change {
            assertEquals(3, maxTokens)
            assistant("b").user("c")
            maxTokens = null
        }
        assertEquals("""{"messages":[{"role":"user","content":"a"}],"options":{"max_tokens":3}}""", first.toString())
        assertEquals(3, second.json["messages"].items.size)
        assertNull(second.json["options"]["max_tokens"])
    }

    @Test
    fun options_are_left_out_until_they_are_set() {
        val options = LoadOptions()
        assertNull(options.json())
        options.contextTokens = 64
        options["later"] = "x"
        assertEquals("""{"context_tokens":64,"later":"x"}""", options.json())
    }

    enum class Mood { GOOD, BAD }
    data class City(val name: String, val people: Int, val moods: List<Mood>, val note: String?, val rank: Int)

    private val city = shape {
        val name = text("name", "Name of the city")
        val people = integer("people", least = 0)
        val moods = list("moods", enumShape<Mood>())
        val note = optional("note", Shape.text())
        val rank = withDefault("rank", Shape.integer(), 7)
        makes { City(it[name], it[people], it[moods], it[note], it[rank]) }
    }

    @Test
    fun a_shape_has_a_schema_and_reads_what_follows_it() {
        assertEquals(
            """{"type":"object","properties":{"name":{"type":"string","description":"Name of the city"},"people":{"type":"integer",""" +
                """"minimum":0},"moods":{"type":"array","items":{"enum":["GOOD","BAD"]}},"note":{"type":"string"},"rank":{"type":"integer"}},""" +
                """"required":["name","people","moods"],"additionalProperties":false}""",
            city.schema.toString(),
        )
        assertEquals(
            City("Ulm", 5, listOf(Mood.BAD), null, 7),
            city.parse("""{"name": "Ulm", "people": 5, "moods": ["BAD"]}"""),
        )
        assertEquals(1, city.parse("""{"name": "Ulm", "people": 5, "moods": [], "note": "x", "rank": 1}""").rank)
        for (wrong in listOf("3", """{"name": "Ulm"}""", """{"name": 3, "people": 5, "moods": []}""", """{"name": "", "people": 1, "moods": ["X"]}""")) {
            refuses("argument") { city.parse(wrong) }
        }
        refuses("argument") { shape<Int> { text("a") } }
        refuses("argument") {
            shape {
                text("a")
                text("a")
                makes { 1 }
            }
        }
        assertEquals(listOf(null, 1), Shape.list(Shape.integer().orNull()).parse("[null, 1]"))
    }

    @Test
    fun a_tool_says_what_it_takes_and_does_it() = runBlocking<Unit> {
        val weather = tool("weather", "The weather of a city") {
            val city = oneOf("city", "Paris", "Rome")
            val days = withDefault("days", Shape.integer(1, 9), 1)
            runs { mapOf("city" to it[city], "days" to it[days]) }
        }
        assertEquals("""{"city":"Rome","days":1}""", weather.call(JsonObject.parse("""{"city": "Rome"}""")))
        assertFailsWith<CactusException> { weather.call(JsonObject.parse("""{"city": "Oslo"}""")) }
        assertEquals("weather", weather.definition()["function"]["name"].text)
    }

    @Test
    fun results_of_tools_become_messages() = runBlocking<Unit> {
        val call = """{"id": "1", "type": "function", "function": {"name": "NAME", "arguments": "ARGUMENTS"}}"""
        fun answer(name: String, arguments: String) =
            Answer(JsonObject.parse("""{"message": {"tool_calls": [${call.replace("NAME", name).replace("ARGUMENTS", arguments)}]}}"""))
        val tools = listOf(
            tool("fails", "x") { runs { throw java.io.IOException("no net") } },
            tool("breaks", "x") { runs { throw NotImplementedError("not yet") } },
            tool("leaves", "x") { runs { throw kotlinx.coroutines.CancellationException("enough") } },
            tool("works", "x") { runs { } },
        )
        suspend fun said(name: String, arguments: String = "{}", confirm: ConfirmCall? = null) =
            results(answer(name, arguments), tools, confirm).single()["content"].text
        assertEquals("done", said("works"))
        assertEquals("done", said("works", ""))
        assertEquals("error: no net", said("fails"))
        assertEquals("error: not yet", said("breaks"))
        assertEquals("error: there is no tool `other`", said("other"))
        assertEquals("error: the arguments are no JSON object", said("works", "[1]"))
        assertEquals("error: the arguments are no JSON object", said("works", "so"))
        assertEquals("error: the call was refused", said("works") { false })
        assertFailsWith<kotlinx.coroutines.CancellationException> { said("leaves") }
    }

    /** Answers with the texts of results, and counts. */
    private class Scripted(private val answers: List<String>) : Responder {
        val asked = ArrayList<Request>()

        override suspend fun start(request: Request): ActiveRequest = error("not asked")
        override fun startBlocking(request: Request): ActiveRequest = error("not asked")

        override suspend fun respond(request: Request): Answer {
            asked += request
            return Answer(JsonObject.parse(answers[asked.size - 1]))
        }

        override suspend fun respondWithTools(request: Request, tools: List<Tool>, most: Int, confirm: ConfirmCall?): Answer =
            withTools(request, tools, most, confirm) { asked, _, _ -> asked }
    }

    @Test
    fun no_tool_is_called_for_an_answer_that_was_cancelled() = runBlocking<Unit> {
        var calls = 0
        val tools = listOf(tool("works", "x") { runs { calls++ } })
        fun answer(reason: String) = """{"finish_reason": "$reason", "message": {"tool_calls": [{"id": "1", "type": "function", """ +
            """"function": {"name": "works", "arguments": "{}"}}]}}"""
        val responder = Scripted(listOf(answer("tool_calls"), answer("cancelled"), answer("stop")))
        assertEquals("cancelled", responder.respondWithTools(Request.of("x"), tools).finishReason)
        assertEquals(1, calls)
        assertEquals(2, responder.asked.size)
    }

    @Test
    fun a_value_that_is_not_whole_is_cancelled() = runBlocking<Unit> {
        // It could be read, and is not what the model would have written.
        val cut = Scripted(listOf("""{"finish_reason": "length", "whole": false, "message": {"content": "12"}}"""))
        val error = assertFailsWith<CactusException> { cut.respond(Request.of("x"), Shape.integer()) }
        assertEquals("cancelled", error.kind)
        assertTrue("length" in error.message!!)
        val whole = Scripted(listOf("""{"finish_reason": "length", "whole": true, "message": {"content": "12"}}"""))
        assertEquals(12, whole.respond(Request.of("x"), Shape.integer()))
    }
}
