package android.database;

import java.io.File;

/** Document id, name and type of files. */
public class FileCursor implements Cursor {
    private final File[] files;
    private int at = -1;

    public FileCursor(File[] files) {
        this.files = files;
    }

    @Override
    public boolean moveToNext() {
        return ++at < files.length;
    }

    @Override
    public String getString(int column) {
        File file = files[at];
        if (column == 0) return file.getPath();
        if (column == 1) return file.getName();
        return file.isDirectory() ? "vnd.android.document/directory" : "application/octet-stream";
    }

    @Override
    public void close() {}
}
