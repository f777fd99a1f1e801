@file:JvmName("Runner")

package dev.cactusengine.conformance

import dev.cactusengine.*
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.runBlocking

/** Runs a plan of the conformance suite by the public API: `Runner PLAN RESULTS`. */
fun main(args: Array<String>) {
    val cases = Json.parse(File(args[0]).readText())["cases"].items
    File(args[1]).bufferedWriter().use { out ->
        for (case in cases) {
            val results = Case().use { made -> case["steps"].items.map { made.step(it as JsonObject) } }
            out.appendLine(Json.of(mapOf("case" to case["name"], "results" to results)).toString())
            out.flush()
        }
        out.appendLine("""{"end": ${cases.size}}""")
    }
}

/** What a case has made, by name. */
private class Case : AutoCloseable {
    private val made = LinkedHashMap<String, Closeable>()

    override fun close(): Unit = made.values.reversed().forEach { it.close() }

    fun step(step: JsonObject): Map<String, Any?> = try {
        runBlocking { run(step) }
    } catch (e: CactusException) {
        mapOf("error" to mapOf("kind" to e.kind, "message" to e.message))
    }

    private inline fun <reified T> JsonObject.of(field: String): T = made.getValue(this[field].text!!) as T

    private fun JsonObject.keep(what: Closeable): Map<String, Any?> {
        made.put(this["as"].text!!, what)?.close()
        return emptyMap()
    }

    private suspend fun run(step: JsonObject): Map<String, Any?> = when (val op = step["op"].text) {
        "versions" -> mapOf("abi" to Cactus.abiVersion)
        "check_bundle" -> mapOf("report" to Cactus.checkBundle(step["path"].text!!, step["verify"].boolean == true).json)
        "load" -> step.keep(Model.load(step["source"].text!!, options(LoadOptions(), step["options"])))
        "load_embedder" -> step.keep(Embedder.load(step["source"].text!!))
        "load_transcriber" -> step.keep(Transcriber.load(step["source"].text!!))
        "info" -> {
            val info = step.of<Model>("on").info.json
            mapOf("info" to step["fields"].items.associate { it.text!! to info[it.text!!] })
        }
        "tokenize" -> mapOf("tokens" to step.of<Model>("on").tokenize(step["text"].text!!, step["special"].boolean == true))
        "detokenize" -> mapOf("text" to step.of<Model>("on").detokenize(tokens(step), step["special"].boolean == true))
        "score" -> mapOf("score" to step.of<Model>("on").score(tokens(step), step["first"].int!!).json)
        "session" -> step.keep(step.of<Model>("on").session((step["defaults"] as? JsonObject)?.let { Request.json(it.toString()) }))
        "respond" -> mapOf("answer" to step.of<Responder>("on").respond(request(step)).json)
        "stream" -> mapOf("events" to stream(step))
        "start" -> step.keep(step.of<Responder>("on").start(request(step)))
        "read" -> {
            val active = step.of<ActiveRequest>("of")
            mapOf("events" to List(step["count"].int!!) { active.next() }.mapNotNull { it?.json })
        }
        "collect" -> {
            val events = ArrayList<Json>()
            step.of<ActiveRequest>("of").events.collect { events += it.json }
            mapOf("events" to events)
        }
        "cancel" -> done { step.of<ActiveRequest>("of").cancel() }
        "messages" -> mapOf("messages" to step.of<Session>("on").messages)
        "tools" -> tools(step)
        "structured" -> {
            val shape = Shape.json(step["schema"] as JsonObject)
            mapOf("value" to step.of<Responder>("on").respond(request(step), shape))
        }
        "set_policy" -> done {
            val options = (step["options"] as? JsonObject)?.let { options(PolicyOptions(), it) }
            when (val on = step.of<Closeable>("on")) {
                is Transcriber -> on.setPolicy(step["policy"].text, options)
                else -> (on as Model).setPolicy(step["policy"].text, options)
            }
        }
        "set_threads" -> done { step.of<Model>("on").setThreads(step["threads"].int!!, step["decode_threads"].int!!) }
        "memory_pressure" -> done { Cactus.memoryPressure() }
        "embed" -> {
            val texts = step["texts"].items.map { it.text!! }
            mapOf("vectors" to step.of<Embedder>("on").embed(texts, step["normalize"].boolean != false).map { hex(it) })
        }
        "embed_image" -> mapOf("vectors" to listOf(hex(step.of<Embedder>("on").embedImage(step["path"].text!!))))
        "index_open" -> step.keep(Index.open(step["folder"].text!!, step["dimension"].int!!))
        "index_add" -> done {
            val documents = step["ids"].items.mapIndexed { at, id ->
                Document(id.int!!, step["documents"][at].text!!, floats(step["vectors"][at].text!!), step["metadatas"][at].text)
            }
            step.of<Index>("on").add(documents)
        }
        "index_query" -> {
            val vectors = step["vectors"].items.map { floats(it.text!!) }
            val found = step.of<Index>("on").query(vectors, options(QueryOptions(), step["options"]))
            mapOf("found" to found.map { each -> each.map { listOf(it.id, hex(floatArrayOf(it.score))) } })
        }
        "index_get" -> mapOf(
            // No text and an empty one are the same to the library.
            "documents" to step.of<Index>("on").get(ids(step)).map { listOf(it.text, it.metadata.orEmpty(), hex(it.vector)) },
        )
        "index_delete" -> done { step.of<Index>("on").delete(ids(step)) }
        "index_compact" -> done { step.of<Index>("on").compact() }
        "transcribe" -> {
            val on = step.of<Transcriber>("on")
            val options = options(TranscribeOptions(), step["options"])
            val file = step["file"].text
            mapOf("result" to (if (file != null) on.transcribe(file, options) else on.transcribe(pcm(step), options)).json)
        }
        "detect_language" -> {
            val on = step.of<Transcriber>("on")
            val file = step["file"].text
            mapOf("result" to (if (file != null) on.detectLanguage(file) else on.detectLanguage(pcm(step))).json)
        }
        "speech" -> {
            val on = step.of<Transcriber>("on")
            val options = options(SpeechOptions(), step["options"])
            val file = step["file"].text
            mapOf("result" to (if (file != null) on.speech(file, options) else on.speech(pcm(step), options)).json)
        }
        "live" -> step.keep(step.of<Transcriber>("on").live(options(LiveOptions(), step["options"])))
        "push" -> {
            val samples = pcm(step)
            val heard = step.of<LiveTranscription>("of").push(samples, step["from"].int ?: 0, step["to"].int ?: samples.size)
            mapOf("result" to heard.json)
        }
        "finish" -> mapOf("result" to step.of<LiveTranscription>("of").finish().json)
        "close" -> done { step.of<Closeable>("of").closeAndWait() }
        else -> mapOf("absent" to "the operation `$op` is not known")
    }

    private inline fun done(block: () -> Unit): Map<String, Any?> {
        block()
        return emptyMap()
    }

    private fun <T : Options> options(options: T, json: Json?): T {
        (json as? JsonObject)?.forEach { (name, value) -> options[name] = value }
        return options
    }

    private fun request(step: JsonObject): Request = when (val asked = step["request"]) {
        is JsonText -> Request.of(asked.value)
        else -> Request.json(asked.toString())
    }

    private fun tokens(step: JsonObject) = step["tokens"].items.map { it.int!! }.toIntArray()

    private fun ids(step: JsonObject) = step["ids"].items.map { it.int!! }

    private suspend fun stream(step: JsonObject): List<Json> {
        val events = ArrayList<Json>()
        val after = step["cancel_after"].int
        val yes = step["consent"].boolean
        if (after == null) {
            step.of<Responder>("on").stream(request(step)).collect { event ->
                events += event.json
                if (event is Event.Consent && yes != null) event.answer(yes)
            }
            return events
        }
        step.of<Responder>("on").start(request(step)).use { active ->
            var texts = 0
            active.events.collect { event ->
                events += event.json
                if (event is Event.Text && ++texts == after) active.cancel()
            }
        }
        return events
    }

    private suspend fun tools(step: JsonObject): Map<String, Any?> {
        val calls = ArrayList<List<Any?>>()
        val refuse = step["refuse"].items.map { it.text }
        val throws = step["throws"].items.map { it.text }
        val tools = (step["results"] as JsonObject).map { (name, result) ->
            tool(name, "", JsonObject(emptyMap())) { arguments ->
                calls += listOf(name, arguments)
                if (name in throws) throw IllegalStateException(result.text)
                result.text
            }
        }
        val answer = step.of<Responder>("on").respondWithTools(request(step), tools, step["most"].int!!, confirm = { it.name !in refuse })
        return mapOf("answer" to answer.json, "calls" to calls)
    }

    private fun pcm(step: JsonObject): ShortArray {
        val bytes = ByteBuffer.wrap(File(step["pcm"].text!!).readBytes()).order(ByteOrder.LITTLE_ENDIAN)
        return ShortArray(bytes.remaining() / 2).also { bytes.asShortBuffer().get(it) }
    }

    private fun hex(vector: FloatArray): String = vector.joinToString("") { "%08x".format(it.toRawBits()) }

    private fun floats(hex: String): FloatArray = FloatArray(hex.length / 8) {
        Float.fromBits(hex.substring(8 * it, 8 * it + 8).toLong(16).toInt())
    }
}
