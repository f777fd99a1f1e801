package dev.cactusengine.android

import android.content.ComponentCallbacks2
import android.content.Context
import android.content.res.Configuration
import android.os.Build
import android.os.PowerManager
import dev.cactusengine.Cactus
import dev.cactusengine.CactusException
import dev.cactusengine.Model
import dev.cactusengine.get
import dev.cactusengine.int
import java.io.File
import java.util.concurrent.Executor

/** What an application on Android tells the library: memory, heat, and where models belong. */
public object CactusAndroid {
    /** The folder for models: it is kept, and not in the backups of the device. Give it as `LoadOptions.cache`, too. */
    @JvmStatic
    public fun modelsFolder(context: Context): File = File(context.noBackupFilesDir, "cactus").apply { mkdirs() }

    /** From now on a shortage of memory makes models forget earlier prompts. Close the result to end that. */
    @JvmStatic
    public fun watchMemory(context: Context): AutoCloseable {
        val application = context.applicationContext
        application.registerComponentCallbacks(MemoryWatch)
        return AutoCloseable { application.unregisterComponentCallbacks(MemoryWatch) }
    }

    /**
     * From now on [model] uses fewer threads while the device is hot: of [threads] for prompts and [decodeThreads] for generating, half
     * when the system throttles, and one when it throttles hard. Without these numbers, of those that it has now. Android tells since
     * API 29; before, nothing happens. Close the result to end that.
     */
    @JvmStatic
    @JvmOverloads
    public fun watchHeat(
        context: Context,
        model: Model,
        threads: Int = model.info.json["threads"].int ?: 1,
        decodeThreads: Int = model.info.json["decode_threads"].int ?: 1,
    ): AutoCloseable {
        if (Build.VERSION.SDK_INT < 29) return AutoCloseable {}
        val power = context.getSystemService(Context.POWER_SERVICE) as PowerManager
        return HeatWatch(power, model, threads, decodeThreads).apply { begin() }
    }
}

private object MemoryWatch : ComponentCallbacks2 {
    override fun onTrimMemory(level: Int) {
        // A screen that is hidden is no shortage.
        val isShort = level == ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW || level == ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL ||
            level >= ComponentCallbacks2.TRIM_MEMORY_BACKGROUND
        if (isShort) Cactus.memoryPressure()
    }

    @Deprecated("of an old Android")
    override fun onLowMemory(): Unit = Cactus.memoryPressure()

    override fun onConfigurationChanged(newConfig: Configuration) {}
}

/** A class of its own: an Android before API 29 cannot load it. */
private class HeatWatch(
    private val power: PowerManager,
    private val model: Model,
    private val threads: Int,
    private val decodeThreads: Int,
) : PowerManager.OnThermalStatusChangedListener, AutoCloseable {
    fun begin() {
        power.addThermalStatusListener(Executor { it.run() }, this)
        onThermalStatusChanged(power.currentThermalStatus)
    }

    override fun onThermalStatusChanged(status: Int) {
        val part = { most: Int ->
            when {
                status >= PowerManager.THERMAL_STATUS_SEVERE -> 1
                status >= PowerManager.THERMAL_STATUS_MODERATE -> maxOf(most / 2, 1)
                else -> most
            }
        }
        try {
            model.setThreads(part(threads), part(decodeThreads))
        } catch (e: CactusException) {
            if (!model.isClosed) throw e
            close()
        }
    }

    override fun close(): Unit = power.removeThermalStatusListener(this)
}
