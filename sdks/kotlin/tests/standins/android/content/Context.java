package android.content;

import android.content.res.AssetManager;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What tests look into. */
public class Context {
    public static final String POWER_SERVICE = "power";

    public File noBackup;
    public final List<ComponentCallbacks> callbacks = new ArrayList<>();
    public final Map<String, Object> services = new HashMap<>();
    private final ContentResolver resolver = new ContentResolver();
    private final AssetManager assets = new AssetManager();

    public Context getApplicationContext() {
        return this;
    }

    public File getNoBackupFilesDir() {
        return noBackup;
    }

    public void registerComponentCallbacks(ComponentCallbacks callback) {
        callbacks.add(callback);
    }

    public void unregisterComponentCallbacks(ComponentCallbacks callback) {
        callbacks.remove(callback);
    }

    public Object getSystemService(String name) {
        return services.get(name);
    }

    public ContentResolver getContentResolver() {
        return resolver;
    }

    public AssetManager getAssets() {
        return assets;
    }
}
