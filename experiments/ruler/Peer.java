import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.List;
import software.amazon.event.ruler.Machine;

/** Drives event-ruler: commands are lines of JSON, and so are the answers. */
public class Peer {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        Machine machine = new Machine();
        List<String> events = List.of();
        int rules = 0;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = mapper.readTree(line);
            if (command.has("rules")) {
                List<String> patterns = Files.readAllLines(Path.of(command.get("rules").asText()));
                double limit = command.get("limit").asDouble();
                machine = new Machine();
                long before = memory();
                double begun = seconds();
                rules = 0;
                while (rules < patterns.size() && (rules % 10 > 0 || seconds() - begun < limit)) {
                    machine.addRule(Integer.toString(rules), patterns.get(rules));
                    rules++;
                }
                double taken = seconds() - begun;
                patterns = null;
                System.out.printf("{\"seconds\": %f, \"rules\": %d, \"bytes\": %d}%n", taken, rules, memory() - before);
            } else if (command.has("events")) {
                events = Files.readAllLines(Path.of(command.get("events").asText()));
                System.out.printf("{\"events\": %d}%n", events.size());
            } else {
                int first = command.get("first").asInt(), last = command.get("last").asInt();
                int[] counts = new int[rules];
                double begun = seconds();
                for (String event : events.subList(first, last)) {
                    for (String rule : machine.rulesForJSONEvent(event)) {
                        counts[Integer.parseInt(rule)]++;
                    }
                }
                double taken = seconds() - begun;
                StringBuilder found = new StringBuilder();
                for (int rule = 0; rule < rules; rule++) {
                    if (counts[rule] > 0) {
                        found.append(found.length() > 0 ? ", " : "").append('"').append(rule).append("\": ").append(counts[rule]);
                    }
                }
                System.out.printf("{\"seconds\": %f, \"counts\": {%s}}%n", taken, found);
            }
        }
    }

    /** CPU seconds of the process, all its threads. Java's own clock of them has steps of 10 ms. */
    private static double seconds() throws IOException {
        long nanoseconds = 0;
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                try {
                    nanoseconds += Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]);
                } catch (NoSuchFileException ended) {
                    // it has not run for long
                }
            }
        }
        return nanoseconds / 1e9;
    }

    private static long memory() {
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
