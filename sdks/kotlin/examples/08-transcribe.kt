@file:JvmName("Transcribe")

package examples.transcribe

import dev.cactusengine.LiveOptions
import dev.cactusengine.Transcriber
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlinx.coroutines.runBlocking

/** Writes down a recording, and then the same as if it were spoken now: MODEL, RECORDING, and a bundle that finds speech. */
fun main(args: Array<String>) = runBlocking<Unit> {
    val (bundle, recording, detector) = args
    Transcriber.load(bundle).use { transcriber ->
        val transcript = transcriber.transcribe(recording)
        for (segment in transcript.segments) println("%.1f–%.1f s: %s".format(segment.start, segment.end, segment.text))

        // A microphone gives such pieces: mono, 16 bits, 16,000 a second.
        val bytes = ByteBuffer.wrap(File(recording).readBytes(), 44, 64_000).order(ByteOrder.LITTLE_ENDIAN)
        val samples = ShortArray(32_000).also { bytes.asShortBuffer().get(it) }
        transcriber.live(LiveOptions().apply { vad = detector }).use { live ->
            for (from in samples.indices step 1_600) {
                val heard = live.push(samples, from, from + 1_600)
                if (heard.confirmed.isNotEmpty()) println("certain: ${heard.confirmed}, maybe: ${heard.pending}")
            }
            println("certain: ${live.finish().confirmed}")
        }
    }
}
