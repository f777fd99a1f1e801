import java.nio.file.*;
import java.util.*;

/**
 * Runs the Kotlin compiler several times in one process, which is half as slow as several processes. Each argument is a file with
 * arguments, one a line.
 */
public class Compile {
    public static void main(String[] files) throws Exception {
        var compiler = Class.forName("org.jetbrains.kotlin.cli.jvm.K2JVMCompiler").getDeclaredConstructor().newInstance();
        var exec = compiler.getClass().getMethod("exec", java.io.PrintStream.class, String[].class);
        for (String file : files) {
            var arguments = Files.readAllLines(Path.of(file)).toArray(new String[0]);
            var code = exec.invoke(compiler, System.err, arguments).toString();
            if (!code.equals("OK")) {
                System.err.println(file + ": " + code);
                System.exit(1);
            }
        }
    }
}
