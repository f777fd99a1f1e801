@file:JvmName("CactusJava")

package dev.cactusengine

import java.io.File
import java.nio.ByteBuffer
import java.util.concurrent.CompletableFuture
import kotlinx.coroutines.runBlocking

/** Does [work] on a thread of this SDK: `CactusJava.supply(() -> model.respondBlocking("Hello"))`. */
public fun <T> supply(work: () -> T): CompletableFuture<T> {
    val future = CompletableFuture<T>()
    platform.execute {
        try {
            future.complete(work())
        } catch (e: Throwable) {
            future.completeExceptionally(e)
        }
    }
    return future
}

/** As [Responder.respondWithTools], on this thread. */
@JvmOverloads
public fun respondWithTools(responder: Responder, request: Request, tools: List<Tool>, most: Int = 8): Answer =
    runBlocking { responder.respondWithTools(request, tools, most) }

/** A tool of a function that blocks: for Java. */
public fun toolOf(name: String, description: String, parameters: JsonObject, run: BlockingTool): Tool =
    tool(name, description, parameters) { arguments -> away { run.call(arguments) } }

/** See [toolOf]. */
public fun interface BlockingTool {
    public fun call(arguments: JsonObject): String
}

/** A picture in a file, which is read now. */
public fun ContentBuilder.image(file: File): ContentBuilder = image(file.readBytes())

/** Sound in a file, which is read now. */
public fun ContentBuilder.audio(file: File): ContentBuilder = audio(file.readBytes())

/**
 * Takes the next samples between position and limit of a direct buffer, without a copy: 16 bits, little-endian, as `AudioRecord.read`
 * fills it. It blocks this thread while it computes, and a coroutine that is cancelled while it uses the transcriber stops it, too.
 */
public fun LiveTranscription.pushBlocking(samples: ByteBuffer): Heard = heard { number ->
    (library as dev.cactusengine.raw.JniLibrary).livePush(number, samples)
}
