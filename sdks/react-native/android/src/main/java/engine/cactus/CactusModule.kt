package engine.cactus

import android.content.ComponentCallbacks2
import android.content.res.Configuration
import com.facebook.react.bridge.ReactApplicationContext
import com.facebook.react.module.annotations.ReactModule
import com.facebook.react.turbomodule.core.interfaces.BindingsInstallerHolder
import com.facebook.react.turbomodule.core.interfaces.TurboModuleWithJSIBindings
import java.io.File
import kotlin.concurrent.thread

/** Puts the functions of the library into the runtime of JavaScript. */
@ReactModule(name = CactusModule.NAME)
class CactusModule(private val context: ReactApplicationContext) :
    NativeCactusSpec(context), TurboModuleWithJSIBindings, ComponentCallbacks2 {

    init {
        context.registerComponentCallbacks(this)
    }

    override fun invalidate() {
        context.unregisterComponentCallbacks(this)
        super.invalidate()
    }

    /** No backup takes gigabytes that can be had again. */
    override fun modelFolder(): String = File(context.noBackupFilesDir, "cactus").apply { mkdirs() }.path

    override fun onTrimMemory(level: Int) {
        if (level >= ComponentCallbacks2.TRIM_MEMORY_BACKGROUND) thread { memoryIsShort() }
    }

    @Deprecated("Deprecated in Java")
    override fun onLowMemory() {
        thread { memoryIsShort() }
    }

    override fun onConfigurationChanged(configuration: Configuration) = Unit

    external override fun getBindingsInstaller(): BindingsInstallerHolder

    private external fun memoryIsShort()

    companion object {
        const val NAME = "Cactus"

        init {
            System.loadLibrary("cactus")
            System.loadLibrary("cactus_jsi")
        }
    }
}
