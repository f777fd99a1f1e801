package android.content.res;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;

/** A folder. */
public class AssetManager {
    public File root;

    public String[] list(String path) throws IOException {
        String[] found = new File(root, path).list();
        return found != null ? found : new String[0];
    }

    public InputStream open(String path) throws IOException {
        return new FileInputStream(new File(root, path));
    }
}
