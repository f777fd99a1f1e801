import java.nio.file.*;
import java.util.*;

/**
 * Runs Kotlin's compilers several times in one process, which is half as slow as several processes. Each argument is a file: the
 * compiler (jvm.K2JVMCompiler or js.K2JSCompiler), and then its arguments, one a line.
 */
public class Compile {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            var arguments = new ArrayList<>(Files.readAllLines(Path.of(file)));
            var compiler = Class.forName("org.jetbrains.kotlin.cli." + arguments.remove(0)).getDeclaredConstructor().newInstance();
            var exec = compiler.getClass().getMethod("exec", java.io.PrintStream.class, String[].class);
            var code = exec.invoke(compiler, System.err, arguments.toArray(new String[0])).toString();
            if (!code.equals("OK")) {
                System.err.println(file + ": " + code);
                System.exit(1);
            }
        }
    }
}
