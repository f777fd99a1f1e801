package dev.cactusengine

import java.io.File
import java.nio.file.Files
import java.util.concurrent.TimeUnit
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertTrue

/** A process loads the library once, so each case is a process. */
class LoaderTest {
    private fun said(vararg properties: String): String {
        val java = File(System.getProperty("java.home"), "bin/java").path
        val command = listOf(java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", System.getProperty("java.class.path")) +
            properties + "dev.cactusengine.LoaderTestKt"
        val process = ProcessBuilder(command).redirectErrorStream(true).apply {
            environment().remove("CACTUS_LIB_PATH")
            environment().remove("CACTUS_JNI_PATH")
        }.start()
        val text = process.inputStream.bufferedReader().readText()
        assertTrue(process.waitFor(60, TimeUnit.SECONDS))
        return text.trim().lines().last()
    }

    private fun fake(name: String) = File(System.getenv("CACTUS_FAKES"), "$name.so").path
    private val jni = "-Dcactus.jni.path=" + System.getProperty("cactus.jni.path")

    @Test
    fun a_library_that_does_not_fit_is_refused_and_the_old_side_is_named() {
        val newer = said(jni, "-Dcactus.lib.path=" + fake("newer"))
        assertTrue("has the ABI 99, and this SDK knows 1: the SDK is old, update dev.cactus-engine:cactus-engine" in newer, newer)
        val older = said(jni, "-Dcactus.lib.path=" + fake("older"))
        assertTrue("has the ABI 0, and this SDK knows 1: the library is old, update libcactus" in older, older)
        val lacking = said(jni, "-Dcactus.lib.path=" + fake("lacking"))
        assertTrue("has no function cactus_" in lacking && "the library is old, update libcactus" in lacking, lacking)
        val other = said(jni, "-Dcactus.lib.path=" + fake("other"))
        assertTrue("is no libcactus" in other, other)
        assertTrue("not_in_build: " in said(jni, "-Dcactus.lib.path=/nowhere/libcactus.so"))
        assertTrue("libcactus_jni cannot be loaded" in said("-Dcactus.jni.path=/nowhere/libcactus_jni.so"))
        assertTrue("libcactus_jni cannot be loaded" in said())
    }

    @Test
    fun libraries_inside_of_the_package_are_found() {
        val folder = Files.createTempDirectory("packed").toFile()
        val name = if (System.getProperty("os.arch") == "amd64") "linux-x86_64" else "linux-" + System.getProperty("os.arch")
        val native = File(folder, "dev/cactusengine/native/$name").apply { mkdirs() }
        File(System.getProperty("cactus.jni.path")).copyTo(File(native, "libcactus_jni.so"))
        File(System.getenv("CACTUS_LIB_PATH")).copyTo(File(native, "libcactus.so"))
        val path = System.getProperty("java.class.path")
        try {
            assertEquals("ABI 1", said("-cp", "$folder:$path"))
        } finally {
            folder.deleteRecursively()
        }
    }
}

fun main() {
    try {
        println("ABI ${Cactus.abiVersion}")
    } catch (e: CactusException) {
        println("${e.kind}: ${e.message}")
    }
}
