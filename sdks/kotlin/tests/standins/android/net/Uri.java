package android.net;

import java.io.File;

public class Uri {
    private final String text;

    private Uri(String text) {
        this.text = text;
    }

    public static Uri parse(String text) {
        return new Uri(text);
    }

    public File file() {
        return new File(text.substring("content://".length()));
    }

    @Override
    public String toString() {
        return text;
    }
}
