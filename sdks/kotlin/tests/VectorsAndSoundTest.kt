package dev.cactusengine

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.file.Files
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlin.math.sqrt
import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlin.time.measureTime

class VectorsAndSoundTest {
    private fun length(vector: FloatArray) = sqrt(vector.sumOf { it.toDouble() * it })

    @Test
    fun texts_and_pictures_become_vectors() = inTime {
        val embedder = Embedder.load(bundle("embeds"))
        val vector = embedder.embed("the word")
        assertEquals(1.0, length(vector), 1e-5)
        assertContentEquals(vector, embedder.embed(listOf("a", "the word"))[1])
        refuses("argument") { embedder.embed("the ".repeat(600)) }
        refuses("unsupported") { embedder.embedImage(golden("pictures/files/rgb.png").path) }
        embedder.close()
        refuses("handle") { embedder.embed("x") }
        Embedder.load(bundle("pictures")).use { pictures ->
            assertEquals(pictures.embed("x").size, pictures.embedImage(golden("pictures/files/rgb.png").path).size)
            // Vectors of other lengths than the first guess of room are not cut.
            assertTrue(length(pictures.embedImage(golden("pictures/files/wide.png").path)) > 0)
        }
    }

    @Test
    fun an_index_finds_what_is_near() = inTime {
        val folder = Files.createTempDirectory("index").toFile()
        val index = Index.open(folder.path, 2)
        val long = "long ".repeat(3000)
        index.add(
            listOf(
                Document(1, "one", floatArrayOf(1f, 0f), "beside"), Document(2, long, floatArrayOf(0f, 1f)),
                Document(-3, "Grüße", floatArrayOf(1f, 1f)),
            ),
        )
        val (first, second) = index.query(listOf(floatArrayOf(1f, 0f), floatArrayOf(0f, 1f)), QueryOptions().apply { count = 2 })
        assertEquals(listOf(1, -3), first.map { it.id })
        assertEquals(listOf(2, -3), second.map { it.id })
        assertEquals(1f, first[0].score, 0.01f)
        assertEquals(listOf(1), index.query(floatArrayOf(1f, 0f), QueryOptions().apply { scoreThreshold = 0.9 }).map { it.id })
        val (one, two) = index.get(listOf(1, 2))
        assertEquals("one", one.text)
        assertEquals("beside", one.metadata)
        assertEquals(long, two.text)
        assertNull(two.metadata)
        assertEquals(1.0, length(two.vector), 0.01)
        refuses("argument") { index.add(listOf(Document(1, "again", floatArrayOf(1f, 0f)))) }
        refuses("argument") { index.add(listOf(Document(9, "short", floatArrayOf(1f)))) }
        for (count in listOf(Int.MAX_VALUE, (1 shl 20) + 1)) {
            refuses("argument") { index.query(floatArrayOf(1f, 0f), QueryOptions().apply { this.count = count }) }
        }
        refuses("argument") { Index.open(folder.path, Int.MAX_VALUE) }
        index.delete(listOf(1, 99))
        index.compact()
        assertEquals(listOf(-3, 2), index.query(floatArrayOf(1f, 0f)).map { it.id })
        index.close()
        index.close()
        refuses("handle") { index.query(floatArrayOf(1f, 0f)) }
        Index.open(folder.path, 2).use { assertEquals("Grüße", it.get(listOf(-3)).single().text) }
        folder.deleteRecursively()
    }

    @Test
    fun recordings_are_written_down() = inTime {
        val transcriber = Transcriber.load(bundle("hears"))
        val said = ArrayList<String>()
        val options = TranscribeOptions().apply { language = "de" }
        val transcript = transcriber.transcribe(tone(), options) { said += it }
        assertTrue(transcript.text.isNotEmpty())
        assertEquals(transcript.segments.map { it.text }, said)
        assertEquals("de", transcript.language)
        class Enough : RuntimeException()
        kotlin.test.assertFailsWith<Enough> { transcriber.transcribe(tone(), options) { throw Enough() } }
        assertTrue(transcriber.detectLanguage(tone()).language.isNotEmpty())
        refuses("unsupported") { transcriber.speech(tone()) }
        val file = Files.createTempFile("tone", ".wav").toFile()
        file.writeBytes(wav(tone()))
        assertEquals(transcript.text, transcriber.transcribe(file.path, options).text)
        file.delete()
        transcriber.close()
        refuses("handle") { transcriber.transcribe(tone()) }
    }

    @Test
    fun a_recording_is_stopped_with_its_coroutine() = inTime {
        Transcriber.load(bundle("hears")).use { transcriber ->
            val piece = tone()
            val sound = ShortArray(16_000 * 200) { piece[it % piece.size] }
            val whole = measureTime { transcriber.transcribe(sound) }
            // Also one that has not begun yet.
            for (wait in listOf(0L, 0L, 1L, 50L)) {
                val jobs = List(2) { launch(kotlinx.coroutines.Dispatchers.Default) { transcriber.transcribe(sound) } }
                delay(wait)
                jobs.forEach { it.cancel() }
                val stopped = measureTime { jobs.forEach { it.join() } }
                assertTrue(stopped < whole / 2, "stopped behind $stopped, and a whole one takes $whole")
            }
            assertTrue(transcriber.transcribe(tone()).text.isNotEmpty(), "what comes later is not stopped")
        }
    }

    @Test
    fun live_speech_is_heard_piece_by_piece() = inTime {
        org.junit.jupiter.api.Assumptions.assumeTrue(System.getenv("CACTUS_TEST_NO_LIVE") == null)
        Transcriber.load(bundle("hears")).use { transcriber ->
            val options = LiveOptions().apply {
                vad = bundle("vad")
                language = "zh"
                minChunkSeconds = 0.1
                silenceSeconds = 0.2
                maxSegmentSeconds = 1.0
            }
            fun heard(live: LiveTranscription, push: (ShortArray) -> Heard): String = live.use {
                val text = StringBuilder()
                for (from in 0 until tone().size step 16_000) text.append(push(tone().copyOfRange(from, from + 16_000)).confirmed)
                text.append(live.finishBlocking().confirmed).toString()
            }
            val first = transcriber.live(options)
            val copied = heard(first) { first.pushBlocking(it) }
            val second = transcriber.live(options)
            val direct = heard(second) { samples ->
                val buffer = ByteBuffer.allocateDirect(2 * samples.size).order(ByteOrder.LITTLE_ENDIAN)
                buffer.asShortBuffer().put(samples)
                second.pushBlocking(buffer)
            }
            assertEquals(copied, direct)
            refuses("handle") { first.push(tone()) }
            val left = transcriber.live(options)
            left.push(tone(), 0, 8000)
            refuses("argument") { left.push(tone(), 5, 4) }
            left.close()
            left.close()
            refuses("handle") { left.push(tone()) }
        }
        Transcriber.load(bundle("vad")).use { detector ->
            detector.speech(tone()).spans.forEach { assertTrue(it.start < it.end) }
            refuses("unsupported") { detector.transcribe(tone()) }
        }
    }

    private fun wav(samples: ShortArray): ByteArray {
        val buffer = ByteBuffer.allocate(44 + 2 * samples.size).order(ByteOrder.LITTLE_ENDIAN)
        buffer.put("RIFF".toByteArray()).putInt(36 + 2 * samples.size).put("WAVEfmt ".toByteArray()).putInt(16)
        buffer.putShort(1).putShort(1).putInt(16_000).putInt(32_000).putShort(2).putShort(16)
        buffer.put("data".toByteArray()).putInt(2 * samples.size)
        samples.forEach { buffer.putShort(it) }
        return buffer.array()
    }

    @Test
    fun documents_are_asked() = inTime {
        val folder = Files.createTempDirectory("documents").toFile()
        folder.resolve("a.txt").writeText("The cactus stores water in its stem.")
        folder.resolve("b.txt").writeText("The kettle is on the stove.")
        Documents.open(bundle("embeds"), folder.path).use { documents ->
            val pieces = documents.query("cactus water", 1)
            assertEquals(1, pieces.size)
            assertTrue(pieces[0].content.isNotEmpty() && pieces[0].source.endsWith(".txt"))
        }
        folder.deleteRecursively()
    }
}
