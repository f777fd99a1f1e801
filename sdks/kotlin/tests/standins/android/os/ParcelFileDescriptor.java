package android.os;

import java.io.Closeable;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;

/** The descriptor of an open file. */
public class ParcelFileDescriptor implements Closeable {
    private final FileInputStream stream;
    private final int fd;

    public ParcelFileDescriptor(File file) throws FileNotFoundException {
        stream = new FileInputStream(file);
        fd = find(file);
    }

    public int getFd() {
        return fd;
    }

    @Override
    public void close() throws IOException {
        stream.close();
    }

    private static int find(File file) throws FileNotFoundException {
        File[] all = new File("/proc/self/fd").listFiles();
        for (File each : all == null ? new File[0] : all) {
            try {
                if (each.getCanonicalPath().equals(file.getCanonicalPath())) return Integer.parseInt(each.getName());
            } catch (IOException e) {
                // It was closed meanwhile.
            }
        }
        throw new FileNotFoundException(file.getPath());
    }
}
