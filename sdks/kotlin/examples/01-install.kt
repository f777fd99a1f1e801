@file:JvmName("Install")

package examples.install

import dev.cactusengine.Cactus
import kotlinx.coroutines.runBlocking

/** Says which library was found, and whether a bundle can be used with it. */
fun main(args: Array<String>) = runBlocking<Unit> {
    println("libcactus ${Cactus.version}, ABI ${Cactus.abiVersion}")
    val report = Cactus.checkBundle(args[0])
    println(if (report.isUsable) "${args[0]} can be used" else "${args[0]} cannot be used: ${report.error?.message}")
}
