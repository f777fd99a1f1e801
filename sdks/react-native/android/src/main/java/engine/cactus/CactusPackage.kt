package engine.cactus

import com.facebook.react.BaseReactPackage
import com.facebook.react.bridge.NativeModule
import com.facebook.react.bridge.ReactApplicationContext
import com.facebook.react.module.model.ReactModuleInfo
import com.facebook.react.module.model.ReactModuleInfoProvider

/** Found by autolinking. */
class CactusPackage : BaseReactPackage() {
    override fun getModule(name: String, context: ReactApplicationContext): NativeModule? =
        if (name == CactusModule.NAME) CactusModule(context) else null

    override fun getReactModuleInfoProvider() = ReactModuleInfoProvider {
        val name = CactusModule.NAME
        mapOf(name to ReactModuleInfo(name, name, false, false, false, true))
    }
}
