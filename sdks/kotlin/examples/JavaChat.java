import dev.cactusengine.ActiveRequest;
import dev.cactusengine.CactusException;
import dev.cactusengine.CactusJava;
import dev.cactusengine.Event;
import dev.cactusengine.JsonObject;
import dev.cactusengine.LoadOptions;
import dev.cactusengine.Model;
import dev.cactusengine.Request;
import dev.cactusengine.RequestBuilder;
import dev.cactusengine.Session;
import dev.cactusengine.Tool;
import java.util.List;

/** The same from Java: functions that end in Blocking, and futures. */
public final class JavaChat {
    public static void main(String[] args) {
        LoadOptions options = new LoadOptions();
        options.setContextTokens(512);
        try (Model model = Model.loadBlocking(args[0], options); Session session = model.sessionBlocking()) {
            RequestBuilder builder = new RequestBuilder().user("Why is the sky blue?");
            builder.setMaxTokens(20);
            Request asked = builder.build();

            try (ActiveRequest active = session.startBlocking(asked)) {
                for (Event event = active.nextBlocking(); event != null; event = active.nextBlocking()) {
                    if (event instanceof Event.Text) System.out.print(((Event.Text) event).getText());
                }
            }
            System.out.println();
            System.out.println(CactusJava.supply(() -> model.respondBlocking(asked).getText()).join());

            JsonObject schema = JsonObject.parse("{\"type\": \"object\", \"properties\": {}}");
            Tool tool = CactusJava.toolOf("time", "The time now", schema, arguments -> "noon");
            System.out.println(CactusJava.respondWithTools(model, asked, List.of(tool), 2).getFinishReason());
        } catch (CactusException e) {
            System.err.println(e.getKind() + ": " + e.getMessage());
            System.exit(1);
        }
    }
}
