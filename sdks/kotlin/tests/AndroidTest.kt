package dev.cactusengine

import android.content.ComponentCallbacks2
import android.content.Context
import android.net.Uri
import android.os.Build
import android.os.PowerManager
import dev.cactusengine.android.CactusAndroid
import dev.cactusengine.android.ModelImport
import dev.cactusengine.android.load
import java.io.File
import java.io.IOException
import java.nio.file.Files
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch
import kotlin.test.AfterTest
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertNull
import kotlin.test.assertTrue

/** With stand-ins for Android's classes: what it does with them, not what Android does. */
class AndroidTest {
    private val folder: File = Files.createTempDirectory("android").toFile()
    private val context = Context().apply { noBackup = folder }

    @AfterTest
    fun clean() {
        folder.deleteRecursively()
        Build.VERSION.SDK_INT = 34
    }

    private suspend fun cached(model: Model): Int = model.respond(brief("a prompt that is kept for later, ".repeat(5))).usage.cachedTokens

    @Test
    fun a_shortage_of_memory_makes_models_forget() = inTime {
        chat().use { model ->
            cached(model)
            assertTrue(cached(model) > 0)
            val watch = CactusAndroid.watchMemory(context)
            val callback = context.callbacks.single() as ComponentCallbacks2
            callback.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_UI_HIDDEN)
            assertTrue(cached(model) > 0)
            callback.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_BACKGROUND)
            assertEquals(0, cached(model))
            watch.close()
            assertTrue(context.callbacks.isEmpty())
        }
    }

    @Test
    fun heat_takes_threads() = inTime {
        val power = PowerManager()
        context.services[Context.POWER_SERVICE] = power
        val model = Model.load(bundle("chat")) { threads = 4; decodeThreads = 4 }
        fun threads() = model.info.json["threads"].int
        val watch = CactusAndroid.watchHeat(context, model)
        assertEquals(4, threads())
        power.set(PowerManager.THERMAL_STATUS_MODERATE)
        assertEquals(2, threads())
        power.set(PowerManager.THERMAL_STATUS_SEVERE)
        assertEquals(1, threads())
        power.set(PowerManager.THERMAL_STATUS_NONE)
        assertEquals(4, threads())
        watch.close()
        assertTrue(power.listeners.isEmpty())
        CactusAndroid.watchHeat(context, model, 4, 4)
        model.close()
        power.set(PowerManager.THERMAL_STATUS_SEVERE)
        assertTrue(power.listeners.isEmpty(), "a model that is closed is not watched")
        Build.VERSION.SDK_INT = 28
        CactusAndroid.watchHeat(Context(), model, 4, 4).close()
    }

    @Test
    fun a_bundle_is_imported_whole_or_not_at_all() = inTime {
        val tree = Uri.parse("content://" + bundle("chat"))
        assertNull(ModelImport.find(context, "mine"))
        val place = ModelImport.bundle(context, tree, "mine")
        assertEquals(place, ModelImport.find(context, "mine"))
        Model.load(place.path) { threads = 1 }.use { assertTrue(it.respond(brief("x")).text.isNotEmpty()) }
        val both = List(2) { async(Dispatchers.Default) { ModelImport.bundle(context, tree, "both") } }.awaitAll()
        assertEquals(both[0], both[1])
        Cactus.checkBundle(both[0].path, verify = true).error?.let { throw it }
        context.assets.root = File(bundle("chat")).parentFile
        assertEquals("asset", ModelImport.asset(context, "chat", "asset").name)
        assertFailsWith<IOException> { ModelImport.asset(context, "nothing", "other") }
        val damaged = File(folder, "damaged")
        File(bundle("chat")).copyRecursively(damaged)
        damaged.walk().filter { it.isFile }.maxByOrNull { it.length() }!!.run {
            writeBytes(readBytes().also { it[it.size / 2] = (it[it.size / 2] + 1).toByte() })
        }
        assertFailsWith<CactusException> { ModelImport.bundle(context, Uri.parse("content://$damaged"), "bad") }
        assertNull(ModelImport.find(context, "bad"))
        refuses("argument") { ModelImport.find(context, "../x") }
        assertEquals(setOf("mine", "both", "asset"), CactusAndroid.modelsFolder(context).list()!!.toSet())
    }

    @Test
    fun a_gguf_file_is_loaded_by_its_descriptor() = inTime {
        val gguf = golden("gguf/qwen2.gguf")
        val options = LoadOptions().apply { cache = CactusAndroid.modelsFolder(context).path; offline = true; bits = 8; threads = 1 }
        val want = Model.load(gguf.path, options).use { it.respond(brief("x")).text }
        Model.load(context, Uri.parse("content://$gguf"), options).use { assertEquals(want, it.respond(brief("x")).text) }
        // A caller that is cancelled when the model is there gets none, and leaves none open.
        val open = Handle.OPEN.get()
        val loading = launch {
            Model.load(context, Uri.parse("content://$gguf"), options) { if (it.stage == "loading") coroutineContext.cancel() }
        }
        loading.join()
        assertTrue(loading.isCancelled)
        assertEquals(open, Handle.OPEN.get())
        val copy = ModelImport.file(context, Uri.parse("content://$gguf"), "copy.gguf")
        Model.load(copy.path, options).use { assertEquals(want, it.respond(brief("x")).text) }
    }
}
