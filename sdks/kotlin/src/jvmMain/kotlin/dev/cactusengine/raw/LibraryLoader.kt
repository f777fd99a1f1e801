package dev.cactusengine.raw

import dev.cactusengine.CactusCode
import dev.cactusengine.CactusException
import java.io.File

/**
 * Finds the two libraries: `libcactus_jni`, and `libcactus`, which it opens. First where it is told (the properties `cactus.jni.path` and
 * `cactus.lib.path`, or the environment's `CACTUS_JNI_PATH` and `CACTUS_LIB_PATH`), then inside of this package, then where the system
 * looks.
 */
internal object LibraryLoader {
    private val isAndroid = System.getProperty("java.vm.name") == "Dalvik"

    /** Loads the first, and gives the path of the second; `null` where the system finds it. */
    fun load(): String? {
        try {
            val jni = told("cactus.jni.path", "CACTUS_JNI_PATH") ?: packed("cactus_jni")
            @Suppress("UnsafeDynamicallyLoadedCode")
            if (jni != null) System.load(File(jni).absolutePath) else System.loadLibrary("cactus_jni")
        } catch (e: UnsatisfiedLinkError) {
            throw CactusException(CactusCode.NOT_IN_BUILD, "not_in_build", "libcactus_jni cannot be loaded: ${e.message}")
        } catch (e: NoSuchMethodError) {
            throw CactusException(
                CactusCode.NOT_IN_BUILD, "not_in_build",
                "libcactus_jni is not of the release of these classes: take both from one release of dev.cactus-engine:cactus-engine (${e.message})",
            )
        }
        return told("cactus.lib.path", "CACTUS_LIB_PATH") ?: packed("cactus")
    }

    private fun told(property: String, variable: String): String? =
        (System.getProperty(property) ?: System.getenv(variable))?.ifEmpty { null }

    /** A library inside of this package, written to a file of this process. */
    private fun packed(name: String): String? {
        if (isAndroid) return null
        val file = System.mapLibraryName(name)
        val stream = LibraryLoader::class.java.getResourceAsStream("/dev/cactusengine/native/${system()}/$file") ?: return null
        val folder = unpacked
        val path = File(folder, file)
        stream.use { from -> path.outputStream().use { from.copyTo(it) } }
        path.deleteOnExit()
        return path.absolutePath
    }

    private val unpacked: File by lazy {
        // Only this user may write there.
        java.nio.file.Files.createTempDirectory("cactus-engine").toFile().apply { deleteOnExit() }
    }

    private fun system(): String {
        val system = System.getProperty("os.name").orEmpty().lowercase()
        val processor = when (val name = System.getProperty("os.arch").orEmpty()) {
            "amd64", "x86_64" -> "x86_64"
            "aarch64", "arm64" -> "aarch64"
            else -> name
        }
        val name = if (system.startsWith("mac")) "macos" else if (system.startsWith("win")) "windows" else "linux"
        return "$name-$processor"
    }
}
