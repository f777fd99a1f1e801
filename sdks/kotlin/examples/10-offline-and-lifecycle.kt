@file:JvmName("Lifecycle")

package examples.lifecycle

import dev.cactusengine.Cactus
import dev.cactusengine.CactusException
import dev.cactusengine.Model
import dev.cactusengine.request
import kotlinx.coroutines.runBlocking

/** A model that is on this machine, and what an application does while it lives. On Android, `CactusAndroid` does the middle part. */
fun main(args: Array<String>) = runBlocking<Unit> {
    // Nothing is downloaded: a model that is not here is an error.
    try {
        Model.load("nobody/nothing") { offline = true }
    } catch (e: CactusException) {
        println("not here: ${e.kind}")
    }

    val model = Model.load(args[0]) { offline = true }
    val asked = request {
        user("hello")
        maxTokens = 8
    }
    model.respond(asked)

    // Memory is short: earlier prompts are forgotten, and answers stay the same.
    Cactus.memoryPressure()
    // It gets hot: fewer threads, the same answers.
    model.setThreads(threads = 1, decodeThreads = 1)
    println(model.respond(asked).usage.cachedTokens)

    // It waits for what is under way. Afterwards every call says that it was closed.
    model.closeAndWait()
    try {
        model.respond(asked)
    } catch (e: CactusException) {
        println("closed: ${e.kind}")
    }
}
