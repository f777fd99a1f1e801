@file:JvmName("Overhead")

package dev.cactusengine.overhead

import com.sun.management.ThreadMXBean
import dev.cactusengine.Event
import dev.cactusengine.Model
import dev.cactusengine.request
import java.lang.management.ManagementFactory
import kotlinx.coroutines.runBlocking
import kotlin.system.exitProcess

/** At 200 tokens a second a token takes 5,000 microseconds, of which 2 % may be the SDK's. */
private const val MOST_MICROS = 100.0

private val threads = ManagementFactory.getThreadMXBean() as ThreadMXBean

/** CPU time of all threads of Java. Those of the library are none. */
private fun cpuMicros(): Double = threads.getThreadCpuTime(threads.allThreadIds).filter { it > 0 }.sum() / 1000.0

/** CPU time of the SDK for each event of a stream: `Overhead BUNDLE`. */
fun main(args: Array<String>) = runBlocking {
    Model.load(args[0]) { contextTokens = 1024; this.threads = 1 }.use { model ->
        val asked = request { prompt("Count."); maxTokens = 900; temperature = 0.0; set("ignore_eos", true) }
        suspend fun measured(): Pair<Double, Int> {
            val before = cpuMicros()
            var events = 0
            model.stream(asked).collect { if (it is Event.Text) events++ }
            return cpuMicros() - before to events
        }
        repeat(12) { measured() }
        val all = List(6) { measured() }
        val micros = all.sumOf { it.first } / all.sumOf { it.second }
        println("%.1f microseconds of CPU for each event, %d events; at most %.0f".format(micros, all.sumOf { it.second }, MOST_MICROS))
        if (micros > MOST_MICROS) exitProcess(1)
    }
}
