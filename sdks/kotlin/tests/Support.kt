package dev.cactusengine

import java.io.File
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.seconds

/** A bundle that `test.sh` has made of a tiny model with random weights. */
fun bundle(name: String): String {
    val folder = File(checkNotNull(System.getenv("CACTUS_TEST_BUNDLES")) { "CACTUS_TEST_BUNDLES: run test.sh" }, name)
    check(folder.isDirectory) { "$folder is missing: run test.sh" }
    return folder.path
}

fun golden(path: String): File = File(checkNotNull(System.getenv("CACTUS_GOLDEN")) { "CACTUS_GOLDEN: run test.sh" }, path)

/** Runs [block], and fails where it hangs. */
fun inTime(seconds: Int = 60, block: suspend CoroutineScope.() -> Unit): Unit = runBlocking { withTimeout(seconds.seconds, block) }

suspend fun chat(): Model = Model.load(bundle("chat")) {
    contextTokens = 60_000
    threads = 1
}

/** Tokens of what is not over before somebody cancels it, however fast the machine is. */
const val ENDLESS = 50_000

/** A request whose answer goes on to [most] tokens. */
fun endless(most: Int = ENDLESS): Request = request {
    prompt("Count.")
    maxTokens = most
    temperature = 0.0
    seed = 1
    set("ignore_eos", true)
}

fun brief(text: String): Request = request {
    user(text)
    maxTokens = 12
    temperature = 0.0
    seed = 7
}

inline fun refuses(kind: String, block: () -> Unit) {
    assertEquals(kind, assertFailsWith<CactusException> { block() }.kind)
}

/** The contract of streams. */
fun checked(events: List<Event>): List<Event> {
    assertEquals(1, events.count { it.isLast }, "$events")
    assertTrue(events.last().isLast, "$events")
    return events
}

/** Four seconds of a tone that rises. */
fun tone(): ShortArray = ShortArray(64_000) { (16_000.0 * kotlin.math.sin(it.toDouble() * it * 1e-5)).toInt().toShort() }
